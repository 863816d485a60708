"""The version of nmt, which all packages may import."""

__version__ = "0.3.0"
