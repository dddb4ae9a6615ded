"""Tables of features on disk: computed once for an encoder, data and layer, known by a hash, verified when reused."""

# N samples, D features

import contextlib
import hashlib
import os
import shutil
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from counterpoint.core import __version__
from counterpoint.core.errors import RunError
from counterpoint.core.files import TEMPORARY, dead_siblings, read_sealed, temporary_sibling, write_sealed
from counterpoint.core.stored_rows import StoredRows, new_array, row_slices
from counterpoint.core.thread_parts import side_by_side
from counterpoint.core.user_objects import CUSTOM
from counterpoint.data.manifest import cache_folder
from counterpoint.nn.trained import CARD, Encoder

HASHED_ROWS = 4096  # that one thread hashes at a time, when a table is verified
IN_MEMORY = 1 << 29  # bytes of a table up to which it is read as a whole
MOST_BYTES = 20 << 30  # of all tables; the one unused for longest goes first
Write = Callable[[int, Mapping[str, np.ndarray]], None]  # takes the first row of a part, and its arrays by name
Compute = Callable[[Sequence[str], Write], None]  # writes all rows of some arrays, part by part


def key_of(encoder: Encoder) -> str | None:
    """Hash of all that an encoder's features depend on besides the samples; None if unknown.

    It is unknown for a user's own module, whose code may have changed.
    """
    if encoder.card.architecture == CUSTOM:
        return None
    return hashlib.blake2b(f"{weights_hash(encoder)} {software_of(encoder)}".encode(), digest_size=16).hexdigest()


def weights_hash(encoder: Encoder) -> str:
    """Hash of an encoder's architecture, preparation of its input, and weights."""
    digest = hashlib.blake2b(CARD.dump_json(encoder.card), digest_size=16)
    for name, value in sorted(encoder.state_dict().items()):
        digest.update(name.encode())
        digest.update(value.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def software_of(encoder: Encoder) -> str:
    """Versions on which an encoder's features may depend, and the kind of device."""
    versions = [f"counterpoint {__version__}", f"torch {torch.__version__}"]
    library = encoder.card.architecture.split(":", 1)[0]
    with contextlib.suppress(PackageNotFoundError):  # an architecture of our own
        versions.append(f"{library} {version(library)}")
    return ", ".join([*versions, encoder.device.type])


@dataclass
class Tables:
    """Arrays that are filled part by part, in memory or in a folder of the cache.

    Attributes:
        num_rows: number of rows of each array.
        folder: folder of the arrays' files; None keeps the arrays in memory.
        files: stack that closes the files that were opened.
    """

    num_rows: int
    folder: Path | None
    arrays: dict[str, np.ndarray] = field(default_factory=dict)
    _writers: dict[str, Callable[[int, np.ndarray], None]] = field(default_factory=dict)
    files: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def write(self, first: int, parts: Mapping[str, np.ndarray]) -> None:
        """Write some rows; several threads may call it."""
        for name, part in parts.items():
            with self._lock:  # the first part says how wide the rows are
                if name not in self._writers:
                    self._writers[name] = self._begin(name, part)
            self._writers[name](first, part)

    def _begin(self, name: str, part: np.ndarray) -> Callable[[int, np.ndarray], None]:
        shape = (self.num_rows, *part.shape[1:])
        if self.folder is not None:
            return self.files.enter_context(new_array(_file(self.folder, name), shape, part.dtype))
        array = self.arrays[name] = np.empty(shape, part.dtype)

        def fill(first: int, part: np.ndarray) -> None:
            array[first : first + len(part)] = part

        return fill


def stored_or_computed(
    key: str | None, names: Sequence[str], num_rows: int, compute: Compute
) -> dict[str, Tensor | StoredRows | np.ndarray]:
    """Arrays by name: from the cache if they are there and undamaged, else computed and written to it.

    Args:
        key: text that says what the arrays depend on; None keeps nothing in the cache.
        names: names of the arrays, each (num_rows, ...).
        num_rows: number of rows of each array.
        compute: function that writes the arrays that it is asked for, part by part.

    Raises:
        RunError: they cannot be written.
    """
    base = cache_folder() / "features"
    if key is not None:
        with contextlib.suppress(OSError):  # then arrays stay in memory
            base.mkdir(parents=True, exist_ok=True)
    if key is None or not os.access(base, os.W_OK):
        tables = Tables(num_rows, None)
        compute(names, tables.write)
        return {name: _as_rows(tables.arrays[name]) for name in names}
    target = base / hashlib.sha256(key.encode()).hexdigest()[:32]
    missing = [name for name in names if not _is_sound(target, name)]
    if missing:
        _compute_into(target, missing, num_rows, compute)
        _prune(base, keep=target)
    with contextlib.suppress(OSError):  # the folder is another user's
        os.utime(target)  # used now
    return {name: _opened(_file(target, name)) for name in names}


def _compute_into(target: Path, names: Sequence[str], num_rows: int, compute: Compute) -> None:
    """Fill a folder beside the target, then move each array there, and then its hash."""
    temporary = temporary_sibling(target, TEMPORARY)
    for leftover in dead_siblings(target, TEMPORARY):
        shutil.rmtree(leftover, ignore_errors=True)
    try:
        temporary.mkdir(parents=True)
        tables = Tables(num_rows, temporary)
        with tables.files:
            compute(names, tables.write)
        target.mkdir(exist_ok=True)
        for name in names:
            seal = {"hash": _content_hash(_file(temporary, name))}
            os.replace(_file(temporary, name), _file(target, name))
            write_sealed(_seal(target, name), seal)
    except (OSError, RunError) as error:
        cause = error if isinstance(error, OSError) else error.__cause__
        if not isinstance(cause, OSError):
            raise
        raise RunError(
            f"cannot keep features in {target.parent}: {cause.strerror or cause}; set COUNTERPOINT_CACHE to a folder "
            "with room, or give --no-cache"
        ) from None
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _file(folder: Path, name: str) -> Path:
    """Path of an array, by a hash of its name; names of layers have dots, and may be anything in a user's module."""
    return folder / f"{hashlib.sha256(name.encode()).hexdigest()[:16]}.npy"


def _seal(folder: Path, name: str) -> Path:
    return _file(folder, name).with_suffix(".json")


def _is_sound(folder: Path, name: str) -> bool:
    try:
        return read_sealed(_seal(folder, name), must_be_sealed=True).get("hash") == _content_hash(_file(folder, name))
    except (RunError, OSError, ValueError, EOFError):  # NumPy raises the last for an empty file
        return False


def _content_hash(path: Path) -> str:
    """Hash of the hashes of an array's parts, which threads compute side by side."""
    array = np.load(path, mmap_mode="r")
    parts = side_by_side(
        lambda rows: hashlib.blake2b(np.ascontiguousarray(array[rows]).data, digest_size=16).digest(),
        row_slices(len(array), HASHED_ROWS),
    )
    return hashlib.blake2b(f"{array.dtype} {array.shape}".encode() + b"".join(parts), digest_size=16).hexdigest()


def _opened(path: Path) -> Tensor | StoredRows | np.ndarray:
    """Open an array; features stay on disk if they are large."""
    array = np.load(path, mmap_mode="r")
    return StoredRows(path) if array.dtype == np.float32 and array.nbytes > IN_MEMORY else _as_rows(np.array(array))


def _as_rows(array: np.ndarray) -> Tensor | np.ndarray:
    return torch.from_numpy(array) if array.dtype == np.float32 else array


def _prune(base: Path, *, keep: Path) -> None:
    """Remove the least recently used tables until the rest take at most ``MOST_BYTES``."""
    with contextlib.suppress(OSError):  # another process may remove tables at the same time
        folders = sorted((path for path in base.iterdir() if path.is_dir()), key=lambda path: path.stat().st_mtime)
        sizes = {path: sum(file.stat().st_size for file in path.iterdir()) for path in folders}
        excess = sum(sizes.values()) - MOST_BYTES
        for path in folders:
            if excess > 0 and path != keep:
                shutil.rmtree(path, ignore_errors=True)
                excess -= sizes[path]
