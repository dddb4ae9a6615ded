"""SVHN's cropped digits as published: one MATLAB file per split."""

# N samples, C channels, H height, W width

import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from counterpoint.core.errors import DataError, first_line
from counterpoint.data.set_files import RawSet, fitting_labels, missing

SVHN_SHAPE = (32, 32, 3)
MAT_ERRORS = (
    OSError,
    ValueError,
    TypeError,
    KeyError,
    IndexError,
    EOFError,
    OverflowError,
    MemoryError,
    NotImplementedError,
    zlib.error,
)


def read_svhn(root: Path, split: str, hint: str) -> RawSet:
    """Read one split of SVHN's cropped digits; the file's class 10 is the digit 0.

    Raises:
        DataError: the file is missing, damaged, or holds something else.
    """
    from scipy.io import loadmat  # deferred: takes a quarter of a second to import

    path = root / f"{split}_32x32.mat"
    if not path.is_file():
        raise missing(path, hint)
    try:
        content: Mapping[str, Any] = loadmat(path, variable_names=["X", "y"])
        images_HWCN, digits = np.asarray(content["X"]), np.asarray(content["y"])
    except MAT_ERRORS as error:
        raise DataError(f"{path} is not a readable MATLAB file: {first_line(error)}") from None
    if images_HWCN.dtype != np.uint8 or images_HWCN.ndim != 4 or images_HWCN.shape[:3] != SVHN_SHAPE:
        raise DataError(f"{path}: X must be bytes of shape (32, 32, 3, n), got {images_HWCN.shape}")
    if digits.dtype.kind not in "iu" or (digits.size and not 1 <= digits.min() <= digits.max() <= 10):
        raise DataError(f"{path}: y must be digits 1 to 10, got {digits.dtype} of shape {digits.shape}")
    numbers = fitting_labels(path, digits.reshape(-1).astype(np.int64) % 10, images_HWCN.shape[3], 10)
    return RawSet(np.ascontiguousarray(images_HWCN.transpose(3, 2, 0, 1)), numbers, tuple("0123456789"))
