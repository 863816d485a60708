"""Fixtures of the trainer, whose speed is measured."""

from tests.training.conftest import recipe, start

__all__ = ["recipe", "start"]
