"""`python -m reproductions NAME`: a table or figure of a paper made again, as text on standard output and on a page."""

import argparse
import json
import os
import sys
import time
from collections.abc import MutableMapping, Sequence
from pathlib import Path

from counterpoint.cli.main import exit_code
from counterpoint.cli.parsers import Parser
from counterpoint.core.errors import UsageError
from counterpoint.core.files import finite_or_null, read_json
from counterpoint.core.ranks import TORCHRUN, part_of_ranks
from counterpoint.core.terminal_text import shown, shown_lines
from reproductions.catalogue import listed, numbers_file, reproduce, study_named
from reproductions.reproduction import FigureRun
from reproductions.study import SCALES, Study

FIGURES_FOLDER = "runs/reproduce"

PROG = "python -m reproductions"
TEACH = """Make a table or figure of one of the papers again: what the paper says, what comes out here, and a verdict on
each claim. Without a name, list all of the five papers. Some are computed by a function; the others are studies, in
which every arm is trained with several seeds: what is finished is not made again, so that a study that was stopped goes
on where it was. NAME.json has the numbers, NAME.html the page. ROOT holds sets as cifar10-pack or in torchvision's
folders. The two figures of the imbalanced classes also train an image encoder: by default for as long as a laptop takes
minutes, and at the paper's size with --encoder resnet50 --epochs 1000 (a GPU, where there is one).

examples:
  python -m reproductions --list
  python -m reproductions directclr-fig6
  python -m reproductions imbalanced-fig1 --data ROOT --encoder resnet9-narrow
  python -m reproductions ncl-table1 --data ROOT
  python -m reproductions ncl-table1 --data ROOT --hours 2    # adds seeds until each claim is told, 20 at most
  python -m reproductions --data ROOT --hours 40              # of all studies with open claims, the cheapest first
  python -m reproductions mio-fig2 --data ROOT --scale longer    # 30 epochs: does a verdict change with training?
  python -m reproductions mio-table2 --data ROOT --scale paper --part 3/12"""
OF_STUDIES, OF_FIGURES = ("scale", "sets", "part", "hours"), ("quick", "encoder", "epochs")


def main(words: Sequence[str] | None = None) -> int:
    """Run the command line; exit codes as those of ``counterpoint``."""
    parser = Parser(prog=PROG, description=TEACH)
    add_flags(parser)
    flags = parser.parse_strictly(sys.argv[1:] if words is None else words)
    return exit_code(PROG, lambda: run(flags))


def add_flags(parser: Parser) -> None:
    """Add the arguments of the command to the parser."""
    parser.add_argument("-q", "--quiet", action="store_true", help="show no progress")
    parser.add_argument("figure", metavar="NAME", nargs="?", help="which one (default: list them)")
    parser.add_argument("--list", action="store_true", help="list every table and figure of the five papers")
    parser.add_argument(
        "--out", default=FIGURES_FOLDER, metavar="FOLDER", help=f"for all files (default {FIGURES_FOLDER})"
    )
    parser.add_argument(
        "--data", metavar="DATA", help="folder with the data sets; of a figure: images (default: the digits)"
    )
    parser.add_argument(
        "--scale",
        choices=SCALES,
        help="studies: small (default; minutes on a CPU), longer (where a study has it) or the paper's",
    )
    parser.add_argument(
        "--sets", nargs="+", metavar="SET", help="studies: of these data sets alone, such as cifar10 (default: all)"
    )
    parser.add_argument(
        "--seeds", type=int, metavar="N", help="how many: studies 3 unless given, and at least 2; figures 1"
    )
    parser.add_argument(
        "--part",
        metavar="I/N",
        help="studies: make only every N-th cell, from the I-th on; torchrun says so by itself",
    )
    parser.add_argument(
        "--hours",
        type=float,
        metavar="H",
        help="studies: look after 3, 5, 10 and 20 seeds, add seeds where claims are open, and begin nothing that would "
        "take longer; the same command goes on",
    )
    parser.add_argument("--seed", type=int, metavar="N", help="the first one, of everything random (default 0)")
    parser.add_argument(
        "--quick",
        action="store_true",
        default=None,
        help="figures: a reduced size that takes seconds; writes NAME-quick",
    )
    parser.add_argument(
        "--encoder",
        metavar="ENCODER",
        help="imbalanced-fig1, imbalanced-fig2: the image encoder to train, such as convnet, resnet9-narrow or the "
        "paper's resnet50 (counterpoint list encoders; default: a small network of the figure's own)",
    )
    parser.add_argument(
        "--epochs",
        type=int,
        metavar="N",
        help="imbalanced-fig1, imbalanced-fig2: passes over the pictures (default: 40 with --encoder; the paper: 1000)",
    )
    parser.add_argument("--json", action="store_true", help="print JSON for scripts")


def run(flags: argparse.Namespace) -> int:
    """Make a table or figure again, print what came out and draw it; without a name, list them."""
    if flags.figure is None and flags.hours is not None and not flags.list:
        return _make_open_studies(flags)
    if flags.figure is None or flags.list:
        print(_list_text(as_json=flags.json))
        return 0
    study = study_named(flags.figure, flags.scale or "small")
    for name in OF_STUDIES if study is None else OF_FIGURES:
        if getattr(flags, name) is not None:
            kinds = ("a figure that is computed", "studies") if study is None else ("a study", "computed figures")
            raise UsageError(f"{flags.figure} is {kinds[0]}; --{name} goes with {kinds[1]}")
    return _make_figure(flags) if study is None else _make_study(study, flags)


def _make_open_studies(flags: argparse.Namespace) -> int:
    """Add seeds to every study whose kept result leaves a claim open, the cheapest first, until the hours end."""
    from reproductions.result_pages import open_studies  # deferred: loads NumPy

    if flags.scale not in (None, "small"):
        raise UsageError("name a table: kept results, whose open claims --hours takes without a name, are small")
    until = time.monotonic() + flags.hours * 3600
    for study in open_studies():
        flags.hours = (until - time.monotonic()) / 3600
        if flags.hours > 0:
            _make_study(study, flags)
    return 0


def _make_figure(flags: argparse.Namespace) -> int:
    """Compute a figure again, write its numbers and its page, and print what came out; return the exit code."""
    from counterpoint.engine.progress import Reporter  # deferred: loads torch
    from counterpoint.report.document import check_target  # deferred: loads NumPy and Pillow
    from reproductions.reproduction_page import REPRODUCTION_PAGE, write_reproduction  # deferred: loads torch

    figure_run = FigureRun(
        flags.seed or 0, bool(flags.quick), Reporter(quiet=flags.quiet).say, flags.data, flags.encoder, flags.epochs
    )
    numbers = numbers_file(flags.figure, flags.out, quick=figure_run.quick)
    page = numbers.with_suffix(".html")
    check_target(REPRODUCTION_PAGE, page)
    made = reproduce(flags.figure, figure_run, out=flags.out, seeds=1 if flags.seeds is None else flags.seeds)
    write_reproduction(made, page)
    if flags.json:
        print(json.dumps(read_json(numbers), indent=1))
    else:
        print(f"{shown_lines(made)}\n\nDrawn in {shown(page)}.")
    return 0


def _make_study(study: Study, flags: argparse.Namespace) -> int:
    """Run the missing cells of a study, write its page and print the result; return the exit code."""
    from counterpoint.engine.progress import Reporter  # deferred: loads torch
    from counterpoint.report.document import check_target  # deferred: loads torch
    from reproductions.reproduction_page import REPRODUCTION_PAGE, write_reproduction  # deferred: loads torch
    from reproductions.study_pictures import picture_grids  # deferred: loads torch
    from reproductions.study_result import result_file  # deferred: loads torch
    from reproductions.study_runner import StudyPlan, run_study  # deferred: loads torch
    from reproductions.study_views import as_reproduction, as_text  # deferred: loads torch

    scale = flags.scale or "small"
    study = study.only(flags.sets, scale) if flags.sets else study
    part = part_of_ranks(flags.part)
    alone(os.environ)
    page = result_file(study, scale, Path(flags.out)).with_suffix(".html")
    check_target(REPRODUCTION_PAGE, page)
    reporter = Reporter(quiet=flags.quiet)
    plan = StudyPlan(Path(flags.out), scale, flags.data, flags.seeds, part, flags.hours, flags.seed or 0)
    result = run_study(study, plan, reporter)
    if result is None:
        return 0
    write_reproduction(as_reproduction(study, result, picture_grids(study, scale, Path(flags.out))), page)
    if flags.json:
        print(json.dumps(finite_or_null(result.model_dump(mode="json")), indent=1))
    else:
        print(f"{shown_lines(as_text(study, result))}\n\nDrawn in {shown(page)}.")
    return 0


def alone(environment: MutableMapping[str, str]) -> None:
    """Make this process independent: remove torchrun's variables, and leave it the GPU of its local rank alone.

    Args:
        environment: of the process; changed.
    """
    if "WORLD_SIZE" not in environment or "LOCAL_RANK" not in environment:
        return
    gpus = environment.get("CUDA_VISIBLE_DEVICES", "")
    own = int(environment["LOCAL_RANK"])
    environment["CUDA_VISIBLE_DEVICES"] = gpus.split(",")[own] if gpus else str(own)
    for name in TORCHRUN:
        environment.pop(name, None)


def _list_text(*, as_json: bool) -> str:
    """Names and summaries of all tables and figures, a line each, or as JSON."""
    items = listed()
    if as_json:
        return json.dumps([{"name": item.name, "kind": item.kind, "summary": item.summary} for item in items], indent=1)
    width = max(len(item.name) for item in items)
    return "\n".join(f"{item.name:<{width}} {item.summary}" for item in items)


if __name__ == "__main__":
    raise SystemExit(main())
