"""Make a parallel corpus from a text and its translations by a model."""
