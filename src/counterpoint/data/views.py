"""Views of samples: every value is a pure function of (seed, epoch, sample id, view number)."""

# B samples, C channels, H height, W width, D features, K random numbers

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from counterpoint.core.array_layout import to_unit_float
from counterpoint.core.counter_random import PURPOSE_DROPOUT, PURPOSE_NOISE, PURPOSE_VIEW, normal, uniform
from counterpoint.data.colour import colour_jitter, draw_jitter, solarize, to_grey
from counterpoint.data.presets import ViewPlan
from counterpoint.data.row_changes import change_rows
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
SOLARIZE = BLUR_SIGMA + 1
NUM_DRAWS = SOLARIZE + 1

# Values worked on at once: what the caches hold on a CPU, what bounds the memory elsewhere.
CPU_CHUNK, DEVICE_CHUNK = 1 << 18, 1 << 26
Finish = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class ViewDrawer:
    """Draws views of raw samples, on the device where the samples are.

    Random numbers of images, and all that follows from them alone, are worked out on the CPU: the same on every
    device, and no device is waited for.

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

    def two_views(
        self, samples: Tensor, ids_B: Tensor, epoch: int, second: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Views 0 and 1 of each sample, ready for the encoder.

        Args:
            samples: uint8 (b, c, h, w) or float32 (b, d).
            ids_B: int64 sample ids; on the CPU for images, or the device is waited for.
            epoch: epoch number.
            second: what view 1 is drawn from, where the data come in pairs of one shape; of another shape (caption
                vectors) it is view 1 as it is, in float32.
        """
        is_drawn = second is None or second.shape == samples.shape
        if not is_drawn:
            first_only = torch.zeros_like(ids_B)
            return self._ready_views(samples, ids_B, epoch, first_only), second.to(torch.float32)
        both = torch.cat([samples, samples if second is None else second])
        view_2B = torch.arange(2, device=ids_B.device).repeat_interleave(len(ids_B))
        first, last = self._ready_views(both, torch.cat([ids_B, ids_B]), epoch, view_2B).chunk(2)
        return first, last

    def draw(self, samples: Tensor, ids_B: Tensor, epoch: int, view_B: Tensor) -> Tensor:
        """Draw one view per sample, before standardising: images in [0, 1], or vectors."""
        return self._views(samples, ids_B, epoch, view_B, None)

    def standardise(self, views: Tensor) -> Tensor:
        """Subtract the mean, divide by the deviation."""
        mean, std = self._moments(views)
        return (views - mean) / std

    def _ready_views(self, samples: Tensor, ids_B: Tensor, epoch: int, view_B: Tensor) -> Tensor:
        """Views, standardised in place."""
        mean, std = self._moments(samples)
        return self._views(samples, ids_B, epoch, view_B, lambda views: views.sub_(mean).div_(std))

    def _moments(self, like: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and deviation, shaped and placed to meet samples."""
        shape = (1, -1, 1, 1) if like.ndim == 4 else (1, -1)
        mean, std = (value.to(like.device, non_blocking=True).reshape(shape) for value in (self.mean, self.std))
        return mean, std

    def _views(self, samples: Tensor, ids_B: Tensor, epoch: int, view_B: Tensor, finish: Finish | None) -> Tensor:
        """Draw one view per sample and finish it."""
        if samples.ndim == 2:
            views = self._vector_views(samples, ids_B.to(samples.device), epoch, view_B.to(samples.device))
            return views if finish is None else finish(views)
        ids_B, view_B = ids_B.cpu(), view_B.cpu()
        uniforms_BK = uniform(self.seed, epoch, ids_B, PURPOSE_VIEW + view_B, NUM_DRAWS)
        return image_views(samples, self.plan, uniforms_BK, is_second_B=view_B % 2 == 1, finish=finish)

    def _vector_views(self, samples_BD: Tensor, ids_B: Tensor, epoch: int, view_B: Tensor) -> Tensor:
        """Add noise in units of each feature's deviation, then set some features to their mean; always a new tensor."""
        num_features = samples_BD.shape[1]
        mean, std = self._moments(samples_BD)
        views_BD = samples_BD.to(torch.float32, copy=True)
        if self.plan.noise > 0:
            noise_BD = normal(self.seed, epoch, ids_B, PURPOSE_NOISE + view_B, num_features)
            views_BD += self.plan.noise * std * noise_BD
        if self.plan.dropout > 0:
            kept_BD = uniform(self.seed, epoch, ids_B, PURPOSE_DROPOUT + view_B, num_features) >= self.plan.dropout
            views_BD = torch.where(kept_BD, views_BD, mean)
        return views_BD


def image_views(
    samples_BCHW: Tensor,
    plan: ViewPlan,
    uniforms_BK: Tensor,
    *,
    is_second_B: Tensor | None = None,
    finish: Finish | None = None,
) -> Tensor:
    """One view per image from its own row of random numbers.

    Args:
        samples_BCHW: uint8, or float32 in [0, 1]; left as they are.
        plan: which changes, how strong, how often.
        uniforms_BK: (b, ``NUM_DRAWS``) numbers in [0, 1), on the CPU.
        is_second_B: bool, on the CPU: which are second views, where the plan tells the two apart (none by default).
        finish: last change, in place, such as standardising.

    Returns:
        float32, in [0, 1] before ``finish``.
    """
    if is_second_B is None:
        is_second_B = torch.zeros(len(uniforms_BK), dtype=torch.bool)
    views = torch.empty(samples_BCHW.shape, dtype=torch.float32, device=samples_BCHW.device)
    chunk = CPU_CHUNK if views.device.type == "cpu" else DEVICE_CHUNK
    size = max(1, chunk // max(1, math.prod(views.shape[1:])))
    for start in range(0, len(views), size):
        rows = slice(start, start + size)
        _draw_chunk(views[rows], samples_BCHW[rows], plan, uniforms_BK[rows], is_second_B[rows])
        if finish is not None:
            finish(views[rows])
    return views


def _draw_chunk(
    views_BCHW: Tensor, samples_BCHW: Tensor, plan: ViewPlan, uniforms_BK: Tensor, is_second_B: Tensor
) -> None:
    """Draw the views of some images, sorted by when their hue turns, and write them in the order of the samples."""
    jitter = draw_jitter(uniforms_BK[:, JITTER_NUMBERS], plan.jitter_strength, plan.jitter_saturation)
    is_jittered_B = uniforms_BK[:, JITTER] < plan.jitter
    order_B = torch.where(is_jittered_B, jitter.hue_place_B, 4).argsort()
    device = views_BCHW.device
    images = to_unit_float(samples_BCHW.index_select(0, order_B.to(device, non_blocking=True)))
    images = _change(images, plan, uniforms_BK[order_B], is_second_B[order_B])
    images.clamp_(0.0, 1.0)  # weights that sum to 1 but for rounding leave the range by an ulp
    torch.index_select(images, 0, order_B.argsort().to(device, non_blocking=True), out=views_BCHW)


def _change(images_BCHW: Tensor, plan: ViewPlan, uniforms_BK: Tensor, is_second_B: Tensor) -> Tensor:
    """All changes in their order; images may be changed in place."""
    images_BCHW = _crop_and_flip(images_BCHW, plan, uniforms_BK)
    for column, name, change in (
        (AFFINE, "affine", _affine),
        (JITTER, "jitter", _jitter),
        (GRAYSCALE, "grayscale", _drop_colour),
        (BLUR, "blur", _blur),
        (SOLARIZE, "solarize", _solarize),
    ):
        is_chosen_B = uniforms_BK[:, column] < plan.chances(name, is_second_B)
        change_rows(
            images_BCHW, is_chosen_B, lambda part, rows, change=change: change(part, plan, uniforms_BK[rows])
        )
    return images_BCHW


def _crop_and_flip(images_BCHW: Tensor, plan: ViewPlan, uniforms_BK: Tensor) -> Tensor:
    """Random resized crop and left-right flip in one resampling."""
    is_flipped_B = uniforms_BK[:, FLIP] < plan.flip
    if plan.crop_scale == (1.0, 1.0):
        change_rows(images_BCHW, is_flipped_B, lambda part, _: part.flip(3))
        return images_BCHW
    height, width = images_BCHW.shape[2:]
    boxes_B4 = random_crop_boxes(uniforms_BK[:, CROP], height, width, plan.crop_scale)
    views = crop_resize_flip(images_BCHW, boxes_B4, is_flipped_B, plan.interpolation)
    return views.clamp_(0.0, 1.0) if plan.interpolation == "bicubic" else views


def _affine(images_BCHW: Tensor, plan: ViewPlan, uniforms_BK: Tensor) -> Tensor:
    """Random rotation, shift, zoom and shear."""
    numbers = uniforms_BK[:, AFFINE_NUMBERS]
    signed = 2.0 * numbers - 1.0
    zoom_B = plan.zoom[0] + (plan.zoom[1] - plan.zoom[0]) * numbers[:, 3]
    angle_B, shear_B2 = math.radians(plan.rotate) * signed[:, 0], math.radians(plan.shear) * signed[:, 4:6]
    return affine(images_BCHW, angle_B, plan.translate * signed[:, 1:3], zoom_B, shear_B2)


def _jitter(images_BCHW: Tensor, plan: ViewPlan, uniforms_BK: Tensor) -> Tensor:
    """Random brightness, contrast, saturation and hue."""
    drawn = draw_jitter(uniforms_BK[:, JITTER_NUMBERS], plan.jitter_strength, plan.jitter_saturation)
    return colour_jitter(images_BCHW, drawn)


def _drop_colour(images_BCHW: Tensor, plan: ViewPlan, uniforms_BK: Tensor) -> Tensor:
    """Grey levels."""
    return to_grey(images_BCHW)


def _blur(images_BCHW: Tensor, plan: ViewPlan, uniforms_BK: Tensor) -> Tensor:
    """Gaussian blur of random width."""
    low, high = plan.blur_sigma
    return gaussian_blur(images_BCHW, low + (high - low) * uniforms_BK[:, BLUR_SIGMA], high)


def _solarize(images_BCHW: Tensor, plan: ViewPlan, uniforms_BK: Tensor) -> Tensor:
    """Bright half inverted."""
    return solarize(images_BCHW)
