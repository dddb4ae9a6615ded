"""Sources of samples: the embedded digits, a folder of images, an array or an array file."""

import os
import zipfile
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from counterpoint.core.array_layout import Kind, to_bytes, to_samples
from counterpoint.core.errors import DataError, UsageError, first_line, nearest
from counterpoint.core.settings import SourceSettings
from counterpoint.data.image_folder import open_folder
from counterpoint.data.label_files import Labels, labels_from_array, number_labels
from counterpoint.data.source import Progress, Source, fingerprint
from counterpoint.data.stores import MemoryStore

SAMPLE_KEYS = ("images", "x", "X", "data", "samples", "arr_0")
LABEL_KEYS = ("labels", "y", "targets")
NPZ_ERRORS = (OSError, ValueError, EOFError, KeyError, NotImplementedError, zipfile.BadZipFile, zlib.error)
ARRAY = "array"


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
    if not os.path.exists(path):  # False for names too long, where Path.exists raises
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


def _from_samples(name: str, samples: Tensor, labels: Any) -> Source:
    """Source from a tensor in memory; floating images are stored as bytes, as image files are."""
    kind: Kind = "vectors" if samples.ndim == 2 else "images"
    samples = samples if kind == "vectors" else to_bytes(samples)
    numbered = labels if labels is None or isinstance(labels, Labels) else number_labels(labels, len(samples))
    return Source(
        name=name,
        kind=kind,
        store=MemoryStore(samples),
        shape=tuple(samples.shape[1:]),
        labels=numbered.numbers if numbered else None,
        class_names=numbered.class_names if numbered else (),
        sample_names=tuple(str(i) for i in range(len(samples))),
        skipped=(),
        fingerprint=fingerprint([samples.numpy().tobytes()], numbered),
        notes={},
    )


CATALOGUE: Mapping[str, Callable[[SourceSettings], Source]] = {"digits": open_digits}
