"""Views of samples: every value is a pure function of (seed, epoch, sample id, view number)."""

# B samples, C channels, H height, W width, D features, K random numbers

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

import torch
from torch import Tensor

from counterpoint.core.array_layout import to_unit_float
from counterpoint.core.counter_random import PURPOSE_DROPOUT, PURPOSE_NOISE, PURPOSE_VIEW, normal, uniform
from counterpoint.core.thread_parts import side_by_side
from counterpoint.data.views.colour import Rows, change_rows, colour_jitter, draw_jitter, solarize, to_grey
from counterpoint.data.views.own_views import OwnViews
from counterpoint.data.views.presets import ViewPlan, local_size
from counterpoint.data.views.spatial import (
    NUM_CROP_DRAWS,
    Crop,
    affine,
    affine_maps,
    apply_crop,
    gaussian_blur,
    plan_crop,
    random_crop_boxes,
)

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
SMALLEST_PART = 32  # images below which a second thread does not pay


@dataclass(frozen=True)
class _Operation:
    """A change of some images of a batch, with numbers of all: a tensor or a record of tensors, or None."""

    is_chosen_B: Tensor
    change: Callable[[Tensor, Any], Tensor]
    numbers: Any = None


def _decide(
    plan: ViewPlan, uniforms_BK: Tensor, is_second_B: Tensor, size: tuple[int, int], out_size: tuple[int, int]
) -> tuple[Crop | None, list[_Operation], Tensor]:
    """Turn random numbers into a crop, the changes in their order, and the place at which hues turn, 4 without jitter.

    A crop has the flips in it; there is none if the plan crops nothing and ``out_size`` is the images' own.
    """
    is_flipped_B, crop, fill = uniforms_BK[:, FLIP] < plan.flip, None, plan.fill
    assert plan.interpolation != "auto"
    assert fill != "auto"
    if plan.crop_scale != (1.0, 1.0) or out_size != size:
        boxes_B4 = random_crop_boxes(uniforms_BK[:, CROP], *size, plan.crop_scale)
        crop = plan_crop(boxes_B4, is_flipped_B, out_size, plan.interpolation)
        is_flipped_B = torch.zeros_like(is_flipped_B)  # a crop flips while it resamples
    # The six numbers of an affine map: angle, shift (x, y), zoom, shear (x, y).
    moved_B6 = uniforms_BK[:, AFFINE_NUMBERS]
    signed_B6 = 2.0 * moved_B6 - 1.0
    zoom_B = plan.zoom[0] + (plan.zoom[1] - plan.zoom[0]) * moved_B6[:, 3]
    angle_B, shear_B2 = math.radians(plan.rotate) * signed_B6[:, 0], math.radians(plan.shear) * signed_B6[:, 4:6]
    low, high = plan.blur_sigma
    maps_B23 = affine_maps(angle_B, plan.translate * signed_B6[:, 1:3], zoom_B, shear_B2, out_size)
    is_jittered_B = uniforms_BK[:, JITTER] < plan.jitter
    jitter = draw_jitter(uniforms_BK[:, JITTER_NUMBERS], plan.jitter_strength, plan.jitter_saturation)
    is_blurred_B = uniforms_BK[:, BLUR] < torch.where(is_second_B, plan.blur_second, plan.blur)
    is_solarized_B = uniforms_BK[:, SOLARIZE] < torch.where(is_second_B, plan.solarize_second, plan.solarize)
    # simclr2020's order (crop, flip, jitter, grey, blur), then grill2020's solarising; affine maps go with the flips.
    steps = [
        _Operation(is_flipped_B, lambda part, _: part.flip(3)),
        _Operation(uniforms_BK[:, AFFINE] < plan.affine, lambda part, maps: affine(part, maps, fill), maps_B23),
        _Operation(is_jittered_B, colour_jitter, jitter),
        _Operation(uniforms_BK[:, GRAYSCALE] < plan.grayscale, lambda part, _: to_grey(part)),
        _Operation(
            is_blurred_B,
            lambda part, sigma_B: gaussian_blur(part, sigma_B, high),
            low + (high - low) * uniforms_BK[:, BLUR_SIGMA],
        ),
        _Operation(is_solarized_B, lambda part, _: solarize(part)),
    ]
    return crop, steps, torch.where(is_jittered_B, jitter.hue_place_B, 4)


def rows_of(record: Any, rows: Rows) -> Any:
    """Some rows of a tensor, or of every tensor of a record and of the records in it; anything else as it is."""
    if isinstance(record, Tensor):
        return record[rows]
    if not is_dataclass(record):
        return record
    return type(record)(**{field.name: rows_of(getattr(record, field.name), rows) for field in fields(record)})


# Values worked on at once: as many as the caches hold on a CPU, and a bound on the memory elsewhere.
CPU_CHUNK, DEVICE_CHUNK = 1 << 20, 1 << 26
Finish = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class ViewDrawer:
    """A drawer of views of raw samples, on the device where the samples are.

    Random numbers of images, and all that follows from them alone, are worked out on the CPU: the same on every
    device, and no device is waited for.

    Args:
        plan: the changes with their strengths and chances; or the user's own views.
        mean: mean per channel or feature, which is subtracted after the changes.
        std: deviation per channel or feature, by which the result is divided.
        seed: the run's seed.
    """

    plan: ViewPlan | OwnViews
    mean: Tensor
    std: Tensor
    seed: int

    def two_views(
        self, samples: Tensor, ids_B: Tensor, epoch: int, second: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Views 0 and 1 of each sample, ready for the encoder.

        Args:
            samples: samples as they are stored, uint8 (b, c, h, w) or float32 (b, d).
            ids_B: int64 sample ids; on the CPU for images, or the device is waited for.
            epoch: epoch number.
            second: samples that view 1 is drawn from, if the data come in pairs of one shape; in another shape
                (caption vectors) it is view 1 as it is, in float32.
        """
        # Captions are vectors, and stay as they are.
        if second is not None and second.shape != samples.shape:
            return self._ready_views(samples, ids_B, epoch, torch.zeros_like(ids_B)), second.to(torch.float32)
        # Both views in one call, which has twice the work for the same number of operations.
        both = torch.cat([samples, samples if second is None else second])
        view_2B = torch.arange(2, device=ids_B.device).repeat_interleave(len(ids_B))
        first, last = self._ready_views(both, torch.cat([ids_B, ids_B]), epoch, view_2B).chunk(2)
        return first, last

    def local_views(self, samples: Tensor, ids_B: Tensor, epoch: int) -> Tensor | None:
        """Views 2, 3, ... of each image: smaller ones, of smaller crops, (l, b, c, h, w); None if the plan has none.

        Settings that differ between the first and the second view are those of one and of the other in turn.
        """
        plan = self.plan
        if isinstance(plan, OwnViews) or plan.local_crops == 0:
            return None
        local = replace(self, plan=plan.model_copy(update={"crop_scale": plan.local_scale, "local_crops": 0}))
        size = local_size(plan, (samples.shape[2], samples.shape[3]))
        numbers = [torch.full_like(ids_B, 2 + number) for number in range(plan.local_crops)]
        return torch.stack([local._ready_views(samples, ids_B, epoch, view_B, size) for view_B in numbers])

    def _ready_views(
        self, samples: Tensor, ids_B: Tensor, epoch: int, view_B: Tensor, size: tuple[int, int] | None = None
    ) -> Tensor:
        """Views, standardised in place."""
        mean, std = self._moments(samples)
        return self.draw(samples, ids_B, epoch, view_B, lambda views: views.sub_(mean).div_(std), size)

    def _moments(self, like: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and deviation, shaped and placed to meet samples."""
        shape = (1, -1, 1, 1) if like.ndim == 4 else (1, -1)
        mean, std = (value.to(like.device, non_blocking=True).reshape(shape) for value in (self.mean, self.std))
        return mean, std

    def draw(
        self,
        samples: Tensor,
        ids_B: Tensor,
        epoch: int,
        view_B: Tensor,
        finish: Finish = lambda views: views,
        size: tuple[int, int] | None = None,
    ) -> Tensor:
        """Draw one view per sample: images in [0, 1], of a size or the samples' own, or vectors; then finish it."""
        plan = self.plan
        if isinstance(plan, OwnViews):
            return finish(plan.draw_each(samples, self.seed, epoch, ids_B.cpu(), view_B.cpu()))
        if samples.ndim == 2:
            places = ids_B.to(samples.device), view_B.to(samples.device)
            return finish(self._vector_views(plan, samples, *places, epoch))
        ids_B, view_B = ids_B.cpu(), view_B.cpu()

        num_samples, channels, *own_size = samples.shape
        views = torch.empty((num_samples, channels, *(size or own_size)), dtype=torch.float32, device=samples.device)

        # Each image's view follows from its own draws, so that parts of a batch can be drawn by several threads.
        def draw(rows: slice) -> None:
            uniforms_BK = uniform(self.seed, epoch, ids_B[rows], PURPOSE_VIEW + view_B[rows], NUM_DRAWS)
            is_second_B = view_B[rows] % 2 == 1
            image_views(samples[rows], plan, uniforms_BK, is_second_B=is_second_B, finish=finish, out=views[rows])

        num_parts = min(torch.get_num_threads(), num_samples // SMALLEST_PART) if samples.device.type == "cpu" else 1
        if num_parts < 2:
            draw(slice(0, num_samples))
        else:
            edges = [num_samples * number // num_parts for number in range(num_parts + 1)]
            side_by_side(draw, [slice(*part) for part in itertools.pairwise(edges)])
        return views

    def _vector_views(self, plan: ViewPlan, samples_BD: Tensor, ids_B: Tensor, view_B: Tensor, epoch: int) -> Tensor:
        """Add noise in units of each feature's deviation, then set some features to their mean; always a new tensor."""
        num_features = samples_BD.shape[1]
        mean, std = self._moments(samples_BD)
        # A copy even of float32: the noise is added in place.
        views_BD = samples_BD.to(torch.float32, copy=True)
        if plan.noise > 0:
            noise_BD = normal(self.seed, epoch, ids_B, PURPOSE_NOISE + view_B, num_features)
            views_BD += plan.noise * std * noise_BD
        if plan.dropout > 0:
            kept_BD = uniform(self.seed, epoch, ids_B, PURPOSE_DROPOUT + view_B, num_features) >= plan.dropout
            # The mean, which standardising turns into 0.
            views_BD = torch.where(kept_BD, views_BD, mean)
        return views_BD


def image_views(
    samples_BCHW: Tensor,
    plan: ViewPlan,
    uniforms_BK: Tensor,
    *,
    is_second_B: Tensor,
    out: Tensor,
    finish: Finish,
) -> None:
    """Draw one view per image from its own row of random numbers.

    Args:
        samples_BCHW: images, uint8, or float32 in [0, 1]; left as they are.
        plan: the changes with their strengths and chances.
        uniforms_BK: (b, ``NUM_DRAWS``) numbers in [0, 1), on the CPU.
        is_second_B: bool, on the CPU: true for second views, if the plan tells the two apart.
        out: float32 (b, c, h, w), to which the views are written, of any height and width.
        finish: last change, in place, of views in [0, 1], such as standardising.
    """
    # Written chunk by chunk: what the changes need beside it is of a chunk's size.
    height, width = samples_BCHW.shape[2:]
    size = (out.shape[2], out.shape[3])
    chunk = CPU_CHUNK if out.device.type == "cpu" else DEVICE_CHUNK
    num_at_once = max(1, chunk // max(1, math.prod(samples_BCHW.shape[1:])))
    crop, steps, place_B = _decide(plan, uniforms_BK, is_second_B, (height, width), size)
    # Images of a chunk whose hue turns at the same place become neighbours, those without jitter last:
    # ``change_rows`` changes them without a copy.
    order_B = (torch.arange(len(out)) // num_at_once * 5 + place_B).argsort()
    crop, steps = rows_of(crop, order_B), [rows_of(step, order_B) for step in steps]
    for start in range(0, len(out), num_at_once):
        rows = slice(start, start + num_at_once)
        # A chunk's images are sorted among themselves, and written back in their own order.
        local_B = order_B[rows] - start
        there_B, back_B = (order.to(out.device, non_blocking=True) for order in (local_B, local_B.argsort()))
        images = to_unit_float(samples_BCHW[rows].index_select(0, there_B))
        if crop is not None:
            images = apply_crop(images, rows_of(crop, rows)).clamp_(0.0, 1.0)  # bicubic weights may be negative
        for step in (rows_of(step, rows) for step in steps):
            change_rows(
                images, step.is_chosen_B, lambda part, own, step=step: step.change(part, rows_of(step.numbers, own))
            )
        images.clamp_(0.0, 1.0)  # weights that sum to 1 up to rounding leave the range by an ulp
        torch.index_select(finish(images), 0, back_B, out=out[rows])
