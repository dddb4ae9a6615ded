"""The benchmark of evaluate() runs whole, and times nothing where both sides do not agree."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from beside_load import Calls
from classifier_peers import difference
from loaded_evaluation import OURS, PEER
from table_metrics import OURS as TABLES_OURS
from table_metrics import Case, measured

import evaluation

COMMAND = Path(evaluation.__file__)


@pytest.mark.thorough
def test_the_quick_run_prints_a_table() -> None:
    finished = subprocess.run([sys.executable, str(COMMAND), "--quick"], capture_output=True, text=True, check=False)
    assert finished.returncode == 0, finished.stdout + finished.stderr
    assert "### 200 pictures of 10 classes, width 16" in finished.stdout
    rows = [line.strip("| ").split(" | ") for line in finished.stdout.splitlines() if line.startswith("| ")][2:]
    assert [row[0] for row in rows] == [OURS, PEER]
    assert [row[-1] for row in rows] == ["-", "-"]
    assert all(float(part) > 0 for row in rows for part in row[1].split(", "))


@pytest.mark.slow
def test_the_quick_run_of_tables_agrees_with_its_peers() -> None:
    words = [sys.executable, str(COMMAND), "--tables", "--quick"]
    finished = subprocess.run(words, capture_output=True, text=True, check=False)
    assert finished.returncode == 0, finished.stdout + finished.stderr
    titles = [line for line in finished.stdout.splitlines() if line.startswith("### ")]
    assert titles[0] == "### precision@10 of 80 queries against 320 x 16"
    assert [title.split()[1] for title in titles] == ["precision@10", "MIG", "MIG", "SEPIN@10"]
    assert "At most 60 s: met." in finished.stdout
    rows = [line.strip("| ").split(" | ") for line in finished.stdout.splitlines() if line.startswith("| ")]
    timed = [row[0] for row in rows if row[1][0].isdigit()]
    assert timed.count(TABLES_OURS) == len(titles)
    assert "scikit-learn, pair by pair" in timed


@pytest.mark.slow
def test_the_quick_run_of_a_large_table_tells_its_memory() -> None:
    words = [sys.executable, str(COMMAND), "--large", "--quick"]
    finished = subprocess.run(words, capture_output=True, text=True, check=False)
    assert finished.returncode == 0, finished.stdout + finished.stderr
    assert "### evaluate 5,000 x 32 on disk (1 MiB), 2,000 queries" in finished.stdout
    assert "linear probe" in finished.stdout
    assert "At most 2,048 MiB: met." in finished.stdout
    row = finished.stdout.split("| --- | --- |")[1].split("|")
    assert 50 < float(row[2].replace(",", "")) < 2048


def test_a_figure_that_differs_is_named_and_not_timed() -> None:
    case = Case("sum of nothing", lambda: 0.0, {"peer": lambda: 1.0, "absent": "not installed: peer"}, limit=9.0)
    lines, wrong = measured(case)
    assert wrong == ["sum of nothing: peer gives 1.000000, we 0.000000"]
    assert lines[5:7] == ["| peer | another figure, not timed | - |", "| absent | not installed: peer | - |"]
    assert lines[-1] == "At most 9 s: met."


def test_accuracies_that_differ_are_named_and_not_timed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    accuracies = {OURS: {"knn": 0.80, "linear": 0.90}, PEER: {"knn": 0.81, "linear": 0.93}}
    monkeypatch.setattr(evaluation, "train", lambda folder, data, width: tmp_path)
    monkeypatch.setattr(
        evaluation, "calls_of", lambda child, run, name, *words: Calls(1.0, 1.0, {"accuracies": accuracies[name]})
    )
    monkeypatch.setattr(evaluation, "compare", lambda *words: pytest.fail("timed all the same"))
    assert evaluation.main(["--quick"]) == 1
    assert capsys.readouterr().err == "accuracies differ, not timed: linear: 0.900 and 0.930\n"


@pytest.mark.slow
def test_the_quick_run_of_the_classifiers_prints_both_tables() -> None:
    command = [sys.executable, str(COMMAND), "--classifiers", "--quick"]
    finished = subprocess.run(command, capture_output=True, text=True, check=False)
    assert finished.returncode == 0, finished.stdout + finished.stderr
    assert "### kNN-200, 500 queries against 2,000 x 32" in finished.stdout
    assert "### linear probe, 2,000 x 32, 10 classes, C = 0.1" in finished.stdout
    assert finished.stdout.count("| Counterpoint |") == 2
    assert "| lightly |" in finished.stdout


def test_classifiers_that_differ_are_named() -> None:
    same, other = torch.zeros(2000).long(), torch.zeros(2000).long()
    other[:3] = 1
    assert difference(same, same) == "100.00% the same classes"
    assert difference(same, other) == "differs: 99.85% the same classes"
    assert difference(0.5, 0.5000005) == "loss 0.5000005, +5.0e-07 from ours"
    assert difference(0.5, 0.6).endswith("(not at the optimum)")
    assert difference(0.6, 0.5).startswith("differs: loss 0.5")
