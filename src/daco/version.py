"""The version of the package: a module of its own, so that every room can name it."""

__version__ = "0.1.0"
