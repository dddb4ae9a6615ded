"""How often a call crosses from file to file of the package: what a reader has to follow.

    python benchmarks/file_hops.py
    python benchmarks/file_hops.py --list    # the pairs of files, most crossed first

Counted are calls from a function of one file to a function of another (`sys.setprofile`, this thread only), in a second
run, when everything is loaded, and how many pairs of files they join. Exit code: 0; 1 if a target is missed.
"""

import argparse
import collections
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

from training_runs import Setup, make_job, random_pictures

import counterpoint as cp
from counterpoint import theory
from counterpoint.engine.checkpoint import Position
from counterpoint.engine.step import take_step

PACKAGE = str(Path(cp.__file__).parent)
Hops = collections.Counter[tuple[str, str]]


def hops_of(call: Callable[[], Any]) -> Hops:
    """Calls from file to file while something runs; what lies between two files of ours (torch, SciPy) is skipped."""
    found: Hops = collections.Counter()

    def watch(frame: FrameType, event: str, _: Any) -> None:
        callee = frame.f_code.co_filename
        if event != "call" or not callee.startswith(PACKAGE):
            return
        caller = frame.f_back
        while caller is not None and not caller.f_code.co_filename.startswith(PACKAGE):
            caller = caller.f_back
        if caller is not None and caller.f_code.co_filename != callee:
            found[caller.f_code.co_filename, callee] += 1

    sys.setprofile(watch)
    try:
        call()
    finally:
        sys.setprofile(None)
    return found


def hops_of_a_step(folder: Path) -> Hops:
    """Those of the second step of SimCLR on pictures, in one process."""
    job = make_job(Setup(random_pictures(64), "resnet9", 16, "fp32", "cpu"), folder)
    job.engine.setup(job.method, job.optimizer)
    first, second, *_ = job.loader.epoch(0)
    take_step(job, first, Position(0, 0, 0))
    return hops_of(lambda: take_step(job, second, Position(0, 1, 1)))


def hops_of_a_geometry() -> Hops:
    """Those of the optimal geometry of three classes."""
    theory.optimal_geometry([0.5, 0.3, 0.2])
    return hops_of(lambda: theory.optimal_geometry([0.5, 0.3, 0.2]))


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true", help="print the pairs of files, too")
    shows_pairs = parser.parse_args().list
    with tempfile.TemporaryDirectory() as folder:
        step, geometry = hops_of_a_step(Path(folder) / "run"), hops_of_a_geometry()
    rows = [
        ("a training step, pairs of files", len(step), 30, step),
        ("optimal_geometry of 3 classes, calls", sum(geometry.values()), 80, geometry),
    ]
    print("| what | crossings | target |", "|---|---:|---|", sep="\n")
    for what, number, most, hops in rows:
        print(f"| {what} | {number} | at most {most}: {'met' if number <= most else 'missed'} |")
        if shows_pairs:
            for (caller, callee), count in hops.most_common():
                print(f"    {count:4d} {Path(caller).name} -> {Path(callee).name}", file=sys.stderr)
    return int(any(number > most for _, number, most, _ in rows))


if __name__ == "__main__":
    sys.exit(main())
