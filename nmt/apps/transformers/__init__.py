"""nmt-convert: a run folder from a model of transformers."""
