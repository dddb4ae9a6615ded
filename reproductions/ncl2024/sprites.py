"""Sprites over dSprites' grid of generative factors (matthey2017), drawn when they are fetched.

3 shapes x 6 scales x 40 orientations x 32 x 32 positions = 737,280 binary images of 64 x 64 pixels in the order of the
original, the last factor changing fastest, so that image i has the same factors in both. What differs from the
original: the outlines (the ellipse's axes, the heart's curve and all sizes are chosen here), steps of exactly one pixel
between positions, and pixels that are white where their centre lies inside the outline. As in the original the angles
are 40 values from 0 to 2 pi with both ends; the first and the last are one picture here, and any other two images
differ.
"""

# N images, T tiles (one per shape, scale and orientation), S side of a tile

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from counterpoint.data.formats.labels import Labels
from counterpoint.data.source import Source, fingerprint, source_of

SHAPES = ("square", "ellipse", "heart")
GRID = (3, 6, 40, 32, 32)  # shapes, scales, orientations, positions in x, in y
SIDE = 64
RADIUS = 16  # pixels from a sprite's centre that no outline reaches; centres keep this distance from the border
SIZES = (10.7, 14.8, 10.9)  # at scale 1: half side, long half axis, the heart's unit
OFFSET = (0.4, 0.3)  # of a sprite's centre from its pixel's, right and down: on it, turned squares would coincide
FLATNESS = 2.0  # long over short axis of the ellipse


@dataclass(frozen=True)
class SpriteStore:
    """Images drawn when fetched: the sprite's tile is laid at its position.

    Attributes:
        tiles: uint8 (t, s, s), one per shape, scale and orientation.
    """

    tiles: Tensor

    def __len__(self) -> int:
        return math.prod(GRID)

    def fetch(self, positions: Sequence[int]) -> Tensor:
        """Draw the images at some positions, uint8 (n, 1, 64, 64); see ``Store.fetch``."""
        factors = factors_at(torch.as_tensor(positions, dtype=torch.int64))
        # The order of ``render_tiles``: shape, scale, orientation, the last fastest.
        tile_N = (factors[:, 0] * GRID[1] + factors[:, 1]) * GRID[2] + factors[:, 2]
        along_S = torch.arange(self.tiles.shape[1])
        images = torch.zeros(len(factors), 1, SIDE, SIDE, dtype=torch.uint8)
        # A position is the tile's upper left corner: 31 + 33 = 64, so that no tile leaves the image.
        rows = factors[:, 4, None, None] + along_S[:, None]
        columns = factors[:, 3, None, None] + along_S[None, :]
        images[torch.arange(len(factors))[:, None, None], 0, rows, columns] = self.tiles[tile_N]
        return images


def factors_at(positions_N: Tensor) -> Tensor:
    """Factors of the images at some positions, (n, 5).

    >>> factors_at(torch.tensor([0, 1, 32, 737279])).tolist()
    [[0, 0, 0, 0, 0], [0, 0, 0, 0, 1], [0, 0, 0, 1, 0], [2, 5, 39, 31, 31]]
    """
    return torch.stack(torch.unravel_index(positions_N, GRID), dim=1)


def render_tiles() -> Tensor:
    """Draw every shape at every scale and orientation, centred: uint8 (720, 33, 33), 0 or 255."""
    shape, scale, turn = torch.cartesian_prod(*(torch.arange(length) for length in GRID[:3])).unbind(1)
    scale_T11 = torch.linspace(0.5, 1.0, GRID[1], dtype=torch.float64)[scale][:, None, None]
    num_turns = GRID[2] - 1  # the last angle is the first
    angle_T11 = (turn % num_turns).double()[:, None, None] * (2.0 * math.pi / num_turns)
    along = torch.arange(-RADIUS, RADIUS + 1, dtype=torch.float64)
    x, y = along[None, None, :] - OFFSET[0], OFFSET[1] - along[None, :, None]  # upwards
    # Pixels are turned and scaled back to the upright shape, of which the outline is known.
    cos, sin = torch.cos(angle_T11), torch.sin(angle_T11)
    u, v = (x * cos + y * sin) / scale_T11, (y * cos - x * sin) / scale_T11
    square = torch.maximum(u.abs(), v.abs()) <= SIZES[0]
    ellipse = u.square() + (FLATNESS * v).square() <= SIZES[1] ** 2
    # Inside of the curve (x^2 + y^2 - 1)^3 = x^2 y^3.
    u, v = u / SIZES[2], v / SIZES[2]
    heart = (u.square() + v.square() - 1.0) ** 3 <= u.square() * v**3
    outlines = torch.stack([square, ellipse, heart])
    return outlines[shape, torch.arange(len(shape))].to(torch.uint8) * 255


def open_rendered() -> Source:
    """Open all images with their shapes as labels; nothing is read, as images are drawn when fetched."""
    store = SpriteStore(render_tiles())
    factors = factors_at(torch.arange(len(store)))
    labels = Labels(factors[:, 0].contiguous(), SHAPES)
    # Tiles and factors represent all images: these follow from both.
    content = fingerprint([store.tiles.numpy(), factors.numpy()], labels)
    return source_of("dsprites-rendered", store, (1, SIDE, SIDE), labels, fingerprint=content)
