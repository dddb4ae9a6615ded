"""Spatial views: random resized crops, affine maps and blur, each image with its own parameters.

Crops are gathers, products and sums: a matrix product would round differently with the size of the batch, and with
where in memory an image lies.
"""

# B images, C channels, H height, W width, S output side, K taps, T tries, O offsets

import math
from dataclasses import dataclass
from functools import reduce
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

ASPECT_RATIO = (3 / 4, 4 / 3)
NUM_TRIES = 10  # draws of (area, ratio) before falling back to the whole image, as in torchvision
NUM_CROP_DRAWS = 2 * NUM_TRIES + 2
CUBIC = -0.5  # keys1981's parameter, as Pillow and torchvision's antialiased resize have it

Interpolation = Literal["bilinear", "bicubic"]
OFFSETS: dict[Interpolation, tuple[int, ...]] = {"bilinear": (0, 1), "bicubic": (-1, 0, 1, 2)}


@dataclass(frozen=True)
class Taps:
    """The pixels along one axis that each output pixel is made of.

    Attributes:
        place_BKS: numbers of these pixels, int64.
        weight_BKS: weights of these pixels, which sum to 1 over the taps.
    """

    place_BKS: Tensor
    weight_BKS: Tensor


@dataclass(frozen=True)
class Crop:
    """The crop of each image: the pixels that its rows and its columns are made of."""

    rows: Taps
    columns: Taps


def random_crop_boxes(uniforms_BK: Tensor, height: int, width: int, scale: tuple[float, float]) -> Tensor:
    """Boxes of a random resized crop (szegedy2015's recipe, as torchvision draws it).

    Differs from torchvision if no box of ten fits: the largest one lies anywhere, not in the middle.

    Args:
        uniforms_BK: numbers in [0, 1), shape (b, ``NUM_CROP_DRAWS``).
        height: height of the images, in pixels.
        width: width of the images, in pixels.
        scale: lowest and highest share of the area.

    Returns:
        int64 (b, 4): top, left, height, width; the first of ten tries that fits, else the largest box of a legal ratio.
    """
    # All ten tries of every image at once; torchvision draws them until one fits.
    area_BT = height * width * (scale[0] + (scale[1] - scale[0]) * uniforms_BK[:, :NUM_TRIES])
    low, high = (math.log(ratio) for ratio in ASPECT_RATIO)
    # Uniform in the logarithm: 3:4 is as likely as 4:3.
    ratio_BT = torch.exp(low + (high - low) * uniforms_BK[:, NUM_TRIES : 2 * NUM_TRIES])
    widths_BT = torch.sqrt(area_BT * ratio_BT).round().long()
    heights_BT = torch.sqrt(area_BT / ratio_BT).round().long()
    fits_BT = (widths_BT >= 1) & (widths_BT <= width) & (heights_BT >= 1) & (heights_BT <= height)
    # Of equal values argmax gives the first; where no try fits it is replaced below.
    first_B1 = fits_BT.to(torch.int64).argmax(dim=1, keepdim=True)
    box_height, box_width = (sizes.gather(1, first_B1)[:, 0] for sizes in (heights_BT, widths_BT))
    # torchvision puts this box in the middle, here its place is drawn; of a square image both take the whole.
    fallback_ratio = min(max(width / height, ASPECT_RATIO[0]), ASPECT_RATIO[1])
    has_fit = fits_BT.any(dim=1)
    box_height = torch.where(has_fit, box_height, min(height, round(width / fallback_ratio)))
    box_width = torch.where(has_fit, box_width, min(width, round(height * fallback_ratio)))
    # With u <= 1 - 2**-24 a float32 product u * n stays below n, so that the box stays inside.
    top = (uniforms_BK[:, -2] * (height - box_height + 1)).long()
    left = (uniforms_BK[:, -1] * (width - box_width + 1)).long()
    return torch.stack([top, left, box_height, box_width], dim=1)


def plan_crop(
    boxes_B4: Tensor, is_flipped_B: Tensor, size: tuple[int, int], interpolation: Interpolation = "bilinear"
) -> Crop:
    """Plan the resampling of each image's box to a size, flipped left to right if chosen.

    Args:
        boxes_B4: int64 top, left, height, width. A box lies inside its image, so that a view of the image's size is
            never shrunk. A larger box is shrunk without antialiasing.
        is_flipped_B: bool, true for images to flip left to right.
        size: height and width of the views.
        interpolation: kind of interpolation between pixels; bicubic may leave the range of the values.
    """
    rows = _taps(boxes_B4[:, 0], boxes_B4[:, 2], size[0], interpolation)
    columns = _taps(boxes_B4[:, 1], boxes_B4[:, 3], size[1], interpolation)
    place_BKS, weight_BKS = (
        # A flip is the columns' taps in reverse order; it costs no pass over the image.
        torch.where(is_flipped_B[:, None, None], values.flip(2), values)
        for values in (columns.place_BKS, columns.weight_BKS)
    )
    return Crop(rows, Taps(place_BKS, weight_BKS))


def apply_crop(images_BCHW: Tensor, crop: Crop) -> Tensor:
    """Cut, resize and flip images in one resampling, rows first."""
    num_images, num_channels, height, width = images_BCHW.shape
    # All rows of all images as one list, so that one index_select per tap serves the batch.
    rows, taps = images_BCHW.reshape(-1, width), crop.rows
    first_BC1 = (torch.arange(num_images * num_channels) * height).reshape(num_images, num_channels, 1)
    place_KN = (first_BC1 + taps.place_BKS.transpose(0, 1)[:, :, None]).flatten(1).to(rows.device, non_blocking=True)
    weight_BK1S1 = taps.weight_BKS[:, :, None, :, None].to(rows.device, non_blocking=True)
    terms = (
        rows.index_select(0, place_KN[tap]).reshape(num_images, num_channels, -1, width).mul_(weight_BK1S1[:, tap])
        for tap in range(len(place_KN))
    )
    resampled = reduce(Tensor.add_, terms)
    place_BK11S = crop.columns.place_BKS[:, :, None, None].to(rows.device, non_blocking=True)
    weight_BK11S = crop.columns.weight_BKS[:, :, None, None].to(rows.device, non_blocking=True)
    shape = (*resampled.shape[:3], place_BK11S.shape[4])
    terms = (
        resampled.gather(3, place_BK11S[:, tap].expand(shape)).mul_(weight_BK11S[:, tap])
        for tap in range(place_BK11S.shape[1])
    )
    return reduce(Tensor.add_, terms)


def _taps(start_B: Tensor, length_B: Tensor, size: int, interpolation: Interpolation) -> Taps:
    """Taps of a resize of [start, start + length) to ``size`` pixels, those outside the box left out."""
    offset_K1 = torch.tensor(OFFSETS[interpolation])[:, None]
    length_B11 = length_B[:, None, None]
    # Pixel centres lie at halves: output j comes from (j + 1/2) * length / size - 1/2.
    centre_B1S = (torch.arange(size) + 0.5) * (length_B11.to(torch.float32) / size) - 0.5
    base_B1S = centre_B1S.floor()
    pixel_BKS = base_B1S.long() + offset_K1
    # keys1981, Eq. 4 and 15, in Horner's form: of distances in [0, 1] and in [1, 2]; 0 beyond.
    distance = (offset_K1 - (centre_B1S - base_B1S)).abs()
    if interpolation == "bilinear":
        weight_BKS = (1.0 - distance).clamp(min=0.0)
    else:
        near = ((CUBIC + 2) * distance - (CUBIC + 3)) * distance.square() + 1
        far = CUBIC * (((distance - 5) * distance + 8) * distance - 4)
        weight_BKS = torch.where(distance < 1, near, torch.where(distance < 2, far, 0.0))
    # As Pillow: taps outside the box get no weight, the others are scaled to sum 1. Clamped places exist, at least.
    weight_BKS = weight_BKS * ((pixel_BKS >= 0) & (pixel_BKS < length_B11))
    place_BKS = start_B[:, None, None] + torch.minimum(pixel_BKS.clamp(min=0), length_B11 - 1)
    return Taps(place_BKS, weight_BKS / weight_BKS.sum(dim=1, keepdim=True))


Fill = Literal["black", "edge"]
PADDING: dict[Fill, str] = {"black": "zeros", "edge": "border"}  # torch's words
BLUR_REACH = 4.0  # a Gaussian is cut off at this many sigma


def affine_maps(angle_B: Tensor, shift_B2: Tensor, zoom_B: Tensor, shear_B2: Tensor, size: tuple[int, int]) -> Tensor:
    """Maps that rotate, shift, scale and shear about the centre.

    Args:
        angle_B: rotation in radians, counter-clockwise.
        shift_B2: (x, y) shift as a share of width and height.
        zoom_B: scaling factor > 0; above 1 enlarges.
        shear_B2: (x, y) shear angles in radians.
        size: height and width of the images.

    Returns:
        (b, 2, 3), from an output pixel to its place in the input, in units of half the side.
    """
    height, width = size
    cos, sin = torch.cos(angle_B), torch.sin(angle_B)
    # y points down: this turns counter-clockwise on the screen.
    rotation = torch.stack([torch.stack([cos, sin], 1), torch.stack([-sin, cos], 1)], 1)
    ones = torch.ones_like(angle_B)
    shear = torch.stack(
        [torch.stack([ones, torch.tan(shear_B2[:, 0])], 1), torch.stack([torch.tan(shear_B2[:, 1]), ones], 1)], 1
    )
    # Products and inverses of 2 x 2 matrices are written out, so that no batched routine may reorder them.
    forward_B22 = zoom_B[:, None, None] * (rotation[:, :, :, None] * shear[:, None, :, :]).sum(dim=2)
    a, b, c, d = forward_B22.reshape(-1, 4).unbind(1)
    inverse_B22 = torch.stack([d, -b, -c, a], 1).reshape(-1, 2, 2) / (a * d - b * c)[:, None, None]
    # Units of half the side differ between x and y where the image is not square.
    inverse_B22 = inverse_B22 * angle_B.new_tensor([[1.0, height / width], [width / height, 1.0]])
    # x_in = A^-1 (x_out - shift); a share of the side is twice as many half sides.
    offset_B2 = -(inverse_B22 * (2.0 * shift_B2)[:, None, :]).sum(2)
    return torch.cat([inverse_B22, offset_B2[:, :, None]], dim=2)


def affine(images_BCHW: Tensor, maps_B23: Tensor, fill: Fill = "black") -> Tensor:
    """Move images by their maps; bilinear; outside is black, or as the nearest pixel of the edge."""
    maps_B23 = maps_B23.to(images_BCHW.device, non_blocking=True)
    grid = F.affine_grid(maps_B23, list(images_BCHW.shape), align_corners=False)
    return F.grid_sample(images_BCHW, grid, mode="bilinear", padding_mode=PADDING[fill], align_corners=False)


def gaussian_blur(images_BCHW: Tensor, sigma_B: Tensor, largest_sigma: float) -> Tensor:
    """Blur each image with its own Gaussian of ``sigma`` pixels (on the CPU), cut off at 4 sigma, edges mirrored."""
    for axis in (2, 3):
        size = images_BCHW.shape[axis]
        # One radius for the batch; weights beyond an image's own 4 sigma are 0. Mirroring needs radius < size.
        radius = min(size - 1, max(1, math.ceil(BLUR_REACH * largest_sigma)))
        ratio_BO = torch.arange(radius + 1) / sigma_B[:, None]
        weight_BO = torch.exp(-0.5 * ratio_BO.square()) * (ratio_BO <= BLUR_REACH)
        # Each distance but 0 means two pixels.
        weight_BO = weight_BO / (weight_BO[:, :1] + 2.0 * weight_BO[:, 1:].sum(dim=1, keepdim=True))
        weight_BO = weight_BO.to(images_BCHW.device, non_blocking=True)
        margins = (0, 0, radius, radius) if axis == 2 else (radius, radius, 0, 0)
        padded = F.pad(images_BCHW, margins, mode="reflect")
        images_BCHW = images_BCHW * weight_BO[:, 0, None, None, None]
        for distance in range(1, radius + 1):
            # Product and sum as two operations: a fused one may round differently at the end of a vector register.
            pair = padded.narrow(axis, radius - distance, size) + padded.narrow(axis, radius + distance, size)
            images_BCHW.add_(pair.mul_(weight_BO[:, distance, None, None, None]))
    return images_BCHW


def blurred(images_BCHW: Tensor, sigma: float) -> Tensor:
    """Blur all images with the same Gaussian; not at all if sigma is 0."""
    return gaussian_blur(images_BCHW, torch.full((len(images_BCHW),), sigma), sigma) if sigma > 0 else images_BCHW
