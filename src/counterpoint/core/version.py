"""The package's version, read from its metadata."""

from importlib.metadata import version

__version__ = version("counterpoint")
