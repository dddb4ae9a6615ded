"""A folder of images as a source: bad files are skipped, counted and named."""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from counterpoint.core.errors import DataError, UsageError
from counterpoint.core.settings import SourceSettings
from counterpoint.data.image_files import SUFFIXES, ImageSize, Skipped, decode_square, list_files, map_files, read_size
from counterpoint.data.label_files import Labels, labels_from_array, labels_from_csv, labels_from_folders
from counterpoint.data.source import Progress, Source, fingerprint
from counterpoint.data.stores import FileStore, MemoryStore

MEMORY_BUDGET_BYTES = 2 << 30  # a folder whose decoded images fit is kept in memory
LARGEST_AUTO_SIDE = 64


def open_folder(path: Path, settings: SourceSettings, progress: Progress) -> Source:
    """Open a folder of images at any depth. Every file is decoded once, so that bad ones are known before training.

    Raises:
        DataError: no images, or more bad files than ``settings.max_bad`` allows.
    """
    files, others = list_files(path)
    if not files:
        raise DataError(f"no images in {path} (looked at any depth for {', '.join(sorted(SUFFIXES))})")
    side, notes = settings.image_size, {}
    if side == "auto":
        side, notes["source.image_size"] = _choose_side(files)
    with progress(f"reading {len(files)} images at {side} px", len(files)) as advance:
        decoded = _decode_all(files, side, advance)
    names = {file: file.relative_to(path).as_posix() for file in (*files, *others)}
    bad = [Skipped(names[file], str(result)) for file, result in decoded.items() if isinstance(result, ValueError)]
    _check_share_of_bad(path, bad, len(files), settings.max_bad)
    good = {file: result for file, result in decoded.items() if isinstance(result, _Decoded)}
    images = [result.pixels for result in good.values() if result.pixels is not None]
    sample_names = tuple(names[file] for file in good)
    labels = _folder_labels(settings.labels, sample_names)
    labels_file = Path(settings.labels).resolve()
    ignored = [Skipped(names[other], "no image suffix") for other in others if other.resolve() != labels_file]
    return Source(
        name=str(path),
        kind="images",
        store=MemoryStore(torch.stack(images)) if images else FileStore(tuple(good), side),
        shape=(3, side, side),
        labels=labels.numbers if labels else None,
        class_names=labels.class_names if labels else (),
        sample_names=sample_names,
        skipped=(*bad, *ignored),
        fingerprint=fingerprint([names[file].encode() + result.digest for file, result in good.items()], labels),
        notes=notes,
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


@dataclass(frozen=True)
class _Decoded:
    """A good file: the hash of its pixels, and the pixels themselves if all files fit in memory."""

    digest: bytes
    pixels: Tensor | None


def _decode_all(files: Sequence[Path], side: int, advance: Callable[[], None]) -> dict[Path, _Decoded | ValueError]:
    """Decode every file once; a bad one gives the reason."""
    is_kept = len(files) * 3 * side * side <= MEMORY_BUDGET_BYTES

    def attempt(path: Path) -> _Decoded | ValueError:
        try:
            image = decode_square(path, side)
        except ValueError as error:
            return error
        return _Decoded(hashlib.sha256(image.numpy().tobytes()).digest(), image if is_kept else None)

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
