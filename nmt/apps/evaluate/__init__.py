"""Compare systems: scores with intervals, by length, frequency and document, and commands of others."""
