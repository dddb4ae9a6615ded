"""Arrays of samples in one form: images from any common layout, or vectors."""

import math
from contextlib import AbstractContextManager
from contextvars import ContextVar
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from counterpoint.core.checks import check_held
from counterpoint.core.errors import DataError, first_line, some
from counterpoint.core.numerics import holding

Kind = Literal["images", "vectors"]
COLOUR_CHANNELS = (1, 3)
MAX_PIXEL = 255
_MAY_MISS = ContextVar("_MAY_MISS", default=False)


def to_samples(
    array: Any,
    kind: Kind | None = None,
    *,
    name: str = "data",
    channels: int | None = None,
) -> Tensor:
    """Bring an array to one form: uint8 or float32 images (n, c, h, w), or float32 vectors (n, d).

    Images come as (n, h, w), (n, h, w, c) or (n, c, h, w) with 1 or 3 channels; of four axes whose both ends could be
    channels the last is taken. Three axes that could be one picture, (h, w, c) or (3, h, w), are refused. uint8 stays
    as it is; floating values must lie in [0, 1].

    Args:
        array: NumPy array, tensor, or nested sequence.
        kind: the kind that is expected; None accepts both.
        name: name of the array in errors.
        channels: number of channels of the expected images, if it is known.

    Raises:
        DataError: not numeric, not finite (the first bad sample is named), wrong or ambiguous shape, or wrong range.

    >>> to_samples(np.zeros((5, 8, 8), np.uint8)).shape
    torch.Size([5, 1, 8, 8])
    """
    samples = _as_tensor(array, name)
    if kind is None:
        kind = "vectors" if samples.ndim == 2 else "images"
    if kind == "vectors":
        if samples.ndim != 2:
            raise DataError(f"{name} must be vectors of shape (samples, features), got {tuple(samples.shape)}")
        samples = samples.to(torch.float32)
    else:
        samples = _channels_first(samples, name, channels)
    if kind == "images" or not _MAY_MISS.get():
        check_finite(samples, name)
    if kind == "images" and samples.dtype != torch.uint8:
        # After the check: NaN compares false and would pass for a value in the range.
        low, high = float(samples.min()), float(samples.max())
        if low < 0 or high > 1:
            raise DataError(
                f"{name} must have values in [0, 1] or dtype uint8, got [{low:g}, {high:g}]; divide by the largest "
                f"possible value"
            )
    return samples.contiguous()


def with_missing() -> AbstractContextManager[None]:
    """Let vectors that are opened in the block hold NaN, and infinity, also in place of what float32 cannot hold."""
    return holding(_MAY_MISS, True)


def finite_vectors(array: Any, *, name: str = "data") -> tuple[Tensor, Tensor]:
    """Vectors as ``to_samples`` gives them, of those rows that hold neither NaN nor infinity.

    Returns:
        float32 (m, d), and bool (n,), true for the rows that they are.

    Raises:
        DataError: as ``to_samples``; also if no row, or only one, is finite.

    >>> finite_vectors([[1.0, 2.0], [float("nan"), 0.0], [3.0, 4.0]])[1].tolist()
    [True, False, True]
    """
    samples = _as_tensor(array, name)
    if samples.ndim != 2 or not samples.is_floating_point():
        return (vectors := to_samples(samples, "vectors", name=name)), torch.ones(len(vectors), dtype=torch.bool)
    is_finite_N = samples.isfinite().all(dim=1)
    # If hardly anything is left, the error about all rows names the rows, or the columns.
    rows = samples[is_finite_N] if 1 < int(is_finite_N.sum()) < len(samples) else samples
    return to_samples(rows, "vectors", name=name), is_finite_N


def check_finite(samples: Tensor, name: str, remedy: str = "") -> None:
    """Require real numbers that are finite; whole numbers always pass.

    Raises:
        DataError: it names the first sample with NaN or infinity, or the numbers are complex.
    """
    if samples.is_complex():
        raise DataError(f"{name} must be real numbers, got {samples.dtype}")
    if samples.is_floating_point() and samples.element_size() == 1:  # torch adds no numbers of eight bits
        samples = samples.detach().float()
    # One pass that keeps nothing: only a sum that is not finite, which may also be too large, is looked into.
    if not samples.is_floating_point() or math.isfinite(samples.detach().sum().item()):
        return
    finite_NF = torch.isfinite(samples.reshape(len(samples), -1))
    finite_N, odd = finite_NF.all(dim=1), (~finite_NF.any(dim=0)).nonzero()[:, 0].tolist()
    if samples.ndim == 2 and not remedy and 0 < len(odd) < finite_NF.shape[1]:
        remedy = f"; columns (from 0) without a finite number: {some(list(map(str, odd)))}; leave them out"
    if not bool(finite_N.all()):
        where = f"sample {int((~finite_N).nonzero()[0])}" if finite_N.any() else "every sample"
        raise DataError(f"{name} must be finite, but {where} holds NaN or infinity in {samples.dtype}{remedy}")


def to_unit_float(images_NCHW: Tensor) -> Tensor:
    """Bring images to float32 in [0, 1]."""
    return images_NCHW.to(torch.float32) / MAX_PIXEL if images_NCHW.dtype == torch.uint8 else images_NCHW


def shrunk_to_bytes(images_NCHW: Tensor, side: int) -> Tensor:
    """Images as uint8, of which none is longer than ``side`` pixels; the ratio of their sides is kept."""
    images = to_bytes(images_NCHW)
    longest = max(images.shape[2:])
    if longest <= side:
        return images
    size = [max(1, round(length * side / longest)) for length in images.shape[2:]]
    images = F.interpolate(images.float(), size, mode="bilinear", antialias=True, align_corners=False)
    return images.round().clamp(0, MAX_PIXEL).to(torch.uint8)


def to_bytes(images_NCHW: Tensor) -> Tensor:
    """Bring images to uint8, as they are stored and drawn."""
    if images_NCHW.dtype == torch.uint8:
        return images_NCHW
    # To the nearest: cutting off would darken a picture by half a level on average.
    return (images_NCHW * MAX_PIXEL).round().clamp(0, MAX_PIXEL).to(torch.uint8)


def _as_tensor(array: Any, name: str) -> Tensor:
    if isinstance(array, Tensor):
        check_held(array, name, error=DataError)
        values = array.detach().cpu()
        is_real = not values.is_complex()
    else:
        try:
            values = np.asarray(array)
        except ValueError as error:
            raise DataError(f"{name} is not an array: {first_line(error)}") from None
        is_real = values.dtype.kind in "buif"  # bool, unsigned, integer, float
    if not is_real:
        raise DataError(f"{name} must hold real numbers, got {values.dtype}")
    if values.ndim < 2 or 0 in values.shape:
        shape = tuple(values.shape)
        raise DataError(f"{name} must hold samples: (n, d), (n, h, w), (n, h, w, c) or (n, c, h, w), got {shape}")
    is_bytes = values.dtype in (torch.uint8, np.uint8)
    if isinstance(values, Tensor):
        tensor = values if is_bytes else values.to(torch.float32)
    else:
        with np.errstate(over="ignore"):  # `_check_float32_range` names what does not fit
            # A copy: torch takes no negative strides, and no read-only array without a warning.
            tensor = torch.from_numpy(np.array(values, dtype=np.uint8 if is_bytes else np.float32))
    if values.dtype.itemsize > tensor.dtype.itemsize and not _MAY_MISS.get():
        _check_float32_range(tensor, values, name)
    return tensor


def _check_float32_range(tensor: Tensor, values: Tensor | np.ndarray, name: str) -> None:
    """Name the first sample that float32 cannot hold: beyond its range, or that it does not tell from 0."""
    rows = tensor.flatten(1)
    doubtful = torch.isinf(rows).any(dim=1) | ~rows.any(dim=1)  # rare: only these are compared
    for row in doubtful.nonzero()[:, 0].tolist():
        exact = np.asarray(values[row], dtype=np.float64).ravel()
        value = exact[np.abs(exact).argmax()]  # of NaN the first, which is reported elsewhere
        if value != 0 and np.isfinite(exact).all():
            way = "down" if abs(value) > 1 else "up"
            raise DataError(
                f"{name} must be numbers that float32 holds (1e-45 to 3e38), but sample {row} holds {value:g}; scale "
                f"the values {way}"
            )


def _channels_first(images: Tensor, name: str, channels: int | None) -> Tensor:
    shape = tuple(images.shape)
    if images.ndim == 3:
        # Three pictures of 28 x 28 are not one colour picture to an encoder for grey ones.
        if shape[2] in COLOUR_CHANNELS or (shape[0] == 3 and channels != 1):
            axes = "hwc" if shape[2] in COLOUR_CHANNELS else "chw"
            raise DataError(
                f"{name} of shape {shape} could be one picture ({', '.join(axes)}) or {shape[0]} grey ones (n, h, w); "
                "give one picture a leading axis, x[None], and grey pictures a trailing one, x[..., None]"
            )
        return images[:, None]
    if images.ndim == 4 and shape[3] in COLOUR_CHANNELS:
        return images.permute(0, 3, 1, 2)
    if images.ndim == 4 and shape[1] in COLOUR_CHANNELS:
        return images
    raise DataError(f"{name} must be images (n, h, w), (n, h, w, c) or (n, c, h, w) with 1 or 3 channels, got {shape}")
