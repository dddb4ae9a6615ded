"""Export a run to files that other programs open; each is opened again and compared before it is called done."""

from counterpoint.core.catalogues import call_as

call_as(__name__, "exporting.export")
