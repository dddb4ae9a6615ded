"""dSprites: the rendered grid has the original's factors and order."""

import math

import numpy as np
import pytest
import torch

from counterpoint.data.source import Source
from reproductions.ncl2024.sprites import GRID, factors_at, open_rendered

NUM_IMAGES = 737_280


@pytest.fixture(scope="module")
def rendered() -> Source:
    return open_rendered()


def test_the_grid_has_every_combination_once_in_the_original_order(rendered: Source) -> None:
    assert len(rendered) == NUM_IMAGES == math.prod(GRID)
    expected = np.stack(np.unravel_index(np.arange(NUM_IMAGES), GRID), axis=1)
    assert np.array_equal(factors_at(torch.arange(NUM_IMAGES)).numpy(), expected)
    assert rendered.labels is not None
    assert rendered.labels.bincount().tolist() == [NUM_IMAGES // 3] * 3


def inside(shape: int, scale: float, angle: float, x: float, y: float) -> bool:
    """Oracle for one point in pixels from the centre, y upwards: turn back, scale back, look inside."""
    point = complex(x - 0.4, y + 0.3) * np.exp(-1j * angle) / scale
    u, v = point.real, point.imag
    if shape == 0:
        return abs(u) <= 10.7 and abs(v) <= 10.7
    if shape == 1:
        return (u / 14.8) ** 2 + (v / 7.4) ** 2 <= 1
    u, v = u / 10.9, v / 10.9
    return (u * u + v * v - 1) ** 3 - u * u * v * v * v <= 0


def test_pixels_are_those_of_the_outline_drawn_point_by_point(rendered: Source, rng: np.random.Generator) -> None:
    positions = rng.integers(0, NUM_IMAGES, 24).tolist()
    num_edge = 0
    for image, position in zip(rendered.store.fetch(positions), positions, strict=True):
        shape, scale, turn, column, row = (int(value) for value in np.unravel_index(position, GRID))
        size, angle = 0.5 + 0.1 * scale, turn * 2 * math.pi / 39
        expected = np.array(
            [[inside(shape, size, angle, x - 16 - column, 16 + row - y) for x in range(64)] for y in range(64)]
        )
        differs = (image[0].numpy() == 255) != expected
        num_edge += int(differs.sum())
        assert set(image.unique().tolist()) <= {0, 255}
    assert num_edge == 0


def test_images_depend_on_their_position_only(rendered: Source, rng: np.random.Generator) -> None:
    positions = rng.integers(0, NUM_IMAGES, 40).tolist()
    batch = rendered.store.fetch(positions)
    assert batch.dtype == torch.uint8
    assert torch.equal(batch, torch.cat([rendered.store.fetch([position]) for position in positions]))
    again = open_rendered()
    assert torch.equal(again.store.fetch(positions[::-1]), batch.flip(0))
    assert again.fingerprint == rendered.fingerprint
