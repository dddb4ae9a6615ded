"""Corruptions of pictures, with the same bits whatever batch, thread or process a picture is corrupted in."""

# B images, C channels, H height, W width

import math
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Literal, get_args

import torch
from torch import Tensor

from counterpoint.core.array_layout import COLOUR_CHANNELS, to_bytes
from counterpoint.core.catalogues import loaded
from counterpoint.core.counter_random import PURPOSE_CORRUPTION, normal, uniform
from counterpoint.core.errors import DataError, UsageError, unknown_name
from counterpoint.data.stores import Store

Kind = Literal["noise", "blur", "weather", "digital"]  # in the order of hendrycks2019's tables
KINDS = get_args(Kind)
Five = tuple[float | tuple[float, ...], ...]  # the number or numbers of each severity, from 1 to 5
SMALL_SIDE, LARGE_SIDE = 32, 224  # pixels of the pictures that the numbers were published for
ALL = "all"
SEVERITIES = (1, 2, 3, 4, 5)
LEAST_SIDE = 8
CHUNK = 1 << 22  # values worked on at once, which bounds the memory that random numbers take


@dataclass(frozen=True)
class Strength:
    """The strength of a corruption for pictures of one size.

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
        seed: the user's seed.
        name: name of the corruption.
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
    """One corruption: an entry of ``CATALOGUE`` at the end of a module of ``corruptions``.

    Attributes:
        summary: its effect in words, for lists.
        kind: the group that hendrycks2019 puts it in.
        apply: map of uint8 pictures (b, c, h, w), a strength and draws to pictures, uint8 or float32 around [0, 1].
        small: its strengths on pictures of 32 pixels, as published with CIFAR-10-C.
        large: its strengths on pictures of 224 pixels, as published with ImageNet-C.
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
        draws: random numbers of the pictures.
        place: place of these clouds among the draws of a picture.
        size: height and width.
        decay: root of the factor, >= 1, by which noise falls at each finer grid; larger ones are smoother.
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


@cache
def corruptions() -> Mapping[str, Corruption]:
    """All corruptions by name, in the order of their kinds."""
    items = [item for entries in loaded("data/corruptions", "CATALOGUE") for item in entries.items()]
    return dict(sorted(items, key=lambda item: KINDS.index(item[1].kind)))


def corrupt(images_BCHW: Tensor, name: str, severity: int, *, ids_B: Tensor, seed: int = 0) -> Tensor:
    """Corrupt pictures; each picture's result is a pure function of (picture, name, severity, seed, id).

    The severities of a picture share their random numbers. Strengths are the published ones for sides of 32
    (CIFAR-10-C) and 224 (ImageNet-C); for others those of the nearer side, with lengths in pixels scaled.

    Source: hendrycks2019, section 3.1; differences are stated at each corruption.

    Args:
        images_BCHW: pictures, uint8, 1 or 3 channels, sides >= 8.
        name: a name of ``corruptions()``.
        severity: severity of the corruption, from 1 to 5.
        ids_B: int64 ids of the samples.
        seed: any non-negative int.

    Returns:
        The changed pictures, uint8, of the same shape.

    Raises:
        UsageError: a name that is not known.
        ValueError: a severity out of range.
        DataError: pictures of another form.

    >>> grey = torch.full((1, 1, 8, 8), 100, dtype=torch.uint8)
    >>> corrupt(grey, "brightness", 3, ids_B=torch.tensor([0])).unique()  # 100 + 0.15 x 255
    tensor([138], dtype=torch.uint8)
    """
    if name not in corruptions():
        raise unknown_name("corruption", name, corruptions())
    if severity not in SEVERITIES:
        raise ValueError(f"severity must be between 1 and 5, got {severity}")
    check_pictures(images_BCHW)
    corruption = corruptions()[name]
    strength = corruption.strength(severity, images_BCHW.shape[2], images_BCHW.shape[3])
    size = max(1, CHUNK // math.prod(images_BCHW.shape[1:]))
    parts = zip(images_BCHW.split(size), ids_B.split(size), strict=True)
    return torch.cat(
        [to_bytes(corruption.apply(part, strength, CorruptionDraws(seed, name, ids))) for part, ids in parts]
    )


def check_pictures(images_BCHW: Tensor) -> None:
    """Require bytes of pictures.

    Raises:
        DataError: anything else.
    """
    shape = tuple(images_BCHW.shape)
    is_picture = images_BCHW.dtype == torch.uint8 and len(shape) == 4 and shape[1] in COLOUR_CHANNELS
    if not is_picture or min(shape[2:]) < LEAST_SIDE:
        raise DataError(
            f"corruptions take uint8 pictures (n, c, h, w) with 1 or 3 channels and sides >= {LEAST_SIDE}, got "
            f"{images_BCHW.dtype} of shape {shape}"
        )


def chosen_corruptions(names: Sequence[str]) -> tuple[str, ...]:
    """Names of corruptions, in the order of the catalogue.

    Args:
        names: names of corruptions, also with a hyphen for a blank, or of their kinds; ``all`` for all of them.

    Raises:
        UsageError: a name that is not known.

    >>> chosen_corruptions(["noise", "zoom-blur"])
    ('gaussian noise', 'shot noise', 'impulse noise', 'zoom blur')
    """
    chosen = {name.replace("-", " ") for name in names}
    for name in sorted(chosen - corruptions().keys() - {ALL, *KINDS}):
        raise unknown_name("corruption", name, (ALL, *KINDS, *corruptions()))
    return tuple(name for name, corruption in corruptions().items() if chosen & {name, corruption.kind, ALL})


def chosen_severities(text: str) -> tuple[int, ...]:
    """Severities as a command line names them.

    Raises:
        UsageError: anything but numbers from 1 to 5, separated by commas, and ranges.

    >>> chosen_severities("1,3-5")
    (1, 3, 4, 5)
    """
    severities: set[int] = set()
    for part in text.split(","):
        first, dash, last = part.partition("-")
        try:
            severities.update(range(int(first), int(last if dash else first) + 1) or [0])
        except ValueError:
            severities.add(0)  # which is none, as is an empty range
    if not severities <= set(SEVERITIES):
        raise UsageError(f"severities must be numbers from 1 to 5, such as 1-5 or 3, got {text!r}")
    return tuple(sorted(severities))


@dataclass(frozen=True)
class CorruptedStore:
    """The pictures of another store, whose positions are their ids, under a corruption; nothing is kept."""

    clean: Store
    name: str
    severity: int
    seed: int = 0

    def __len__(self) -> int:
        return len(self.clean)

    def fetch(self, positions: Sequence[int]) -> Tensor:
        """See ``Store.fetch``."""
        ids_B = torch.as_tensor(positions, dtype=torch.int64)
        return corrupt(self.clean.fetch(positions), self.name, self.severity, ids_B=ids_B, seed=self.seed)
