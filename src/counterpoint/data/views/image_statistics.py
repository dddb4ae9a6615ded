"""Statistics of pictures that decide the choice of their views."""

# N pictures, C channels, H height, W width, P pixels, L grey levels

from dataclasses import dataclass

import torch
from torch import Tensor

from counterpoint.core.array_layout import to_bytes
from counterpoint.core.counter_random import PURPOSE_SPLIT
from counterpoint.data.order import random_order
from counterpoint.data.source import Source

NUM_SAMPLED, SAMPLE_SEED = 64, 0
NUM_LEVELS = 256
NOISE = 8  # levels by which a lossy file parts what was equal
COLOURED_PIXELS = 0.01  # share of the pixels that may have colour in a grey picture
BLANK_RANGE = 2 * NOISE  # levels between the darkest and the lightest pixel of a picture that shows nothing


@dataclass(frozen=True)
class Looks:
    """Statistics that some pictures have in common.

    Attributes:
        num_pictures: number of those that show anything.
        grey_share: share of these without colour.
        background: share of a picture's pixels within 8 levels of its commonest grey, the median over the pictures.
        paper: that commonest grey, the median, from 0 (black) to 255.
    """

    num_pictures: int
    grey_share: float
    background: float
    paper: int

    def __str__(self) -> str:
        return (
            f"of {self.num_pictures} pictures {self.grey_share:.0%} have no colour, and the median one is blank in "
            f"{self.background:.0%} of its pixels"
        )


def sample_pictures(source: Source) -> Tensor:
    """The same few pictures of a source in every run on it, (n, c, h, w)."""
    # Not the run's seed: the preset that is chosen must not differ between runs on the same data.
    ids = random_order(SAMPLE_SEED, 0, len(source), purpose=PURPOSE_SPLIT)[:NUM_SAMPLED]
    return source.store.fetch(ids.tolist())


def look(pixels_NCHW: Tensor) -> Looks | None:
    """Look at some pictures; whole numbers only, so that every machine sees the same. None if all are blank.

    Args:
        pixels_NCHW: pixels of the pictures, uint8, or float32 in [0, 1].

    >>> page = torch.full((1, 3, 8, 8), 255, dtype=torch.uint8)
    >>> page[..., 2:4, 1:7] = 0
    >>> print(look(page))
    of 1 pictures 100% have no colour, and the median one is blank in 81% of its pixels
    """
    levels_NCP = to_bytes(pixels_NCHW).flatten(2).to(torch.int64)
    darkest_N, lightest_N = levels_NCP.amin(dim=(1, 2)), levels_NCP.amax(dim=(1, 2))
    # Blank pictures say nothing of the others.
    levels_NCP = levels_NCP[lightest_N - darkest_N > BLANK_RANGE]
    if not len(levels_NCP):
        return None
    # Channels that differ by no more than a lossy file's noise have no colour.
    is_coloured_NP = levels_NCP.amax(dim=1) - levels_NCP.amin(dim=1) > NOISE
    is_grey_N = is_coloured_NP.sum(dim=1) <= COLOURED_PIXELS * is_coloured_NP.shape[1]
    grey_NP = levels_NCP.sum(dim=1) // levels_NCP.shape[1]
    counts_NL = torch.zeros(len(grey_NP), NUM_LEVELS, dtype=torch.int64)
    counts_NL.scatter_add_(1, grey_NP, torch.ones_like(grey_NP))
    # Sliding sum: pixels within NOISE levels of each grey.
    near_NL = torch.nn.functional.pad(counts_NL, (NOISE, NOISE)).unfold(1, 2 * NOISE + 1, 1).sum(dim=2)
    most_N = near_NL.amax(dim=1)
    return Looks(
        num_pictures=len(grey_NP),
        grey_share=float(is_grey_N.double().mean()),
        background=float(most_N.median()) / grey_NP.shape[1],
        paper=int(counts_NL.argmax(dim=1).median()),
    )
