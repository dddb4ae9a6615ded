"""Benchmarks run and print their tables; that of losses refuses what differs, and its instruments read right."""

import csv
import io
import os
import re
import subprocess
import sys
from pathlib import Path

import measuring
import pair_losses
import peer_losses
import pytest
import torch
from exact_losses import exact
from measuring import Plan, Quartiles
from peer_losses import CATALOGUE, DENSE, OURS, Built, Provider
from problems import Kind, Problem, make_inputs
from result_tables import PRODUCTS, Row
from torch import Tensor

from tolerances import assert_close

COMMAND = Path(pair_losses.__file__)
MIB = 2**20


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
    "views.py --images 4 --batch-size 3 --threads 1": ("| operation |", "| blur |", "Rounds: 9."),
    "diagnosis.py --rows 500 --rounds 1": ("500 x 512: ",),
    "file_hops.py": ("| a training step", "| optimal_geometry"),
}


@pytest.mark.slow
@pytest.mark.parametrize("command", QUICK)
def test_the_quick_run_of_a_benchmark_prints_its_tables(command: str) -> None:
    name, *flags = command.split()
    words = [sys.executable, str(COMMAND.with_name(name)), *flags]
    finished = subprocess.run(words, capture_output=True, text=True, check=False)
    missed = finished.returncode == 1 and "missed" in finished.stdout  # a target, on this machine
    assert finished.returncode == 0 or missed, finished.stdout + finished.stderr
    for said in QUICK[command]:
        assert said in finished.stdout, said


@pytest.mark.parametrize("kind", CATALOGUE)
def test_the_oracle_is_the_derivative_of_the_dense_loss(kind: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("exact_losses.BLOCK_NUMBERS", 40)  # several blocks
    problem = Problem(kind, 7, 5, 0.2)
    x0, x1 = (x.detach().double().requires_grad_() for x in make_inputs(problem))
    loss = CATALOGUE[kind][DENSE].build(problem).function(x0, x1)
    loss.backward()
    assert x0.grad is not None
    assert x1.grad is not None
    expected = torch.cat([x0.grad, x1.grad])
    for rows in (None, torch.tensor([12, 0, 7])):
        truth = exact(x0, x1, kind, problem.temperature, rows=rows, dtype=torch.float64)
        assert_close(torch.tensor(truth.loss, dtype=torch.float64), loss)
        assert_close(truth.gradient_RD, expected if rows is None else expected[[0, 7, 12]])


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


def test_ratios_are_taken_pair_by_pair() -> None:
    assert measuring.paired_ratio([1.0, 2.0, 30.0], [1.0, 1.0, 10.0]) == Quartiles(1.5, 2.0, 2.5)
    rows = {"x": [4.0, 9.0], OURS: [2.0, 3.0], PRODUCTS: [1.0, 3.0]}
    with_times = [pair_losses.with_times(Row(name), rows).ratio for name in rows]
    assert [ratio and ratio.median for ratio in with_times] == [2.5, None, 1.5]


def test_everyone_takes_turns_in_another_order_each_round() -> None:
    calls: list[str] = []
    steps = {name: (lambda name=name: calls.append(name)) for name in "abc"}
    clock = {"a": 0.001, "b": 0.002, "c": 0.004}

    def fake_clock(step: measuring.Step, repeats: int) -> float:
        for _ in range(repeats):
            step()
        return clock[calls[-1]]

    seconds = measuring.take_turns(steps, fake_clock, Plan(2, 40, 1, 0.004))
    assert seconds == {name: [value] * 40 for name, value in clock.items()}
    assert calls[:6] == [*"abcabc"]  # warm-ups
    rounds = "".join(calls[6:])
    turns = re.findall("a{5}|b{3}|c", rounds)  # one untimed call before several, none before a single one
    assert "".join(turns) == rounds
    orders = {"".join(turn[0] for turn in turns[k : k + 3]) for k in range(0, len(turns), 3)}
    assert orders == {"abc", "acb", "bac", "bca", "cab", "cba"}


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="the peak cannot be set back here")
@pytest.mark.thorough
def test_extra_memory_is_the_peak_of_the_call_alone() -> None:
    """In a process of its own: where freed memory is kept, as by our command, there is no peak."""
    program = (
        "import measuring, torch\n"
        f"before = torch.ones(48 * {MIB}); del before\n"  # 192 MiB that must not count
        f"call = measuring.extra_of_call(lambda: (torch.ones(16 * {MIB}), None)[1])\n"  # 64 MiB, gone at the end
        "print(call.method, call.extra_mib, sep='|')"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    said = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    method, extra_mib = said.stdout.strip().split("|")
    assert method == "VmHWM set back"
    assert 63 < float(extra_mib) < 72


def test_the_grid_of_pair_losses_is_a_csv(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pair_losses, "COMPILED", {"nt-xent": {}})  # compiling takes longer than all the rest
    threads, *part = str(torch.get_num_threads()), "--sizes", "8", "--features", "4", "--temperatures", "0.5"
    assert pair_losses.main(["--grid", *part, "--threads", threads]) == 0
    header, *rows = csv.reader(io.StringIO(capsys.readouterr().out))
    assert tuple(header) == pair_losses.GRID_HEADER
    assert {"counterpoint", "dense torch", "lightly"} <= {row[5] for row in rows if float(row[6]) > 0}
