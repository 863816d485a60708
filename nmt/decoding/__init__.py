"""Search and translation."""
