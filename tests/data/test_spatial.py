"""Boxes of the random resized crop: the recipe written out with a loop, and the bounds it promises."""

import math

import pytest
import torch

from counterpoint.data.views.spatial import NUM_CROP_DRAWS, NUM_TRIES, random_crop_boxes

SIZES = [(8, 8), (33, 33), (24, 50), (224, 160), (4, 64), (1024, 1024)]


def oracle_box(numbers: list[float], height: int, width: int, scale: tuple[float, float]) -> tuple[int, ...]:
    """szegedy2015 as torchvision words it: ten tries of an area and a ratio, else the largest box of a legal ratio."""
    areas, ratios, (top, left) = numbers[:NUM_TRIES], numbers[NUM_TRIES : 2 * NUM_TRIES], numbers[2 * NUM_TRIES :]
    for area_number, ratio_number in zip(areas, ratios, strict=True):
        area = height * width * (scale[0] + (scale[1] - scale[0]) * area_number)
        low, high = math.log(3 / 4), math.log(4 / 3)
        ratio = math.exp(low + (high - low) * ratio_number)
        box_width, box_height = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 1 <= box_width <= width and 1 <= box_height <= height:
            break
    else:
        box_height, box_width = height, width
        if width / height < 3 / 4:
            box_height = round(width / (3 / 4))
        elif width / height > 4 / 3:
            box_width = round(height * 4 / 3)
    return int(top * (height - box_height + 1)), int(left * (width - box_width + 1)), box_height, box_width


@pytest.mark.parametrize("scale", [(0.08, 1.0), (0.6, 1.0), (1.0, 1.0)])
@pytest.mark.parametrize(("height", "width"), SIZES)
def test_boxes_are_those_of_the_recipe(
    height: int, width: int, scale: tuple[float, float], generator: torch.Generator
) -> None:
    uniforms = torch.rand(500, NUM_CROP_DRAWS, generator=generator)
    boxes = random_crop_boxes(uniforms, height, width, scale)
    expected = torch.tensor([oracle_box(row, height, width, scale) for row in uniforms.tolist()])
    is_other = (boxes != expected).any(dim=1)
    # A side within float32's rounding of a half pixel may round either way; its box then moves with it.
    assert float(is_other.double().mean()) <= 0.01
    assert int((boxes - expected).abs()[:, 2:].max()) <= 1


@pytest.mark.parametrize("scale", [(0.08, 1.0), (0.3, 0.5), (1.0, 1.0)])
@pytest.mark.parametrize(("height", "width"), SIZES)
def test_boxes_lie_inside(height: int, width: int, scale: tuple[float, float], generator: torch.Generator) -> None:
    uniforms = torch.rand(2000, NUM_CROP_DRAWS, generator=generator)
    uniforms[0], uniforms[1] = 0.0, 1 - 2.0**-24  # the ends of the range
    top, left, box_height, box_width = random_crop_boxes(uniforms, height, width, scale).double().unbind(1)
    assert bool(((top >= 0) & (left >= 0) & (box_height >= 1) & (box_width >= 1)).all())
    assert bool(((top + box_height <= height) & (left + box_width <= width)).all())
