"""One thin module per command."""
