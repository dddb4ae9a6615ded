"""``python -m counterpoint``."""

from counterpoint.cli.main import entry

entry()
