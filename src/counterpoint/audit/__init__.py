"""What data hold before anything is trained on them, and the settings that follow from it."""

from counterpoint.core.callable_package import call_as

call_as(__name__, "auditing.audit")
