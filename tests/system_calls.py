"""Stands between Python and the system: every call on files is seen before it happens, and may go otherwise."""

import builtins
import io
import os
from collections.abc import Callable
from typing import Any

NAMES = ("open", "write", "fsync", "close", "rename", "replace", "mkdir", "pwrite", "ftruncate", "unlink", "rmdir")
CALLS = tuple(name for name in NAMES if hasattr(os, name))  # Windows has no pwrite
READ = "open to read"  # through io.open; os.open has one name whatever it is for
Handler = Callable[[str, Callable[..., Any], tuple[Any, ...], dict[str, Any]], Any]


def intercept(handle: Handler, put: Callable[[Any, str, Any], object] = setattr) -> None:
    """Let a function answer the calls of this process.

    Args:
        handle: called with a call's name, the function itself and its arguments; what it returns or raises is the
            call's answer.
        put: sets an attribute of a module; pytest's ``monkeypatch.setattr`` takes it back.
    """

    def wrapped(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *args, **options: handle(name, original, args, options)

    for name in CALLS:
        put(os, name, wrapped(name, getattr(os, name)))
    writing, reading = wrapped("open", io.open), wrapped(READ, io.open)

    def open_file(file: Any, mode: str = "r", *args: Any, **options: Any) -> Any:
        return (writing if set(mode) & set("wax+") else reading)(file, mode, *args, **options)

    put(io, "open", open_file)
    put(builtins, "open", open_file)
