"""Patterns drawn by code, of which pixels say little and what two views share says much.

A picture shows one of eight patterns. Where it begins, how wide it is, how it is lit, its two grey levels, which of
them is in front, and noise differ from picture to picture and dominate the pixels. Random crops and changes of
brightness and contrast undo most of that, and leave the pattern as it was: the set is *made* so that learning from such
views pays. It says nothing about photographs, and with views that turn pictures around it says the contrary, since two
classes then are one (``docs/patterns.md``).
"""

# N pictures, S side of a picture, G side of the finer grid on which it is drawn

import math
from collections.abc import Callable, Mapping

import torch
import torch.nn.functional as F
from torch import Tensor

from counterpoint.core.counter_random import uniform
from counterpoint.core.settings import SourceSettings
from counterpoint.data.formats.labels import Labels
from counterpoint.data.source import NamedSource, Progress, Source, fixed_labels, memory_source, refuse_split

NAME = "patterns-rendered"
NUM_PICTURES = 4000
SIDE = 32
SEED = 0
CHUNK = 64  # pictures drawn at once: their points stay in the processor's cache
FINER = 2  # points along a pixel: edges are smooth
# Streams of their own among the draws of ``core.counter_random``.
PURPOSE_PICTURE, PURPOSE_GRAIN = 7 << 16, 8 << 16
NUM_DRAWS, CLOUD = 7, 5  # and a coarse grid of this many points a side for each of three clouds
PERIODS = (6.0, 13.0)  # pixels after which a pattern repeats
LARGEST_TURN = 0.06 * math.pi  # either way
LEAST_CONTRAST = 0.4  # between the two grey levels, of 1
WARP = 0.3  # periods by which points are shifted, either way
SHADE = 0.5  # by which light differs from place to place, either way
NOISE = 40 / 255  # either way


def _stripes(u: Tensor, v: Tensor) -> Tensor:
    return u % 1.0 < 0.5


# Functions from coordinates in periods to what is in front; and the angle, as a share of half a turn.
PATTERNS: Mapping[str, tuple[Callable[[Tensor, Tensor], Tensor], float]] = {
    "vertical stripes": (_stripes, 0.0),
    "horizontal stripes": (_stripes, 0.5),
    "rising stripes": (_stripes, 0.25),
    "falling stripes": (_stripes, 0.75),
    "checks": (lambda u, v: (u % 1.0 < 0.5) ^ (v % 1.0 < 0.5), 0.0),
    "grid": (lambda u, v: torch.minimum(u % 1.0, v % 1.0) < 0.25, 0.0),
    "dots": (lambda u, v: (u % 1.0 - 0.5).square() + (v % 1.0 - 0.5).square() < 0.32**2, 0.0),
    "rings": (lambda u, v: torch.sqrt(u.square() + v.square()) % 1.0 < 0.5, 0.0),
}


def draw_pictures(numbers_N: Tensor, seed: int = SEED) -> Tensor:
    """Draw pictures as a function of seed and number alone: uint8 (n, 1, 32, 32).

    The number's remainder by 8 is the pattern, so that the classes are equally large.

    >>> draw_pictures(torch.tensor([3])).shape
    torch.Size([1, 1, 32, 32])
    """
    draws = uniform(seed, 0, numbers_N, PURPOSE_PICTURE, NUM_DRAWS + 3 * CLOUD**2).double()
    # Three smooth fields of numbers from -1 to 1.
    coarse = 2.0 * draws[:, NUM_DRAWS:].reshape(-1, 3, CLOUD, CLOUD) - 1.0
    clouds_N3GG = F.interpolate(coarse, size=SIDE * FINER, mode="bilinear", align_corners=True)
    front_NGG = _front(numbers_N % len(PATTERNS), draws[:, :4], WARP * clouds_N3GG[:, :2])
    dark, light, swap = draws[:, 4:NUM_DRAWS, None, None].unbind(1)
    dark = dark * (1.0 - LEAST_CONTRAST)
    light = dark + LEAST_CONTRAST + light * (1.0 - LEAST_CONTRAST - dark)
    front_NGG = torch.where(swap < 0.5, front_NGG, 1.0 - front_NGG)
    values_NGG = (dark + (light - dark) * front_NGG) + SHADE * clouds_N3GG[:, 2]
    grain = uniform(seed, 0, numbers_N, PURPOSE_GRAIN, SIDE * SIDE).double().reshape(-1, 1, SIDE, SIDE)
    values = F.avg_pool2d(values_NGG[:, None], FINER) + NOISE * (2.0 * grain - 1.0)
    return (values.clamp(0.0, 1.0) * 255.0).round().to(torch.uint8)


def _front(classes_N: Tensor, draws_N4: Tensor, warp_N2GG: Tensor) -> Tensor:
    """The pattern in front, 0 or 1 at every point (n, g, g); the draws are its period, turn and beginning."""
    period, turn, left, top = draws_N4[:, :, None, None].unbind(1)
    period = PERIODS[0] * (PERIODS[1] / PERIODS[0]) ** period
    angles = torch.tensor([angle for _, angle in PATTERNS.values()], dtype=torch.float64)
    angle = math.pi * angles[classes_N][:, None, None] + LARGEST_TURN * (2.0 * turn - 1.0)
    along_G = (torch.arange(SIDE * FINER, dtype=torch.float64) + 0.5) / FINER
    x, y = along_G - SIDE * left, along_G[:, None] - SIDE * top
    u = (x * angle.cos() + y * angle.sin()) / period + warp_N2GG[:, 0]
    v = (y * angle.cos() - x * angle.sin()) / period + warp_N2GG[:, 1]
    front_NGG = torch.empty_like(u)
    for number, (pattern, _) in enumerate(PATTERNS.values()):
        is_here = classes_N == number
        front_NGG[is_here] = pattern(u[is_here], v[is_here]).double()
    return front_NGG


def _open_patterns(settings: SourceSettings, progress: Progress) -> Source:
    """Open the set: nothing is read, all pictures are drawn, in about a second."""
    refuse_split(NAME, settings.split)
    numbers = torch.arange(NUM_PICTURES)
    labels = fixed_labels(NAME, Labels(numbers % len(PATTERNS), tuple(PATTERNS)), settings)
    parts = numbers.split(CHUNK)
    with progress(f"drawing {NUM_PICTURES:,} pictures", len(parts)) as advance:
        drawn = []
        for part in parts:
            drawn.append(draw_pictures(part))
            advance()
    return memory_source(NAME, torch.cat(drawn), labels)


CATALOGUE: Mapping[str, NamedSource] = {
    "patterns-rendered": NamedSource(  # as a text: `counterpoint list` reads it without loading this
        "4,000 grey pictures of 8 patterns, 32 x 32 pixels, drawn here; pixels say little of the pattern",
        _open_patterns,
        has_files=False,
    ),
}
