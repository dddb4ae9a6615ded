"""The benchmark runs, names what it skips, refuses what differs, and its instruments read what they should."""

import os
import re
import subprocess
import sys
from pathlib import Path

import measuring
import pair_losses
import peer_losses
import pytest
import result_tables
import torch
from exact_losses import Errors, exact
from measuring import Plan, Quartiles
from peer_losses import CATALOGUE, DENSE, OURS, Built, Provider
from problems import Kind, Precision, Problem, make_inputs
from result_tables import PRODUCTS, Row, Section
from torch import Tensor

from tolerances import assert_close

COMMAND = Path(pair_losses.__file__)
MIB = 2**20
FIGURE = r"[\d.e+-]+ \[[\d.e+-]+, [\d.e+-]+\]"
ERRORS = r"\d\.\de[+-]\d\d, \d\.\de[+-]\d\d"


def run_command(*flags: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, str(COMMAND), *flags], capture_output=True, text=True, check=False)


def rows_of(section: str) -> dict[str, list[str]]:
    lines = [line for line in section.splitlines() if line.startswith("|")]
    assert lines[:2] == [result_tables.HEADER, result_tables.RULE]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]
    return {row[0]: row[1:] for row in cells}


@pytest.mark.thorough
def test_the_quick_run_prints_whole_tables() -> None:
    finished = run_command("--quick", "--threads", "1")
    assert finished.returncode == 0, finished.stdout + finished.stderr
    head, *sections, overview = finished.stdout.split("\n### ")
    assert re.search(r"^Measured 20\d\d-\d\d-\d\d \d\d:\d\d UTC at commit .+ with `python .+ --quick", head)
    assert re.search(r"CPU .+, 1 threads; torch [\d.]+", head)
    kinds: list[Kind] = ["nt-xent", "nt-xent", "cross-modal", "supervised", "sigmoid"]
    assert len(sections) == len(kinds)
    for kind, section in zip(kinds, sections, strict=True):
        rows = rows_of(section)
        assert list(rows) == [*CATALOGUE[kind], PRODUCTS]
        assert "Rounds: 3." in section
        for name, (time, ratio, *_, errors, remark) in rows.items():
            is_skipped = remark.startswith("skipped: ")
            assert (time == "-") if is_skipped else re.fullmatch(FIGURE, time), (name, time, remark)
            assert is_skipped or (ratio == "-") == (name == OURS)
            assert is_skipped or name == PRODUCTS or re.fullmatch(ERRORS, errors)
    lines = overview.splitlines()
    assert result_tables.SUMMARY_HEADER in lines
    assert [line.split(" | ")[0].strip("| ") for line in lines[-5:]] == [part.splitlines()[0] for part in sections]
    assert re.fullmatch(r"\d+\.\d", rows_of(sections[1])[OURS][3])
    assert {name for name, row in rows_of(sections[2]).items() if row[-1] == "skipped: needs a GPU"} == {
        "Inf-CL",
        "memeff",
    }


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--threads", "0"], "--threads must be >= 1, got 0"),
        (["--threads", "two"], "invalid int value: 'two'"),
        (["--device", "tpu"], "invalid choice: 'tpu'"),
        (["--quick", "--full"], "not allowed with argument"),
        (["--device", "cuda"], "needs a GPU"),
    ],
)
def test_bad_arguments_are_explained(
    flags: list[str], message: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(SystemExit) as stopped:
        pair_losses.main(flags)
    assert stopped.value.code == 2
    assert message in capsys.readouterr().err


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


def test_the_exit_code_says_that_ours_failed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(problem: Problem) -> Built:
        raise RuntimeError("no kernel\nfor this")

    monkeypatch.setattr(pair_losses, "problems", lambda arguments: [Problem("nt-xent", 8, 4, 0.1)])
    catalogue = {name: CATALOGUE["nt-xent"][name] for name in (OURS, DENSE)}
    monkeypatch.setitem(CATALOGUE, "nt-xent", catalogue)
    monkeypatch.setitem(catalogue, OURS, Provider(broken, lambda problem: 0.0))
    assert pair_losses.main(["--quick"]) == 1
    output = capsys.readouterr()
    rows = rows_of(output.out)
    assert rows[OURS][-1] == "failed: RuntimeError: no kernel"
    assert re.fullmatch(FIGURE, rows[DENSE][0])
    assert rows[DENSE][1] == "-"
    assert "not timed in 1 of 1 tables" in output.err


def test_nan_is_never_within_a_limit() -> None:
    for errors in (Errors(float("nan"), 0.0), Errors(0.0, float("nan"))):
        assert "differs" in errors.verdict("bfloat16")


@pytest.mark.parametrize(
    ("kind", "name", "library"),
    [
        ("nt-xent", "lightly", "lightly"),
        ("nt-xent", "pytorch-metric-learning", "pytorch_metric_learning"),
        ("cross-modal", "open_clip", "open_clip"),
    ],
)
def test_a_missing_peer_is_named(kind: Kind, name: str, library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in [module for module in sys.modules if module.split(".")[0] == library]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, library, None)
    row, step = prepared(kind, name)
    assert step is None
    assert row.remarks[0].startswith("skipped: cannot be imported")
    assert library in row.remarks[0]


def test_what_cannot_fit_is_not_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pair_losses, "free_bytes", lambda device: 2.0**30)
    problem = Problem("nt-xent", 256, 4, 0.1)
    reason = pair_losses.why_not(problem, CATALOGUE["nt-xent"]["pytorch-metric-learning"])
    assert reason == "skipped: needs about 2.25 GiB, 1 GiB are free"
    larger = Problem("nt-xent", 257, 4, 0.1)
    assert "above 256 pairs" in pair_losses.why_not(larger, CATALOGUE["nt-xent"]["pytorch-metric-learning"])
    assert pair_losses.why_not(problem, CATALOGUE["nt-xent"]["lightly"]) == ""


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


def test_who_is_slow_sits_out_the_later_rounds() -> None:
    calls: list[str] = []
    steps = {name: (lambda name=name: calls.append(name)) for name in ("quick", OURS, "slow")}

    def fake_clock(step: measuring.Step, repeats: int) -> float:
        step()
        return 6.0 if calls[-1] == "slow" else 0.1 * len(calls)

    seconds = measuring.take_turns(steps, fake_clock, Plan(2, 25, 9, 0.0))
    assert {name: len(values) for name, values in seconds.items()} == {"quick": 9, OURS: 9, "slow": 3}
    assert calls.count("slow") == 4
    row = pair_losses.with_times(Row("slow"), seconds)
    assert row.remarks == ("slow: first 3 rounds only",)
    assert row.ratio == measuring.quartiles([6.0 / ours for ours in seconds[OURS][:3]])
    assert pair_losses.with_times(Row("quick"), seconds).remarks == ()


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


@pytest.mark.thorough
def test_a_fresh_process_measures_a_dense_loss() -> None:
    problem = Problem("nt-xent", 512, 16, 0.1)
    call = measuring.call_in_fresh_process(problem, DENSE)
    matrix = problem.matrix_bytes / MIB
    assert 2 * matrix < call.extra_mib < 7 * matrix
    with pytest.raises(RuntimeError, match="fresh process failed: KeyError: 'nobody'"):
        measuring.call_in_fresh_process(problem, "nobody")


@pytest.mark.parametrize(
    ("name", "row", "words"),
    [
        ("lightly", Row("lightly", ratio=Quartiles(5, 5.9, 7)), "at least 6: missed"),
        ("lightly", Row("lightly", ratio=Quartiles(5, 6.1, 7)), "at least 6: met"),
        (PRODUCTS, Row(PRODUCTS, ratio=Quartiles(1, 1.5, 2)), "at most 1.4: missed"),
        (OURS, Row(OURS, extra_mib=63.9), "at most 64: met"),
        (OURS, Row(OURS), "64: not measured"),
    ],
)
def test_each_figure_stands_beside_its_target(name: str, row: Row, words: str) -> None:
    text = result_tables.table(Section(Problem("nt-xent", 4096, 128, 0.1), 9, (row,)))
    assert words in rows_of(text)[name]


@pytest.mark.parametrize(("precision", "limit"), [("float32", "10"), ("bfloat16", "20"), ("tf32", None)])
def test_targets_belong_to_one_precision(precision: Precision, limit: str | None) -> None:
    problem = Problem("nt-xent", 16384, 128, 0.1, precision, "cuda")
    text = result_tables.table(Section(problem, 1, (Row("lightly"),)))
    assert (f"| {limit}: not measured |" in text) == (limit is not None)
