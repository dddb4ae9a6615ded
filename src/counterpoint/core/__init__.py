"""Types, argument checks, numerics, seeding and the run folder: the base of every other layer."""

from importlib.metadata import version

from counterpoint.core.supported import check_supported

check_supported()

__version__ = version("counterpoint")
