"""Code of the user's own: what a flag of this command line names as ``package.module:name`` is imported, and no other.

A name in a file (settings, recipes, run folders), in an environment variable or in a text of Python is never imported:
it only says what was used. ``load_part`` alone imports, and takes ``FlagText`` alone, which no reader of files makes.
"""

import hashlib
import inspect
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, Generic, TypeVar

from counterpoint.core.errors import UsageError, first_line

CUSTOM = "custom"  # name of such a part in settings; a run folder never says where its code lies

Part = TypeVar("Part")


class FlagText(str):
    """Text from a flag of this command line."""

    __slots__ = ()


def from_flag(value: Any) -> Any:
    """Mark a flag's value that may name code.

    >>> type(from_flag("my_losses:make")).__name__, type(from_flag("infonce")).__name__
    ('FlagText', 'str')
    """
    return FlagText(value) if is_origin(value) else value


@dataclass(frozen=True)
class LoadedPart(Generic[Part]):
    """A part that a function named by the user made.

    Attributes:
        part: the part.
        origin: its ``name`` and the ``sha256`` of the file that holds it, for the record; empty if there is none.
    """

    part: Part
    origin: Mapping[str, str]


def is_origin(name: Any) -> bool:
    """Tell whether a name says where something is made rather than which entry of a catalogue it is."""
    return isinstance(name, str) and ":" in name


def load_part(
    setting: str, name: str, accept: Callable[[Any], Part], options: Mapping[str, Any] | None = None
) -> LoadedPart[Part]:
    """Import the function that a flag of this command line names, call it, and take what it returns.

    Args:
        setting: setting that has the name, such as ``loss.name``; errors begin with it.
        name: ``package.module:name`` of a class or function, marked as ``FlagText``; modules of the current folder are
            found, too.
        accept: function that makes a part of what is returned, or raises ``UsageError``.
        options: keyword arguments of the call.

    Raises:
        UsageError: no flag names it, there is no such thing, it cannot be called with these options, or it gives no
            such part.
    """
    if not isinstance(name, FlagText):
        raise UsageError(
            f"{setting} {name} names code, which is imported only where a flag of this command names it; if you trust "
            f"it, repeat it as --{setting} {name} (in Python, pass the object itself)"
        )
    # A command has the folder of its script on the path, and not the current one as `python -m` has.
    sys.path.insert(0, str(Path.cwd()))
    try:
        make: Callable[..., Any] = resolve_name(name)
    except (ImportError, AttributeError, ValueError) as error:
        raise UsageError(f"{setting} {name}: {first_line(error)}; give it as package.module:name") from None
    finally:
        sys.path.pop(0)
    try:
        part = accept(make(**(options or {})))
    except (TypeError, ValueError) as error:
        raise UsageError(f"{setting} {name}: {first_line(error)}") from None
    # An object that is called, such as a functools.partial, has no file of its own.
    file = inspect.getsourcefile(make) if inspect.isroutine(make) or inspect.isclass(make) else None
    return LoadedPart(
        part, {"name": str(name), "sha256": hashlib.sha256(Path(file).read_bytes()).hexdigest() if file else ""}
    )
