"""Each image operation beside torchvision's, given the same parameters: the largest difference in levels of 255."""

# B images

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from counterpoint.data.views.colour import blend, solarize, to_grey, turn_hue, turned_primaries
from counterpoint.data.views.spatial import (
    NUM_CROP_DRAWS,
    Interpolation,
    affine,
    affine_maps,
    apply_crop,
    gaussian_blur,
    plan_crop,
    random_crop_boxes,
)

LEVELS = 255
FACTORS, SHIFTS, SIGMAS = (0.2, 0.6, 1.4, 1.8), (-0.2, -0.1, 0.05, 0.2), (0.3, 0.8, 1.3, 1.9)


def largest_differences(images_B3HW: Tensor) -> dict[str, float]:
    """Levels between ours and torchvision's, by operation.

    Args:
        images_B3HW: float32 in [0, 1].

    Raises:
        ImportError: torchvision is missing.
    """
    differences: dict[str, float] = {}
    for name, mine, theirs in _results(images_B3HW):
        difference = float((mine - theirs.clamp(0.0, 1.0)).abs().max()) * LEVELS
        differences[name] = max(differences.get(name, 0.0), difference)
    return differences


def _results(images: Tensor) -> Iterator[tuple[str, Tensor, Tensor]]:
    """Yield (operation, ours, torchvision's)."""
    from torchvision.transforms.v2 import functional as vision  # deferred: may be missing

    size, every = (images.shape[2], images.shape[3]), torch.ones(len(images))
    modes: tuple[Interpolation, ...] = ("bilinear", "bicubic")
    for mode in modes:
        yield f"crop, resize, flip: {mode}", *_crops(images, mode, vision)
    for factor in FACTORS:
        rest, none = (1 - factor) * every, 0 * every
        strengths: tuple[tuple[str, Tensor, Tensor, Callable[..., Tensor]], ...] = (
            ("brightness", none, none, vision.adjust_brightness),
            ("contrast", none, rest, vision.adjust_contrast),
            ("saturation", rest, none, vision.adjust_saturation),
        )
        for name, of_luma, of_mean, theirs in strengths:
            yield name, blend(images.clone(), factor * every, of_luma, of_mean), theirs(images, factor)
    for shift in SHIFTS:
        yield "hue", turn_hue(images.clone(), turned_primaries(shift * every)), vision.adjust_hue(images, shift)
    yield "grey", to_grey(images), vision.rgb_to_grayscale(images, num_output_channels=3)
    yield "solarize", solarize(images), vision.solarize(images, threshold=0.5)
    for sigma in SIGMAS:
        kernel = [2 * int(4 * sigma) + 1] * 2
        yield (
            "blur",
            gaussian_blur(images, sigma * every, SIGMAS[-1]),
            vision.gaussian_blur(images, kernel, [sigma] * 2),
        )
    maps = affine_maps(0.3 * every, 0.1 * torch.ones(len(images), 2), 0.8 * every, torch.zeros(len(images), 2), size)
    moved = vision.affine(
        images,
        angle=-0.3 * 180 / torch.pi,
        translate=[0.1 * size[1], 0.1 * size[0]],
        scale=0.8,
        shear=[0.0, 0.0],
        interpolation=vision.InterpolationMode.BILINEAR,
    )
    yield "affine", affine(images, maps), moved


def _crops(images: Tensor, mode: Interpolation, vision: object) -> tuple[Tensor, Tensor]:
    """Crops of random boxes, ours and torchvision's, every second image mirrored."""
    size = (images.shape[2], images.shape[3])
    uniforms = torch.rand(len(images), NUM_CROP_DRAWS, generator=torch.Generator().manual_seed(0))
    boxes = random_crop_boxes(uniforms, *size, (0.08, 1.0))
    is_flipped = torch.arange(len(images)) % 2 == 1
    mine = apply_crop(images, plan_crop(boxes, is_flipped, size, mode)).clamp(0.0, 1.0)
    theirs = [
        vision.resized_crop(  # pyright: ignore[reportAttributeAccessIssue]
            image,
            *box,
            list(size),
            interpolation=vision.InterpolationMode(mode),  # pyright: ignore[reportAttributeAccessIssue]
            antialias=True,
        )
        for image, box in zip(images, boxes.tolist(), strict=True)
    ]
    flipped = [image.flip(2) if flip else image for image, flip in zip(theirs, is_flipped.tolist(), strict=True)]
    return mine, torch.stack(flipped)
