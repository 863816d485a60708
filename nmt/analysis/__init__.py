"""Observe a training while it runs, and draw the papers' figures from its run folder."""
