"""Thumbnails as data addresses, and the plans that keep a page of them within its size."""

import base64
import io
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image

PIXELATED_SIDE = 32  # images up to this side are enlarged with hard pixels: nothing is there to smooth
LOSSLESS_SIDE = 16  # below this a PNG is as small as anything
WEBP_QUALITY = 82


@dataclass(frozen=True)
class GalleryPlan:
    """How much of the concept gallery the page shows."""

    num_cards: int
    num_images: int
    max_side: int


# Tried in this order until the page fits; the last one shows no image and always does.
PLANS = (
    GalleryPlan(120, 12, 64),
    GalleryPlan(96, 12, 48),
    GalleryPlan(72, 8, 48),
    GalleryPlan(48, 6, 32),
    GalleryPlan(24, 6, 24),
    GalleryPlan(24, 0, 0),
)


def cards_per_run(plan: GalleryPlan, num_runs: int) -> int:
    """Share the cards of a plan among the runs; one run alone gets at most half of them."""
    return plan.num_cards // max(num_runs, 2)


def data_address(image: NDArray[np.uint8], max_side: int) -> str:
    """Encode one thumbnail, grey (h, w) or colour (h, w, 3), as a ``data:`` address.

    Args:
        image: the pixels.
        max_side: a longer image is shrunk to this many pixels.

    Returns:
        The address.
    """
    picture = Image.fromarray(np.ascontiguousarray(image))
    if max(picture.size) > max_side:
        picture.thumbnail((max_side, max_side), Image.Resampling.LANCZOS)
    stream = io.BytesIO()
    if max(picture.size) <= LOSSLESS_SIDE:
        picture.save(stream, "PNG", optimize=True)
        kind = "png"
    else:
        picture.convert("RGB").save(stream, "WEBP", quality=WEBP_QUALITY, method=4)
        kind = "webp"
    return f"data:image/{kind};base64,{base64.b64encode(stream.getvalue()).decode('ascii')}"
