"""Geometric views of a batch, each image with its own parameters: crop and flip, affine maps, blur.

Crop, resize and flip are linear and act on rows and columns apart, so together they are two small matrices per image.
"""

# B images, C channels, H height, W width, S output side, T tries

import math

import torch
import torch.nn.functional as F
from torch import Tensor

ASPECT_RATIO = (3 / 4, 4 / 3)
NUM_TRIES = 10  # draws of (area, ratio) before falling back to the whole image, as in torchvision
NUM_CROP_DRAWS = 2 * NUM_TRIES + 2


def random_crop_boxes(uniforms_BK: Tensor, height: int, width: int, scale: tuple[float, float]) -> Tensor:
    """Boxes of a random resized crop (szegedy2015's recipe, as torchvision draws it).

    Args:
        uniforms_BK: numbers in [0, 1), shape (b, ``NUM_CROP_DRAWS``).
        height: of the images, in pixels.
        width: of the images, in pixels.
        scale: lowest and highest share of the area.

    Returns:
        int64 (b, 4): top, left, height, width; the first of ten tries that fits, else the largest box of a legal ratio.
    """
    area_BT = height * width * (scale[0] + (scale[1] - scale[0]) * uniforms_BK[:, :NUM_TRIES])
    low, high = (math.log(ratio) for ratio in ASPECT_RATIO)
    ratio_BT = torch.exp(low + (high - low) * uniforms_BK[:, NUM_TRIES : 2 * NUM_TRIES])
    widths_BT = torch.sqrt(area_BT * ratio_BT).round().long()
    heights_BT = torch.sqrt(area_BT / ratio_BT).round().long()
    fits_BT = (widths_BT >= 1) & (widths_BT <= width) & (heights_BT >= 1) & (heights_BT <= height)
    first_B1 = fits_BT.to(torch.int64).argmax(dim=1, keepdim=True)
    box_height, box_width = (sizes.gather(1, first_B1)[:, 0] for sizes in (heights_BT, widths_BT))
    fallback_ratio = min(max(width / height, ASPECT_RATIO[0]), ASPECT_RATIO[1])
    has_fit = fits_BT.any(dim=1)
    box_height = torch.where(has_fit, box_height, min(height, round(width / fallback_ratio)))
    box_width = torch.where(has_fit, box_width, min(width, round(height * fallback_ratio)))
    top = (uniforms_BK[:, -2] * (height - box_height + 1)).long()
    left = (uniforms_BK[:, -1] * (width - box_width + 1)).long()
    return torch.stack([top, left, box_height, box_width], dim=1)


def crop_resize_flip(images_BCHW: Tensor, boxes_B4: Tensor, is_flipped_B: Tensor, side: tuple[int, int]) -> Tensor:
    """Cut each image's box, resize it (bilinear, antialiased) and flip it left to right where asked."""
    rows_BSH = _resize_matrix(boxes_B4[:, 0], boxes_B4[:, 2], images_BCHW.shape[2], side[0])
    columns_BSW = _resize_matrix(boxes_B4[:, 1], boxes_B4[:, 3], images_BCHW.shape[3], side[1])
    columns_BSW = torch.where(is_flipped_B[:, None, None], columns_BSW.flip(1), columns_BSW)
    return _separable(images_BCHW, rows_BSH, columns_BSW)


def affine(images_BCHW: Tensor, angle_B: Tensor, shift_B2: Tensor, zoom_B: Tensor, shear_B2: Tensor) -> Tensor:
    """Rotate, shift, scale and shear about the centre; bilinear, zero outside.

    Args:
        images_BCHW: images.
        angle_B: rotation in radians, counter-clockwise.
        shift_B2: (x, y) shift as a share of width and height.
        zoom_B: scaling factor > 0; above 1 enlarges.
        shear_B2: (x, y) shear angles in radians.
    """
    height, width = images_BCHW.shape[2:]
    cos, sin = torch.cos(angle_B), torch.sin(angle_B)
    rotation = torch.stack([torch.stack([cos, sin], 1), torch.stack([-sin, cos], 1)], 1)
    one = torch.ones_like(angle_B)
    shear = torch.stack(
        [torch.stack([one, torch.tan(shear_B2[:, 0])], 1), torch.stack([torch.tan(shear_B2[:, 1]), one], 1)], 1
    )
    forward_B22 = zoom_B[:, None, None] * _product(rotation, shear)
    # grid_sample asks where an output pixel comes from, in units of half the side.
    inverse_B22 = _inverse(forward_B22) * images_BCHW.new_tensor([[1.0, height / width], [width / height, 1.0]])
    offset_B2 = -(inverse_B22 * (2.0 * shift_B2)[:, None, :]).sum(2)
    theta_B23 = torch.cat([inverse_B22, offset_B2[:, :, None]], dim=2)
    grid = F.affine_grid(theta_B23, list(images_BCHW.shape), align_corners=False)
    return F.grid_sample(images_BCHW, grid, mode="bilinear", padding_mode="zeros", align_corners=False)


def gaussian_blur(images_BCHW: Tensor, sigma_B: Tensor, largest_sigma: float) -> Tensor:
    """Blur each image with its own Gaussian of ``sigma`` pixels, cut off at 4 sigma, edges mirrored."""
    return _blur_axis(_blur_axis(images_BCHW, sigma_B, largest_sigma, 2), sigma_B, largest_sigma, 3)


def _separable(images_BCHW: Tensor, rows_BSH: Tensor, columns_BSW: Tensor) -> Tensor:
    """Multiply each image by its row matrix from the left and its column matrix from the right."""
    return torch.matmul(torch.matmul(rows_BSH[:, None], images_BCHW), columns_BSW[:, None].transpose(2, 3))


def _resize_matrix(start_B: Tensor, length_B: Tensor, size: int, side: int) -> Tensor:
    """Matrix (b, side, size) of an antialiased bilinear resize of [start, start + length) to ``side`` pixels."""
    stretch_B11 = (length_B.to(torch.float32) / side)[:, None, None]
    support_B11 = stretch_B11.clamp(min=1.0)
    output_1S1 = torch.arange(side, device=start_B.device, dtype=torch.float32)[None, :, None]
    pixel_11H = torch.arange(size, device=start_B.device)[None, None, :]
    inside_B1H = pixel_11H - start_B[:, None, None]
    distance_BSH = ((inside_B1H + 0.5) - (output_1S1 + 0.5) * stretch_B11).abs() / support_B11
    is_inside = (inside_B1H >= 0) & (inside_B1H < length_B[:, None, None])
    weight_BSH = (1.0 - distance_BSH).clamp(min=0.0) * is_inside
    return weight_BSH / weight_BSH.sum(dim=2, keepdim=True)


def _blur_axis(images_BCHW: Tensor, sigma_B: Tensor, largest_sigma: float, axis: int) -> Tensor:
    """Weighted sum of shifted copies; a matrix product would round differently with the size of the batch."""
    size = images_BCHW.shape[axis]
    radius = min(size - 1, max(1, math.ceil(4.0 * largest_sigma)))
    ratio_BO = torch.arange(-radius, radius + 1, device=sigma_B.device) / sigma_B[:, None]
    weight_BO = torch.exp(-0.5 * ratio_BO.square()) * (ratio_BO.abs() <= 4.0)
    weight_BO = weight_BO / weight_BO.sum(dim=1, keepdim=True)
    margins = (0, 0, radius, radius) if axis == 2 else (radius, radius, 0, 0)
    padded = F.pad(images_BCHW, margins, mode="reflect")
    blurred = torch.zeros_like(images_BCHW)
    for place in range(2 * radius + 1):
        # Product and sum as two operations: a fused one may round differently at the end of a vector register.
        blurred += weight_BO[:, place, None, None, None] * padded.narrow(axis, place, size)
    return blurred


def _product(a_B22: Tensor, b_B22: Tensor) -> Tensor:
    """Product of 2 x 2 matrices, written out so that no batched routine may reorder it."""
    return (a_B22[:, :, :, None] * b_B22[:, None, :, :]).sum(dim=2)


def _inverse(matrix_B22: Tensor) -> Tensor:
    """Inverse of 2 x 2 matrices."""
    a, b, c, d = matrix_B22.reshape(-1, 4).unbind(1)
    determinant = a * d - b * c
    return torch.stack([d, -b, -c, a], 1).reshape(-1, 2, 2) / determinant[:, None, None]
