"""Words for people."""

from __future__ import annotations


def quantity(number: float, noun: str, form: str = ",") -> str:
    """Return a formatted number with its noun, in the plural unless it is 1: ``2 pairs``."""
    return f"{number:{form}} {noun}{'' if number == 1 else 's'}"
