"""Arrays in NumPy files as a source: samples, pairs of views or of images and captions, or encoded images in a pack.

A pack is one ``.npz`` of all encoded files end to end (``jpeg``), the place of each (``offsets``), and perhaps labels:
image i is ``jpeg[offsets[i]:offsets[i + 1]]``, in any format that image files may have.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from counterpoint.core.array_layout import to_bytes, to_samples
from counterpoint.core.errors import DataError
from counterpoint.core.settings import SourceSettings
from counterpoint.data.formats.indexed_images import Listing, open_listing
from counterpoint.data.formats.labels import Labels, labels_as_asked, number_labels
from counterpoint.data.formats.npz_files import npz_keys, read_npy, read_npz
from counterpoint.data.source import FileForm, Progress, Source, fingerprint, memory_source, refuse_split
from counterpoint.data.stores import Located, MemoryStore

SAMPLE_KEYS = ("images", "x", "X", "data", "samples", "arr_0")
LABEL_KEYS = ("labels", "y", "targets")
VIEW_KEYS = ("view0", "view1")
# Two arrays of an archive that belong together, row by row; the first of these pairs that is there is taken.
KEY_PAIRS = (VIEW_KEYS, ("x0", "x1"), ("images", "captions"))
PACK_KEYS = ("jpeg", "offsets")
MAX_CLASSES = 1 << 20  # each has a name


def _open_array_file(path: Path, settings: SourceSettings, progress: Progress) -> Source:
    """Open a ``.npy`` (samples) or a ``.npz``: a pack, samples or a pair, perhaps with labels, by the arrays' names."""
    refuse_split(str(path), settings.split)
    if path.suffix.lower() == ".npy":
        return _from_arrays(path, {SAMPLE_KEYS[0]: read_npy(path)}, settings)
    keys = npz_keys(path)
    if set(PACK_KEYS) <= set(keys):
        return _open_packed(path, settings, progress)
    pair = next((pair for pair in KEY_PAIRS if set(pair) <= set(keys)), None)
    sample_keys = pair or [name for name in SAMPLE_KEYS if name in keys][:1]
    if not sample_keys:
        raise DataError(
            f"{path} has the arrays {', '.join(keys) or 'none'}; samples must be named one of {', '.join(SAMPLE_KEYS)}"
        )
    arrays = read_npz(path, (*sample_keys, *[name for name in LABEL_KEYS if name in keys][:1], "factors"))
    return _from_arrays(path, arrays, settings) if pair is None else _paired(path, pair, arrays, settings)


def _from_arrays(path: Path, arrays: Mapping[str, np.ndarray], settings: SourceSettings) -> Source:
    samples = to_samples(next(iter(arrays.values())), name=str(path))
    source = memory_source(str(path), samples, _labels(arrays, len(samples), settings))
    factors = arrays.get("factors")
    if factors is None or factors.dtype.kind not in "iu":
        return source
    # Factors of generated data were read up to 0.2.0: the fingerprint of such a file stays what its runs have.
    return replace(source, fingerprint=fingerprint([source.fingerprint.encode(), factors.astype(np.int64)], None))


def _labels(arrays: Mapping[str, np.ndarray], num_samples: int, settings: SourceSettings) -> Labels | None:
    own = next((arrays[name] for name in LABEL_KEYS if name in arrays), None)
    # A .csv of labels names rows by their number.
    names = [str(number) for number in range(num_samples)]
    return labels_as_asked(settings.labels, names, lambda: None if own is None else number_labels(own, num_samples))


def _paired(path: Path, keys: tuple[str, str], arrays: Mapping[str, np.ndarray], settings: SourceSettings) -> Source:
    """Source from two aligned arrays; row i of the second belongs to row i of the first.

    Both are images or vectors in any layout of ``core.array_layout``; captions are vectors, and given views have one
    shape.
    """
    samples = to_samples(arrays[keys[0]], name=f"{path}: {keys[0]}")
    others = to_samples(arrays[keys[1]], "vectors" if keys[1] == "captions" else None, name=f"{path}: {keys[1]}")
    labels = _labels(arrays, len(samples), settings)
    if len(samples) != len(others):
        raise DataError(
            f"{path}: {keys[0]} and {keys[1]} must have one row per sample each, got {len(samples)} and {len(others)}"
        )
    if keys == VIEW_KEYS and samples.shape != others.shape:
        raise DataError(
            f"{path}: view0 and view1 must have one shape, got {tuple(samples.shape)} and {tuple(others.shape)}"
        )
    source = memory_source(str(path), samples, labels)
    # Kept as the first array is: images as bytes, vectors as they are.
    others = (others if others.ndim == 2 else to_bytes(others)).contiguous()
    return replace(
        source,
        second=MemoryStore(others),
        second_shape=tuple(others.shape[1:]),
        # Of both arrays: other captions of the same images are other data.
        fingerprint=fingerprint([source.fingerprint.encode(), others.numpy()], labels),
    )


def _open_packed(path: Path, settings: SourceSettings, progress: Progress) -> Source:
    """Open a pack; its images are dealt with as those of a folder are."""
    arrays = read_npz(path, (*PACK_KEYS, "labels"))
    content, offsets = arrays["jpeg"], arrays["offsets"]
    if content.dtype != np.uint8 or content.ndim != 1:
        raise DataError(f"{path}: jpeg must be bytes in one row, got {content.dtype} of shape {content.shape}")
    # Every image must have bytes of its own, and every byte an image.
    if offsets.dtype.kind not in "iu" or offsets.ndim != 1 or len(offsets) < 2:
        raise DataError(
            f"{path}: offsets must be at least two whole numbers, got {offsets.dtype} of shape {offsets.shape}"
        )
    if int(offsets[0]) != 0 or int(offsets[-1]) != len(content):
        raise DataError(f"{path}: offsets must run from 0 to {len(content)}, got {offsets[0]} to {offsets[-1]}")
    # Compared, not subtracted: differences of unsigned offsets would wrap around to large ones.
    falls = (offsets[1:] <= offsets[:-1]).nonzero()[0]
    if len(falls):
        raise DataError(
            f"{path}: offsets must rise, but image {falls[0]} runs from {offsets[falls[0]]} to {offsets[falls[0] + 1]}"
        )
    numbers = arrays.get("labels")  # -1 where unknown
    if numbers is not None:
        if numbers.dtype.kind not in "iu" or numbers.shape != (len(offsets) - 1,):
            raise DataError(
                f"{path}: labels must be {len(offsets) - 1} whole numbers, got {numbers.dtype} of shape {numbers.shape}"
            )
        if int(numbers.min()) < -1 or int(numbers.max()) >= MAX_CLASSES:
            odd = numbers.min() if int(numbers.min()) < -1 else numbers.max()
            raise DataError(f"{path}: labels must be -1 (unknown) to {MAX_CLASSES - 1}, got {odd}")
    images = [
        Located(str(number), path, start, stop - start, None if numbers is None else str(numbers[number]))
        for number, (start, stop) in enumerate(zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True))
    ]
    names = _class_names(path, numbers)

    def reader(image: Located) -> bytes:
        return content[image.offset : image.offset + (image.size or 0)].tobytes()

    def rule(good: Sequence[Located]) -> Labels | None:
        # Bad images are left out of the source, and their labels with them.
        good_numbers = [int(image.label) for image in good if image.label is not None]
        return Labels(torch.tensor(good_numbers, dtype=torch.int64), names) if good_numbers else None

    return open_listing(str(path), Listing(images, read=reader, label=rule), settings, progress)


def _class_names(path: Path, numbers: np.ndarray | None) -> tuple[str, ...]:
    """Names of all classes; their numbers if the file has no names that can be read without unpickling."""
    num_classes = 0 if numbers is None else int(numbers.max()) + 1
    try:
        names = read_npz(path, ["class_names"]).get("class_names")
    except DataError:  # Python objects
        names = None
    if names is None:
        return tuple(map(str, range(num_classes)))
    if names.dtype.kind != "U" or names.ndim != 1 or len(names) < num_classes:
        raise DataError(
            f"{path}: class_names must be {num_classes} or more texts, got {names.dtype} of shape {names.shape}"
        )
    return tuple(map(str, names))


FORMS = (
    FileForm("an array file", (".npy",), _open_array_file),
    FileForm("an archive", (".npz",), _open_array_file, reads=("max_bad", "altered")),
)
