"""The model card says what is known, and which command finds out what is not."""

import re
import shutil
from pathlib import Path

import pytest
import yaml

import counterpoint as cp
from counterpoint.core.schemas import EvaluationRecord, EvaluationRow, packed_hits
from counterpoint.core.terminal_text import TextTable, as_code, as_text
from counterpoint.export.model_card import not_better, share

EMPTY = ("more information needed", "[more", "todo", "n/a", "none were known")


def card_of(run: cp.Run, folder: Path, **settings: object) -> str:
    cp.export(run, "safetensors", out=folder, quiet=True, overwrite=True, **settings)
    return (folder / "README.md").read_text(encoding="utf-8")


def test_a_card_of_a_run_that_nobody_judged_names_the_commands(run: cp.Run, tmp_path: Path) -> None:
    text = card_of(run, tmp_path / "x")
    front = yaml.safe_load(text.split("---")[1])
    assert front["library_name"] == "counterpoint"
    assert front["license"] == "unknown"
    assert "metrics" not in front
    assert f"counterpoint evaluate {run.path.name}" in text
    assert f"counterpoint diagnose {run.path.name}" in text
    assert "not measured, on any samples" in text
    assert str(run.path.parent) not in text
    assert not any(word in text.lower() for word in EMPTY)
    status = run.folder.read_status()
    assert str(status.data_fingerprint) in text
    assert f"{status.num_train} of {status.num_samples} were trained on" in text


@pytest.mark.thorough
def test_a_card_after_evaluation_and_diagnosis_has_intervals_baselines_and_findings(
    photos: Path, tmp_path: Path
) -> None:
    settings = {"encoder": "convnet", "source": {"image_size": 12}, "epochs": 1, "batch_size": 8, "method": "ncl"}
    run = cp.train(photos, out=tmp_path / "run", quiet=True, **settings)
    cp.evaluate(run, quiet=True)
    cp.diagnose(run, quiet=True)
    text = card_of(run, tmp_path / "x", licence="apache-2.0")
    front = yaml.safe_load(text.split("---")[1])
    assert front["license"] == "apache-2.0"
    assert "knn" in front["metrics"]
    assert re.search(r"\| representation \| knn \| \d.*% \(.*% to .*%\) \|", text)
    assert "| baseline |" in text
    assert "## Findings\n\n**" in text


def test_what_is_not_measurably_better_than_a_baseline_is_said_to_be_so() -> None:
    def row(features: str, right: int) -> EvaluationRow:
        hits = [place < right for place in range(100)]
        values = {"features": features, "protocol": "knn", "accuracy": right / 100, "correct": right, "total": 100}
        return EvaluationRow(**values, hits=packed_hits(hits))

    def said(right: int) -> list[tuple[str, str]]:
        rows = (row("representation", right), row("raw input", 50), row("untrained encoder", 20))
        return [(protocol, baseline) for protocol, baseline, _ in not_better(EvaluationRecord(rows=rows))]

    assert said(51) == [("knn", "raw input")]
    assert said(90) == []


@pytest.mark.parametrize(
    ("counts", "words"),
    [
        ([36, 4], "Its classes were unequal: the largest has 9 times the samples of the smallest (4)"),
        ([10, 8], "Its classes were about equal: the largest has 1.2 times the samples of the smallest."),
        ([40], ""),
    ],
)
def test_limits_tell_of_the_class_sizes(counts: list[int], words: str, run: cp.Run, tmp_path: Path) -> None:
    copy = cp.Run(Path(shutil.copytree(run.path, tmp_path / "run")))
    copy.folder.update_status(class_counts=tuple(counts))
    limits = card_of(copy, tmp_path / "x").split("## Limits")[1]
    assert words in limits
    assert ("classes were" in limits) == bool(words)


def test_text_from_outside_ends_no_table_and_begins_no_link() -> None:
    assert as_text("a<img>[x](y)\n# z") == r"a\<img\>\[x\](y)\\n\# z"
    # Behind two backslashes a bar would end the cell.
    assert TextTable(["by"], [[as_text("knn on a|b")]], "l").to_markdown().endswith("\n| knn on a\\|b |")
    assert as_code("a`b\n") == r"``a`b\n``"
    assert as_code("`a") == "`` `a ``"
    assert as_text("/vol/ada/photos") == "…/photos"
    assert share(EvaluationRow(protocol="knn", accuracy=0.5, low=0.25, high=0.75)) == "50.0% (25.0% to 75.0%)"
