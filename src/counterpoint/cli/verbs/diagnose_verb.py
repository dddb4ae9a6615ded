"""`counterpoint diagnose`."""

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from counterpoint.cli.arguments import add_looking, look_from, part_from, subject_from
from counterpoint.cli.parsers import Parser, add_subject
from counterpoint.core.errors import UsageError
from counterpoint.core.run import as_run
from counterpoint.core.terminal_text import shown_lines
from counterpoint.core.user_files import is_file_or_shards, is_shard_folder

if TYPE_CHECKING:
    from counterpoint.diagnostics.findings import Findings

UNHEALTHY = 3  # exit code
LEVELS = ("note", "warning", "severe")
NO_PAIRS = "pairs: not looked at, as that takes a run with one kind of samples and its views at hand"
FILES = (".npy", ".npz", ".csv", ".parquet")

PLACE, SUMMARY = 40, "say whether a representation is healthy, and why not"
TEACH = """Look inside a run, or inside features from anywhere: collapse, effective rank, alignment, uniformity,
sparsity, and what single dimensions mean. Needs no labels. Findings are printed worst first, each with something to
try.

examples:
  counterpoint diagnose runs/ncl
  counterpoint diagnose runs/ncl --layers --checkpoint all
  counterpoint diagnose runs/ncl --pairs
  counterpoint diagnose embeddings.parquet
  counterpoint diagnose features.npy --labels labels.npy --fail-on severe
  counterpoint diagnose runs/ncl --fix"""


def add_flags(parser: Parser) -> None:
    """Add the arguments."""
    add_subject(parser, files="features, (n, d) in a .npy, or what embed writes (.npz, .csv, .parquet)")
    parser.add_argument("--data", help="with a run: other samples, or the array it was trained on (default: its own)")
    parser.add_argument("--labels", metavar="FILE", help="one label per sample: .npy; for a run on a folder also .csv")
    parser.add_argument(
        "--views", metavar="FILE", help="with features: those of another view of the same samples, .npy"
    )
    parser.add_argument(
        "--threshold", type=float, default=1e-5, help="value above which a feature counts as active (default 1e-5)"
    )
    parser.add_argument(
        "--layers",
        action="store_true",
        help="measure every layer of backbone and projector, too: where directions are lost",
    )
    parser.add_argument(
        "--fail-on", choices=LEVELS, help="leave with code 3 if a finding is at least this bad (for scripts)"
    )
    parser.add_argument(
        "--pairs", action="store_true", help="also print whom the loss looks at, and at other temperatures"
    )
    parser.add_argument(
        "--fix",
        metavar="FILE",
        nargs="?",
        const="",
        help="of a run: also write the config that the first finding asks for (default RUN-fixed.yaml)",
    )
    parser.add_argument("--json", action="store_true", help="print JSON for scripts")
    add_looking(
        parser, "step of a kept checkpoint whose encoder is looked at (default: the last state), or all, with --layers"
    )


def run(flags: argparse.Namespace) -> int:
    """Diagnose, and print the findings."""
    subject = subject_from(flags)
    is_file = flags.encoder is None and is_file_or_shards(subject)
    if is_file and Path(subject).suffix not in FILES and not is_shard_folder(subject):
        raise UsageError(f"{subject} is neither a run folder nor a file of features ({', '.join(FILES)})")
    is_run = flags.encoder is None and not is_file
    if flags.fix is not None and not is_run:
        raise UsageError("--fix goes with a run: features and encoders from elsewhere have no config")
    from counterpoint.data.formats.npz_files import read_npy  # deferred: loads torch
    from counterpoint.runs.inspection import diagnose  # deferred: loads torch

    views = read_npy(Path(flags.views)) if flags.views else None
    given = {"data": flags.data, "labels": flags.labels, "views": views, "threshold": flags.threshold}
    look = part_from(flags) if is_file else look_from(flags)
    look = {**look, "layers": True} if flags.layers else look
    findings = diagnose(subject, **given, **look, quiet=flags.quiet)
    print(json.dumps(findings.to_dict(), indent=1) if flags.json else shown_lines(findings))
    if flags.pairs and not flags.json:
        print(shown_lines(findings.pairs or NO_PAIRS))
    if flags.fix is not None:
        _fix(Path(subject), flags.fix, findings)
    is_unhealthy = flags.fail_on is not None and findings.level in LEVELS[LEVELS.index(flags.fail_on) :]
    return UNHEALTHY if is_unhealthy else 0


def _fix(folder: Path, file: str, findings: "Findings") -> None:
    """Write the config that the first finding asks for, and say what is changed."""
    from counterpoint.runs.fixing import fix_of, write_fix  # deferred: loads torch

    config = Path(file) if file else folder.resolve().with_name(f"{folder.resolve().name}-fixed.yaml")
    fix = fix_of(as_run(folder).folder, findings)
    write_fix(fix, config)
    # Beside JSON on the other stream, which scripts read.
    print(f"\n{shown_lines(fix.text(config))}", file=sys.stderr)
