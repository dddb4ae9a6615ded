"""Views that show nothing though their picture does: too small a crop of a drawing is empty paper."""

# N pictures, P pixels

from dataclasses import dataclass

import torch
from torch import Tensor

from counterpoint.core.array_layout import to_unit_float
from counterpoint.data.views.drawer import ViewDrawer
from counterpoint.data.views.looks import Pictures
from counterpoint.data.views.presets import ViewPlan

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


def count_blank_views(pictures: Pictures, plan: ViewPlan, seed: int) -> BlankViews:
    """Count blank views among the first that training draws of some pictures; blank pictures do not count.

    Args:
        pictures: of one source.
        plan: how views are drawn.
        seed: the run's.
    """
    shows_N = _contrast(to_unit_float(pictures.pixels)) >= 2 * BLANK
    ids_N, pixels = pictures.ids[shows_N], pictures.pixels[shows_N]
    if not len(ids_N):
        return BlankViews(0, 0)
    channels = pixels.shape[1]
    drawer = ViewDrawer(plan, torch.zeros(channels), torch.ones(channels), seed)
    views = [view for epoch in range(NUM_EPOCHS) for view in drawer.two_views(pixels, ids_N, epoch)]
    return BlankViews(sum(int((_contrast(view) < BLANK).sum()) for view in views), len(views) * len(ids_N))


def _contrast(images: Tensor) -> Tensor:
    """Standard deviation over the pixels, of the channel where it is largest."""
    return images.flatten(2).std(dim=2, correction=0).amax(dim=1)
