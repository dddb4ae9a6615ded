"""What a corruption of pictures is: one record, with its strengths and the random numbers that it draws."""

# B images, C channels, H height, W width

import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from counterpoint.core.counter_random import PURPOSE_CORRUPTION, normal, uniform

Kind = Literal["noise", "blur", "weather", "digital"]
Five = tuple[float | tuple[float, ...], ...]  # the number or numbers of each severity, from 1 to 5
SMALL_SIDE, LARGE_SIDE = 32, 224  # pixels of the pictures that the numbers were published for


@dataclass(frozen=True)
class Strength:
    """How strong a corruption is for pictures of one size.

    Attributes:
        values: the published numbers of its severity.
        scale: side of the pictures over the side that they were published for; lengths in pixels grow with it.
    """

    values: tuple[float, ...]
    scale: float = 1.0


@dataclass(frozen=True)
class CorruptionDraws:
    """Random numbers of pictures: a pure function of (seed, corruption, sample id), the same for all severities.

    Attributes:
        seed: of the user.
        name: of the corruption.
        ids_B: int64 sample ids.
    """

    seed: int
    name: str
    ids_B: Tensor

    def uniform(self, place: int, num_draws: int) -> Tensor:
        """Numbers in [0, 1), (b, num_draws); different places give different ones."""
        return uniform(self.seed, self._stream, self.ids_B, PURPOSE_CORRUPTION + place, num_draws)

    def normal(self, place: int, num_draws: int) -> Tensor:
        """Standard normal numbers, (b, num_draws)."""
        return normal(self.seed, self._stream, self.ids_B, PURPOSE_CORRUPTION + place, num_draws)

    def between(self, place: int, low: float, high: float) -> Tensor:
        """A number for each picture, (b,)."""
        return low + (high - low) * self.uniform(place, 1)[:, 0]

    @property
    def _stream(self) -> int:
        """A number that follows from the name alone: a corruption beside it changes nothing."""
        return zlib.crc32(self.name.encode())


@dataclass(frozen=True)
class Corruption:
    """One corruption: an entry of ``CATALOGUE`` at the end of a module of this folder.

    Attributes:
        summary: what it does, for lists.
        kind: the group that hendrycks2019 puts it in.
        apply: maps uint8 pictures (b, c, h, w), a strength and draws to pictures, uint8 or float32 around [0, 1].
        small: its strengths on pictures of 32 pixels, as published with CIFAR-10-C.
        large: on pictures of 224 pixels, as published with ImageNet-C.
    """

    summary: str
    kind: Kind
    apply: Callable[[Tensor, Strength, CorruptionDraws], Tensor]
    small: Five
    large: Five

    def strength(self, severity: int, height: int, width: int) -> Strength:
        """Its strength for pictures of a size: the numbers published for the nearer of both sides, scaled to it."""
        side = min(height, width)
        is_small = side * side < SMALL_SIDE * LARGE_SIDE  # nearer as a ratio
        five, published = (self.small, SMALL_SIDE) if is_small else (self.large, LARGE_SIDE)
        values = five[severity - 1]
        return Strength(values if isinstance(values, tuple) else (values,), side / published)


def plasma(draws: CorruptionDraws, place: int, size: tuple[int, int], decay: float) -> Tensor:
    r"""Clouds in [0, 1], (b, 1, h, w), by midpoint displacement: each halving of the grid divides its noise by decay^2.

    Corners, then centres of squares, then centres of edges are the mean of their four neighbours on a torus, plus
    uniform noise in :math:`\pm a`, with a = 1 on the coarsest grid.

    Source: fournier1982; decay^2 as in the code of hendrycks2019.

    Args:
        draws: their random numbers.
        place: of these clouds among the draws of a picture.
        size: height and width.
        decay: >= 1; larger ones are smoother.
    """
    side = 1 << (max(size) - 1).bit_length()
    noise_BN = 2.0 * draws.uniform(place, side * side) - 1.0
    clouds = torch.zeros(len(noise_BN), side, side)
    step, amplitude, used = side, 1.0, 0
    while step >= 2:
        half, across = step // 2, side // step

        def displaced(total: Tensor, part: int, start: int = used, num: int = across, by: float = amplitude) -> Tensor:
            first = start + part * num * num
            return total / 4 + by * noise_BN[:, first : first + num * num].view(-1, num, num)

        corners = clouds[:, ::step, ::step]
        pairs = corners + corners.roll(-1, 1)
        centres = displaced(pairs + pairs.roll(-1, 2), 0)
        clouds[:, half::step, half::step] = centres
        beside = corners + corners.roll(-1, 2) + centres + centres.roll(1, 1)
        below = corners + corners.roll(-1, 1) + centres + centres.roll(1, 2)
        clouds[:, ::step, half::step], clouds[:, half::step, ::step] = displaced(beside, 1), displaced(below, 2)
        step, amplitude, used = half, amplitude / decay**2, used + 3 * across * across
    low_B11, high_B11 = clouds.amin((1, 2), keepdim=True), clouds.amax((1, 2), keepdim=True)
    return ((clouds - low_B11) / (high_B11 - low_B11))[:, None, : size[0], : size[1]]
