"""Data in pairs: two views given by the user, or images with a vector (a caption's embedding) each, in one ``.npz``."""

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

import numpy as np

from counterpoint.core.array_layout import to_bytes, to_samples
from counterpoint.core.errors import DataError
from counterpoint.data.formats.label_files import Labels
from counterpoint.data.source import Source, fingerprint, memory_source
from counterpoint.data.stores import MemoryStore

VIEW_KEYS = ("view0", "view1")
KEY_PAIRS = (VIEW_KEYS, ("x0", "x1"), ("images", "captions"))


def pair_keys(keys: Collection[str]) -> tuple[str, str] | None:
    """The two arrays of a pair, if an archive has them.

    >>> pair_keys(["labels", "captions", "images"])
    ('images', 'captions')
    """
    return next((pair for pair in KEY_PAIRS if set(pair) <= set(keys)), None)


def paired_source(
    path: Path, first: np.ndarray, second: np.ndarray, labels: Labels | None, *, keys: tuple[str, str]
) -> Source:
    """Source from two aligned arrays; row i of the second belongs to row i of the first.

    Args:
        path: the file, which names the source.
        first: images or vectors in any layout of ``core.array_layout``.
        second: the same; captions are vectors, and given views have the first one's shape.
        labels: one per pair, or None.
        keys: what the arrays are called.

    Raises:
        DataError: other lengths, shapes or values.
    """
    samples = to_samples(first, name=f"{path}: {keys[0]}")
    others = to_samples(second, "vectors" if keys[1] == "captions" else None, name=f"{path}: {keys[1]}")
    if len(samples) != len(others):
        raise DataError(
            f"{path}: {keys[0]} and {keys[1]} must have one row per sample each, got {len(samples)} and {len(others)}"
        )
    if keys == VIEW_KEYS and samples.shape != others.shape:
        raise DataError(
            f"{path}: view0 and view1 must have one shape, got {tuple(samples.shape)} and {tuple(others.shape)}"
        )
    source = memory_source(str(path), samples, labels)
    others = (others if others.ndim == 2 else to_bytes(others)).contiguous()
    return replace(
        source,
        second=MemoryStore(others),
        second_shape=tuple(others.shape[1:]),
        fingerprint=fingerprint([source.fingerprint.encode(), others.numpy()], labels),
    )
