"""The transformer and its parts."""
