"""The user's own files, one module for each format."""
