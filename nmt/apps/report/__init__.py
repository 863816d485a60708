"""The report of one or several runs: a self-contained HTML page with figures."""
