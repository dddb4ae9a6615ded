"""The benchmark of evaluate() runs whole, and times nothing where both sides do not agree."""

import subprocess
import sys
from pathlib import Path

import pytest
from beside_load import Calls
from loaded_evaluation import OURS, PEER

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
