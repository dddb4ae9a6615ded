"""Helper of evaluation.py: a table of features too large for memory; times of a bare pass, features and evaluate."""

# N rows, D features

import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from measuring import Plan, paired_ratio, quartiles, take_turns, wall_seconds
from torch import Tensor

import counterpoint as cp
from counterpoint.core.stored_rows import new_array
from counterpoint.engine.progress import Reporter
from counterpoint.evaluation.evaluation_settings import EvaluationSettings
from counterpoint.evaluation.features import PIECE, extract
from counterpoint.evaluation.load_subject import Samples, open_subject

CLASSES, NUM_QUERIES = 10, 2000
ROWS = 20_000  # drawn at a time
MOST_MIB = 2048
MOST_RATIO = 1.1
MOST_OF_EVALUATION = 1.2, 5.0  # times the bare pass, and seconds more
PLAN = Plan(warm_ups=1, short_rounds=5, long_rounds=3, sample_seconds=0.0)


@dataclass(frozen=True)
class Used:
    """Exit code, time, memory and output of a process."""

    exit_code: int
    seconds: float
    peak_mib: float
    printed: str


def write_table(folder: Path, num_rows: int, num_features: int) -> None:
    """Write classes that overlap: bank and queries with labels; the same for the same arguments."""
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(CLASSES, num_features)).astype(np.float32) * 0.12

    def draw(labels: np.ndarray) -> np.ndarray:
        return rng.standard_normal((len(labels), num_features), dtype=np.float32) + centres[labels]

    labels, labels_Q = rng.integers(0, CLASSES, num_rows), rng.integers(0, CLASSES, NUM_QUERIES)
    # Not mapped: a child's greatest memory counts that of the process that started it.
    with new_array(folder / "bank.npy", (num_rows, num_features), np.float32) as write:
        for first in range(0, num_rows, ROWS):
            write(first, draw(labels[first : first + ROWS]))
    for name, array in (("labels", labels), ("queries", draw(labels_Q)), ("query-labels", labels_Q)):
        np.save(folder / f"{name}.npy", array)


def evaluate_table(folder: Path) -> Used:
    """Run the command in a process of its own, whose greatest memory the system tells."""
    queries = ["--test-data", "queries.npy", "--test-labels", "query-labels.npy"]
    start, printed = time.perf_counter(), folder / "printed.txt"
    with printed.open("w", encoding="utf-8") as stream:
        command = [
            sys.executable,
            "-m",
            "counterpoint",
            "evaluate",
            "bank.npy",
            "--labels",
            "labels.npy",
            *queries,
            "-q",
        ]
        process = subprocess.Popen(command, cwd=folder, stdout=stream, stderr=subprocess.STDOUT)
        _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    kib = usage.ru_maxrss / (1024 if sys.platform == "darwin" else 1)
    return Used(process.returncode, time.perf_counter() - start, kib / 1024, printed.read_text(encoding="utf-8"))


def large_table(*, is_quick: bool) -> bool:
    """Print time and memory of evaluating a large table; tell whether it failed or took more than it may."""
    num_rows, num_features = (5000, 32) if is_quick else (1_000_000, 512)
    with tempfile.TemporaryDirectory() as name:
        write_table(Path(name), num_rows, num_features)
        size = (Path(name) / "bank.npy").stat().st_size / 2**20
        used = evaluate_table(Path(name))
    print(f"\n### evaluate {num_rows:,} x {num_features} on disk ({size:,.0f} MiB), {NUM_QUERIES:,} queries\n")
    print("| seconds | peak MiB |\n| --- | --- |")
    print(f"| {used.seconds:.1f} | {used.peak_mib:,.0f} |\n")
    print(used.printed)
    return is_missed(used.exit_code == 0 and used.peak_mib <= MOST_MIB, f"At most {MOST_MIB:,} MiB")


def is_missed(is_met: bool, limit: str) -> bool:
    """Print whether a limit is met, and tell whether it is missed."""
    print(f"{limit}: {'met' if is_met else 'missed'}.", flush=True)
    return not is_met


def features_beside_pass(*, is_quick: bool) -> bool:
    """Print features and evaluation of pictures beside the bare pass of the same network, small and large.

    Pictures are drawn: no time depends on what they show. Labels have ten classes.

    Returns:
        True if features differ from the pass, or something takes longer than it may.
    """
    num_pictures, side = (300, 8) if is_quick else (10_000, 32)
    networks = ("convnet",) if is_quick else ("convnet", "resnet18")
    return sum(_beside_pass(name, num_pictures, side) for name in networks) > 0


@torch.no_grad()
def _beside_pass(network: str, num_pictures: int, side: int) -> bool:
    """Print the table of one network; tell whether features differ or something takes longer than it may."""
    rng = np.random.default_rng(0)
    pictures = rng.integers(0, 256, (num_pictures, 3, side, side), dtype=np.uint8)
    labels = rng.integers(0, CLASSES, num_pictures)
    subject = open_subject(network, Samples(pictures), EvaluationSettings(device="cpu"), Reporter(quiet=True))
    encoder, outputs = subject.encoder, {}
    prepared = encoder.prepare(subject.source.store.fetch(range(len(subject.source))))

    def bare() -> None:
        outputs["bare pass"] = torch.cat([encoder.backbone(part) for part in prepared.split(PIECE)])

    def ours() -> None:
        outputs["features"] = extract(encoder, subject.source, ["representation"]).representation

    def evaluation() -> None:
        with torch.enable_grad():
            cp.evaluate(network, data=pictures, labels=labels, device="cpu", cache=False, quiet=True)

    steps = {"features": ours, "bare pass": bare, "evaluate, by default": evaluation}
    seconds = take_turns(steps, wall_seconds, PLAN)
    medians = {name: quartiles(spent).median for name, spent in seconds.items()}
    ratio = paired_ratio(seconds["features"], seconds["bare pass"])
    print(f"\n### {num_pictures:,} pictures of {side} px through {network}, {threads()}\n")
    print("| | seconds | beside the bare pass |\n| --- | --- | --- |")
    for name, spent in medians.items():
        print(f"| {name} | {spent:.2f} | {paired_ratio(seconds[name], seconds['bare pass']).median:.2f} |")
    print()
    if not is_same(outputs["features"], outputs["bare pass"]):
        print("both give other features", file=sys.stderr)
        return True
    times, more = MOST_OF_EVALUATION
    is_late = medians["evaluate, by default"] > times * medians["bare pass"] + more
    missed = [
        is_missed(ratio.median <= MOST_RATIO, f"Features at most {MOST_RATIO} x"),
        is_missed(not is_late, f"Evaluation at most {times} x and {more:g} s"),
    ]
    return any(missed)


def is_same(left: Tensor, right: Tensor) -> bool:
    """Tell whether features are the same but for rounding."""
    return bool(torch.allclose(left, right, rtol=1e-4, atol=1e-5))


def threads() -> str:
    """Number of torch's threads, in words."""
    return f"{torch.get_num_threads()} threads"
