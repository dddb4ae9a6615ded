"""One definition of how pictures are brought to the size of a network, for decoder, encoder and exported graphs.

The centred square is resized by antialiased bicubic interpolation (keys1981, a = -1/2), along the width, then along the
height, each time rounded to whole levels: what Pillow's ``resize`` gives for one axis after the other, to the bit.
Weights are whole multiples of 2^-22, so that sums in float64 are exact in any order, in any program.
"""

# N pictures, C channels, H W their size, S side that is asked for

from typing import Literal

import torch
from torch import Tensor

from counterpoint.core.array_layout import MAX_PIXEL
from counterpoint.core.errors import DataError

Resizing = Literal["bilinear", "bicubic"]  # bilinear, without rounding: encoders of 0.2.0 and before
UNITS = 2.0**22  # of a weight of 1, as Pillow has it for levels of 8 bits


def fit_images(images_NCHW: Tensor, in_shape: tuple[int, ...], resizing: Resizing = "bicubic") -> Tensor:
    """Bring pictures to the channels and the size of a network.

    Args:
        images_NCHW: pictures, uint8, or floats in [0, 1].
        in_shape: input shape of the network, (channels, height, width); if not square, the whole picture is scaled
            along each axis; if square, the centred square of it is.
        resizing: way to resize; ``bicubic`` rounds to the levels of a byte, of floats too, whose gradient passes as if
            it did not.

    Returns:
        Floats in [0, 1].

    Raises:
        DataError: colour images for a grey-level encoder.
    """
    channels, height, width = in_shape
    if images_NCHW.shape[1] != channels:
        if images_NCHW.shape[1] != 1:
            raise DataError(
                f"this encoder takes {channels} channel(s), got {images_NCHW.shape[1]}; convert the images to "
                f"grey levels"
            )
        # A view: grey levels take no more memory in several channels.
        images_NCHW = images_NCHW.expand(-1, channels, -1, -1)
    is_bytes = images_NCHW.dtype == torch.uint8
    if images_NCHW.shape[2:] == (height, width):
        return images_NCHW.to(torch.float32) / MAX_PIXEL if is_bytes else images_NCHW
    levels = images_NCHW if is_bytes else images_NCHW * MAX_PIXEL
    if resizing == "bicubic" and not is_bytes:
        levels = _passing(levels, levels.detach().round())  # as ``to_bytes`` stores them
    dtype = torch.float32 if is_bytes else images_NCHW.dtype
    return resized(levels, (height, width), resizing).to(dtype) / MAX_PIXEL


def resized(levels_NCHW: Tensor, size: tuple[int, int], resizing: Resizing) -> Tensor:
    """Levels 0 to 255 of pictures brought to a size, in floats; no size is read in Python, so that graphs take any.

    Args:
        levels_NCHW: levels of the pictures, 0 to 255, uint8, or floats.
        size: height and width of the result.
        resizing: way to resize, see ``fit_images``.
    """
    height, width = size
    dtype = torch.float64 if resizing == "bicubic" else torch.float32
    count_H = torch.arange(levels_NCHW.shape[2], device=levels_NCHW.device).to(dtype) + 1.0
    count_W = torch.arange(levels_NCHW.shape[3], device=levels_NCHW.device).to(dtype) + 1.0
    own_height, own_width = count_H[-1], count_W[-1]
    if height == width:  # the centred square
        high = wide = torch.minimum(own_height, own_width)
    else:
        high, wide = own_height, own_width
    top, left = (own_height - high) / 2, (own_width - wide) / 2
    levels = levels_NCHW.to(dtype)
    if resizing == "bilinear":
        rows_SH = bilinear_matrix(count_H, top.floor(), high, height)
        return rows_SH @ levels @ bilinear_matrix(count_W, left.floor(), wide, width).mT
    across = _byte_levels(levels @ bicubic_matrix(count_W, left, wide, width).mT / UNITS)
    return _byte_levels(bicubic_matrix(count_H, top, high, height) @ across / UNITS)


def bicubic_matrix(count_H: Tensor, start: Tensor, size: Tensor, side: int) -> Tensor:
    """Weights (side, h), in units of 2^-22, of one axis: a window of an axis of pixels brought to ``side`` pixels.

    Each row is keys1981's cubic, widened to size / side pixels where that is more than 1, around its place in the
    window; pixels beside the window count, those beside the picture do not.

    Args:
        count_H: numbers of the pixels of the axis: 1, 2, ..., h, in float64.
        start: number of pixels before the window.
        size: number of pixels of the window.
        side: number of pixels to which the window is brought.

    >>> count = torch.tensor([1.0, 2.0, 3.0, 4.0], dtype=torch.float64)
    >>> bicubic_matrix(count, torch.tensor(1.0), torch.tensor(2.0), 2) / UNITS
    tensor([[0., 1., 0., 0.],
            [0., 0., 1., 0.]], dtype=torch.float64)
    """
    scale = size / side
    centre_S = start + (torch.arange(side, device=count_H.device).to(count_H.dtype) + 0.5) * scale
    x = (count_H[None, :] - 0.5 - centre_S[:, None]).abs() / scale.clamp(min=1.0)
    near, far = (1.5 * x - 2.5) * x * x + 1.0, (((x - 5.0) * x + 8.0) * x - 4.0) * -0.5
    weight_SH = torch.where(x < 1.0, near, torch.where(x < 2.0, far, torch.zeros_like(x)))
    units_SH = weight_SH / weight_SH.sum(dim=1, keepdim=True) * UNITS
    # Round to the nearest, halves away from 0.
    return torch.where(units_SH < 0.0, (units_SH - 0.5).ceil(), (units_SH + 0.5).floor())


def bilinear_matrix(count_H: Tensor, start: Tensor, size: Tensor, side: int) -> Tensor:
    """Weights (side, h) of torch's antialiased bilinear interpolation; see ``bicubic_matrix``.

    Each row is a triangle of half-width max(size / side, 1) pixels, cut off at the window's ends, with sum 1.

    >>> bilinear_matrix(torch.tensor([1.0, 2.0, 3.0, 4.0]), torch.tensor(1.0), torch.tensor(2.0), 2)
    tensor([[0., 1., 0., 0.],
            [0., 0., 1., 0.]])
    """
    place_H = count_H - 0.5 - start  # centres of the pixels, from the window's begin
    scale = size / side
    centre_S = (torch.arange(side, device=count_H.device) + 0.5) * scale
    distance_SH = (place_H[None, :] - centre_S[:, None]).abs() / scale.clamp(min=1.0)
    weight_SH = (1.0 - distance_SH).clamp(min=0.0) * ((place_H > 0) & (place_H < size))
    return weight_SH / weight_SH.sum(dim=1, keepdim=True)


def _byte_levels(levels: Tensor) -> Tensor:
    """Round levels to those that bytes hold, in floats."""
    return _passing(levels, (levels.detach() + 0.5).floor().clamp(0.0, MAX_PIXEL))


def _passing(levels: Tensor, rounded: Tensor) -> Tensor:
    """The rounded levels; the gradient passes as if they had not been rounded."""
    return rounded + (levels - levels.detach()) if levels.requires_grad else rounded
