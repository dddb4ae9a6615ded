"""Benchmarks run and print their tables; that of losses refuses what differs, and its instruments read right."""

import subprocess
import sys
from pathlib import Path

import measuring
import pair_losses
import peer_losses
import pytest
from peer_losses import CATALOGUE, OURS, Built, Provider
from problems import Kind, Problem, make_inputs
from result_tables import Row
from torch import Tensor

COMMAND = Path(pair_losses.__file__)


QUICK = {
    "pair_losses.py --quick --threads 1": ("Measured 20", "### ", "skipped: needs a GPU", "Rounds: 3."),
    "training.py --quick --threads 1": ("Measured 20", "| fp32", "| bf16", "over a bare loop's, bf16"),
    "evaluation.py --quick": ("### 200 pictures of 10 classes, width 16", "| Counterpoint |"),
    "evaluation.py --tables --quick": ("### precision@10 of 80 queries against 320 x 16", "At most 60 s: met."),
    "evaluation.py --large --quick": ("### evaluate 5,000 x 32 on disk (1 MiB), 2,000 queries", "linear probe"),
    "evaluation.py --classifiers --quick": ("### kNN-200, 500 queries against 2,000 x 32", "### linear probe"),
    "curvature.py --quick": ("### a known spectrum of 80 eigenvalues", "| product, graph kept |"),
    "geometry.py --sizes 3 --negatives inf --settings SCL --threads 1": ("### SCL, k = infinity, C = 3", "Peers: "),
    "search_peers.py --rows 3000 --queries 40 --width 16 --threads 1 --methods exact": (
        "| planted | exact, batch of 40",
    ),
    "sparse_codes.py search --rows 2000 --graph-rows 1000": ("| CodeIndex, exact", "| usearch, approximate"),
    "sparse_codes.py accuracy text --texts 900 --seeds 1 --epochs 1 --dims 256": (
        "| data | k | bytes",
        "| text | 16 |",
    ),
    "views.py --images 4 --batch-size 3 --threads 1": ("| operation |", "| blur |", "Rounds: 9."),
    "diagnosis.py --rows 500 --rounds 1": ("500 x 512, idle: ",),
    "report_pages.py --quick --dims 16": ("| lay out the map", "| write the page", "MB of 8"),
    "file_hops.py": ("| a training step", "| optimal_geometry"),
}


@pytest.mark.slow
@pytest.mark.parametrize("command", QUICK)
def test_the_quick_run_of_a_benchmark_prints_its_tables(command: str, tmp_path: Path) -> None:
    name, *flags = command.split()
    words = [sys.executable, str(COMMAND.with_name(name)), *flags]
    finished = subprocess.run(words, capture_output=True, text=True, check=False, cwd=tmp_path)
    missed = finished.returncode == 1 and "missed" in finished.stdout  # a target, on this machine
    assert finished.returncode == 0 or missed, finished.stdout + finished.stderr
    for said in QUICK[command]:
        assert said in finished.stdout, said


def prepared(kind: Kind, name: str, problem: Problem | None = None) -> tuple[Row, measuring.Step | None]:
    problem = problem or Problem(kind, 8, 4, 0.1)
    inputs = make_inputs(problem)
    return pair_losses.prepare(problem, name, inputs, pair_losses.truth_of(problem, *inputs))


@pytest.mark.parametrize("kind", CATALOGUE)
@pytest.mark.parametrize("fully_checked", [8, 100])
def test_everyone_who_can_run_computes_the_same(
    kind: Kind, fully_checked: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peer_losses, "CHUNK_ROWS", 3)  # several chunks, the last one shorter
    monkeypatch.setattr(pair_losses, "FULLY_CHECKED", fully_checked)  # 8: some rows only, in float32
    for name, provider in CATALOGUE[kind].items():
        row, step = prepared(kind, name, Problem(kind, 10, 6, 0.2))
        is_absent = any(remark.startswith("skipped: cannot be imported") for remark in row.remarks)
        assert (step is None) == (provider.cuda_only or (is_absent and name != OURS)), row.remarks


def scaled(loss: Tensor, of_value: float, of_gradient: float) -> Tensor:
    return of_gradient * loss + (of_value - of_gradient) * loss.detach()


@pytest.mark.parametrize(
    ("of_value", "of_gradient", "words"), [(1.0, 1.001, "gradient"), (1.001, 1.0, "loss"), (1.0, 1.0, "")]
)
def test_what_differs_is_not_timed(
    of_value: float, of_gradient: float, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def build(problem: Problem) -> Built:
        dense = peer_losses.dense_nt_xent(problem).function
        return Built(lambda x0, x1: scaled(dense(x0, x1), of_value, of_gradient))

    monkeypatch.setitem(CATALOGUE, "nt-xent", {"wrong": Provider(build, lambda problem: 0.0)})
    row, step = prepared("nt-xent", "wrong")
    assert (step is None) == bool(words)
    assert row.remarks == () or row.remarks[0].startswith(
        f"not timed: {words} differs from the float64 oracle by 1.0e-03"
    )
    assert bool(row.remarks) == bool(words)
