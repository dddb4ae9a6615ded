"""`counterpoint geometry`: from words to the solver, its answer on standard output and its drawing."""

import argparse
import json
import math
import textwrap
from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any

import torch

from counterpoint.cli.geometry_text import geometry_record, geometry_text, threshold_record
from counterpoint.cli.theory_flags import DRAWING
from counterpoint.core.errors import RunError, UsageError
from counterpoint.core.files import finite_or_null
from counterpoint.core.yaml_text import parse_yaml
from counterpoint.losses.build import build_loss
from counterpoint.losses.loss import Loss
from counterpoint.report.geometry_drawing import write_geometry
from counterpoint.report.theory_document import check_theory_target
from counterpoint.theory.collapse.minority_collapse import CollapseThreshold, collapse_threshold
from counterpoint.theory.geometry.class_risk import PAPER
from counterpoint.theory.geometry.optimal_geometry import optimal_geometry

PAPER_LOSS = "generalized-contrastive"  # the paper's InfoNCE, at any temperature
PAPER_NAME = "InfoNCE (imbalanced2026, Eq. 23)"
TEXT_WIDTH = 110
SUM_TOLERANCE = 1e-6


def run_geometry(flags: argparse.Namespace) -> int:
    """Solve, print and draw."""
    shares, loss, num_negatives = _shares(flags), _loss(flags), _negatives(flags.negatives)
    question = _question(flags, loss, num_negatives)
    target = None if flags.json and flags.out is None else Path(flags.out or DRAWING)
    if target is not None:
        _check_drawing(target)
    found = optimal_geometry(
        torch.tensor(shares, dtype=torch.float64),
        loss=loss,
        num_negatives=num_negatives,
        supervised=flags.supervised,
        dimension=flags.dimension,
        nonnegative=flags.nonnegative,
        tolerance=flags.tolerance,
    )
    threshold = _threshold(flags, len(shares), loss, num_negatives) if flags.threshold else None
    if target is not None:
        write_geometry(found, target, question=question)
    if flags.json:
        _print_json(geometry_record(found, question), threshold)
        return 0
    print(geometry_text(found, question))
    if threshold is not None:
        print(textwrap.fill(f"With one majority class, {threshold}.", TEXT_WIDTH))
    print(f"Drawn in {target}.")
    return 0


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
    options = {} if flags.loss_options is None else parse_yaml(flags.loss_options, "command line: --loss-options")
    if not isinstance(options, dict):
        raise UsageError(f'--loss-options must be like "{{margin: 0.5}}", got {flags.loss_options!r}')
    if flags.temperature is not None:
        options = {**options, "temperature": flags.temperature}
    if flags.loss is None and not options:
        return None
    try:
        return build_loss(flags.loss or PAPER_LOSS, {}, options)
    except (TypeError, ValueError) as error:
        raise UsageError(str(error)) from error


def _threshold(
    flags: argparse.Namespace, num_classes: int, loss: Loss | None, num_negatives: float | None
) -> CollapseThreshold:
    """The share of one majority class above which the others merge, for the same loss and negatives."""
    return collapse_threshold(num_classes, loss=loss, num_negatives=num_negatives, supervised=flags.supervised)


def _print_json(record: dict[str, Any], threshold: CollapseThreshold | None) -> None:
    """Print strict JSON."""
    added = {} if threshold is None else {"threshold": threshold_record(threshold)}
    print(json.dumps(finite_or_null({**record, **added}), indent=1))


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
