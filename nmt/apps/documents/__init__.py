"""Translate documents: everything in a file that is not text stays as it is."""
