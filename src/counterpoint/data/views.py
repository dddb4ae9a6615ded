"""Views of samples: every value is a pure function of (seed, epoch, sample id, view number)."""

# B samples, C channels, H height, W width, D features

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from counterpoint.core.array_layout import to_unit_float
from counterpoint.core.counter_random import PURPOSE_DROPOUT, PURPOSE_NOISE, PURPOSE_VIEW, normal, uniform
from counterpoint.data.colour import colour_jitter, to_grey
from counterpoint.data.presets import ViewPlan
from counterpoint.data.spatial import NUM_CROP_DRAWS, affine, crop_resize_flip, gaussian_blur, random_crop_boxes

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
NUM_DRAWS = BLUR_SIGMA + 1


@dataclass(frozen=True)
class ViewDrawer:
    """Draws views of raw samples, on the device where the samples are.

    Args:
        plan: which changes, how strong, how often.
        mean: per channel or feature, subtracted after the changes.
        std: per channel or feature, divided by after the changes.
        seed: the run's seed.
    """

    plan: ViewPlan
    mean: Tensor
    std: Tensor
    seed: int

    def two_views(self, samples: Tensor, ids_B: Tensor, epoch: int) -> tuple[Tensor, Tensor]:
        """Views 0 and 1 of each sample, ready for the encoder.

        Args:
            samples: uint8 (b, c, h, w) or float32 (b, d).
            ids_B: int64 sample ids.
            epoch: epoch number.
        """
        view_2B = torch.arange(2, device=ids_B.device).repeat_interleave(len(ids_B))
        views = self.draw(torch.cat([samples, samples]), torch.cat([ids_B, ids_B]), epoch, view_2B)
        first, second = self.standardise(views).chunk(2)
        return first, second

    def draw(self, samples: Tensor, ids_B: Tensor, epoch: int, view_B: Tensor) -> Tensor:
        """Draw one view per sample, before standardising: images in [0, 1], or vectors."""
        if samples.ndim == 2:
            return self._vector_views(samples, ids_B, epoch, view_B)
        uniforms_BK = uniform(self.seed, epoch, ids_B, PURPOSE_VIEW + view_B, NUM_DRAWS)
        return image_views(to_unit_float(samples), self.plan, uniforms_BK)

    def standardise(self, views: Tensor) -> Tensor:
        """Subtract the mean, divide by the deviation."""
        shape = (1, -1, 1, 1) if views.ndim == 4 else (1, -1)
        return (views - self.mean.to(views.device).reshape(shape)) / self.std.to(views.device).reshape(shape)

    def _vector_views(self, samples_BD: Tensor, ids_B: Tensor, epoch: int, view_B: Tensor) -> Tensor:
        """Add noise in units of each feature's deviation, then set some features to their mean."""
        num_features = samples_BD.shape[1]
        if self.plan.noise > 0:
            noise_BD = normal(self.seed, epoch, ids_B, PURPOSE_NOISE + view_B, num_features)
            samples_BD = samples_BD + self.plan.noise * self.std.to(samples_BD.device) * noise_BD
        if self.plan.dropout > 0:
            kept_BD = uniform(self.seed, epoch, ids_B, PURPOSE_DROPOUT + view_B, num_features) >= self.plan.dropout
            samples_BD = torch.where(kept_BD, samples_BD, self.mean.to(samples_BD.device))
        return samples_BD


def image_views(images_BCHW: Tensor, plan: ViewPlan, uniforms_BK: Tensor) -> Tensor:
    """One view per image from its own row of ``NUM_DRAWS`` numbers; values in [0, 1] in and out."""
    views = _crop_and_flip(images_BCHW, plan, uniforms_BK)
    for column, probability, change in (
        (AFFINE, plan.affine, _affine),
        (JITTER, plan.jitter, _jitter),
        (GRAYSCALE, plan.grayscale, _drop_colour),
        (BLUR, plan.blur, _blur),
    ):
        rows = (uniforms_BK[:, column] < probability).nonzero()[:, 0]
        if len(rows):
            views[rows] = change(views[rows], plan, uniforms_BK[rows])
    return views.clamp_(0.0, 1.0)  # weights that sum to 1 but for rounding leave the range by an ulp


def _crop_and_flip(images_BCHW: Tensor, plan: ViewPlan, uniforms_BK: Tensor) -> Tensor:
    """Random resized crop and left-right flip in one resampling; always a new tensor."""
    is_whole = plan.crop_scale == (1.0, 1.0)
    if is_whole and plan.flip == 0:
        return images_BCHW.clone()
    height, width = images_BCHW.shape[2:]
    boxes_B4 = random_crop_boxes(uniforms_BK[:, CROP], height, width, plan.crop_scale)
    if is_whole:
        boxes_B4 = boxes_B4.new_tensor([0, 0, height, width]).expand_as(boxes_B4)
    return crop_resize_flip(images_BCHW, boxes_B4, uniforms_BK[:, FLIP] < plan.flip, (height, width))


def _affine(images_BCHW: Tensor, plan: ViewPlan, uniforms_BK: Tensor) -> Tensor:
    """Random rotation, shift, zoom and shear."""
    numbers = uniforms_BK[:, AFFINE_NUMBERS]
    signed = 2.0 * numbers - 1.0
    zoom_B = plan.zoom[0] + (plan.zoom[1] - plan.zoom[0]) * numbers[:, 3]
    angle_B, shear_B2 = math.radians(plan.rotate) * signed[:, 0], math.radians(plan.shear) * signed[:, 4:6]
    return affine(images_BCHW, angle_B, plan.translate * signed[:, 1:3], zoom_B, shear_B2)


def _jitter(images_BCHW: Tensor, plan: ViewPlan, uniforms_BK: Tensor) -> Tensor:
    """Random brightness, contrast, saturation and hue."""
    return colour_jitter(images_BCHW, uniforms_BK[:, JITTER_NUMBERS], plan.jitter_strength)


def _drop_colour(images_BCHW: Tensor, plan: ViewPlan, uniforms_BK: Tensor) -> Tensor:
    """Grey levels."""
    return to_grey(images_BCHW)


def _blur(images_BCHW: Tensor, plan: ViewPlan, uniforms_BK: Tensor) -> Tensor:
    """Gaussian blur of random width."""
    low, high = plan.blur_sigma
    return gaussian_blur(images_BCHW, low + (high - low) * uniforms_BK[:, BLUR_SIGMA], high)
