"""diagnose --fix: the config of the first finding that a setting can change, trained as it stands."""

from pathlib import Path

import numpy as np
import pytest

import counterpoint as cp
from counterpoint.cli.main import main
from counterpoint.core.errors import RunError, UsageError
from counterpoint.core.validation import read_yaml_mapping
from counterpoint.diagnostics.finding import Finding
from counterpoint.diagnostics.findings import Findings
from counterpoint.diagnostics.remedies import TRIED
from counterpoint.runs.fixing import write_fix

LABELS = np.arange(120) % 3


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> cp.Run:
    data = np.random.default_rng(0).normal(size=(120, 6)).astype(np.float32)
    out = tmp_path_factory.mktemp("fix") / "run"
    return cp.train(
        data, labels=LABELS, out=str(out), epochs=1, batch_size=32, optim={"learning_rate": 1e-9}, quiet=True
    )


def test_the_first_finding_with_a_change_is_fixed_and_the_rest_stays(run: cp.Run, tmp_path: Path) -> None:
    findings = Findings(
        findings=(
            Finding(name="a", level="severe", remedy="look"),
            Finding(name="b", level="warning", changes={"temperature": 0.5, "optim.learning_rate": "auto"}),
            Finding(name="c", level="note", changes={"epochs": 9}),
        )
    )
    text = write_fix(run.folder, findings, tmp_path / "new.yaml")
    asked = read_yaml_mapping(tmp_path / "new.yaml")
    assert asked == {"epochs": 1, "batch_size": 32, "optim": {"learning_rate": "auto"}, "temperature": 0.5}
    assert "optim.learning_rate: 1e-09 -> auto" in text
    assert "array" in text
    with pytest.raises(RunError, match=r"exists; choose another --fix"):
        write_fix(run.folder, findings, tmp_path / "new.yaml")
    with pytest.raises(UsageError, match=r"new\.txt"):
        write_fix(run.folder, findings, tmp_path / "new.txt")


def test_what_training_again_gave_before_stands_beside_a_remedy(run: cp.Run, tmp_path: Path) -> None:
    tried = Finding(name="few-negatives", level="warning", changes={"epochs": 9}, remedy="a larger batch")
    num_tried, helped, points = TRIED["few-negatives"]
    told = f"rose in {helped} of {num_tried} trainings with known faults, by {points:+.1f} points"
    assert told in write_fix(run.folder, Findings(findings=(tried,)), tmp_path / "new.yaml")
    assert told in "\n".join(tried.details)
    nothing = tried.model_copy(update={"changes": {}})  # features from anywhere, which nobody trains again
    assert told not in "\n".join(nothing.details)


def test_what_nothing_changes_is_said_with_its_advice(run: cp.Run, tmp_path: Path) -> None:
    new = tmp_path / "new.yaml"
    with pytest.raises(UsageError, match=r"no setting of this run changes what was found; for a try: look"):
        write_fix(run.folder, Findings(findings=(Finding(name="a", level="severe", remedy="look"),)), new)
    with pytest.raises(UsageError, match="fault found"):
        write_fix(run.folder, Findings(findings=(Finding(name="a", level="good", changes={"epochs": 2}),)), new)
    assert not new.exists()


@pytest.mark.thorough
def test_a_run_that_learned_nothing_is_trained_by_its_fix(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cold, config = tmp_path / "cold", tmp_path / "cold-fixed.yaml"
    small = ["--epochs", "1", "--encoder", "convnet", "--batch-size", "256", "-q"]
    assert main(["train", "--data", "digits", *small, "--optim.learning-rate", "1e-9", "--out", str(cold)]) == 0
    assert main(["diagnose", str(cold), "--fix", "-q"]) == 0
    printed = capsys.readouterr()
    assert "untrained" in printed.err
    assert "optim.learning_rate: 1e-09 -> auto" in printed.err
    assert main(["train", "--config", str(config), "--out", str(tmp_path / "warm"), "-q"]) == 0
    names = [each.name for each in cp.diagnose(tmp_path / "warm", quiet=True).findings if each.level == "severe"]
    assert "untrained" not in names
