"""`counterpoint geometry`: from words to the solver, its answer on standard output and its drawing."""

import argparse
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from counterpoint.cli.geometry_text import (
    geometry_record,
    geometry_text,
    phase_record,
    rebalancing_record,
    rebalancing_text,
    threshold_record,
    threshold_text,
)
from counterpoint.cli.theory_flags import DEVIATION, DRAWING
from counterpoint.core.errors import RunError, UsageError
from counterpoint.core.files import finite_or_null
from counterpoint.core.yaml_text import parse_yaml
from counterpoint.losses.build import build_loss, parameters_of
from counterpoint.losses.loss import Loss
from counterpoint.report.geometry_drawing import write_geometry
from counterpoint.report.theory_document import TheorySection, check_theory_target
from counterpoint.report.theory_phases import phase_section
from counterpoint.report.theory_rebalancing import rebalancing_section
from counterpoint.theory.collapse.minority_collapse import collapse_threshold
from counterpoint.theory.collapse.phase import PhaseDiagram, phase_diagram
from counterpoint.theory.collapse.rebalancing import rebalance
from counterpoint.theory.geometry.class_risk import PAPER
from counterpoint.theory.geometry.optimal_geometry import optimal_geometry

PAPER_LOSS = "generalized-contrastive"  # the paper's InfoNCE, at any temperature
PAPER_NAME = "InfoNCE (imbalanced2026, Eq. 23)"
SUM_TOLERANCE = 1e-6
PHASE_NEGATIVES, PHASE_TEMPERATURES = (1.0, 8.0, 64.0, math.inf), (0.2, 0.5, 1.0)
NUM_SHARES, NUM_SHARES_OF_MANY, MANY_CLASSES = 17, 9, 50  # a cell costs more the more classes there are
LARGEST_LOG_ODDS = math.log(99)  # a majority of 0.99; the least is that of equal classes


@dataclass(frozen=True)
class _Asked:
    """The question of the command line, read."""

    shares_C: Tensor
    loss: Loss | None
    num_negatives: float | None
    supervised: bool


@dataclass(frozen=True)
class _Addition:
    """What was asked beside the geometry: for the screen, for scripts and for the page."""

    name: str
    text: str
    record: Mapping[str, Any]
    section: TheorySection | None = None


def run_geometry(flags: argparse.Namespace) -> int:
    """Solve, print and draw."""
    _check_together(flags)
    shares_C = torch.tensor(_shares(flags), dtype=torch.float64)
    asked = _Asked(shares_C, _loss(flags), _negatives(flags.negatives), flags.supervised)
    question = _question(flags, asked.loss, asked.num_negatives)
    target = None if flags.json and flags.out is None else Path(flags.out or DRAWING)
    if target is not None:
        _check_drawing(target)
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
        write_geometry(found, target, question=question, more=[a.section for a in additions if a.section])
    if flags.json:
        records = {addition.name: addition.record for addition in additions}
        print(json.dumps(finite_or_null({**geometry_record(found, question), **records}), indent=1))
        return 0
    print(geometry_text(found, question))
    for addition in additions:
        print(addition.text)
    print(f"Drawn in {target}.")
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
    return value is not None and value is not False


def _additions(flags: argparse.Namespace, asked: _Asked) -> Iterator[_Addition]:
    """Answer what was asked beside the geometry, for the same loss and negatives."""
    options = {"loss": asked.loss, "num_negatives": asked.num_negatives, "supervised": asked.supervised}
    if flags.threshold:
        threshold = collapse_threshold(len(asked.shares_C), **options)
        yield _Addition("threshold", threshold_text(threshold), threshold_record(threshold))
    if flags.rebalance:
        allowed = DEVIATION if flags.deviation is None else flags.deviation
        plan = rebalance(asked.shares_C, **options, deviation=allowed)
        text = f"\n{rebalancing_text(plan)}"
        yield _Addition("rebalancing", text, rebalancing_record(plan), rebalancing_section(plan))
    if flags.phase_diagram:
        diagram = _phases(flags, asked)
        yield _Addition("phase_diagram", f"\n{diagram}", phase_record(diagram), phase_section(diagram))


def _phases(flags: argparse.Namespace, asked: _Asked) -> PhaseDiagram:
    """The diagram of as many classes, with the negatives and the temperature that were given among the usual ones."""
    num_classes = len(asked.shares_C)
    options = _loss_options(flags)
    given = [options["temperature"]] if "temperature" in options else []
    numbers = [] if asked.num_negatives is None else [asked.num_negatives]
    num_shares = NUM_SHARES if num_classes <= MANY_CLASSES else NUM_SHARES_OF_MANY
    log_odds_T = torch.linspace(-math.log(num_classes - 1), LARGEST_LOG_ODDS, num_shares, dtype=torch.float64)
    return phase_diagram(
        log_odds_T.sigmoid(),
        sorted({*PHASE_NEGATIVES, *numbers}),
        sorted({*PHASE_TEMPERATURES, *given}),
        num_classes=num_classes,
        supervised=asked.supervised or (asked.loss is not None and asked.loss.class_level().supervised),
        loss=lambda temperature: _built(flags, {**options, "temperature": temperature}),
    )


def _shares(flags: argparse.Namespace) -> list[float]:
    """Read the shares, and divide them by their sum where that is asked for.

    Raises:
        UsageError: not a number, or a sum that is not 1.
    """
    shares = [_share(text) for text in flags.proportions]
    total = math.fsum(shares)
    if not flags.normalize:
        if all(share > 0 for share in shares) and abs(total - 1) > SUM_TOLERANCE:
            raise UsageError(f"proportions must sum to 1, got {total:.10g}; --normalize divides them by their sum")
        return shares
    if not 0 < total < math.inf:
        raise UsageError(f"proportions must be > 0 and finite, got a sum of {total:g}")
    return [share / total for share in shares]


def _share(text: str) -> float:
    """Read ``0.25``, ``1/4`` or ``250``."""
    try:
        return float(Fraction(text)) if "/" in text else float(text)
    except (ValueError, ArithmeticError):
        raise UsageError(f"proportions must be numbers such as 0.25 or 1/4, got {text!r}") from None


def _negatives(text: str | None) -> float | None:
    """Read a whole number or ``inf``."""
    if text is None:
        return None
    try:
        number = math.inf if text.lower() in ("inf", "infinity") else int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise UsageError(f"--negatives must be a whole number >= 1 or inf, got {text!r}; 512 is common")
    return number


def _loss(flags: argparse.Namespace) -> Loss | None:
    """Build the loss that was asked for; None is the paper's.

    Raises:
        UsageError: an unknown loss, an option it does not take, or a value out of range.
    """
    options = _loss_options(flags)
    return None if flags.loss is None and not options else _built(flags, options)


def _loss_options(flags: argparse.Namespace) -> dict[str, Any]:
    """Arguments of the loss; --temperature is one of them."""
    options = {} if flags.loss_options is None else parse_yaml(flags.loss_options, "command line: --loss-options")
    if not isinstance(options, dict):
        raise UsageError(f'--loss-options must be like "{{margin: 0.5}}", got {flags.loss_options!r}')
    return options if flags.temperature is None else {**options, "temperature": flags.temperature}


def _built(flags: argparse.Namespace, options: Mapping[str, Any]) -> Loss:
    """Build the loss with these arguments."""
    try:
        return build_loss(flags.loss or PAPER_LOSS, {}, options)
    except (TypeError, ValueError) as error:
        raise UsageError(str(error)) from error


def _question(flags: argparse.Namespace, loss: Loss | None, num_negatives: float | None) -> Mapping[str, str]:
    """What was asked, in words; what the loss has of its own stands in for what was not."""
    record = PAPER if loss is None else loss.class_level()
    known = (num_negatives, record.num_negatives, math.inf)
    number = next(number for number in known if number is not None)
    how_many = "infinitely many" if math.isinf(number) else f"{number:.0f}"
    whose = "other classes" if flags.supervised or record.supervised else "any class"
    question = {"loss": PAPER_NAME if loss is None else record.name, "negatives": f"{how_many}, of {whose}"}
    if flags.temperature is not None:
        question["temperature"] = f"{flags.temperature:g}"
    if flags.dimension is not None:
        question["dimension"] = str(flags.dimension)
    if flags.nonnegative:
        question["features"] = "non-negative"
    return question


def _check_drawing(target: Path) -> None:
    """Refuse a place for the drawing before the solver starts."""
    check_theory_target(target)
    if not target.parent.is_dir():
        raise RunError(f"cannot write {target}: {target.parent} is not a folder; make it first or choose another --out")
