"""What an array of samples is: images in any common layout, or vectors; brought to one form."""

from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from counterpoint.core.errors import DataError, first_line

Kind = Literal["images", "vectors"]
COLOUR_CHANNELS = (1, 3)
MAX_PIXEL = 255


def to_samples(array: Any, kind: Kind | None = None, *, name: str = "data") -> Tensor:
    """Bring an array to one form: uint8 or float32 images (n, c, h, w), or float32 vectors (n, d).

    Images come as (n, h, w), (n, h, w, c) or (n, c, h, w) with 1 or 3 channels; where both ends could be channels the
    last axis is
    taken. uint8 stays as it is; floating values must lie in [0, 1].

    Args:
        array: NumPy array, tensor, or nested sequence.
        kind: what is expected; None accepts both.
        name: what to call the array in errors.

    Raises:
        DataError: not numeric, not finite (the first bad sample is named), wrong shape or wrong range.

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
        samples = _channels_first(samples, name)
        samples = samples if samples.dtype == torch.uint8 else _unit_range(samples, name)
    _check_finite(samples, name)
    return samples.contiguous()


def to_unit_float(images_NCHW: Tensor) -> Tensor:
    """Bring images to float32 in [0, 1]."""
    return images_NCHW.to(torch.float32) / MAX_PIXEL if images_NCHW.dtype == torch.uint8 else images_NCHW


def to_bytes(images_NCHW: Tensor) -> Tensor:
    """Bring images to uint8, as they are stored and drawn."""
    if images_NCHW.dtype == torch.uint8:
        return images_NCHW
    return (images_NCHW * MAX_PIXEL).round().clamp(0, MAX_PIXEL).to(torch.uint8)


def _as_tensor(array: Any, name: str) -> Tensor:
    """Real tensor on the CPU: uint8 stays, all else becomes float32."""
    if isinstance(array, Tensor):
        values = array.detach().cpu()
        is_real = not values.is_complex()
    else:
        try:
            values = np.asarray(array)
        except ValueError as error:
            raise DataError(f"{name} is not an array: {first_line(error)}") from None
        is_real = values.dtype.kind in "buif"
    if not is_real:
        raise DataError(f"{name} must hold real numbers, got {values.dtype}")
    if values.ndim < 2 or 0 in values.shape:
        shape = tuple(values.shape)
        raise DataError(f"{name} must hold samples: (n, d), (n, h, w), (n, h, w, c) or (n, c, h, w), got {shape}")
    if not isinstance(values, Tensor):
        values = torch.from_numpy(np.array(values, dtype=np.uint8 if values.dtype == np.uint8 else np.float32))
    return values if values.dtype == torch.uint8 else values.to(torch.float32)


def _channels_first(images: Tensor, name: str) -> Tensor:
    """Move channels to axis 1."""
    if images.ndim == 3:
        return images[:, None]
    if images.ndim == 4 and images.shape[3] in COLOUR_CHANNELS:
        return images.permute(0, 3, 1, 2)
    if images.ndim == 4 and images.shape[1] in COLOUR_CHANNELS:
        return images
    raise DataError(
        f"{name} must be images (n, h, w), (n, h, w, c) or (n, c, h, w) with 1 or 3 channels, got {tuple(images.shape)}"
    )


def _unit_range(images: Tensor, name: str) -> Tensor:
    """Check that floating images lie in [0, 1]."""
    images = images.to(torch.float32)
    _check_finite(images, name)
    low, high = float(images.min()), float(images.max())
    if low < 0 or high > 1:
        raise DataError(
            f"{name} must have values in [0, 1] or dtype uint8, got [{low:g}, {high:g}]; divide by the largest "
            f"possible value"
        )
    return images


def _check_finite(samples: Tensor, name: str) -> None:
    """Name the first sample with NaN or infinity."""
    if samples.dtype == torch.uint8:
        return
    finite_N = torch.isfinite(samples.reshape(len(samples), -1)).all(dim=1)
    if not bool(finite_N.all()):
        raise DataError(f"{name} must be finite, but sample {int((~finite_N).nonzero()[0])} holds NaN or infinity")
