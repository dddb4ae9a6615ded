"""The benchmark of evaluate() times nothing where both sides do not agree."""

from pathlib import Path

import pytest
import torch
from beside_load import Calls
from classifier_peers import difference
from loaded_evaluation import OURS, PEER
from table_metrics import Case, measured

import evaluation


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


def test_classifiers_that_differ_are_named() -> None:
    same, other = torch.zeros(2000).long(), torch.zeros(2000).long()
    other[:3] = 1
    assert difference(same, same) == "100.00% the same classes"
    assert difference(same, other) == "differs: 99.85% the same classes"
    assert difference(0.5, 0.5000005) == "loss 0.5000005, +5.0e-07 from ours"
    assert difference(0.5, 0.6).endswith("(not at the optimum)")
    assert difference(0.6, 0.5).startswith("differs: loss 0.5")
