"""One module per public corpus: fetch, check, split, write."""
