"""What pictures look like, as far as the choice of their views depends on it, and how many of their views are blank."""

# N pictures, C channels, H height, W width, P pixels, L grey levels
# N pictures, P pixels

from dataclasses import dataclass

import torch
from torch import Tensor

from counterpoint.core.array_layout import to_bytes, to_unit_float
from counterpoint.core.counter_random import PURPOSE_SPLIT
from counterpoint.data.order import random_order
from counterpoint.data.source import Source
from counterpoint.data.views.drawer import ViewDrawer
from counterpoint.data.views.own_views import OwnViews
from counterpoint.data.views.presets import ViewPlan

NUM_SAMPLED, SAMPLE_SEED = 64, 0
NUM_LEVELS = 256
NOISE = 8  # levels by which a lossy file parts what was equal
COLOURED_PIXELS = 0.01  # share of the pixels that may have colour in a grey picture
BLANK_RANGE = 2 * NOISE  # levels between the darkest and the lightest pixel of a picture that shows nothing


@dataclass(frozen=True)
class Pictures:
    """Some pictures of a source: their ids (n,) and pixels (n, c, h, w)."""

    ids: Tensor
    pixels: Tensor


@dataclass(frozen=True)
class Looks:
    """What some pictures have in common.

    Attributes:
        num_pictures: how many of them show anything.
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
            f"of {self.num_pictures} pictures {self.grey_share:.0%} have no colour, and the middle one is plain in "
            f"{self.background:.0%} of its pixels"
        )


def sample_pictures(source: Source) -> Pictures:
    """The same few pictures of a source in every run on it."""
    # Not the run's seed: the preset that is chosen must not differ between runs on the same data.
    ids = random_order(SAMPLE_SEED, 0, len(source), purpose=PURPOSE_SPLIT)[:NUM_SAMPLED]
    return Pictures(ids, source.store.fetch(ids.tolist()))


def look(pixels_NCHW: Tensor) -> Looks | None:
    """Look at some pictures; whole numbers only, so that every machine sees the same. None where all are blank.

    Args:
        pixels_NCHW: uint8, or float32 in [0, 1].

    >>> page = torch.full((1, 3, 8, 8), 255, dtype=torch.uint8)
    >>> page[..., 2:4, 1:7] = 0
    >>> print(look(page))
    of 1 pictures 100% have no colour, and the middle one is plain in 81% of its pixels
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


BLANK = 8 / 255  # standard deviation over the pixels, in the channel where it is largest, below which a view is blank
NUM_EPOCHS = 2  # whose views are drawn
NOTABLE = 0.02  # share of blank views from which a remedy is named


@dataclass(frozen=True)
class BlankViews:
    """How many views are blank.

    Attributes:
        num_blank: nearly constant, though their picture is not.
        num_views: of how many.
    """

    num_blank: int
    num_views: int

    @property
    def share(self) -> float:
        """Share of the views that are blank."""
        return self.num_blank / self.num_views if self.num_views else 0.0

    def __str__(self) -> str:
        remedy = "; larger crops have fewer (--views.crop-scale)" if self.share >= NOTABLE else ""
        return f"{self.share:.1%} of {self.num_views} views are blank{remedy}"


def count_blank_views(pictures: Pictures, plan: ViewPlan | OwnViews, seed: int) -> BlankViews:
    """Count blank views among the first that training draws of some pictures; blank pictures do not count.

    Args:
        pictures: of one source.
        plan: how views are drawn.
        seed: the run's.
    """
    # Twice the limit: where a picture is itself nearly blank, blank views are not the crops' fault.
    shows_N = _contrast(to_unit_float(pictures.pixels)) >= 2 * BLANK
    ids_N, pixels = pictures.ids[shows_N], pictures.pixels[shows_N]
    if not len(ids_N):
        return BlankViews(0, 0)
    channels = pixels.shape[1]
    # Mean 0 and deviation 1: contrast is measured on pixels, not on standardised values.
    drawer = ViewDrawer(plan, torch.zeros(channels), torch.ones(channels), seed)
    views = [view for epoch in range(NUM_EPOCHS) for view in drawer.two_views(pixels, ids_N, epoch)]
    return BlankViews(sum(int((_contrast(view) < BLANK).sum()) for view in views), len(views) * len(ids_N))


def _contrast(images: Tensor) -> Tensor:
    """Standard deviation over the pixels, of the channel where it is largest."""
    return images.flatten(2).std(dim=2, correction=0).amax(dim=1)
