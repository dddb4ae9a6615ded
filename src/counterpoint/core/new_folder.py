"""A folder that appears whole or not at all: filled under another name beside its place, then renamed."""

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path

from counterpoint.core.errors import RunError
from counterpoint.core.files import TEMPORARY, UNTOUCHED, dead_siblings, flush_to_disk, read_sealed, temporary_sibling
from counterpoint.core.rundir import EXPORT_RECORD

# Ends of hidden names: what is half made, or half removed; and an earlier folder, which is always whole.
NEW, OLD = f".new{TEMPORARY}", f".old{TEMPORARY}"


def files_in(folder: Path) -> list[str]:
    """Every file below a folder by its name from there, sorted."""
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if not path.is_dir())


def check_target(target: Path, *, overwrite: bool) -> bool:
    """Require that an export may be made there.

    Returns:
        Whether an earlier one is to be replaced.

    Raises:
        RunError: something stands there that is not ours, or that may not be replaced, or its folder does not exist.
    """
    if not target.parent.is_dir():
        raise RunError(f"the folder {target.parent} does not exist; make it first or choose another --out")
    settle(target)
    is_free = target.is_dir() and not target.is_symlink() and not any(target.iterdir())
    if is_free or not (target.exists() or target.is_symlink()):
        return False
    if target.is_symlink() or not (target / EXPORT_RECORD).is_file():
        raise RunError(f"{target} exists and is no export, so it will not be touched; choose another --out")
    if not overwrite:
        raise RunError(f"{target} exists; replace it with --overwrite, or choose another --out")
    ours = {EXPORT_RECORD, *read_sealed(target / EXPORT_RECORD, must_be_sealed=True).get("sha256s", {})}
    foreign = [name for name in files_in(target) if name not in ours]
    if foreign:
        raise RunError(
            f"{target} holds {foreign[0]}, which export did not write, so it will not be replaced; choose another --out"
        )
    return True


@contextlib.contextmanager
def new_folder(target: Path, earlier: bool, *, flush: bool = True) -> Iterator[Path]:
    """A folder to fill; it becomes ``target`` when the block ends, and is removed where the block fails.

    Args:
        target: as ``check_target`` found it.
        earlier: an export stands there, and is replaced.
        flush: wait until all of it is on the disk; not needed where a reader sees by hashes what a power cut took.

    Raises:
        RunError: the disk is full, read-only or otherwise refuses.
    """
    folder, aside = (temporary_sibling(target, end) for end in (NEW, OLD))
    try:
        earlier = settle(target) or earlier
        folder.mkdir()
        yield folder
        for name in files_in(folder) if flush else ():
            flush_to_disk(folder / name)
        flush_to_disk(folder)
        if earlier:
            target.rename(aside)
        folder.rename(target)
        flush_to_disk(target.parent)
        _clear_away(target, folder, aside)
    except OSError as error:
        raise RunError(f"cannot write {target}: {error.strerror or error}; {UNTOUCHED}") from error
    finally:  # also where a signal came while it was cleared away
        _clear_away(target, folder, aside)


def settle(target: Path) -> bool:
    """Bring in order what killed processes left beside a place: an earlier folder gets its name back, the rest goes.

    Returns:
        Whether an earlier folder that had lost its name stands there again.
    """
    is_back = False
    for aside in dead_siblings(target, OLD):
        with contextlib.suppress(OSError):  # another process may be at the same
            is_replaced = target.is_dir() and any(target.iterdir())  # else it is the only copy
            aside.rename(aside.with_name(aside.name.removesuffix(OLD) + NEW) if is_replaced else target)
            is_back = is_back or not is_replaced
    for folder in dead_siblings(target, NEW):
        shutil.rmtree(folder, ignore_errors=True)
    return is_back


def _clear_away(target: Path, folder: Path, aside: Path) -> None:
    """Remove what is half made, and an earlier folder unless it is all that is left: then it gets its name back."""
    with contextlib.suppress(OSError):
        aside.rename(folder if target.exists() else target)
    shutil.rmtree(folder, ignore_errors=True)
