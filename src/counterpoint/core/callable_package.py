"""Packages that can be called as the verb they are named after, such as ``counterpoint.export``.

The public verb ``cp.export(run)`` and the package ``counterpoint.export`` share a name, and importing a module of the
package binds that name to it. Loads without torch.
"""

import sys
from importlib import import_module
from types import ModuleType
from typing import Any


def call_as(package: str, function: str) -> None:
    """Let a package be called.

    Args:
        package: its name.
        function: what a call runs, as ``module.name`` in the package; the module is imported at the first call.
    """
    module, name = f"{package}.{function}".rsplit(".", 1)

    class CallablePackage(ModuleType):
        def __call__(self, *args: Any, **options: Any) -> Any:
            return getattr(import_module(module), name)(*args, **options)

    sys.modules[package].__class__ = CallablePackage
