"""From a run to files that other programs open, each opened again and compared before it is called done.

The package is callable: the public verb ``cp.export(run)`` and the package ``counterpoint.export`` share a name, and
importing a module of the package binds that name to it. Calling it calls ``exporting.export``.
"""

import sys
from types import ModuleType
from typing import Any


class _ExportPackage(ModuleType):
    """A package that can be called as the verb it is named after."""

    def __call__(self, *args: Any, **options: Any) -> Any:
        """Export a run; see ``counterpoint.export.exporting.export``."""
        from counterpoint.export.exporting import export  # deferred: exporting is a module of this very package

        return export(*args, **options)


sys.modules[__name__].__class__ = _ExportPackage
