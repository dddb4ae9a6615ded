"""What data hold before anything is trained on them, and the settings that follow from it.

The package is callable: the public verb ``cp.audit(data)`` and the package ``counterpoint.audit`` share a name, and
importing a module of the package binds that name to it. Calling it calls ``auditing.audit``.
"""

import sys
from types import ModuleType
from typing import Any


class _AuditPackage(ModuleType):
    """A package that can be called as the verb it is named after."""

    def __call__(self, *args: Any, **options: Any) -> Any:
        """Look at data; see ``counterpoint.audit.auditing.audit``."""
        from counterpoint.audit.auditing import audit  # deferred: auditing is a module of this very package

        return audit(*args, **options)


sys.modules[__name__].__class__ = _AuditPackage
