"""Beam search, sampling and scoring, and the Translator of a model."""
