"""A file that a verb is asked to write: refused before the work, and never laid over another one unasked."""

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
