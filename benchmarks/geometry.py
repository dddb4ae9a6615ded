"""The optimal geometry beside CVXPY (Clarabel, SCS) and scipy: time, risk and gap, class proportions 1/rank.

    python benchmarks/geometry.py                                  # about 20 minutes on two cores
    python benchmarks/geometry.py --sizes 3 10 --time-limit 10     # seconds; shows that everything runs
    python benchmarks/geometry.py --sizes 100 --negatives inf --settings UCL
    python benchmarks/geometry.py --beside-load   # 100 classes idle, beside a busy process, beside two-thread torch

First all sides compute the risk of the same random matrices; where they differ nothing is timed. Every solver then
works in a process of its own; one that takes longer than the limit is ended and left out at larger sizes. Peers come
from `pip install cvxpy`; a missing one is named in its row. The tables go to standard output, progress to standard
error. Exit code: 0; 1 if risks differ or ours fails; 2 for bad arguments.
"""

import argparse
import importlib.metadata
import math
import multiprocessing
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path

import torch
from beside_load import calls_of, compare
from geometry_peers import OURS, SOLVERS, Solved, Task, dual_bound, random_gram, risk_and_gradient, risks_at, why_not
from measuring import Quartiles, quartiles
from result_tables import heading

SIZES = (3, 10, 30, 100, 300, 1000)
NEGATIVES = (math.inf, 512)
SETTINGS = {"UCL": False, "SCL": True}
LOOSE_FROM, LOOSE = 1000, 1e-6  # classes from which a relative gap of 1e-6 is asked for; below, 1e-8
SAME_RISK = 1e-9  # relative
COMPARED_SIZE = 300  # classes; random matrices of more are not compared
REPEATS, REPEATED_SECONDS = 5, 2.0  # a solver is called up to 5 times while calls so far took less than 2 s
RATIO_AT, RATIO = 100, 20.0
LIMITS = {100: (1.0, 1e-8), 1000: (90.0, 1e-6)}  # classes: seconds and certified relative gap asked of ours
LOADED_CLASSES, LOADED_CALLS = 100, {OURS: 6, "scipy, L-BFGS": 1}
CHILD = Path(__file__).with_name("loaded_geometry.py")
HEADER = "| solver | time, s | time / ours | risk | own gap | certified gap | target | remark |"
RULE = "|---|---:|---:|---:|---:|---:|---|---|"
NOTES = """Time is a whole call, CVXPY's translation included: median [lower, upper quartile] of up to {repeats} calls
in a process that has solved three classes before. All are asked for a relative gap of 1e-8, from {loose} classes on for
1e-6. Risk is that of the matrix found, made exactly feasible first (eigenvalues below 0 raised, unit diagonal), in
numpy. Own gap is what the solver reports, relative to its risk; certified gap is the risk's distance from our lower
bound, which holds for all, relative to the risk. That bound is computed anew in numpy: the remark has the gap it
leaves."""


@dataclass(frozen=True)
class Row:
    """Figures of one solver; None if it has none."""

    name: str
    seconds: Quartiles | None = None
    solved: Solved | None = None
    risk: float = math.nan
    remark: str = ""


def parse(words: Sequence[str]) -> argparse.Namespace:
    """Arguments, or an error that says what to do."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=list(SIZES), help="numbers of classes, >= 2")
    parser.add_argument("--negatives", type=float, nargs="+", default=list(NEGATIVES), help="k, whole or inf")
    parser.add_argument("--settings", nargs="+", choices=SETTINGS, default=list(SETTINGS), help="whose negatives")
    parser.add_argument(
        "--time-limit", type=float, default=120.0, help="seconds for each solver and size (default 120)"
    )
    parser.add_argument("--threads", type=int, default=2, help="threads of each solver (default 2)")
    parser.add_argument(
        "--beside-load",
        action="store_true",
        help=f"first call and median of {LOADED_CLASSES} classes beside other work",
    )
    arguments = parser.parse_args(words)
    if min(arguments.sizes) < 2:
        parser.error(f"--sizes must be >= 2, got {min(arguments.sizes)}")
    for k in arguments.negatives:
        if not k >= 1 or (math.isfinite(k) and k != int(k)):
            parser.error(f"--negatives must be whole numbers >= 1 or inf, got {k:g}")
    if not arguments.time_limit > 0:
        parser.error(f"--time-limit must be > 0, got {arguments.time_limit:g}")
    if arguments.threads < 1:
        parser.error(f"--threads must be >= 1, got {arguments.threads}")
    return arguments


def comparison(tasks: Sequence[Task]) -> tuple[str, bool]:
    """Table of the largest differences between the sides' risks, and whether all are small enough."""
    lines = ["| problem | largest relative difference of the risks |", "|---|---:|"]
    worst = 0.0
    for task in tasks:
        if task.num_classes > COMPARED_SIZE:
            continue
        try:
            risks = [list(risks_at(task, random_gram(task, seed)).values()) for seed in range(3)]
        except ImportError as error:
            return f"Risks not compared with CVXPY's: it cannot be imported ({error}).", True
        difference = max((max(values) - min(values)) / max(values) for values in risks)
        worst = max(worst, difference)
        lines.append(f"| {task.title} | {difference:.1e} |")
    return "\n".join(lines), worst <= SAME_RISK


def solve_apart(task: Task, name: str, time_limit: float) -> Row:
    """Let a solver work in a fresh process until it is done or its time is up."""
    reason = why_not(task, name)
    if reason:
        return Row(name, remark=reason)
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_solve_and_send, args=(sender, task, name))
    process.start()
    sender.close()
    try:
        first = receiver.recv()
        if first is not None:
            return first
        if not receiver.poll(time_limit):
            return Row(name, remark=f"ended after {time_limit:g} s")
        return receiver.recv()
    except EOFError:
        return Row(name, remark="failed: its process died")
    finally:
        process.kill()
        process.join()


def _solve_and_send(sender: Connection, task: Task, name: str) -> None:
    """Send None once three classes are solved, and the row when done; errors are its remark."""
    try:
        SOLVERS[name](replace(task, num_classes=3))
        sender.send(None)
        seconds, solved = [], Solved(random_gram(task, 0))
        while not seconds or (len(seconds) < REPEATS and sum(seconds) < REPEATED_SECONDS):
            start = time.perf_counter()
            solved = SOLVERS[name](task)
            seconds.append(time.perf_counter() - start)
        sender.send(Row(name, quartiles(seconds), solved, risk_and_gradient(task, solved.gram)[0], solved.status))
    except ImportError as error:
        sender.send(Row(name, remark=f"skipped: cannot be imported ({error})"))
    except Exception as error:  # whatever a library raises belongs in its row; the others are still measured
        sender.send(Row(name, remark=f"failed: {type(error).__name__}: {str(error).partition(chr(10))[0]}"))


def measure(task: Task, time_limit: float, too_slow: set[str]) -> list[Row]:
    """All solvers of one problem; adds to ``too_slow`` who ran out of time."""
    rows = []
    for name in SOLVERS:
        print(f"{task.title}: {name}", file=sys.stderr, flush=True)
        if name in too_slow:
            rows.append(Row(name, remark="left out: ran out of time at a smaller size"))
            continue
        rows.append(solve_apart(task, name, time_limit))
        if rows[-1].remark.startswith("ended"):
            too_slow.add(name)
    return rows


def table(task: Task, rows: Sequence[Row]) -> str:
    """Heading and table of one problem."""
    ours = next(row for row in rows if row.name == OURS)
    fastest = min((r.seconds.median for r in rows if r.seconds and r.name.startswith("cvxpy")), default=None)
    lines = [f"### {task.title}", "", HEADER, RULE]
    for row in rows:
        bound = ours.solved.lower_bound if ours.solved else -math.inf
        is_fastest = row.seconds is not None and row.seconds.median == fastest
        cells = [row.name, _seconds(row), _ratio(row, ours), "-", "-", "-", _target(task, row, ours, is_fastest)]
        if row.solved:
            scale = max(abs(row.risk), 1e-300)
            own = row.solved.own_gap / scale
            cells[3:6] = [
                f"{row.risk:.12f}",
                "-" if math.isnan(own) else f"{own:.1e}",
                f"{(row.risk - bound) / scale:.1e}",
            ]
        remark = row.remark
        if row.solved and row.name == OURS:
            remark += f"; gap with the bound from numpy {(row.risk - dual_bound(task, row.solved.gram)) / row.risk:.1e}"
        cells.append(remark.replace("|", "/").replace("\n", " ") or "-")
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _seconds(row: Row) -> str:
    if row.seconds is None:
        return "-"
    return f"{row.seconds.median:.3g} [{row.seconds.low:.3g}, {row.seconds.high:.3g}]"


def _ratio(row: Row, ours: Row) -> str:
    """The median of a solver's seconds over ours."""
    if row.name == OURS or not (row.seconds and ours.seconds):
        return "-"
    return f"{row.seconds.median / ours.seconds.median:.3g}"


def _target(task: Task, row: Row, ours: Row, is_fastest: bool) -> str:
    """The target of ours, or of the ratio to CVXPY's faster solver, and whether it is met."""
    if row.name == OURS and task.num_classes in LIMITS:
        seconds, gap = LIMITS[task.num_classes]
        is_met = row.solved is not None and row.solved.own_gap <= gap * row.risk
        is_met = is_met and row.seconds is not None and row.seconds.median <= seconds
        return f"gap at most {gap:g} in at most {seconds:g} s: {'met' if is_met else 'missed'}"
    if is_fastest and task.num_classes == RATIO_AT and row.seconds and ours.seconds:
        is_met = row.seconds.median >= RATIO * ours.seconds.median
        return f"at least {RATIO:g} x ours: {'met' if is_met else 'missed'}"
    return "-"


def measure_beside_load(negatives: Sequence[float]) -> int:
    """Print a table for each k, and whether bits depend on the number of threads; return the exit code."""
    has_failed = False
    for k in negatives:
        task = Task(LOADED_CLASSES, k)
        commands = {name: (CHILD, (name, k, LOADED_CLASSES, calls, 0)) for name, calls in LOADED_CALLS.items()}
        print("", compare(task.title, commands), sep="\n", flush=True)
        bits = {calls_of(CHILD, OURS, k, LOADED_CLASSES, 1, threads).extra["bits"] for threads in (1, 2, 3)}
        print(f"Bits for 1, 2 and 3 threads: {'the same' if len(bits) == 1 else 'NOT the same'}.", flush=True)
        has_failed |= len(bits) > 1
    return int(has_failed)


def _versions() -> str:
    """A sentence with the versions of the peers."""
    versions = []
    for name in ("cvxpy", "clarabel", "scs", "scipy", "numpy"):
        try:
            versions.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            versions.append(f"{name} is not installed")
    return "Peers: " + ", ".join(versions) + "."


def main(words: Sequence[str]) -> int:
    """Compare, measure, print tables as they come, return the exit code."""
    arguments = parse(words)
    torch.set_num_threads(arguments.threads)
    notes = NOTES.format(repeats=REPEATS, loose=LOOSE_FROM)
    print(heading("cpu", "geometry.py"), _versions(), notes, sep="\n\n", flush=True)
    if arguments.beside_load:
        return measure_beside_load(arguments.negatives)
    groups = [
        [Task(size, k, SETTINGS[setting], LOOSE if size >= LOOSE_FROM else 1e-8) for size in sorted(arguments.sizes)]
        for k in arguments.negatives
        for setting in arguments.settings
    ]
    text, is_same = comparison([task for group in groups for task in group])
    print("", text, sep="\n", flush=True)
    if not is_same:
        print(f"risks differ by more than {SAME_RISK:g}: not timed", file=sys.stderr)
        return 1
    for library in ("OMP", "OPENBLAS", "MKL", "RAYON"):  # read by the processes that are started
        os.environ[f"{library}_NUM_THREADS"] = str(arguments.threads)
    has_failed = False
    for group in groups:
        too_slow: set[str] = set()
        for task in group:
            rows = measure(task, arguments.time_limit, too_slow)
            print("", table(task, rows), sep="\n", flush=True)
            has_failed |= any(row.name == OURS and row.solved is None for row in rows)
    return int(has_failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
