"""The model folder and the run folder: model.json, checkpoints, manifest, lock, log."""
