"""An optimal geometry as text for a terminal and as plain data for scripts."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from counterpoint.report.geometry_drawing import merge_words, spread_words
from counterpoint.theory.collapse.minority_collapse import CollapseThreshold
from counterpoint.theory.geometry.optimal_geometry import Geometry

# C classes

MAX_PRINTED = 12  # classes of a printed matrix
CELL = 9


def geometry_text(geometry: Geometry, question: Mapping[str, str]) -> str:
    """The question, both matrices, the certificate, and whether classes merge.

    Args:
        geometry: the optimum.
        question: what was asked.

    Returns:
        Several lines.
    """
    num_classes = len(geometry.proportions)
    asked = "; ".join(f"{name} {value}" for name, value in question.items())
    return "\n".join(
        [
            f"optimal geometry of {num_classes} classes: {asked}",
            "",
            *matrix_lines("cosines", geometry.gram, 4),
            "",
            *matrix_lines("degrees", geometry.angles, 2),
            "",
            *_certificate(geometry),
            "",
            merge_words(geometry),
            *filter(None, [spread_words(geometry)]),
        ]
    )


def geometry_record(geometry: Geometry, question: Mapping[str, str]) -> dict[str, Any]:
    """Everything as plain data; classes are counted from 1, as on the screen."""
    return {
        "question": dict(question),
        "proportions": geometry.proportions.tolist(),
        "gram": geometry.gram.tolist(),
        "angles": geometry.angles.tolist(),
        "means": geometry.means.tolist(),
        "risk": geometry.risk,
        "lower_bound": geometry.lower_bound,
        "duality_gap": geometry.duality_gap,
        "rank": geometry.rank,
        "status": geometry.status,
        "iterations": geometry.iterations,
        "is_certified": geometry.is_certified,
        "is_collapse_optimal": geometry.is_collapse_optimal,
        "merged": [[place + 1 for place in group] for group in geometry.merged_classes],
    }


def matrix_lines(title: str, matrix_CC: Tensor, decimals: int) -> list[str]:
    """A matrix with the numbers of its classes; of a large one the first rows and columns.

    >>> import torch
    >>> for line in matrix_lines("cosines", torch.tensor([[1.0, -0.5], [-0.5, 1.0]]), 2):
    ...     print(line)
    cosines        1        2
    1           1.00    -0.50
    2          -0.50     1.00
    """
    num_classes = len(matrix_CC)
    shown = range(min(num_classes, MAX_PRINTED))
    rows = matrix_CC.tolist()
    lines = [f"{title:<7}" + "".join(f"{column + 1:>{CELL}}" for column in shown)]
    for row in shown:
        cells = (f"{round(rows[row][column], decimals) + 0.0:>{CELL}.{decimals}f}" for column in shown)
        lines.append(f"{row + 1:<7}{''.join(cells)}")
    if num_classes > MAX_PRINTED:
        lines.append(f"... {MAX_PRINTED} of {num_classes} rows and columns; --json has all")
    return lines


def _certificate(geometry: Geometry) -> list[str]:
    """Risk, bound, gap, status and rank."""
    return [
        f"risk         {geometry.risk:.12g}",
        f"lower bound  {geometry.lower_bound:.12g}",
        f"duality gap  {geometry.duality_gap:.2g}",
        f"rank         {geometry.rank} of at most {len(geometry.gram) - 1}",
        f"status       {geometry.status} ({geometry.iterations} iterations)",
    ]


def threshold_record(threshold: CollapseThreshold) -> dict[str, Any]:
    """The threshold and the paper's bounds as plain data."""
    bounds = threshold.bounds
    return {
        "majority_share": threshold.share,
        "minority_share": threshold.minority_share,
        "bound_stated": bounds.stated if bounds else None,
        "bound_exact": bounds.exact if bounds else None,
        "text": str(threshold),
    }
