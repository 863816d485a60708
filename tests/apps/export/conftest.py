"""The trained run."""

from tests.trained import trained as trained
