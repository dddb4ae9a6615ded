"""The index of a source: one row per sample with its place, size and hash, kept in a cache folder as JSON.

A manifest is written whole or not at all, begins with the hash of what follows, and is rebuilt when it cannot be
trusted. Reading it never executes anything.
"""

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Literal

from counterpoint.core.errors import RunError
from counterpoint.core.files import write_atomically
from counterpoint.core.user_files import Address, Stamp, absolute, as_path

FORMAT = "counterpoint manifest"
VERSION = 2
Status = Literal["ok", "bad"]


@dataclass(frozen=True)
class Row:
    """One sample.

    Attributes:
        id: position in the source, which batches name; None when the sample is left out.
        name: the sample's name.
        file: absolute path of the file that holds it.
        offset: place of its first byte in the file.
        size: number of its bytes.
        hash: hash of these bytes.
        label: its label in the data.
        status: ok, or bad (cannot be decoded).
        reason: reason why it is left out.
        height: pixels, after the EXIF rotation; 0 if unknown.
        width: pixels.
    """

    id: int | None
    name: str
    file: str
    offset: int
    size: int
    hash: str
    label: str | None
    status: Status
    reason: str
    height: int
    width: int


@dataclass(frozen=True)
class Remark:
    """Something in a file that is not a sample; lost ones were samples as far as one can tell, and count as bad."""

    file: str
    name: str
    reason: str
    is_lost: bool


@dataclass(frozen=True)
class Manifest:
    """Rows in the source's order, the stamps of the files they lie in, and remarks on these files.

    A manifest that the cache does not hold is empty; its complaint says what was wrong with the file that is there.
    """

    rows: tuple[Row, ...] = ()
    stamps: Mapping[str, Stamp] = field(default_factory=dict)
    remarks: tuple[Remark, ...] = ()
    complaint: str = ""


COLUMNS = tuple(field.name for field in fields(Row))


def cache_folder() -> Path:
    """Folder of manifests: COUNTERPOINT_CACHE, else XDG_CACHE_HOME/counterpoint, else ~/.cache/counterpoint."""
    own, shared = os.environ.get("COUNTERPOINT_CACHE"), os.environ.get("XDG_CACHE_HOME")
    if own:
        return Path(os.path.expanduser(own))
    return (Path(shared) if shared else Path(os.path.expanduser("~/.cache"))) / "counterpoint"


def manifest_path(name: str, files: Sequence[Path], variant: str = "") -> Path:
    """Path of the manifest of a source in the cache: it follows the source's name, place and way of reading."""
    is_path = isinstance(as_path(name), Address) or os.path.exists(name)
    # A named set below another root is another set of files.
    above = "" if is_path else os.path.commonpath([os.path.abspath(file.parent) for file in files])
    identity = absolute(name) if is_path else name
    # fsencode: names of files need not be valid UTF-8. No path holds \0, so that parts stay apart.
    key = hashlib.sha256(os.fsencode(f"{identity}\0{above}\0{variant}")).hexdigest()[:32]
    return cache_folder() / "manifests" / f"{key}.json"


def stamp_of(file: str | Path) -> Stamp:
    """Size and time of a file; -1 for one that is not there."""
    file = as_path(file) if isinstance(file, str) else file
    try:
        if isinstance(file, Address):
            return file.stamped()
        state = os.stat(file)
        return (state.st_size, state.st_mtime_ns)
    except OSError:  # a file that comes back later has another stamp, and is read
        return (-1, -1)


def read_manifest(path: Path) -> Manifest:
    """Read a manifest from the cache; one that is damaged or foreign is a complaint, never an error."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return Manifest()
    except OSError as error:
        return Manifest(complaint=f"the earlier index cannot be read ({error.strerror or error})")
    try:
        seal, _, body = content.partition(b"\n")
        # Before anything else is believed: one flipped bit anywhere is found here.
        if seal.decode() != hashlib.sha256(body).hexdigest():
            raise ValueError("hash")
        index = json.loads(body)
        if (index["format"], index["version"], index["columns"]) != (FORMAT, VERSION, list(COLUMNS)):
            raise ValueError("header")
        stamps = {file: (size, mtime_ns) for file, size, mtime_ns in index["files"]}
        files = tuple(stamps)
        values = (dict(zip(COLUMNS, row, strict=True)) for row in index["rows"])
        rows = tuple(Row(**{**row, "file": files[row["file"]]}) for row in values)
        remarks = tuple(Remark(files[file], *rest) for file, *rest in index["remarks"])
        return Manifest(rows, stamps, remarks)
    except (ValueError, TypeError, KeyError, IndexError, RecursionError):
        return Manifest(complaint="the earlier index was damaged or foreign, and was rebuilt")


def write_manifest(path: Path, manifest: Manifest) -> str:
    """Write a manifest to the cache; return a complaint if the cache cannot be written, else nothing."""
    rows = manifest.rows
    # A file is given by its number: a shard of 10,000 samples has its path written once.
    numbers = {file: number for number, file in enumerate(manifest.stamps)}
    content = {
        "format": FORMAT,
        "version": VERSION,
        "columns": COLUMNS,
        "files": [(file, *stamp) for file, stamp in manifest.stamps.items()],
        "rows": [[numbers[row.file] if name == "file" else getattr(row, name) for name in COLUMNS] for row in rows],
        "remarks": [(numbers[remark.file], remark.name, remark.reason, remark.is_lost) for remark in manifest.remarks],
    }
    # ASCII escapes: a surrogate from a file name that is no UTF-8 survives.
    body = json.dumps(content, separators=(",", ":")).encode()
    sealed = hashlib.sha256(body).hexdigest().encode() + b"\n" + body
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # Two processes may index the same data at once: each replaces the whole file, and none reads half of one.
        write_atomically(path, lambda temporary: temporary.write_bytes(sealed))
    except (OSError, RunError) as error:
        reason = error.strerror if isinstance(error, OSError) else (error.__cause__ or error)
        return f"the index could not be kept in {path.parent} ({reason}), so it is built at every start"
    return ""
