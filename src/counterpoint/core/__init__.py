"""Types, argument checks, numerics, seeding and the run folder: what every other layer stands on."""

from importlib.metadata import version

from counterpoint.core.supported import check_supported

check_supported()

__version__ = version("counterpoint")
