"""Affine maps and blur of a batch, each image with its own parameters."""

# B images, C channels, H height, W width, O offsets

import math
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

Fill = Literal["black", "edge"]
PADDING: dict[Fill, str] = {"black": "zeros", "edge": "border"}  # torch's words
BLUR_REACH = 4.0  # a Gaussian is cut off at so many sigma


def affine_maps(angle_B: Tensor, shift_B2: Tensor, zoom_B: Tensor, shear_B2: Tensor, size: tuple[int, int]) -> Tensor:
    """Maps that rotate, shift, scale and shear about the centre.

    Args:
        angle_B: rotation in radians, counter-clockwise.
        shift_B2: (x, y) shift as a share of width and height.
        zoom_B: scaling factor > 0; above 1 enlarges.
        shear_B2: (x, y) shear angles in radians.
        size: height and width of the images.

    Returns:
        (b, 2, 3): where an output pixel comes from, in units of half the side.
    """
    height, width = size
    cos, sin = torch.cos(angle_B), torch.sin(angle_B)
    rotation = torch.stack([torch.stack([cos, sin], 1), torch.stack([-sin, cos], 1)], 1)
    one = torch.ones_like(angle_B)
    shear = torch.stack(
        [torch.stack([one, torch.tan(shear_B2[:, 0])], 1), torch.stack([torch.tan(shear_B2[:, 1]), one], 1)], 1
    )
    forward_B22 = zoom_B[:, None, None] * _product(rotation, shear)
    inverse_B22 = _inverse(forward_B22) * angle_B.new_tensor([[1.0, height / width], [width / height, 1.0]])
    offset_B2 = -(inverse_B22 * (2.0 * shift_B2)[:, None, :]).sum(2)
    return torch.cat([inverse_B22, offset_B2[:, :, None]], dim=2)


def affine(images_BCHW: Tensor, maps_B23: Tensor, fill: Fill = "black") -> Tensor:
    """Move images by their maps; bilinear; outside is black, or as the nearest pixel of the edge."""
    maps_B23 = maps_B23.to(images_BCHW.device, non_blocking=True)
    grid = F.affine_grid(maps_B23, list(images_BCHW.shape), align_corners=False)
    return F.grid_sample(images_BCHW, grid, mode="bilinear", padding_mode=PADDING[fill], align_corners=False)


def gaussian_blur(images_BCHW: Tensor, sigma_B: Tensor, largest_sigma: float) -> Tensor:
    """Blur each image with its own Gaussian of ``sigma`` pixels (on the CPU), cut off at 4 sigma, edges mirrored."""
    return _blur_axis(_blur_axis(images_BCHW, sigma_B, largest_sigma, 2), sigma_B, largest_sigma, 3)


def _blur_axis(images_BCHW: Tensor, sigma_B: Tensor, largest_sigma: float, axis: int) -> Tensor:
    """Weighted sum of shifted copies, those at equal distance together."""
    size = images_BCHW.shape[axis]
    radius = min(size - 1, max(1, math.ceil(BLUR_REACH * largest_sigma)))
    ratio_BO = torch.arange(radius + 1) / sigma_B[:, None]
    weight_BO = torch.exp(-0.5 * ratio_BO.square()) * (ratio_BO <= BLUR_REACH)
    weight_BO = weight_BO / (weight_BO[:, :1] + 2.0 * weight_BO[:, 1:].sum(dim=1, keepdim=True))
    weight_BO = weight_BO.to(images_BCHW.device, non_blocking=True)
    margins = (0, 0, radius, radius) if axis == 2 else (radius, radius, 0, 0)
    padded = F.pad(images_BCHW, margins, mode="reflect")
    blurred = images_BCHW * weight_BO[:, 0, None, None, None]
    for distance in range(1, radius + 1):
        # Product and sum as two operations: a fused one may round differently at the end of a vector register.
        pair = padded.narrow(axis, radius - distance, size) + padded.narrow(axis, radius + distance, size)
        blurred.add_(pair.mul_(weight_BO[:, distance, None, None, None]))
    return blurred


def _product(a_B22: Tensor, b_B22: Tensor) -> Tensor:
    """Product of 2 x 2 matrices, written out so that no batched routine may reorder it."""
    return (a_B22[:, :, :, None] * b_B22[:, None, :, :]).sum(dim=2)


def _inverse(matrix_B22: Tensor) -> Tensor:
    """Inverse of 2 x 2 matrices."""
    a, b, c, d = matrix_B22.reshape(-1, 4).unbind(1)
    determinant = a * d - b * c
    return torch.stack([d, -b, -c, a], 1).reshape(-1, 2, 2) / determinant[:, None, None]
