"""The run folder: paths, lock, checkpoints, logs, results, and how a training starts in it."""
