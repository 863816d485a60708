"""The run folder: lock, checkpoints, logs, processes."""
