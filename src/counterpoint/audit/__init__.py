"""Checks of data before training, and settings that follow from them."""

from counterpoint.core.catalogues import call_as

call_as(__name__, "auditing.audit")
