"""Language models: blocks of a text, masks, and noise."""
