"""How often a call crosses from file to file of the package: what a reader has to follow.

    python benchmarks/file_hops.py
    python benchmarks/file_hops.py --list     # the pairs of files, most crossed first
    python benchmarks/file_hops.py --verbs    # instead: calls, files and functions that each verb passes

Counted are calls from a function of one file to a function of another (`sys.setprofile`, this thread only), in a second
run, when everything is loaded, and how many pairs of files they join. A verb is run once on a small run, from the
command on; imports count as nothing, other threads do. Exit code: 0; 1 if a target is missed.
"""

import argparse
import collections
import contextlib
import inspect
import io
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
from training_runs import Setup, make_job, random_pictures

import counterpoint as cp
from counterpoint import theory
from counterpoint.cli.main import main as command
from counterpoint.engine.checkpoint import Position
from counterpoint.engine.step import take_step

PACKAGE = str(Path(cp.__file__).parent)
Hops = collections.Counter[tuple[str, str]]


def hops_of(call: Callable[[], Any]) -> Hops:
    """Calls from file to file while something runs; what lies between two files of ours (torch, SciPy) is skipped."""
    hops: Hops = collections.Counter()

    def watch(frame: FrameType, event: str, _: Any) -> None:
        callee = frame.f_code.co_filename
        if event != "call" or not callee.startswith(PACKAGE):
            return
        caller = frame.f_back
        while caller is not None and not caller.f_code.co_filename.startswith(PACKAGE):
            caller = caller.f_back
        if caller is not None and caller.f_code.co_filename != callee:
            hops[caller.f_code.co_filename, callee] += 1

    sys.setprofile(watch)
    try:
        call()
    finally:
        sys.setprofile(None)
    return hops


def hops_of_a_step(folder: Path) -> Hops:
    """Hops of the second step of SimCLR on pictures, in one process."""
    job = make_job(Setup(random_pictures(64), "resnet9", 16, "fp32", "cpu"), folder)
    job.engine.setup(job.method, job.optimizer)
    first, second, *_ = job.loader.epoch(0)
    take_step(job, first, Position(0, 0, 0))
    return hops_of(lambda: take_step(job, second, Position(0, 1, 1)))


def hops_of_a_geometry() -> Hops:
    """Hops of the optimal geometry of three classes."""
    theory.optimal_geometry([0.5, 0.3, 0.2])
    return hops_of(lambda: theory.optimal_geometry([0.5, 0.3, 0.2]))


def passed_by(words: list[str]) -> tuple[int, int, int]:
    """Calls, files and functions of the package that a command passes, in all threads."""
    calls: collections.Counter[tuple[str, str]] = collections.Counter()

    def watch(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        is_function = code.co_flags & inspect.CO_OPTIMIZED  # and no body of a class, which runs while it is imported
        if event == "call" and is_function and code.co_filename.startswith(PACKAGE) and code.co_name[0] != "<":
            calls[code.co_filename, code.co_qualname] += 1

    threading.setprofile(watch)
    sys.setprofile(watch)
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            code = command(words)
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    assert code == 0, words
    return sum(calls.values()), len({file for file, _ in calls}), len(calls)


def tell_verbs(folder: Path) -> None:
    """Print what each verb passes that a user calls after `train`."""
    draw = np.random.default_rng(0)
    labels_N = np.arange(600) % 4
    np.savez(folder / "data.npz", data=labels_N[:, None] + draw.normal(size=(600, 12)), labels=labels_N)
    run = str(folder / "run")
    verbs = [["train", "--data", str(folder / "data.npz"), "--epochs", "1", "--out", run], ["evaluate", run]]
    verbs += [["diagnose", run], ["report", run], ["search", run, "0"]]
    print("| verb | calls | files | functions |", "|---|---:|---:|---:|", sep="\n")
    for words in verbs:
        calls, files, functions = passed_by([*words, "-q"])
        print(f"| `{words[0]}` | {calls:,} | {files} | {functions:,} |", flush=True)


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true", help="print the pairs of files, too")
    parser.add_argument("--verbs", action="store_true", help="what each verb passes, instead")
    arguments = parser.parse_args()
    if arguments.verbs:
        with tempfile.TemporaryDirectory() as folder:
            tell_verbs(Path(folder))
        return 0
    shows_pairs = arguments.list
    with tempfile.TemporaryDirectory() as folder:
        step, geometry = hops_of_a_step(Path(folder) / "run"), hops_of_a_geometry()
    rows = [
        ("a training step, pairs of files", len(step), 30, step),
        ("optimal_geometry of 3 classes, calls", sum(geometry.values()), 80, geometry),
    ]
    print("| what | crossings | target |", "|---|---:|---|", sep="\n")
    for title, number, most, hops in rows:
        print(f"| {title} | {number} | at most {most}: {'met' if number <= most else 'missed'} |")
        if shows_pairs:
            for (caller, callee), count in hops.most_common():
                print(f"    {count:4d} {Path(caller).name} -> {Path(callee).name}", file=sys.stderr)
    return int(any(number > most for _, number, most, _ in rows))


if __name__ == "__main__":
    sys.exit(main())
