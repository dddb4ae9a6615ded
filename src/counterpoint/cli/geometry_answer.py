"""What `counterpoint geometry` does: from words to the solver, its answer as text, as plain data and as a drawing."""

# C classes

import argparse
import json
import math
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from counterpoint.cli.geometry_question import Question, built_loss, loss_options, read_question
from counterpoint.core.errors import RunError, UsageError
from counterpoint.core.files import finite_or_null
from counterpoint.core.terminal_text import shown, shown_lines
from counterpoint.losses.build import parameters_of
from counterpoint.report.document import THEORY_PAGE, PageSection, check_target
from counterpoint.report.theory_pages.collapse_sections import (
    CLASS_COLUMNS,
    balance_words,
    class_values,
    is_balanced,
    phase_section,
    rebalancing_section,
    sampling_words,
    weighting_words,
)
from counterpoint.report.theory_pages.geometry_drawing import (
    Remarks,
    merge_words,
    rank_words,
    spread_words,
    write_geometry,
)
from counterpoint.theory.collapse.minority_collapse import CollapseThreshold, collapse_threshold
from counterpoint.theory.collapse.phase import PhaseDiagram, phase_diagram
from counterpoint.theory.collapse.rebalancing import RebalancingPlan, rebalance
from counterpoint.theory.geometry.optimal_geometry import Geometry, optimal_geometry

# C classes

MAX_PRINTED = 12  # classes of a printed matrix
CELL = 9
TEXT_WIDTH = 110
MIN_CLASSES = 3  # of a threshold: a majority and two minorities
PHASE_NEGATIVES, PHASE_TEMPERATURES = (1.0, 8.0, 64.0, math.inf), (0.2, 0.5, 1.0)
NUM_SHARES, NUM_SHARES_OF_MANY, MANY_CLASSES = 17, 9, 50  # a cell costs more the more classes there are
LARGEST_LOG_ODDS = math.log(99)  # a majority of 0.99; the least is that of equal classes


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
        # + 0.0: a rounded -0.00001 would print as -0.0000.
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


@dataclass(frozen=True)
class _Addition:
    """What was asked beside the geometry: for the screen, for scripts and for the page."""

    name: str
    text: str
    record: Mapping[str, Any]
    section: PageSection | None = None


def answer_geometry(flags: argparse.Namespace, target: Path | None) -> int:
    """Solve, print, and draw into ``target``."""
    _check_together(flags)
    asked = read_question(flags)
    if flags.threshold and len(asked.shares_C) < MIN_CLASSES:
        raise UsageError(f"--threshold needs {MIN_CLASSES} or more shares, got {len(asked.shares_C)}")
    if target is not None:
        check_drawing(target)
    found = optimal_geometry(
        asked.shares_C,
        loss=asked.loss,
        num_negatives=asked.num_negatives,
        supervised=asked.supervised,
        dimension=flags.dimension,
        nonnegative=flags.nonnegative,
        tolerance=flags.tolerance,
    )
    additions = list(_additions(flags, asked))
    if target is not None:
        more = [addition.section for addition in additions if addition.section]
        write_geometry(found, target, question=asked.words, more=more, remarks=Remarks(asked.risk_label, asked.notes))
    if flags.json:
        records = {addition.name: addition.record for addition in additions}
        print(json.dumps(finite_or_null({**geometry_record(found, asked, flags.tolerance), **records}), indent=1))
        return 0
    print(shown_lines(geometry_text(found, asked)))
    for addition in additions:
        print(shown_lines(addition.text))
    print(f"Drawn in {shown(target)}.")
    return 0


def _check_together(flags: argparse.Namespace) -> None:
    """Refuse flags that say nothing together.

    Raises:
        UsageError: a deviation without rebalancing, or what knows no limits on the embedding together with one.
    """
    if _is_given(flags, "--deviation") and not flags.rebalance:
        raise UsageError("--deviation is how far --rebalance may stay from the simplex; add --rebalance")
    asked = [flag for flag in ("--rebalance", "--phase-diagram") if _is_given(flags, flag)]
    limits = [flag for flag in ("--dimension", "--nonnegative") if _is_given(flags, flag)]
    if asked and limits:
        raise UsageError(
            f"{asked[0]} is about embeddings of any sign and of enough dimensions; leave out {limits[0]} or {asked[0]}"
        )
    if flags.phase_diagram and flags.loss is not None and "temperature" not in parameters_of(flags.loss):
        raise UsageError(
            f"--phase-diagram is drawn over temperatures, and loss {flags.loss} takes no temperature; infonce takes one"
        )


def _is_given(flags: argparse.Namespace, flag: str) -> bool:
    """Whether a flag that has no default was on the command line."""
    value = getattr(flags, flag.removeprefix("--").replace("-", "_"))
    # Not by truth: --deviation 0 is given.
    return value is not None and value is not False


def _additions(flags: argparse.Namespace, asked: Question) -> Iterator[_Addition]:
    """Answer what was asked beside the geometry, for the same loss and negatives."""
    options = {"loss": asked.loss, "num_negatives": asked.num_negatives, "supervised": asked.supervised}
    if flags.threshold:
        threshold = _threshold(len(asked.shares_C), options)
        yield _Addition("threshold", threshold_text(threshold), threshold_record(threshold))
    if flags.rebalance:
        allowed = {} if flags.deviation is None else {"deviation": flags.deviation}
        plan = rebalance(asked.shares_C, **options, **allowed)
        text = f"\n{rebalancing_text(plan)}"
        yield _Addition("rebalancing", text, rebalancing_record(plan), rebalancing_section(plan))
    if flags.phase_diagram:
        diagram = _phases(flags, asked)
        yield _Addition("phase_diagram", f"\n{diagram}", phase_record(diagram), phase_section(diagram))


def _threshold(num_classes: int, options: Mapping[str, Any]) -> CollapseThreshold:
    """Where the minorities merge.

    Raises:
        UsageError: they never do, or the loss has no threshold.
    """
    try:
        return collapse_threshold(num_classes, **options)
    except UsageError as error:
        if "apart at both ends" not in str(error):
            raise
        raise UsageError(
            "with this loss the minorities stay apart at every share of the majority; leave out --threshold"
        ) from error


def _phases(flags: argparse.Namespace, asked: Question) -> PhaseDiagram:
    """The diagram of as many classes, with the negatives and the temperature that were given among the usual ones."""
    num_classes = len(asked.shares_C)
    options = loss_options(flags)
    given = [options["temperature"]] if "temperature" in options else []
    numbers = [] if asked.num_negatives is None else [asked.num_negatives]
    num_shares = NUM_SHARES if num_classes <= MANY_CLASSES else NUM_SHARES_OF_MANY
    # sigmoid(-log(C - 1)) = 1 / C; evenly spaced in the log odds, shares crowd towards 1, where minorities merge.
    log_odds_T = torch.linspace(-math.log(num_classes - 1), LARGEST_LOG_ODDS, num_shares, dtype=torch.float64)
    return phase_diagram(
        log_odds_T.sigmoid(),
        sorted({*PHASE_NEGATIVES, *numbers}),
        sorted({*PHASE_TEMPERATURES, *given}),
        num_classes=num_classes,
        supervised=asked.is_of_other_classes,
        loss=lambda temperature: built_loss(flags, {**options, "temperature": temperature}),
    )


def check_drawing(target: Path) -> None:
    """Refuse a place for the drawing before the solver starts."""
    check_target(THEORY_PAGE, target)
    if not target.parent.is_dir():
        raise RunError(f"cannot write {target}: {target.parent} is not a folder; make it first or choose another --out")
