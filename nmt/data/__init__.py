"""From raw text to batches."""
