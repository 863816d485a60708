"""Train all variants of a file with several seeds, and tabulate the results with significance."""
