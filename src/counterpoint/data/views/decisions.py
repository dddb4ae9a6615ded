"""What is to be done to each image of a batch: everything that follows from the random numbers alone, on the CPU."""

# B images, K random numbers

import math
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor

from counterpoint.data.views.colour import Jitter, Rows, draw_jitter
from counterpoint.data.views.crops import NUM_CROP_DRAWS, Crop, plan_crop, random_crop_boxes
from counterpoint.data.views.presets import ViewPlan
from counterpoint.data.views.spatial import affine_maps

# Places of each operation's numbers among a sample's draws: fixed, so that changing one operation leaves the others'
# draws alone.
CROP = slice(0, NUM_CROP_DRAWS)
FLIP = NUM_CROP_DRAWS
AFFINE = FLIP + 1
AFFINE_NUMBERS = slice(AFFINE + 1, AFFINE + 7)
JITTER = AFFINE + 7
JITTER_NUMBERS = slice(JITTER + 1, JITTER + 6)
GRAYSCALE = JITTER + 6
BLUR = GRAYSCALE + 1
BLUR_SIGMA = BLUR + 1
SOLARIZE = BLUR_SIGMA + 1
NUM_DRAWS = SOLARIZE + 1


@dataclass(frozen=True)
class Decisions:
    """Which images are changed, and how.

    Attributes:
        crop: how boxes are brought to the size of the image, flips included; None where the plan crops nothing.
        is_flipped_B: mirrored left to right by itself.
        is_moved_B: moved by their affine map.
        maps_B23: affine maps.
        is_jittered_B: colours jittered.
        jitter: how.
        is_grey_B: colour dropped.
        is_blurred_B: blurred.
        sigma_B: how wide, in pixels.
        is_solarized_B: bright half inverted.
    """

    crop: Crop | None
    is_flipped_B: Tensor
    is_moved_B: Tensor
    maps_B23: Tensor
    is_jittered_B: Tensor
    jitter: Jitter
    is_grey_B: Tensor
    is_blurred_B: Tensor
    sigma_B: Tensor
    is_solarized_B: Tensor


def decide(plan: ViewPlan, uniforms_BK: Tensor, is_second_B: Tensor, size: tuple[int, int]) -> Decisions:
    """Turn random numbers into decisions.

    Args:
        plan: which changes, how strong, how often.
        uniforms_BK: (b, ``NUM_DRAWS``) numbers in [0, 1).
        is_second_B: bool: which are second views, where the plan tells the two apart.
        size: height and width of the images.
    """
    is_cropped = plan.crop_scale != (1.0, 1.0)
    is_flipped_B = uniforms_BK[:, FLIP] < plan.flip
    low, high = plan.blur_sigma
    return Decisions(
        crop=_crop(plan, uniforms_BK[:, CROP], is_flipped_B, size) if is_cropped else None,
        is_flipped_B=torch.zeros_like(is_flipped_B) if is_cropped else is_flipped_B,
        is_moved_B=uniforms_BK[:, AFFINE] < plan.affine,
        maps_B23=_maps(plan, uniforms_BK[:, AFFINE_NUMBERS], size),
        is_jittered_B=uniforms_BK[:, JITTER] < plan.jitter,
        jitter=draw_jitter(uniforms_BK[:, JITTER_NUMBERS], plan.jitter_strength, plan.jitter_saturation),
        is_grey_B=uniforms_BK[:, GRAYSCALE] < plan.grayscale,
        is_blurred_B=uniforms_BK[:, BLUR] < _chances(plan.blur, plan.blur_second, is_second_B),
        sigma_B=low + (high - low) * uniforms_BK[:, BLUR_SIGMA],
        is_solarized_B=uniforms_BK[:, SOLARIZE] < _chances(plan.solarize, plan.solarize_second, is_second_B),
    )


def rows_of(record: Any, rows: Rows) -> Any:
    """Some rows of a tensor, or of every tensor of a record and of the records in it; None stays None."""
    if record is None:
        return None
    if isinstance(record, Tensor):
        return record[rows]
    return type(record)(**{field.name: rows_of(getattr(record, field.name), rows) for field in fields(record)})


def _chances(first: float, second: float | None, is_second_B: Tensor) -> Tensor:
    """Probability of a change for each image, by which view it is drawn for."""
    return torch.where(is_second_B, first if second is None else second, first)


def _crop(plan: ViewPlan, uniforms_BK: Tensor, is_flipped_B: Tensor, size: tuple[int, int]) -> Crop:
    """Random resized crops; flips are part of them."""
    return plan_crop(random_crop_boxes(uniforms_BK, *size, plan.crop_scale), is_flipped_B, size, plan.interpolation)


def _maps(plan: ViewPlan, uniforms_B6: Tensor, size: tuple[int, int]) -> Tensor:
    """Random rotation, shift, zoom and shear."""
    signed = 2.0 * uniforms_B6 - 1.0
    zoom_B = plan.zoom[0] + (plan.zoom[1] - plan.zoom[0]) * uniforms_B6[:, 3]
    angle_B, shear_B2 = math.radians(plan.rotate) * signed[:, 0], math.radians(plan.shear) * signed[:, 4:6]
    return affine_maps(angle_B, plan.translate * signed[:, 1:3], zoom_B, shear_B2, size)
