"""NMT training toolkit for low-resource translation."""

__version__ = "0.1.0"
