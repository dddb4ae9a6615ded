"""Answers of `counterpoint geometry`: from words to the solver, and its results as text or as plain data."""

# C classes, T majority shares

import json
import math
import textwrap
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from counterpoint.cli.arguments import GeometryFlags
from counterpoint.core.errors import UsageError
from counterpoint.core.files import finite_or_null
from counterpoint.core.terminal_text import TextTable, shown_lines
from counterpoint.losses.build import build_loss
from counterpoint.losses.class_level import ClassLevel, LogOfSum
from counterpoint.losses.loss import Loss
from counterpoint.theory.collapse.minority_collapse import collapse_threshold
from counterpoint.theory.collapse.phase import PhaseDiagram, phase_diagram
from counterpoint.theory.collapse.rebalancing import rebalance
from counterpoint.theory.geometry.class_risk import PAPER
from counterpoint.theory.geometry.optimal_geometry import optimal_geometry

PAPER_LOSS = "generalized-contrastive"  # the paper's InfoNCE, at any temperature
MOST_NEGATIVES = 10**12  # the integral over the negatives is exact up to here, and the limit no longer differs
TEXT_WIDTH = 110
MAX_PRINTED = 20  # classes of a run
PHASE_NEGATIVES, PHASE_TEMPERATURES = (1.0, 8.0, 64.0, math.inf), (0.2, 0.5, 1.0)
NUM_SHARES = 17
LARGEST_LOG_ODDS = math.log(99)  # a majority of 0.99; the least is that of equal classes


def answer_shares(flags: GeometryFlags) -> None:
    """Solve for the shares of classes, and print."""
    shares = _shares(flags)
    loss, text = None if flags.loss is None and not _loss_options(flags) else _build_loss(flags), flags.negatives
    if text not in (None, "inf") and not (text.isdecimal() and 1 <= float(text) <= MOST_NEGATIVES):
        raise UsageError(f"--negatives must be a whole number from 1 to 1e12, or inf, got {text!r}; 512 is common")
    num_negatives = None if text is None else math.inf if text == "inf" else int(text)
    problem: dict[str, Any] = {"loss": loss, "num_negatives": num_negatives, "supervised": flags.supervised}
    limits = {"dimension": flags.dimension, "nonnegative": flags.nonnegative, "tolerance": flags.tolerance}
    answers: dict[str, Any] = {"geometry": optimal_geometry(shares, **problem, **limits)}
    if flags.threshold:
        answers["threshold"] = collapse_threshold(len(shares), **problem)
    if flags.rebalance:
        allowed: dict[str, Any] = {} if flags.deviation is None else {"deviation": flags.deviation}
        answers["rebalancing"] = rebalance(shares, **problem, **allowed)
    if flags.phase_diagram:
        answers["phase_diagram"] = _phases(flags, len(shares), problem)
    record = PAPER if loss is None else loss.class_level()
    negatives = next(k for k in (problem["num_negatives"], record.num_negatives, math.inf) if k is not None)
    words = _words(flags, record, negatives)
    notes = []  # facts that a reader needs to use the answer
    if not (flags.supervised or record.supervised):
        notes.append(
            "Holds for positives drawn from the anchor's class; where a sample's only positive is its own second view, "
            "spread-out classes may do better (docs/theory.md)."
        )
    if math.isinf(negatives) and not record.is_mean:
        notes.append(
            "A sum over infinitely many negatives has no finite risk: what is shown is a limit, less the growth with "
            "their number, and only differences of it mean something."
        )
    if flags.as_json:
        plain = {"question": words, "notes": notes} | {name: plain_record(answer) for name, answer in answers.items()}
        print(json.dumps(finite_or_null(plain)))
        return
    question = "; ".join(f"{name} {value}" for name, value in words.items())
    texts = [question, "", answers.pop("geometry"), *(textwrap.fill(note, TEXT_WIDTH) for note in notes)]
    print(shown_lines("\n".join(map(str, [*texts, *(f"\n{answer}" for answer in answers.values())]))))


def answer_run(flags: GeometryFlags) -> None:
    """Measure the classes of a run, solve for those that its loss would have, and print both."""
    from counterpoint.report.sections.classes_section import class_rows, class_words  # deferred: shares have no table
    from counterpoint.runs.class_comparison import compare_classes  # deferred: loads scikit-learn, which shares do not

    comparison = compare_classes(Path(str(flags.run)), tolerance=flags.tolerance, quiet=flags.quiet)
    record, optimum = comparison.record, comparison.record.optimum
    assert optimum is not None
    if flags.as_json:
        plain = {**record.model_dump(), "imbalance": record.imbalance, "geometry": plain_record(comparison.geometry)}
        print(json.dumps(finite_or_null(plain)))
        return
    head, rows = class_rows(record)
    cut = [[textwrap.shorten(name, 24, placeholder="…"), *cells] for name, *cells in rows[:MAX_PRINTED]]
    more = [f"... {MAX_PRINTED} of {len(rows)} classes; --json has all"] if len(rows) > MAX_PRINTED else []
    question = "; ".join(f"{name} {value}" for name, value in optimum.question.items())
    ends = [f"risk {optimum.risk:.12g}, gap {comparison.geometry.duality_gap:.2g}: {optimum.status}", *optimum.notes]
    parts = [f"question: {question}", *class_words(record)], ends
    table = TextTable(head, cut, "l" + "r" * (len(head) - 1))
    first, last = ([textwrap.fill(words, TEXT_WIDTH) for words in part] for part in parts)
    print(shown_lines("\n".join([*first, "", *table.lines, *more, "", *last])))


def _shares(flags: GeometryFlags) -> list[float]:
    """Read shares such as 0.25 or 1/4, and divide them by their sum where that is asked for."""
    try:
        shares = [float(Fraction(text)) if "/" in text else float(text) for text in flags.shares]
        total = math.fsum(shares)  # a thousand shares of 0.001 sum to 1 exactly, whatever their order
    except (ValueError, ArithmeticError):
        words = " ".join(flags.shares)
        raise UsageError(f"proportions must be finite numbers such as 0.25 or 1/4, got {words!r}") from None
    if flags.normalize and not 0 < total < math.inf:
        raise UsageError(f"proportions must be > 0 and finite, got a sum of {total:g}")
    return [share / total for share in shares] if flags.normalize else shares


def _loss_options(flags: GeometryFlags) -> dict[str, Any]:
    """Arguments of the loss; --temperature is one of them."""
    if flags.temperature is not None and "temperature" in flags.loss_options:
        raise UsageError("temperature is given twice, by --temperature and in --loss-options; leave out one")
    return {**flags.loss_options, **({} if flags.temperature is None else {"temperature": flags.temperature})}


def _build_loss(flags: GeometryFlags, **above: float) -> Loss:
    try:
        return build_loss(flags.loss or PAPER_LOSS, {}, {**_loss_options(flags), **above})
    except (TypeError, ValueError, ArithmeticError) as error:
        raise UsageError(str(error)) from error


def _phases(flags: GeometryFlags, num_classes: int, problem: Mapping[str, Any]) -> PhaseDiagram:
    """Compute the phase diagram; negatives and temperature that were given are added to the usual ones."""
    options, record = _loss_options(flags), PAPER if problem["loss"] is None else problem["loss"].class_level()
    temperatures = [options["temperature"]] if "temperature" in options else []
    numbers = [] if problem["num_negatives"] is None else [problem["num_negatives"]]
    # sigmoid(-log(C - 1)) = 1 / C; evenly spaced in the log odds, shares crowd towards 1, where minorities merge.
    log_odds_T = torch.linspace(-math.log(num_classes - 1), LARGEST_LOG_ODDS, NUM_SHARES, dtype=torch.float64)
    return phase_diagram(
        log_odds_T.sigmoid(),
        sorted({*PHASE_NEGATIVES, *numbers}),
        sorted({*PHASE_TEMPERATURES, *temperatures}),
        num_classes=num_classes,
        supervised=flags.supervised or record.supervised,
        loss=lambda temperature: _build_loss(flags, temperature=temperature),
    )


def _words(flags: GeometryFlags, record: ClassLevel, negatives: float) -> dict[str, str]:
    """Put the question into words: the loss with its arguments, and what is required of the embedding."""
    how_many = "infinitely many" if math.isinf(negatives) else f"{negatives:.0f}"
    whose = "other classes" if flags.supervised or record.supervised else "any class"
    words = {"loss": record.name, "negatives": f"{how_many}, of {whose}"}
    words |= (
        {"temperature": f"{1 / record.scale:g}"} if isinstance(record, LogOfSum) else {"scale": f"{record.scale:g}"}
    )
    words |= {name: str(value) for name, value in flags.loss_options.items()}
    words |= {} if flags.dimension is None else {"dimension": str(flags.dimension)}
    return words | ({"features": "non-negative"} if flags.nonnegative else {})


def plain_record(value: Any, name: str = "") -> Any:
    """Turn a record of theory into plain data: fields by name, without the letters of their axes."""
    if is_dataclass(value):
        properties = ("angles", "relative_gap", "merged_classes")
        names = [*(field.name for field in fields(value)), *(name for name in properties if hasattr(value, name))]
        keys = {name: name.rstrip("ABCDEFGHIJKLMNOPQRSTUVWXYZ").rstrip("_") for name in names}
        return {key: plain_record(getattr(value, name), name) for name, key in keys.items()}
    if isinstance(value, Tensor):
        return value.tolist()
    if isinstance(value, list | tuple):
        return [plain_record(item, name) for item in value]
    return "inf" if name == "num_negatives" and value == math.inf else value
