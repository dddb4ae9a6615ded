"""Types, argument checks, numerics, seeding and the run folder: what every other layer stands on."""

from importlib.metadata import version

__version__ = version("counterpoint")
