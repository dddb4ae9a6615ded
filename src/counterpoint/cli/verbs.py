"""What each verb does: from parsed flags to the Python API and its results on standard output."""

import argparse
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from counterpoint.cli.arguments import settings_from
from counterpoint.cli.geometry_verb import run_geometry
from counterpoint.cli.reproduce_verb import run_reproduce
from counterpoint.core.errors import RunError, UsageError, unknown_name
from counterpoint.core.ranks import read_ranks
from counterpoint.core.rundir import Run
from counterpoint.data.label_files import load_npy
from counterpoint.data.presets import PRESETS
from counterpoint.data.sources import CATALOGUE as SOURCES
from counterpoint.diagnostics.findings import CATALOGUE as CHECKS
from counterpoint.diagnostics.findings import LEVELS
from counterpoint.engine.progress import Reporter
from counterpoint.evaluation.protocol import evaluate
from counterpoint.losses import CATALOGUE as LOSSES
from counterpoint.methods.catalogue import CATALOGUE as METHODS
from counterpoint.nn.encoders import CATALOGUE as ENCODERS
from counterpoint.nn.encoders import TIMM_PREFIX
from counterpoint.recipes.given import Given
from counterpoint.recipes.inspection import diagnose
from counterpoint.recipes.preview import preview
from counterpoint.recipes.theory_runs import CATALOGUE as FIGURES
from counterpoint.recipes.training import resume, train_from
from counterpoint.recipes.verification import verify
from counterpoint.report.page import report
from counterpoint.search.table import embed

DIFFERS = 1
UNHEALTHY = 3
DEMO_METHODS = ("simclr", "ncl")


def _train(flags: argparse.Namespace) -> int:
    asked = settings_from(flags, flags.config)
    run = train_from(
        asked,
        Given(),
        reporter=Reporter(quiet=flags.quiet),
        resume=flags.resume,
        overwrite=flags.overwrite,
        allow_changed=flags.allow_changed,
    )
    _print_path(run)
    return 0


def _resume(flags: argparse.Namespace) -> int:
    _print_path(resume(flags.run, quiet=flags.quiet))
    return 0


def _print_path(run: Run) -> None:
    """Name the run folder, once for all ranks."""
    if read_ranks(os.environ).rank == 0:
        print(run.path)


def _evaluate(flags: argparse.Namespace) -> int:
    evaluation = evaluate(
        flags.run, data=flags.data, labels=flags.labels, k=flags.k, temperature=flags.temperature, quiet=flags.quiet
    )
    print(json.dumps(evaluation.to_dict(), indent=1) if flags.json else evaluation)
    return 0


def _diagnose(flags: argparse.Namespace) -> int:
    subject: Any = flags.subject
    labels: Any = flags.labels
    if Path(subject).suffix == ".npy":
        subject = load_npy(Path(subject))
        labels = load_npy(Path(labels)) if labels else None
    elif Path(subject).is_file():
        raise UsageError(f"{subject} is neither a run folder nor a .npy file of features")
    views = load_npy(Path(flags.views)) if flags.views else None
    findings = diagnose(subject, labels=labels, views=views, threshold=flags.threshold, quiet=flags.quiet)
    print(json.dumps(findings.to_dict(), indent=1) if flags.json else findings)
    is_unhealthy = flags.fail_on is not None and LEVELS.index(findings.level) >= LEVELS.index(flags.fail_on)
    return UNHEALTHY if is_unhealthy else 0


def _embed(flags: argparse.Namespace) -> int:
    table = embed(flags.run, flags.data, out=flags.out, layer=flags.layer, overwrite=flags.overwrite, quiet=flags.quiet)
    print(table.path)
    return 0


def _verify(flags: argparse.Namespace) -> int:
    verification = verify(flags.run, quiet=flags.quiet)
    print(json.dumps(verification.to_dict(), indent=1) if flags.json else verification)
    return 0 if verification.is_intact else DIFFERS


def _report(flags: argparse.Namespace) -> int:
    print(report(flags.runs, out=flags.out))
    return 0


def _preview(flags: argparse.Namespace) -> int:
    out, flags.out = flags.out, None  # the sheet's file, not the run folder of the same name
    asked = settings_from(flags, flags.config)
    data, _ = asked.pop("data", None), asked.pop("out", None)  # the file's `out` is a run folder's
    print(preview(data, out=out, num_samples=flags.samples, num_views=flags.columns, quiet=flags.quiet, **asked))
    return 0


def _list(flags: argparse.Namespace) -> int:
    encoders = {name: entry.summary for name, entry in ENCODERS.items()}
    encoders[TIMM_PREFIX + "NAME"] = "any timm model by its name (extra `vision`)"
    catalogues: dict[str, dict[str, str]] = {
        "data": {name: named.summary for name, named in SOURCES.items()},
        "methods": {name: f"{method.summary} ({method.source})" for name, method in METHODS.items()},
        "encoders": encoders,
        "losses": {name: str(loss.__doc__).splitlines()[0] for name, loss in LOSSES.items()},
        "views": {name: _changes(plan) for name, plan in PRESETS.items()},
        "checks": {name: str(check.__doc__).splitlines()[0] for name, check in CHECKS.items()},
        "figures": {name: figure.summary for name, figure in FIGURES.items()},
    }
    if flags.what is not None and flags.what not in catalogues:
        raise unknown_name("list", flags.what, catalogues)
    for title in [flags.what] if flags.what else catalogues:
        print(f"{title}:")
        for name, summary in catalogues[title].items():
            print(f"  {name:<21} {summary}")
    return 0


def _demo(flags: argparse.Namespace) -> int:
    reporter = Reporter(quiet=flags.quiet)
    folder = Path(flags.out)
    if folder.exists() and not flags.overwrite:
        raise RunError(f"{folder} exists; replace it with --overwrite, or choose another --out")
    runs = []
    for method in DEMO_METHODS:
        asked: dict[str, Any] = {"data": "digits", "method": method, "out": str(folder / method)}
        if flags.epochs is not None:
            asked["epochs"] = flags.epochs
        run = train_from(asked, Given(), overwrite=flags.overwrite, reporter=reporter)
        print(f"\n{method}: {evaluate(run, quiet=True)}\n\n{method}: {diagnose(run, quiet=True)}\n")
        runs.append(run.path)
    path = report(runs, out=folder / "report.html")
    print(f"The report that sets them side by side: {path}")
    return 0


def _changes(plan: Any) -> str:
    """Say which changes a preset makes."""
    neutral = PRESETS["none"]
    changed = [f"{name} {value}" for name, value in vars(plan).items() if value != getattr(neutral, name)]
    return ", ".join(changed).replace("_", "-") or "views equal the sample"


HANDLERS: Mapping[str, Callable[[argparse.Namespace], int]] = {
    "train": _train,
    "resume": _resume,
    "evaluate": _evaluate,
    "diagnose": _diagnose,
    "embed": _embed,
    "verify": _verify,
    "report": _report,
    "preview": _preview,
    "geometry": run_geometry,
    "reproduce": run_reproduce,
    "list": _list,
    "demo": _demo,
}
