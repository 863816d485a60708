"""Public corpora, one module each; ``data.download`` of a recipe names one by its file name."""
