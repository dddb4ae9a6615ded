"""From run folders to one self-contained HTML page.

The package is callable: the public verb ``cp.report(runs)`` and the package ``counterpoint.report`` share a name,
and importing a module of the package binds that name to it. Calling it calls ``page.report``.
"""

import sys
from types import ModuleType
from typing import Any


class _ReportPackage(ModuleType):
    """A package that can be called as the verb it is named after."""

    def __call__(self, *args: Any, **options: Any) -> Any:
        """Write a report; see ``counterpoint.report.page.report``."""
        from counterpoint.report.page import report  # deferred: page is a module of this very package

        return report(*args, **options)


sys.modules[__name__].__class__ = _ReportPackage
