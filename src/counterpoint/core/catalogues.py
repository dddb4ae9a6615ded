"""Values that the modules of a folder assign to one name, so that a new module is found without a list.

Reading a module as text loads nothing. Importing most of them would load torch, which takes a second: a package that is
called as the verb it is named after, such as ``counterpoint.export``, imports its module at the first call.
"""

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

PACKAGE = Path(__file__).parents[1]


@dataclass(frozen=True)
class Held:
    """The value that one module assigns to the name.

    Attributes:
        module: full name of the module.
        tree: code of the module.
        value: code that the name is assigned.
    """

    module: str
    tree: ast.Module
    value: ast.expr


def held(folder: str, name: str) -> Iterator[Held]:
    """Read the modules of a folder that assign a name at top level, in the order of their files.

    Args:
        folder: folder of the package, such as ``data/formats``, or one module, such as ``nn/encoders.py``.
        name: name that is assigned, such as ``CATALOGUE``.

    >>> [each.module for each in held("diagnostics", "METRICS")][0]
    'counterpoint.diagnostics.alignment'
    """
    place = PACKAGE / folder
    for path in [place] if place.suffix else sorted(place.glob("[!_]*.py")):
        text = path.read_text(encoding="utf-8")
        if f"\n{name}" not in text:  # parsing takes longer than reading
            continue
        tree = ast.parse(text)
        module = ".".join(("counterpoint", *path.relative_to(PACKAGE).with_suffix("").parts))
        for statement in tree.body:
            if not isinstance(statement, ast.Assign | ast.AnnAssign) or statement.value is None:
                continue
            targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
            if name in (ast.unparse(target).strip("()") for target in targets):
                yield Held(module, tree, statement.value)


def loaded(folder: str, name: str) -> list[Any]:
    """Import the modules of a folder that assign a name at top level, and return its value in each."""
    return [getattr(import_module(catalogue.module), name) for catalogue in held(folder, name)]


def call_as(package: str, function: str) -> None:
    """Let a package be called: the public verb ``cp.export`` and the package share a name, which an import binds to it.

    Args:
        package: name of the package.
        function: function to call, as ``module.name`` in the package; its module is imported at the first call.
    """
    module, name = f"{package}.{function}".rsplit(".", 1)

    class CallablePackage(ModuleType):
        def __call__(self, *args: Any, **options: Any) -> Any:
            return getattr(import_module(module), name)(*args, **options)

    sys.modules[package].__class__ = CallablePackage
