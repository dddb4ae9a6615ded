"""The one entry to data: a named set, a folder, a file, or an array."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from counterpoint.core.array_layout import to_samples
from counterpoint.core.errors import DataError, UsageError, nearest
from counterpoint.core.settings import SourceSettings
from counterpoint.data.formats.arrow_tables import SPLITS_CARD, open_table
from counterpoint.data.formats.class_folders import has_splits, open_splits, open_tiny_imagenet
from counterpoint.data.formats.image_files import list_files
from counterpoint.data.formats.image_folder import open_folder
from counterpoint.data.formats.image_list import open_list
from counterpoint.data.formats.label_files import Labels, labels_from_array, number_labels
from counterpoint.data.formats.npz_files import npz_keys, read_npy, read_npz
from counterpoint.data.formats.packed_jpeg import is_packed, open_packed
from counterpoint.data.formats.paired import pair_keys, paired_source
from counterpoint.data.formats.tar_shards import find_shards, open_shards
from counterpoint.data.sets import named_sets
from counterpoint.data.sets.dsprites import open_dsprites, open_dsprites_file, open_rendered
from counterpoint.data.source import Progress, Source, fixed_labels, memory_source

SAMPLE_KEYS = ("images", "x", "X", "data", "samples", "arr_0")
LABEL_KEYS = ("labels", "y", "targets")
DSPRITES_KEYS = frozenset({"imgs", "latents_classes"})
TABLE_SUFFIXES = frozenset({".parquet", ".arrow", ".feather"})
TABLE_CARDS = ("dataset_info.json", SPLITS_CARD)  # a Hugging Face data set saved to disk has one of them
ARRAY = "array"
KNOWN_FORMS = (
    "a named set (see `counterpoint list data`), a folder of images or tar shards, or a file: .npy, .npz, .csv, .txt, "
    ".tar, .parquet, .arrow, .feather"
)

Opener = Callable[[Path, SourceSettings, Progress], Source]


@dataclass(frozen=True)
class NamedSource:
    """Data that are known by name.

    Attributes:
        summary: one line for lists.
        open: opens them as the settings ask.
        has_files: they lie below ``source.root``.
    """

    summary: str
    open: Callable[[SourceSettings, Progress], Source]
    has_files: bool = True


def open_source(data: Any, settings: SourceSettings, *, labels: Any = None, progress: Progress) -> Source:
    """Open whatever the user gave as data.

    Args:
        data: a name of ``CATALOGUE``, a path (a folder or a file of any known form), a NumPy array or a tensor.
        settings: labels, split, columns, image size, share of bad files allowed.
        labels: one label per sample, for arrays in memory.
        progress: shows how far the data have been read.

    Raises:
        UsageError: no data, an unknown name, or a path that does not exist.
        DataError: nothing usable in it.
    """
    if data is None:
        raise UsageError(
            "no data given; use --data digits (embedded) or another named set, --data FOLDER of images, or --data FILE"
            ".npy / FILE.npz"
        )
    if not isinstance(data, str | Path):
        if settings.labels not in ("auto", "none"):
            raise UsageError("source.labels goes with named data; give labels= beside an array")
        samples = to_samples(data)
        return memory_source(ARRAY, samples, None if labels is None else number_labels(labels, len(samples)))
    if labels is not None:
        raise UsageError("labels= goes with an array in memory; for named data use source.labels (a .csv or .npy file)")
    if str(data) in CATALOGUE:
        return CATALOGUE[str(data)].open(settings, progress)
    path = Path(os.path.expanduser(data))  # unlike Path.expanduser, leaves unknown users alone
    if not os.path.exists(path):  # False for names too long, where Path.exists raises
        raise UsageError(
            f"no such file or folder: {str(data)!r}{nearest(str(data), CATALOGUE)}; data can be {KNOWN_FORMS}"
        )
    return _opener(path)(path, settings, progress)


def open_digits(settings: SourceSettings, progress: Progress) -> Source:
    """Open the handwritten digits that ship with scikit-learn: 1,797 grey images of 8 x 8 pixels with labels."""
    from sklearn.datasets import load_digits  # deferred: scikit-learn's data sets take half a second to import

    _refuse_split("digits", settings)
    fixed_labels("digits", None, settings)
    pixels, target = load_digits(return_X_y=True)
    images = torch.from_numpy((pixels * (255.0 / 16.0)).round().astype(np.uint8)).reshape(-1, 1, 8, 8)  # 16 is white
    return memory_source("digits", images, fixed_labels("digits", number_labels(target, len(images)), settings))


def open_array_file(path: Path, settings: SourceSettings, progress: Progress) -> Source:
    """Open a ``.npy`` (samples) or ``.npz``: samples, packed images, a pair, or dSprites, by the arrays' names.

    Raises:
        DataError: damaged, pickled, or without a known key.
    """
    _refuse_split(str(path), settings)
    if path.suffix.lower() == ".npy":
        return _from_arrays(path, {SAMPLE_KEYS[0]: read_npy(path)}, settings)
    keys = npz_keys(path)
    if is_packed(keys):
        return open_packed(path, settings, progress)
    if set(keys) >= DSPRITES_KEYS:
        return open_dsprites_file(path, settings, progress, name=str(path))
    pair = pair_keys(keys)
    sample_keys = pair or [name for name in SAMPLE_KEYS if name in keys][:1]
    if not sample_keys:
        raise DataError(
            f"{path} has the arrays {', '.join(keys) or 'none'}; samples must be named one of {', '.join(SAMPLE_KEYS)}"
        )
    arrays = read_npz(path, (*sample_keys, *[name for name in LABEL_KEYS if name in keys][:1]))
    if pair is None:
        return _from_arrays(path, arrays, settings)
    first, second = (arrays[name] for name in pair)
    return paired_source(path, first, second, _array_labels(arrays, settings, len(first)), keys=pair)


def _from_arrays(path: Path, arrays: Mapping[str, np.ndarray], settings: SourceSettings) -> Source:
    """Source from the arrays of a file: samples first, then perhaps labels."""
    samples: Tensor = to_samples(next(iter(arrays.values())), name=str(path))
    return memory_source(str(path), samples, _array_labels(arrays, settings, len(samples)))


def _array_labels(arrays: Mapping[str, np.ndarray], settings: SourceSettings, num_samples: int) -> Labels | None:
    """Labels as asked: the file's own, none, or another file's."""
    if settings.labels == "none":
        return None
    if settings.labels != "auto":
        return labels_from_array(Path(settings.labels), num_samples)
    labels = next((arrays[name] for name in LABEL_KEYS if name in arrays), None)
    return None if labels is None else number_labels(labels, num_samples)


def _opener(path: Path) -> Opener:
    """What opens a path, by its suffix or, for a folder, by what it holds."""
    if not path.is_dir():
        opener = FILE_OPENERS.get(path.suffix.lower())
        if opener is None:
            raise UsageError(
                f"{path} is neither a folder of images nor a file of a known form; data can be {KNOWN_FORMS}"
            )
        return opener
    if any((path / card).is_file() for card in TABLE_CARDS):
        return open_table
    if has_splits(path):
        return open_splits
    is_sharded = find_shards(path) and not list_files(path)[0]  # an archive beside the images it held is no shard
    return _without_split(open_shards if is_sharded else open_folder)


def form_of(data: str | None) -> str | None:
    """What kind of data a name or path stands for, told without opening it; None where there is nothing.

    >>> form_of("digits"), form_of("cifar10")
    ('a named set without files', 'a named set of files')
    """
    if data is None or data == ARRAY:
        return data and "an array in memory"
    if data in CATALOGUE:
        return f"a named set {'of' if CATALOGUE[data].has_files else 'without'} files"
    path = Path(os.path.expanduser(data))
    if os.path.isdir(path):
        is_table = any((path / card).is_file() for card in TABLE_CARDS)
        return "a table" if is_table else "an image folder"
    return FORMS.get(path.suffix.lower()) if os.path.exists(path) else None


def _without_split(opener: Opener) -> Opener:
    """Refuse a split for data that have only one part."""

    def checked(path: Path, settings: SourceSettings, progress: Progress) -> Source:
        _refuse_split(str(path), settings)
        return opener(path, settings, progress)

    return checked


def _refuse_split(name: str, settings: SourceSettings) -> None:
    """A split that does nothing must not pass in silence."""
    if settings.split != "auto":
        raise UsageError(f"{name} has one part only; source.split can be auto, got {settings.split!r}")


def _published(name: str) -> NamedSource:
    """Entry of a published set."""
    return NamedSource(
        named_sets.CATALOGUE[name].summary,
        lambda settings, progress: named_sets.open_published(name, settings, progress),
    )


FILE_OPENERS: Mapping[str, Opener] = {
    ".npy": open_array_file,
    ".npz": open_array_file,
    ".txt": _without_split(open_list),
    ".csv": _without_split(open_list),
    ".tar": _without_split(open_shards),
    **dict.fromkeys(TABLE_SUFFIXES, open_table),
}
FORMS: Mapping[str, str] = {
    ".npy": "an array file",
    ".npz": "an archive",
    ".txt": "an image list",
    ".csv": "an image list",
    ".tar": "tar shards",
    **dict.fromkeys(TABLE_SUFFIXES, "a table"),
}
CATALOGUE: Mapping[str, NamedSource] = {
    "digits": NamedSource(
        "1,797 handwritten digits of 8 x 8 pixels, which come with scikit-learn", open_digits, has_files=False
    ),
    **{name: _published(name) for name in named_sets.CATALOGUE},
    "tiny-imagenet": NamedSource(
        "110,000 photographs of 64 x 64 pixels in 200 classes, and 10,000 without labels", open_tiny_imagenet
    ),
    "dsprites": NamedSource("737,280 sprites of 64 x 64 pixels by 5 factors, the original file", open_dsprites),
    "dsprites-rendered": NamedSource(
        "the same grid of factors, drawn here; needs no file", open_rendered, has_files=False
    ),
}
