"""From run folders to one self-contained HTML page."""

from counterpoint.core.catalogues import call_as

call_as(__name__, "reporting.report")
