"""Sources of samples: the embedded digits, a folder of images, an array or an array file."""

import hashlib
import os
import zipfile
import zlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from counterpoint.core.array_layout import Kind, to_bytes, to_samples
from counterpoint.core.errors import DataError, UsageError, first_line, nearest
from counterpoint.core.settings import SourceSettings
from counterpoint.data.image_files import ImageSize, Skipped, decode_square, list_files, map_files, read_size
from counterpoint.data.label_files import Labels, labels_from_array, labels_from_csv, labels_from_folders, number_labels
from counterpoint.data.stores import FileStore, MemoryStore, Store

SAMPLE_KEYS = ("images", "x", "X", "data", "samples", "arr_0")
LABEL_KEYS = ("labels", "y", "targets")
MEMORY_BUDGET_BYTES = 2 << 30  # a folder whose decoded images fit is kept in memory
LARGEST_AUTO_SIDE = 64
NPZ_ERRORS = (OSError, ValueError, EOFError, KeyError, NotImplementedError, zipfile.BadZipFile, zlib.error)
ARRAY = "array"


@dataclass(frozen=True)
class Source:
    """Samples with what is known about them.

    Attributes:
        name: how the user named it.
        kind: images or vectors.
        store: the samples by position.
        shape: one sample's shape: (c, h, w) or (d,).
        labels: class numbers (n,), -1 where unknown, or None.
        class_names: name of each class number.
        sample_names: one name per sample.
        skipped: files left out, with reasons.
        fingerprint: hash of the content, to notice that it changed.
        notes: choices made while opening, for the run's record.
    """

    name: str
    kind: Kind
    store: Store
    shape: tuple[int, ...]
    labels: Tensor | None
    class_names: tuple[str, ...]
    sample_names: tuple[str, ...]
    skipped: tuple[Skipped, ...]
    fingerprint: str
    notes: Mapping[str, str]

    def __len__(self) -> int:
        return len(self.store)


class Progress(Protocol):
    """Reports progress over a known number of items; see ``engine.progress``."""

    def __call__(self, title: str, total: int) -> AbstractContextManager[Callable[[], None]]:
        """Open a bar; the callable it yields advances it by one."""
        ...


def open_source(data: Any, settings: SourceSettings, *, labels: Any = None, progress: Progress) -> Source:
    """Open whatever the user gave as data.

    Args:
        data: a name of ``CATALOGUE``, a path (folder, .npy, .npz), a NumPy array or a tensor.
        settings: labels, image size, share of bad files allowed.
        labels: one label per sample, for arrays in memory.
        progress: shows how far a folder has been read.

    Raises:
        UsageError: no data, an unknown name, or a path that does not exist.
        DataError: nothing usable in it.
    """
    if data is None:
        raise UsageError(
            "no data given; use --data digits (embedded), --data FOLDER of images, or --data FILE.npy / FILE.npz"
        )
    if not isinstance(data, str | Path):
        if settings.labels not in ("auto", "none"):
            raise UsageError("source.labels goes with named data; give labels= beside an array")
        return _from_samples(ARRAY, to_samples(data), labels)
    if labels is not None:
        raise UsageError("labels= goes with an array in memory; for named data use source.labels (a .csv or .npy file)")
    if str(data) in CATALOGUE:
        return CATALOGUE[str(data)](settings)
    path = Path(os.path.expanduser(data))  # unlike Path.expanduser, leaves unknown users alone
    if not path.exists():
        raise UsageError(
            f"no such file or folder: {str(data)!r}{nearest(str(data), CATALOGUE)}; data can be digits, a folder "
            f"of images, .npy or .npz"
        )
    if path.is_dir():
        return open_folder(path, settings, progress)
    if path.suffix in (".npy", ".npz"):
        return open_array_file(path, settings)
    raise UsageError(f"{path} is neither a folder of images nor a .npy / .npz file")


def open_digits(settings: SourceSettings) -> Source:
    """Open the handwritten digits that ship with scikit-learn: 1,797 grey images of 8 x 8 pixels with labels."""
    from sklearn.datasets import load_digits  # deferred: scikit-learn's data sets take half a second to import

    if settings.labels not in ("auto", "none"):
        raise UsageError(
            f"the digits bring their own labels; source.labels can be auto or none, got {settings.labels!r}"
        )
    pixels, target = load_digits(return_X_y=True)
    images = torch.from_numpy((pixels * (255.0 / 16.0)).round().astype(np.uint8)).reshape(-1, 1, 8, 8)  # 16 is white
    labels = None if settings.labels == "none" else target
    return _from_samples("digits", images, labels)


def open_array_file(path: Path, settings: SourceSettings) -> Source:
    """Open a ``.npy`` (samples) or ``.npz`` (samples, and labels if present).

    Raises:
        DataError: damaged, pickled, or without a known key.
    """
    try:
        loaded = np.load(path, allow_pickle=False)
        arrays = dict(loaded.items()) if isinstance(loaded, np.lib.npyio.NpzFile) else {SAMPLE_KEYS[0]: loaded}
    except NPZ_ERRORS as error:
        raise DataError(f"{path} is not a readable NumPy file: {first_line(error)}") from None
    key = next((name for name in SAMPLE_KEYS if name in arrays), None)
    if key is None:
        raise DataError(
            f"{path} has the arrays {', '.join(arrays) or 'none'}; samples must be named one of "
            f"{', '.join(SAMPLE_KEYS)}"
        )
    samples = to_samples(arrays[key], name=str(path))
    labels = next((arrays[name] for name in LABEL_KEYS if name in arrays), None)
    if settings.labels == "none":
        labels = None
    elif settings.labels != "auto":
        labels = labels_from_array(Path(settings.labels), len(samples))
    return _from_samples(str(path), samples, labels)


def open_folder(path: Path, settings: SourceSettings, progress: Progress) -> Source:
    """Open a folder of images at any depth. Every file is decoded once, so that bad ones are known before training.

    Raises:
        DataError: no images, or more bad files than ``settings.max_bad`` allows.
    """
    files, others = list_files(path)
    if not files:
        raise DataError(
            f"no images in {path} (looked for "
            f"{', '.join(sorted(('.jpg', '.png', '.webp', '.bmp', '.gif', '.tif')))} at any depth)"
        )
    side, notes = settings.image_size, {}
    if side == "auto":
        side, notes["source.image_size"] = _choose_side(files)
    with progress(f"reading {len(files)} images at {side} px", len(files)) as advance:
        decoded = _decode_all(files, side, advance)
    names = {file: file.relative_to(path).as_posix() for file in files}
    bad = [Skipped(names[file], str(result)) for file, result in decoded.items() if isinstance(result, ValueError)]
    _check_share_of_bad(path, bad, len(files), settings.max_bad)
    good = tuple(file for file, result in decoded.items() if not isinstance(result, ValueError))
    images = [result for result in decoded.values() if isinstance(result, Tensor)]
    store = MemoryStore(torch.stack(images)) if images else FileStore(good, side)
    sample_names = tuple(names[file] for file in good)
    labels = _folder_labels(settings.labels, sample_names)
    ignored = [
        Skipped(other.relative_to(path).as_posix(), "no image suffix")
        for other in others
        if str(other) != settings.labels
    ]
    digest = _digest([f"{names[file]} {file.stat().st_size}".encode() for file in good] + [str(side).encode()])
    return Source(
        name=str(path),
        kind="images",
        store=store,
        shape=(3, side, side),
        labels=labels.numbers if labels else None,
        class_names=labels.class_names if labels else (),
        sample_names=sample_names,
        skipped=(*bad, *ignored),
        fingerprint=digest,
        notes=notes,
    )


def _from_samples(name: str, samples: Tensor, labels: Any) -> Source:
    """Source from a tensor in memory; floating images are stored as bytes, as image files are."""
    kind: Kind = "vectors" if samples.ndim == 2 else "images"
    samples = samples if kind == "vectors" else to_bytes(samples)
    numbered: Labels | None = None if labels is None else number_labels(labels, len(samples))
    return Source(
        name=name,
        kind=kind,
        store=MemoryStore(samples),
        shape=tuple(samples.shape[1:]),
        labels=numbered.numbers if numbered else None,
        class_names=numbered.class_names if numbered else (),
        sample_names=tuple(str(i) for i in range(len(samples))),
        skipped=(),
        fingerprint=_digest([samples.numpy().tobytes()]),
        notes={},
    )


def _folder_labels(asked: str, names: Sequence[str]) -> Labels | None:
    """Labels of a folder as asked: auto, none, or a file."""
    if asked == "none":
        return None
    if asked == "auto":
        return labels_from_folders(names)
    if asked.endswith(".npy"):
        return labels_from_array(Path(asked), len(names))
    if asked.endswith(".csv"):
        return labels_from_csv(Path(asked), names)
    raise UsageError(f"source.labels must be auto, none, a .csv or a .npy file, got {asked!r}")


def _choose_side(files: Sequence[Path]) -> tuple[int, str]:
    """Side for photographs: the median short side, at most 64, a multiple of 8."""
    sizes = [size for size in map_files(read_size, files, lambda: None) if isinstance(size, ImageSize)]
    median = int(np.median([min(size.height, size.width) for size in sizes])) if sizes else LARGEST_AUTO_SIDE
    side = max(8, min(LARGEST_AUTO_SIDE, median // 8 * 8))
    return (
        side,
        f"the median short side is {median} px; at most {LARGEST_AUTO_SIDE} by default, so that a laptop can train",
    )


def _decode_all(
    files: Sequence[Path], side: int, advance: Callable[[], None]
) -> dict[Path, Tensor | ValueError | None]:
    """Decode every file once: its pixels if all fit in memory (else None), or the reason why it is bad."""
    is_kept = len(files) * 3 * side * side <= MEMORY_BUDGET_BYTES

    def attempt(path: Path) -> Tensor | ValueError | None:
        try:
            image = decode_square(path, side)
        except ValueError as error:
            return error
        return image if is_kept else None

    return dict(zip(files, map_files(attempt, files, advance), strict=True))


def _check_share_of_bad(path: Path, bad: Sequence[Skipped], num_files: int, max_bad: float) -> None:
    """Stop when too many files are bad, or all of them."""
    share = len(bad) / num_files
    if len(bad) < num_files and share <= max_bad:
        return
    named = "; ".join(f"{item.name} ({item.reason})" for item in bad[:5])
    more = f"; and {len(bad) - 5} more" if len(bad) > 5 else ""
    remedy = (
        f"allow them with --source.max-bad {min(1.0, np.ceil(share * 100) / 100):g}"
        if len(bad) < num_files
        else "nothing is left to train on"
    )
    raise DataError(
        f"{len(bad)} of {num_files} images in {path} cannot be read ({share:.1%}, allowed {max_bad:.1%}): "
        f"{named}{more}; {remedy}"
    )


def _digest(parts: Sequence[bytes]) -> str:
    """Short hash of some content."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part)
    return digest.hexdigest()[:16]


CATALOGUE: Mapping[str, Callable[[SourceSettings], Source]] = {"digits": open_digits}
