"""What `counterpoint geometry` does: from words to the solver, its answer on standard output and its drawing."""

import argparse
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from counterpoint.cli.geometry_question import Question, built_loss, loss_options, read_question
from counterpoint.cli.geometry_text import (
    geometry_record,
    geometry_text,
    phase_record,
    rebalancing_record,
    rebalancing_text,
    threshold_record,
    threshold_text,
)
from counterpoint.cli.verbs.geometry_verb import DEVIATION, DRAWING
from counterpoint.core.errors import RunError, UsageError
from counterpoint.core.files import finite_or_null
from counterpoint.losses.build import parameters_of
from counterpoint.papers.reproductions import check_folder
from counterpoint.report.theory_pages.geometry_drawing import Remarks, write_geometry
from counterpoint.report.theory_pages.theory_document import TheorySection, check_theory_target
from counterpoint.report.theory_pages.theory_phases import phase_section
from counterpoint.report.theory_pages.theory_rebalancing import rebalancing_section
from counterpoint.theory.collapse.minority_collapse import CollapseThreshold, collapse_threshold
from counterpoint.theory.collapse.phase import PhaseDiagram, phase_diagram
from counterpoint.theory.collapse.rebalancing import rebalance
from counterpoint.theory.geometry.optimal_geometry import optimal_geometry

MIN_CLASSES = 3  # of a threshold: a majority and two minorities
PHASE_NEGATIVES, PHASE_TEMPERATURES = (1.0, 8.0, 64.0, math.inf), (0.2, 0.5, 1.0)
NUM_SHARES, NUM_SHARES_OF_MANY, MANY_CLASSES = 17, 9, 50  # a cell costs more the more classes there are
LARGEST_LOG_ODDS = math.log(99)  # a majority of 0.99; the least is that of equal classes


@dataclass(frozen=True)
class _Addition:
    """What was asked beside the geometry: for the screen, for scripts and for the page."""

    name: str
    text: str
    record: Mapping[str, Any]
    section: TheorySection | None = None


def answer_geometry(flags: argparse.Namespace) -> int:
    """Solve, print and draw."""
    _check_together(flags)
    asked = read_question(flags)
    if flags.threshold and len(asked.shares_C) < MIN_CLASSES:
        raise UsageError(f"--threshold needs {MIN_CLASSES} or more shares, got {len(asked.shares_C)}")
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
        more = [addition.section for addition in additions if addition.section]
        write_geometry(found, target, question=asked.words, more=more, remarks=Remarks(asked.risk_label, asked.notes))
    if flags.json:
        records = {addition.name: addition.record for addition in additions}
        print(json.dumps(finite_or_null({**geometry_record(found, asked, flags.tolerance), **records}), indent=1))
        return 0
    print(geometry_text(found, asked))
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


def _additions(flags: argparse.Namespace, asked: Question) -> Iterator[_Addition]:
    """Answer what was asked beside the geometry, for the same loss and negatives."""
    options = {"loss": asked.loss, "num_negatives": asked.num_negatives, "supervised": asked.supervised}
    if flags.threshold:
        threshold = _threshold(len(asked.shares_C), options)
        yield _Addition("threshold", threshold_text(threshold), threshold_record(threshold))
    if flags.rebalance:
        allowed = DEVIATION if flags.deviation is None else flags.deviation
        plan = rebalance(asked.shares_C, **options, deviation=allowed)
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
    log_odds_T = torch.linspace(-math.log(num_classes - 1), LARGEST_LOG_ODDS, num_shares, dtype=torch.float64)
    return phase_diagram(
        log_odds_T.sigmoid(),
        sorted({*PHASE_NEGATIVES, *numbers}),
        sorted({*PHASE_TEMPERATURES, *given}),
        num_classes=num_classes,
        supervised=asked.is_of_other_classes,
        loss=lambda temperature: built_loss(flags, {**options, "temperature": temperature}),
    )


def _check_drawing(target: Path) -> None:
    """Refuse a place for the drawing before the solver starts."""
    check_theory_target(target)
    if not target.parent.is_dir():
        raise RunError(f"cannot write {target}: {target.parent} is not a folder; make it first or choose another --out")
    check_folder(target.parent)
