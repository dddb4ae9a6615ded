"""Files and folders that are either whole or absent: write to a temporary name, flush to disk, rename."""

import contextlib
import hashlib
import json
import math
import os
import re
import secrets
import shutil
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from counterpoint.core.errors import RunError, StoreError, UsageError
from counterpoint.core.operating_system import host_name, is_running, open_to_flush, open_unlinked
from counterpoint.core.user_files import Address, check_parent, open_regular, read_text

UNTOUCHED = "the earlier content is untouched"
TEMPORARY = ".tmp"  # in the names of files that are not finished
# Ends of hidden names of folders: of one half made or half removed, and of an earlier one, which is complete.
NEW, OLD = f".new{TEMPORARY}", f".old{TEMPORARY}"
EXPORT_RECORD = "export.json"  # in every folder that `export` wrote
LEFT_BEHIND = frozenset({"__pycache__", ".DS_Store", "Thumbs.db"})
SEAL = "sha256"  # key of the hash in a sealed JSON file, and first word of the last line of sealed text


@dataclass(frozen=True)
class Seal:
    """Identity of a file: its length in bytes and the SHA-256 of its content."""

    size: int
    sha256: str


def seal_of(path: Path) -> Seal:
    """Length and hash of a file."""
    with open_regular(path) as stream:
        digest = hashlib.file_digest(stream, "sha256")
        return Seal(stream.tell(), digest.hexdigest())


def sha256_of(path: Path) -> str:
    """Hex digest of a file's bytes."""
    return seal_of(path).sha256


def flush_to_disk(path: Path) -> None:
    """Fsync a file or a folder (a rename lasts only once its folder is flushed)."""
    handle = open_to_flush(path)
    if handle is None:
        return
    try:
        with _named(path):
            os.fsync(handle)
    finally:
        os.close(handle)


def write_file(path: Path, pieces: Iterable[bytes | memoryview]) -> Seal:
    """Write pieces one after the other and hash them; not flushed to disk yet.

    Args:
        path: file to write; it is replaced if it exists.
        pieces: content of the file.

    Returns:
        Length and hash of the intended content, so that a disk that changes it does not go unnoticed.

    Raises:
        OSError: the disk is full, read-only or otherwise refuses.
    """
    digest, size = hashlib.sha256(), 0
    handle = open_unlinked(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    try:
        with _named(path):
            for piece in pieces:
                content = memoryview(piece).cast("B")
                digest.update(content)
                size += len(content)
                _write_all(handle, content)
    finally:
        os.close(handle)
    return Seal(size, digest.hexdigest())


def write_atomically(path: Path, write: Callable[[Path], object]) -> None:
    """Let ``write`` fill a temporary sibling, then rename it over ``path``.

    Raises:
        RunError: the disk is full, read-only or otherwise refuses; ``path`` is then as it was, unless the disk refuses
            to confirm a rename that it does not take back either: then the text says so.
    """
    if isinstance(path, Address):
        _upload(path, write)
        return
    is_there, is_renamed = os.path.lexists(path), False
    end = f"{TEMPORARY}{path.suffix}"  # the suffix stays at the end, as writers of pictures and arrays go by it
    temporary = temporary_sibling(path, end)
    try:
        for leftover in dead_siblings(path, end):
            with contextlib.suppress(OSError):
                leftover.unlink()
        # No other process can have put a link under a name that is drawn at random, and O_EXCL proves it.
        os.close(open_unlinked(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL))
        write(temporary)
        # Before the rename: after a power cut the name must not point to a file without content.
        flush_to_disk(temporary)
        temporary.replace(path)
        is_renamed = True
        flush_to_disk(path.parent)
    except OSError as error:
        if is_renamed and not is_there:  # it must not be used, and it would block the next attempt
            with contextlib.suppress(OSError):
                path.unlink()
        has_changed = is_renamed and os.path.lexists(path)
        fate = "it has its new content, which the disk does not confirm" if has_changed else UNTOUCHED
        raise RunError(f"cannot write {path}: {error.strerror or error}; {fate}") from error
    finally:
        with contextlib.suppress(OSError):  # where nothing could be written, nothing can be removed
            temporary.unlink()


def _upload(path: Address, write: Callable[[Path], object]) -> None:
    """Let ``write`` fill a file of this machine, and put it at an address, where it appears at once."""
    try:
        with tempfile.TemporaryDirectory() as folder:
            write(Path(folder) / path.name)
            path.upload(Path(folder) / path.name)
    except OSError as error:
        raise RunError(f"cannot write {path}: {error.strerror or error}; {UNTOUCHED}") from error
    except StoreError as error:
        raise RunError(f"cannot write {error}; {UNTOUCHED}") from error


def temporary_sibling(path: Path, end: str) -> Path:
    """A hidden name beside a path, drawn at random, that says which process of which machine writes there."""
    return path.with_name(f".{path.name}.{_machine()}-{os.getpid()}-{secrets.token_hex(4)}{end}")


def dead_siblings(path: Path, end: str) -> list[Path]:
    """Files beside a path under names of ``temporary_sibling``, of processes of this machine that are gone."""
    start = f".{path.name}.{_machine()}-"
    try:
        names = [name for name in os.listdir(path.parent) if name.startswith(start)]
    except OSError:  # the next write there reports it
        return []
    pattern = re.compile(rf"{re.escape(start)}(\d+)-[0-9a-f]{{8}}{re.escape(end)}", re.ASCII)
    owned = {name: match for name in names if (match := pattern.fullmatch(name))}
    return [path.with_name(name) for name, match in owned.items() if not is_running(int(match[1]))]


def write_text(path: Path, text: str) -> None:
    """Write UTF-8 text atomically; bytes of a name that are not UTF-8 are escaped, as JSON reads them back."""
    write_atomically(path, lambda temporary: write_file(temporary, [text.encode(errors="backslashreplace")]))


def write_json(path: Path, value: Any) -> None:
    """Write strict JSON (NaN becomes null) atomically."""
    write_text(path, json.dumps(finite_or_null(value), indent=1, ensure_ascii=False, allow_nan=False) + "\n")


def write_sealed(path: Path, values: Mapping[str, Any]) -> None:
    """Write a JSON object together with the hash of its values, so that no later change goes unnoticed."""
    plain = finite_or_null(dict(values))
    write_json(path, {**plain, SEAL: _values_hash(plain)})


def read_sealed(path: Path, *, must_be_sealed: bool = False) -> dict[str, Any]:
    """Read a JSON object that ``write_sealed`` wrote.

    Args:
        path: the file.
        must_be_sealed: true if it is not of version 0.1.0, which wrote no hash.

    Raises:
        RunError: the file is missing, holds no JSON object, or was changed after it was written.
    """
    values = read_json(path)
    if not isinstance(values, dict):
        raise RunError(f"{path} is damaged: it holds no named values")
    seal = values.pop(SEAL, None)
    if (seal is not None or must_be_sealed) and seal != _values_hash(values):
        raise RunError(f"{path} is damaged: it was changed after it was written (it does not match its own hash)")
    return values


def sealed_text(text: str) -> str:
    r"""Text with the hash of it as a last line, which is a comment in YAML.

    >>> sealed_text("a: 1\n")[:24]
    'a: 1\n# sha256 37b128c59f'
    """
    return f"{text}# {SEAL} {hashlib.sha256(text.encode()).hexdigest()}\n"


def with_run(text: str, run_id: str | None) -> str:
    """Settings as text that begins with the id of their run, which YAML reads as a comment."""
    return text if run_id is None else f"# run {run_id}\n{text}"


def run_named_in(text: str) -> str | None:
    r"""The id that ``with_run`` wrote; None if there is none.

    >>> run_named_in(with_run("a: 1\n", "5c90")), run_named_in("a: 1\n")
    ('5c90', None)
    """
    match = re.match(r"# run (\w+)$", text, flags=re.MULTILINE)
    return match[1] if match else None


def is_unchanged(text: str, *, must_be_sealed: bool) -> bool:
    """Tell whether sealed text is as it was written.

    Args:
        text: sealed text, with its hash as the last line.
        must_be_sealed: true if it is not of version 0.1.0, which wrote no hash.
    """
    above, mark, _ = text.rpartition(f"# {SEAL} ")
    return text == sealed_text(above) if mark else not must_be_sealed


def remove_leftovers(folder: Path, names: Iterable[str]) -> None:
    """Remove what killed processes left behind while they wrote these files; only their one writer may call it."""
    for name in names:
        for leftover in folder.glob(f".{name}.*{TEMPORARY}*"):
            with contextlib.suppress(OSError):
                leftover.unlink()


def read_json(path: Path) -> Any:
    """Read a JSON file.

    Raises:
        RunError: the file is missing or not JSON.
    """
    try:
        return json.loads(read_text(path))
    except FileNotFoundError:
        raise RunError(f"{path} is missing") from None
    except (OSError, ValueError, RecursionError) as error:
        raise RunError(f"{path} is damaged: {error}") from None


def finite_or_null(value: Any) -> Any:
    """Replace NaN and infinities by None in plain data, since JSON cannot hold them."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: finite_or_null(child) for key, child in value.items()}
    if isinstance(value, list | tuple):
        return [finite_or_null(child) for child in value]
    return value


def check_new_file(path: Path, suffixes: Collection[str], *, overwrite: bool | None, flag: str = "--out") -> None:
    """Require a name of a known kind, in a folder that exists, which is free unless it may be replaced.

    Args:
        path: the file.
        suffixes: suffixes of the known kinds.
        overwrite: true if it may be replaced; None if the verb replaces nothing.
        flag: the flag that names it.

    Raises:
        UsageError: another suffix.
        RunError: it exists, or its folder does not.
    """
    if path.suffix not in suffixes:
        raise UsageError(f"{flag} must end in {', '.join(suffixes)}, got {str(path)!r}")
    if path.is_dir() or (path.exists() and not overwrite):
        replace = "" if path.is_dir() or overwrite is None else "replace it with --overwrite, or "
        raise RunError(f"{path} exists; {replace}choose another {flag}")
    check_parent(path, flag=flag)


def files_in(folder: Path) -> list[str]:
    """Every file below a folder by its name from there, sorted; none that Python or a file browser leaves behind."""
    names = (path.relative_to(folder).as_posix() for path in folder.rglob("*") if not path.is_dir())
    return sorted(name for name in names if not LEFT_BEHIND.intersection(name.split("/")))


def check_target(target: Path, *, overwrite: bool) -> bool:
    """Require that an export may be written to a place.

    Returns:
        True if an earlier export is to be replaced.

    Raises:
        RunError: something is there that is not ours, or that may not be replaced, or its folder does not exist.
    """
    check_parent(target)
    settle(target)
    is_free = target.is_dir() and not target.is_symlink() and not any(target.iterdir())
    if is_free or not (target.exists() or target.is_symlink()):
        return False
    if target.is_symlink() or not (target / EXPORT_RECORD).is_file():
        raise RunError(f"{target} exists and is not an export, so it will not be touched; choose another --out")
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
def new_folder(target: Path, earlier: bool) -> Iterator[Path]:
    """A folder to fill; it becomes ``target`` when the block ends, and is removed if the block fails.

    Args:
        target: place that ``check_target`` accepted.
        earlier: true if an export is there, which is replaced.

    Raises:
        RunError: the disk is full, read-only or otherwise refuses.
    """
    folder, aside = (temporary_sibling(target, end) for end in (NEW, OLD))
    try:
        earlier = settle(target) or earlier
        folder.mkdir()
        yield folder
        for name in files_in(folder):
            flush_to_disk(folder / name)
        flush_to_disk(folder)
        if earlier:
            target.rename(aside)
        elif target.is_dir():
            target.rmdir()  # Windows renames onto no folder, not even an empty one
        folder.rename(target)
        flush_to_disk(target.parent)
        _clear_away(target, folder, aside)
    except OSError as error:
        raise RunError(f"cannot write {target}: {error.strerror or error}; {UNTOUCHED}") from error
    finally:  # also where a signal came while it was cleared away
        _clear_away(target, folder, aside)


def settle(target: Path) -> bool:
    """Clear up what killed processes left beside a place: an earlier folder gets its name back, the rest goes.

    Returns:
        True if an earlier folder that had lost its name is there again.
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
    """Remove a half-made folder, and an earlier one unless it is all that is left: then it gets its name back."""
    with contextlib.suppress(OSError):
        aside.rename(folder if target.exists() else target)
    shutil.rmtree(folder, ignore_errors=True)


def _machine() -> str:
    return hashlib.blake2b(host_name().encode(errors="surrogateescape"), digest_size=4).hexdigest()


def _values_hash(values: Mapping[str, Any]) -> str:
    """Hash of plain values, whatever their order and layout in the file."""
    # Through JSON once: tuples become lists and numbers as keys become text, as they will be when they are read.
    plain = json.loads(json.dumps(values))
    return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()


@contextlib.contextmanager
def _named(path: Path) -> Iterator[None]:
    """Add a file's name to errors of calls on its handle, which do not say which file failed."""
    try:
        yield
    except OSError as error:
        error.filename = error.filename or str(path)
        raise


def _write_all(handle: int, content: memoryview) -> None:
    while content:  # a call may take a part only
        content = content[os.write(handle, content) :]
