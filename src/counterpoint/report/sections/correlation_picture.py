"""Correlations between the dimensions of the embedding as a picture: one pixel per pair."""

import base64
import io
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from counterpoint.core.markup import Markup, element, join
from counterpoint.report.charts.figures import columns
from counterpoint.report.charts.series_style import run_title
from counterpoint.report.run_record import RunRecord
from counterpoint.report.wording import count, number

HOW_TO_READ = (
    "Correlations between dimensions over all samples: blue is positive, orange negative, the deeper the closer to 1. "
    "A pixel off the diagonal as deep as the diagonal is a dimension that repeats another."
)
POSITIVE, NEGATIVE = np.array([37.0, 99.0, 176.0]), np.array([200.0, 96.0, 10.0])  # at 1 and -1; white at 0
LEAST_SIDE = 320  # pixels on the page


def correlation_pictures(runs: Sequence[RunRecord]) -> Markup | None:
    """A picture for each run that has the matrix; None where none has."""
    known = [(run, run.arrays.correlation) for run in runs if run.arrays.correlation is not None]
    if not known:
        return None
    pictures = [join(run_title(run.name, run.order, len(runs)), _picture(run, matrix)) for run, matrix in known]
    heading = element("h3", "Do dimensions repeat each other?")
    return join(heading, element("p", HOW_TO_READ, class_="note"), columns(pictures))


def _picture(run: RunRecord, matrix_LL: NDArray[np.float64]) -> Markup:
    """The matrix and what it says in words."""
    size = len(matrix_LL)
    place, repeated = run.place("embedding"), run.measured("embedding", "duplicate_dims")
    others = np.abs(matrix_LL[~np.eye(size, dtype=bool)])
    largest = float(others.max()) if others.size else 0.0
    total = f" of {place.num_dims:,}" if place and place.num_dims > size else ""
    told = "" if repeated is None else f" {count(repeated, 'dimension')} repeat an earlier one."
    words = f"{count(size, 'dimension')}{total}; the largest correlation by size is {number(largest)}.{told}"
    side = max(LEAST_SIDE, size)
    image = element("img", src=_address(matrix_LL), alt=words, class_="pixelated", width=side, height=side)
    return join(element("p", words, class_="reading"), image)


def _address(matrix_LL: NDArray[np.float64]) -> str:
    """The matrix as the ``data:`` address of a PNG."""
    depth = np.clip(np.abs(matrix_LL), 0, 1)[..., None]
    colour = np.where(matrix_LL[..., None] >= 0, POSITIVE, NEGATIVE)
    pixels = np.round(255 * (1 - depth) + colour * depth).astype(np.uint8)
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, "PNG", optimize=True)
    return f"data:image/png;base64,{base64.b64encode(stream.getvalue()).decode('ascii')}"
