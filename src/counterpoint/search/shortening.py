"""Fewer dimensions: those of the largest expected activation, and what a search with them finds of that with all.

Source: ncl2024, section 5.1. Beside it stand principal components, variance and a random choice.
"""

# N rows, D features, Q queries, K neighbours

from dataclasses import dataclass

from torch import Tensor

from counterpoint.core.errors import UsageError
from counterpoint.core.search_records import CurvePoint
from counterpoint.core.stored_rows import Rows, taken, whole
from counterpoint.core.thread_parts import one_thread
from counterpoint.data.order import random_order
from counterpoint.diagnostics.concepts import expected_activation
from counterpoint.evaluation.nearest import nearest
from counterpoint.evaluation.selection import BY_ACTIVATION, ORDERS
from counterpoint.search.approximation import NEAR, NUM_QUERIES, recall

WANTED_RECALL = 0.95  # of the ten nearest, at which ``auto`` stops
MOST_ROWS = 20_000  # of the collection that the curve is measured on
COMPARED = (BY_ACTIVATION, "pca", "variance", "random")


@dataclass(frozen=True)
class Shortened:
    """Which dimensions are kept.

    Attributes:
        dims: their numbers, that of the largest expected activation first.
        curve: recall of every order and number that was measured.
    """

    dims: tuple[int, ...]
    curve: tuple[CurvePoint, ...]


def shorten(rows_ND: Rows, dims: int | str) -> Shortened:
    """Choose dimensions by expected activation, and measure what they keep.

    Args:
        rows_ND: embeddings.
        dims: how many; ``auto`` takes the least number measured whose recall of the ten nearest is ``WANTED_RECALL``.

    Raises:
        UsageError: out of range.
    """
    width = rows_ND.shape[1]
    if dims != "auto" and not (isinstance(dims, int) and 1 <= dims <= width):
        raise UsageError(f"dims must be auto or between 1 and {width}, the dimensions of the layer, got {dims}")
    sizes = sorted({*curve_sizes(width), dims if isinstance(dims, int) else width})
    sample_ND = whole(taken(rows_ND, random_order(0, 5, len(rows_ND))[:MOST_ROWS].sort().values))
    curve = tuple(point for order in COMPARED for point in recall_curve(sample_ND, order, sizes))
    enough = [point.kept for point in curve if point.order == BY_ACTIVATION and point.recall >= WANTED_RECALL]
    chosen = dims if isinstance(dims, int) else min(enough, default=width)
    best = expected_activation(sample_ND).argsort(descending=True, stable=True)
    return Shortened(tuple(best[:chosen].tolist()), curve)


def curve_sizes(width: int) -> list[int]:
    """Numbers of dimensions that are measured: 1, 2, 3, 4, 6, 8, 12, ... and all.

    >>> curve_sizes(20)
    [1, 2, 3, 4, 6, 8, 12, 16, 20]
    """
    found = {size for power in range(width.bit_length()) for size in (1 << power, 3 << power) if size < width}
    return sorted({*found, width})


def recall_curve(rows_ND: Tensor, order: str, sizes: list[int]) -> list[CurvePoint]:
    """Share of the ten nearest by all dimensions that are among the ten nearest by the first of an order.

    Cosines are of the vectors as they are shortened. Queries are rows, which are not their own neighbours.

    Args:
        rows_ND: two or more.
        order: a name of ``evaluation.selection.ORDERS``.
        sizes: numbers of dimensions.
    """
    asked = random_order(0, 6, len(rows_ND))[:NUM_QUERIES]
    k = min(NEAR + 1, len(rows_ND))
    truth_QK = nearest(rows_ND, rows_ND[asked], k).positions_QK
    with one_thread():
        arranged_ND = ORDERS[order](rows_ND, 0)(rows_ND)
    points = []
    for size in sizes:
        short_ND = arranged_ND[:, :size].contiguous()
        found_QK = nearest(short_ND, short_ND[asked], k).positions_QK
        share = recall(truth_QK, found_QK, leave_out=asked)
        points.append(CurvePoint(order=order, kept=size, recall=share.value, low=share.low, high=share.high))
    return points


def kept_words(curve: tuple[CurvePoint, ...], kept: int) -> str:
    """What so many dimensions find, beside other choices of as many."""
    at = {point.order: point for point in curve if point.kept == kept}
    own = at[BY_ACTIVATION]
    others = ", ".join(f"{order} {at[order].recall:.3f}" for order in COMPARED[1:])
    return (
        f"The {kept} dimensions with the largest expected activation find {own.recall:.3f} ({own.low:.3f} to "
        f"{own.high:.3f}) of the ten nearest by all of them; as many by {others}."
    )
