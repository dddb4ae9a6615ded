"""An optimal geometry, and what else was asked about it, as text for a terminal and as plain data for scripts."""

import math
import textwrap
from collections.abc import Sequence
from typing import Any

from torch import Tensor

from counterpoint.cli.geometry_question import Question
from counterpoint.report.theory_pages.geometry_drawing import merge_words, rank_words, spread_words
from counterpoint.report.theory_pages.theory_rebalancing import (
    CLASS_COLUMNS,
    balance_words,
    class_values,
    is_balanced,
    sampling_words,
    weighting_words,
)
from counterpoint.theory.collapse.minority_collapse import CollapseThreshold
from counterpoint.theory.collapse.phase import PhaseDiagram
from counterpoint.theory.collapse.rebalancing import RebalancingPlan
from counterpoint.theory.geometry.optimal_geometry import Geometry

# C classes

MAX_PRINTED = 12  # classes of a printed matrix
CELL = 9
TEXT_WIDTH = 110


def geometry_text(geometry: Geometry, asked: Question) -> str:
    """The question, both matrices, the certificate, and whether classes merge.

    Args:
        geometry: the optimum.
        asked: the question.

    Returns:
        Several lines.
    """
    num_classes = len(geometry.proportions)
    question = "; ".join(f"{name} {value}" for name, value in asked.words.items())
    return "\n".join(
        [
            f"optimal geometry of {num_classes} classes: {question}",
            "",
            *matrix_lines("cosines", geometry.gram, 4),
            "",
            *matrix_lines("degrees", geometry.angles, 2),
            "",
            *_certificate(geometry, asked.risk_label),
            *(textwrap.fill(note, TEXT_WIDTH) for note in asked.notes),
            "",
            merge_words(geometry),
            *filter(None, [spread_words(geometry)]),
        ]
    )


def geometry_record(geometry: Geometry, asked: Question, tolerance: float) -> dict[str, Any]:
    """Everything as plain data; classes are counted from 1, as on the screen."""
    number = asked.effective_negatives
    return {
        "question": dict(asked.words),
        "loss": asked.name,
        "num_negatives": "inf" if math.isinf(number) else int(number),
        "supervised": asked.is_of_other_classes,
        "temperature": asked.temperature,
        "classes_counted_from": 1,
        "proportions": geometry.proportions.tolist(),
        "gram": geometry.gram.tolist(),
        "angles": geometry.angles.tolist(),
        "means": geometry.means.tolist(),
        "risk": geometry.risk,
        "lower_bound": geometry.lower_bound,
        "risk_label": asked.risk_label,
        "duality_gap": geometry.duality_gap,
        "relative_gap": geometry.relative_gap,
        "tolerance": tolerance,
        "rank": geometry.rank,
        "status": geometry.status,
        "notes": list(asked.notes),
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


def _certificate(geometry: Geometry, risk_label: str) -> list[str]:
    """Risk, bound, gap, status and rank."""
    what = risk_label.removeprefix("risk")
    return [
        f"risk         {geometry.risk:.12g}{f' ({what[2:]})' if what else ''}",
        f"lower bound  {geometry.lower_bound:.12g}",
        f"duality gap  {geometry.duality_gap:.2g}",
        f"rank         {rank_words(geometry)}",
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


def threshold_text(threshold: CollapseThreshold) -> str:
    """The threshold and the paper's bounds in words."""
    return textwrap.fill(f"With one majority class, {threshold}.", TEXT_WIDTH)


def rebalancing_text(plan: RebalancingPlan) -> str:
    """What each plan reaches, and its numbers class by class."""
    if is_balanced(plan):
        return balance_words(plan)
    values = class_values(plan)
    lines = [balance_words(plan), sampling_words(plan), weighting_words(plan), "", "  ".join(CLASS_COLUMNS)]
    lines += [_class_line(place, row) for place, row in enumerate(values[:MAX_PRINTED], start=1)]
    if len(values) > MAX_PRINTED:
        lines.append(f"... {MAX_PRINTED} of {len(values)} classes; --json has all")
    return "\n".join(lines)


def rebalancing_record(plan: RebalancingPlan) -> dict[str, Any]:
    """Both plans as plain data."""
    sampling, weighting = plan.sampling, plan.weighting
    return {
        "allowed": plan.allowed,
        "deviation": plan.deviation_before,
        "is_balanced": is_balanced(plan),
        "sampling": {
            "exponent": sampling.exponent,
            "proportions": sampling.proportions_C.tolist(),
            "repeat_factors": sampling.repeat_factors_C.tolist(),
            "gram": sampling.geometry.gram.tolist(),
            "deviation": sampling.deviation,
        },
        "weighting": {
            "anchor_weights": weighting.anchor_weights_C.tolist(),
            "sample_weights": weighting.sample_weights_C.tolist(),
            "is_exact": weighting.is_exact,
            "gram": weighting.gram_CC.tolist(),
            "deviation": weighting.deviation,
        },
        "text": str(plan),
    }


def phase_record(diagram: PhaseDiagram) -> dict[str, Any]:
    """The diagram as plain data; its tables are indexed by negatives, temperature and, but for thresholds, share."""
    return {
        "classes": diagram.num_classes,
        "supervised": diagram.supervised,
        "negatives": ["inf" if math.isinf(k) else int(k) for k in diagram.num_negatives],
        "temperatures": list(diagram.temperatures),
        "majority_shares": diagram.shares_T.tolist(),
        "minority_cosine": diagram.minority_cosine_KUT.tolist(),
        "majority_cosine": diagram.majority_cosine_KUT.tolist(),
        "is_merged": diagram.is_merged_KUT.tolist(),
        "threshold": diagram.threshold_KU.tolist(),
        "threshold_minority_share": diagram.threshold_minority_KU.tolist(),
        "text": str(diagram),
    }


def _class_line(place: int, values: Sequence[float]) -> str:
    """One row under the titles of ``CLASS_COLUMNS``."""
    widths = [len(title) for title in CLASS_COLUMNS[1:]]
    cells = (f"{value:>{width}.4g}" for value, width in zip(values, widths, strict=True))
    return f"{place:<{len(CLASS_COLUMNS[0])}}  {'  '.join(cells)}"
