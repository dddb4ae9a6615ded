"""The image operations beside torchvision's, given the same parameters."""

import itertools
import math
from types import ModuleType

import pytest
import torch
from torch import Tensor

from counterpoint.data.views import colour
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
from tolerances import assert_close

NUM_IMAGES = 6


@pytest.fixture(scope="module")
def vision() -> ModuleType:
    """torchvision's functions, or the test is skipped."""
    name = "torchvision.transforms.v2.functional"
    return pytest.importorskip(name, reason="torchvision (extra `vision`) is not installed")


@pytest.fixture(params=[(1, 8, 8), (3, 32, 32), (3, 24, 33)], ids=str)
def images(request: pytest.FixtureRequest, generator: torch.Generator) -> Tensor:
    """Random images in [0, 1]: every frequency and every colour."""
    return torch.rand(NUM_IMAGES, *request.param, generator=generator)


def cropped(images: Tensor, boxes: Tensor, is_flipped: Tensor, interpolation: Interpolation = "bilinear") -> Tensor:
    return apply_crop(images, plan_crop(boxes, is_flipped, (images.shape[2], images.shape[3]), interpolation))


@pytest.mark.parametrize("interpolation", ["bilinear", "bicubic"])
@pytest.mark.parametrize("scale", [(0.02, 0.1), (0.08, 1.0), (0.5, 0.9), (1.0, 1.0)])
def test_crop_resize_and_flip(
    vision: ModuleType,
    images: Tensor,
    scale: tuple[float, float],
    interpolation: Interpolation,
    generator: torch.Generator,
) -> None:
    height, width = images.shape[2:]
    uniforms = torch.rand(NUM_IMAGES, NUM_CROP_DRAWS, generator=generator)
    boxes = random_crop_boxes(uniforms, height, width, scale)
    boxes[0] = torch.tensor([0, 0, height, width])
    is_flipped = torch.arange(NUM_IMAGES) % 2 == 1
    views = cropped(images, boxes, is_flipped, interpolation)
    mode = vision.InterpolationMode(interpolation)
    for image, box, flip, view in zip(images, boxes.tolist(), is_flipped, views, strict=True):
        expected = vision.resized_crop(image, *box, [height, width], interpolation=mode, antialias=True)
        assert_close(view, vision.horizontal_flip(expected) if flip else expected)


def test_solarize(vision: ModuleType, images: Tensor) -> None:
    images[0, 0, 0, :3] = torch.tensor([0.5, 127 / 255, 128 / 255])
    assert torch.equal(colour.solarize(images), vision.solarize(images, threshold=0.5))
    of_bytes = vision.solarize((images * 255).round().to(torch.uint8), threshold=128)
    assert torch.equal((colour.solarize((images * 255).round() / 255) * 255).round(), of_bytes.float())


@pytest.mark.parametrize("sigma", [0.1, 0.3, 0.8, 1.3, 1.7])
def test_gaussian_blur(vision: ModuleType, images: Tensor, sigma: float) -> None:
    radius = max(1, math.floor(4 * sigma))
    expected = vision.gaussian_blur(images, kernel_size=[2 * radius + 1] * 2, sigma=[sigma] * 2)
    assert_close(gaussian_blur(images, torch.full((NUM_IMAGES,), sigma), 1.7), expected)


@pytest.mark.parametrize("shift", [-0.5, -0.37, -0.1, 0.0, 0.05, 0.3, 0.45, 0.5])
def test_hue(vision: ModuleType, shift: float, generator: torch.Generator) -> None:
    images = torch.rand(NUM_IMAGES, 3, 16, 16, generator=generator)
    images[0] = images[0, :1]  # grey: no hue to turn
    images[1, 1:] = 0.0  # pure red, of every brightness
    images[2, 1] = images[2, 2]  # between green and blue: red, or its opposite
    images[3] = (images[3] * 3).round() / 3  # every corner and edge of the cube of colours
    expected = vision.adjust_hue(images, shift)
    primaries = colour.turned_primaries(torch.full((NUM_IMAGES,), shift))
    assert_close(colour.turn_hue(images.clone(), primaries), expected)


def test_grey(vision: ModuleType, images: Tensor) -> None:
    num_channels = images.shape[1]
    assert_close(colour.to_grey(images), vision.rgb_to_grayscale(images, num_output_channels=num_channels))


@pytest.mark.parametrize(
    ("degrees", "shift", "zoom"),
    [(0.0, (0.0, 0.0), 1.0), (25.0, (0.0, 0.0), 1.0), (-90.0, (0.1, -0.2), 1.0), (40.0, (-0.25, 0.125), 0.7)],
)
def test_rotation_shift_and_zoom(
    vision: ModuleType, images: Tensor, degrees: float, shift: tuple[float, float], zoom: float
) -> None:
    height, width = images.shape[2:]
    maps = affine_maps(
        torch.full((NUM_IMAGES,), math.radians(degrees)),
        torch.tensor(shift).expand(NUM_IMAGES, 2),
        torch.full((NUM_IMAGES,), zoom),
        torch.zeros(NUM_IMAGES, 2),
        (height, width),
    )
    view = affine(images, maps)
    expected = vision.affine(
        images,
        angle=-degrees,  # torchvision turns clockwise
        translate=[shift[0] * width, shift[1] * height],
        scale=zoom,
        shear=[0.0, 0.0],
        interpolation=vision.InterpolationMode.BILINEAR,
    )
    assert float((expected != 0).double().mean()) > 0.4
    assert_close(view, expected)


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize(("strength", "saturation"), [(0.4, 1.0), (0.8, 1.0), (0.4, 0.5), (1.0, 0.0), (1.0, 1.0)])
def test_jitter_applies_its_factors_in_the_order_drawn(
    vision: ModuleType, strength: float, saturation: float, channels: int, generator: torch.Generator
) -> None:
    images = torch.rand(len(colour.ORDERS), channels, 8, 8, generator=generator)
    numbers = torch.rand(len(colour.ORDERS), 5, generator=generator)
    numbers[:, 4] = (torch.arange(len(colour.ORDERS)) + 0.5) / len(colour.ORDERS)
    views = colour.colour_jitter(images.clone(), colour.draw_jitter(numbers, strength, saturation))
    adjust = (vision.adjust_brightness, vision.adjust_contrast, vision.adjust_saturation, vision.adjust_hue)
    for image, row, order, view in zip(images, numbers.tolist(), colour.ORDERS, views, strict=True):
        expected = image
        for number in order:
            if channels == 1 and number > 1:
                continue  # grey images keep to brightness and contrast
            reach = strength * (2 * row[number] - 1) * (saturation if number == 2 else 1)
            expected = adjust[number](expected, 0.25 * reach if number == 3 else 1 + reach)
        assert_close(view, expected)


def test_the_edge_goes_on_outside_where_black_is_not_wanted(generator: torch.Generator) -> None:
    side = 7
    images = torch.rand(5, 3, side, side, generator=generator)
    maps = affine_maps(
        torch.linspace(-0.5, 0.5, 5),
        torch.full((5, 2), 0.2),
        torch.linspace(0.6, 1.2, 5),
        torch.zeros(5, 2),
        (side, side),
    )
    moved_images = affine(images, maps, "edge")
    for number, (map_23, image) in enumerate(zip(maps, images, strict=True)):
        for row, column in itertools.product(range(side), repeat=2):
            here = torch.tensor([(2 * column + 1) / side - 1, (2 * row + 1) / side - 1, 1.0])
            x, y = (((map_23 @ here + 1) * side - 1) / 2).clamp(0, side - 1).tolist()
            left, top = min(int(x), side - 2), min(int(y), side - 2)
            (nw, ne), (sw, se) = (image[:, top + down, left : left + 2].unbind(1) for down in (0, 1))
            across = ((1 - x + left) * nw + (x - left) * ne, (1 - x + left) * sw + (x - left) * se)
            expected = (1 - y + top) * across[0] + (y - top) * across[1]
            assert_close(moved_images[number, :, row, column], expected)
    black = affine(torch.ones(5, 1, side, side), maps)
    assert bool((black.amin(dim=(1, 2, 3)) == 0).all())  # all five leave the picture
    assert_close(affine(torch.ones(5, 1, side, side), maps, "edge"), torch.ones(5, 1, side, side))
