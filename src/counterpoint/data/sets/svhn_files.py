"""SVHN's cropped digits as published: one MATLAB file per split."""

# N samples, C channels, H height, W width

from pathlib import Path

import numpy as np

from counterpoint.core.errors import DataError
from counterpoint.data.formats.mat_arrays import read_mat
from counterpoint.data.sets.set_files import RawSet, fitting_labels, missing

SVHN_SHAPE = (32, 32, 3)


def read_svhn(root: Path, split: str, hint: str) -> RawSet:
    """Read one split of SVHN's cropped digits; the file's class 10 is the digit 0.

    Raises:
        DataError: the file is missing, damaged, or holds something else.
    """
    path = root / f"{split}_32x32.mat"
    if not path.is_file():
        raise missing(path, hint)
    content = read_mat(path, ("X", "y"))
    images_HWCN, digits = (content.get(name, np.zeros(0)) for name in ("X", "y"))
    if images_HWCN.dtype != np.uint8 or images_HWCN.ndim != 4 or images_HWCN.shape[:3] != SVHN_SHAPE:
        raise DataError(f"{path}: X must be bytes of shape (32, 32, 3, n), got {images_HWCN.shape}")
    if not digits.size or not np.isin(digits, np.arange(1, 11)).all():
        raise DataError(f"{path}: y must be digits 1 to 10, got {digits.dtype} of shape {digits.shape}")
    numbers = fitting_labels(path, digits.reshape(-1).astype(np.int64) % 10, images_HWCN.shape[3], 10)
    return RawSet(np.ascontiguousarray(images_HWCN.transpose(3, 2, 0, 1)), numbers, tuple("0123456789"))
