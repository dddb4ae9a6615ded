"""What runs beside a load prints the seconds of each of its calls, ours and the peer's alike."""

import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import loaded_evaluation
import loaded_losses
import loaded_training
import pytest
import torch

import counterpoint as cp
import evaluation
from tolerances import assert_close

pytestmark = pytest.mark.thorough


def run_helper(module: ModuleType, *words: object) -> dict[str, object]:
    command = [sys.executable, str(module.__file__), *map(str, words)]
    finished = subprocess.run(command, capture_output=True, text=True, check=False)
    assert finished.returncode == 0, finished.stderr
    return json.loads(finished.stdout.splitlines()[-1])


def check_seconds(found: dict[str, object], num_calls: int) -> None:
    seconds = found["seconds"]
    assert isinstance(seconds, list)
    assert len(seconds) == num_calls
    assert all(value > 0 for value in seconds)


@pytest.mark.parametrize(
    ("name", "library"), [(loaded_training.OURS, "torch"), ("lightly + Lightning", "lightly")], ids=["ours", "peer"]
)
def test_training_steps_the_first_included(name: str, library: str) -> None:
    pytest.importorskip(library, reason=f"{library} (a peer) is not installed")
    check_seconds(run_helper(loaded_training, name, "resnet9", "fp32", 4, 3), 3)


@pytest.mark.parametrize("case", loaded_losses.CASES)
def test_everyone_computes_the_same_loss(case: str) -> None:
    problem = loaded_losses.CASES[case]
    inputs = loaded_losses.make_inputs(loaded_losses.Problem(problem.problem.kind, 24, 8, 0.5))
    small = loaded_losses.Problem(problem.problem.kind, 24, 8, 0.5)
    results = [loaded_losses.call(problem, build(small), inputs) for build in problem.losses.values()]
    for other in results[1:]:
        for ours, theirs in zip(results[0], other, strict=True):
            assert_close(ours, theirs, dtype=torch.float32)


def test_evaluation_of_both_sides_agrees_and_is_timed(tmp_path: Path) -> None:
    data = loaded_evaluation.pictures(120)
    run = evaluation.train(tmp_path / "run", data, 16)
    assert isinstance(cp.Run(run, encoder=loaded_evaluation.small_network(16)).path, Path)
    for name in (loaded_evaluation.OURS, loaded_evaluation.PEER):
        found = run_helper(loaded_evaluation, run, name, 16, 120, 1)
        check_seconds(found, 1)
        assert len(found["accuracies"]) == 6  # pyright: ignore[reportArgumentType]
