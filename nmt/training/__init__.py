"""Schedules, loss and the training loop."""
