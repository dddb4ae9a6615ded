"""A file that a verb is asked to write: refused before the work, and never laid over another one unasked."""

import os
import tempfile
from collections.abc import Collection
from pathlib import Path

from counterpoint.core.errors import RunError, UsageError


def check_new_file(path: Path, suffixes: Collection[str], *, overwrite: bool, flag: str = "--out") -> None:
    """Require a name of a known kind, in a folder that exists, at which nothing stands unless it may be replaced.

    Raises:
        UsageError: another suffix.
        RunError: it exists, or its folder does not.
    """
    if path.suffix not in suffixes:
        raise UsageError(f"{flag} must end in {', '.join(suffixes)}, got {str(path)!r}")
    if path.is_dir() or (path.exists() and not overwrite):
        remedy = f"choose another {flag}" if path.is_dir() else f"replace it with --overwrite, or choose another {flag}"
        raise RunError(f"{path} exists; {remedy}")
    if not path.parent.is_dir():
        raise RunError(f"the folder {path.parent} does not exist; make it first or choose another {flag}")


def check_folder(folder: Path) -> None:
    """Require that a folder exists or can be made, before time is spent on what goes into it.

    Raises:
        RunError: a file stands there or above, or nothing may be written.
    """
    # lexists: a dangling link stands in the way of a new folder as well
    nearest = next(place for place in (folder, *folder.absolute().parents) if os.path.lexists(place))
    if not nearest.is_dir():
        raise RunError(f"cannot write into {folder}: {nearest} is a file; choose another --out")
    try:
        with tempfile.TemporaryFile(dir=nearest):  # what permissions promise, some file systems refuse
            pass
    except OSError as error:
        reason = f"{nearest} takes no new files ({error.strerror or error})"
        raise RunError(f"cannot write into {folder}: {reason}; choose another --out") from error
