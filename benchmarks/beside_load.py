"""Calls beside other work: idle, beside one busy process, and beside torch programs with one and two threads.

Each implementation is called in a fresh process that knows no variable of OpenMP or of a BLAS, as in a user's own
script. What it does there is the caller's: a command that prints one JSON object with ``seconds``, those of its calls
in order.
"""

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

THREAD_VARIABLES = ("OMP_", "GOMP_", "KMP_", "MKL_", "OPENBLAS_", "NUMEXPR_")
READY = "print('ready', flush=True)"
IDLE = "idle"
BUSY = f"{READY}\nwhile True: pass"
TORCH = f"import torch\ntorch.set_num_threads({{}})\na = torch.ones(1024, 1024)\n{READY}\nwhile True: a @ a"
LOADS: Mapping[str, str] = {
    IDLE: "",
    "one busy process": BUSY,
    "one-thread torch": TORCH.format(1),
    "two-thread torch": TORCH.format(2),
}
MOST_SLOWER = 3.0  # first call and median beside other work, over the idle median


@dataclass(frozen=True)
class Calls:
    """Seconds of a fresh process's first call and the median of its others, and what else it printed."""

    first: float
    median: float
    extra: Mapping[str, Any]


@contextmanager
def beside(load: str) -> Iterator[None]:
    """Run a load of ``LOADS`` beside the body."""
    if load == IDLE:
        yield
        return
    words = [sys.executable, "-c", LOADS[load]]
    with subprocess.Popen(words, stdout=subprocess.PIPE, env=clean_environment(), text=True) as process:
        try:
            assert process.stdout is not None
            process.stdout.readline()
            yield
        finally:
            process.kill()


def clean_environment() -> dict[str, str]:
    """The environment without the variables of thread libraries."""
    return {name: value for name, value in os.environ.items() if not name.startswith(THREAD_VARIABLES)}


def timed_calls(call: Callable[[], Any], num_calls: int) -> tuple[list[float], Any]:
    """Seconds of each call, in the fresh process, and the result of the last."""
    seconds, result = [], None
    for _ in range(num_calls):
        start = time.perf_counter()
        result = call()
        seconds.append(time.perf_counter() - start)
    return seconds, result


def calls_of(script: Path, *words: object) -> Calls:
    """Run a command of ours in a fresh process.

    Raises:
        RuntimeError: it failed; with the last line that it wrote.
    """
    command = [sys.executable, str(script), *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=clean_environment())
    if done.returncode != 0:
        raise RuntimeError((done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1])
    record = json.loads(done.stdout.splitlines()[-1])
    first, *others = record.pop("seconds")
    return Calls(first, statistics.median(others or [first]), record)


def compare(
    title: str, commands: Mapping[str, tuple[Path, Sequence[object]]], loads: Sequence[str] = tuple(LOADS)
) -> str:
    """A table of one case: who (ours first) under each load, one fresh process after the other.

    Args:
        title: heading.
        commands: script and arguments of each implementation.
        loads: which of ``LOADS``, idle first.
    """
    results: dict[str, dict[str, Calls]] = {name: {} for name in commands}
    remarks: dict[str, str] = dict.fromkeys(commands, "-")
    for load in loads:
        with beside(load):
            for name, (script, words) in commands.items():
                try:
                    results[name][load] = calls_of(script, *words)
                except RuntimeError as error:
                    remarks[name] = f"failed: {error}".replace("|", "/")
    head = ["implementation", *(f"{load}: first, median, ms" for load in loads), "largest / idle median", "remark"]
    lines = [f"### {title}", "", _line(head), _line(["---", *("---:" for _ in head[2:]), "---"])]
    for name, calls in results.items():
        lines.append(_line([name, *(_cell(calls.get(load)) for load in loads), _slowest(calls), remarks[name]]))
    return "\n".join([*lines, "", *_verdict(results)])


def _verdict(results: Mapping[str, Mapping[str, Calls]]) -> list[str]:
    """Lines that say how far load slows the first implementation, and which others are faster."""
    (ours, own), *others = results.items()
    if IDLE not in own:
        return []
    factor = max(_over_idle(own))
    lines = [f"{ours} beside other work: at most {factor:.2g} x idle (target {MOST_SLOWER:g})."]
    for load, calls in own.items():
        faster = [name for name, theirs in others if load in theirs and theirs[load].median < calls.median]
        if faster:
            lines.append(f"Faster than {ours}, {load}: {', '.join(faster)}.")
    return lines


def _over_idle(calls: Mapping[str, Calls]) -> list[float]:
    """Ratios of first calls and medians to the idle ones: a first call also loads code, whatever else runs."""
    idle = calls[IDLE]
    return [ratio for c in calls.values() for ratio in (c.median / idle.median, c.first / idle.first)]


def _slowest(calls: Mapping[str, Calls]) -> str:
    return f"{max(_over_idle(calls)):.2g}" if IDLE in calls else "-"


def _cell(calls: Calls | None) -> str:
    return "-" if calls is None else f"{1000 * calls.first:.3g}, {1000 * calls.median:.3g}"


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
