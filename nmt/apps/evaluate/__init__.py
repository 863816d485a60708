"""Compare systems: scores with intervals, parts of a test set, metrics of other programs."""
