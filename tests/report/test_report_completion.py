"""A report makes what a run lacks, says what it could not make, and judges alike in whichever order verbs were run."""

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from page_scan import scan
from run_folders import edit_json

import counterpoint as cp
from counterpoint.core.files import sealed_text
from counterpoint.report.reporting import report
from hit_rows import hit_values

SMALL: dict[str, Any] = {"epochs": 1, "batch_size": 16, "encoder": "mlp", "projector": {"hidden": 8, "features": 8}}


def blobs() -> tuple[np.ndarray, np.ndarray]:
    """Vectors of two classes, 120 samples."""
    labels = np.arange(120) % 2
    vectors = np.random.default_rng(0).normal(size=(120, 6)) + 2 * labels[:, None]
    return vectors.astype(np.float32), labels


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on a file, neither evaluated nor diagnosed."""
    place = tmp_path_factory.mktemp("trained")
    vectors, labels = blobs()
    np.savez(place / "blobs.npz", X=vectors, y=labels)
    return cp.train(str(place / "blobs.npz"), out=str(place / "run"), quiet=True, **SMALL).path


@pytest.fixture
def copies(trained: Path, tmp_path: Path) -> Callable[[str], Path]:
    """Copies of the run under the same name."""
    return lambda name: shutil.copytree(trained, tmp_path / name / trained.name)


def evaluate(path: Path) -> None:
    cp.evaluate(path, quiet=True)


def diagnose(path: Path) -> None:
    cp.diagnose(path, quiet=True)


@pytest.mark.thorough
def test_every_order_of_commands_gives_the_same_page(copies: Callable[[str], Path]) -> None:
    pages = {}
    for order in ([evaluate, diagnose], [diagnose, evaluate], []):
        run = copies("-".join(["run", *(verb.__name__ for verb in order)]))
        for verb in order:
            verb(run)
        pages[run.parent.name] = report(run, quiet=True).read_text()
    assert len(set(pages.values())) == 1
    (page,) = set(pages.values())
    assert " by kNN (" in page
    assert "Not checked" not in page


def test_a_diagnosis_alone_votes_by_itself(copies: Callable[[str], Path]) -> None:
    run = copies("alone")
    findings = cp.diagnose(run, quiet=True)
    (gain,) = (finding for finding in findings.findings if finding.name == "gain")
    assert gain.reference_name.removeprefix("kNN on ") in ("raw input", "the untrained encoder")
    assert not findings.limits
    assert findings.verdict in scan(report(run, bare=True)).text


@pytest.mark.thorough
def test_a_diagnosis_follows_a_newer_evaluation(copies: Callable[[str], Path]) -> None:
    run = copies("newer")
    evaluate(run)
    diagnose(run)

    def swap(content: dict[str, Any]) -> None:
        for row in content["rows"]:
            correct = 6 if row["features"] == "representation" else 18
            row.update(hit_values(row["features"], row["protocol"], range(correct), 20))

    edit_json(run / "evaluation.json", swap)
    text = scan(report(run, bare=True)).text
    assert "no, worse by kNN (30.0% against 90.0%)" in text
    assert "With a warning" in text or "With a serious fault" in text


def test_a_bare_report_makes_nothing(copies: Callable[[str], Path]) -> None:
    run = copies("bare")
    before = {path.name for path in run.iterdir()}
    text = scan(report(run, bare=True)).text
    assert {path.name for path in run.iterdir()} - before == {"report.html"}
    assert "counterpoint evaluate run" in text
    assert "counterpoint diagnose run" in text


@pytest.mark.thorough
def test_progress_is_shown_unless_quiet(copies: Callable[[str], Path], capsys: pytest.CaptureFixture[str]) -> None:
    report(copies("quiet"), quiet=True)
    assert capsys.readouterr().err == ""
    report(copies("shown"))
    said = capsys.readouterr().err
    assert re.search(r"^first, .*: evaluate and diagnose .*\nfeatures of .*\ndiagnosing\n", said, re.DOTALL), said


def test_missing_data_leave_a_page_that_says_so(copies: Callable[[str], Path], tmp_path: Path) -> None:
    run = copies("gone")
    for file in ("config.yaml", "resolved.yaml"):
        text = (run / file).read_text().rpartition("# sha256")[0]
        text = re.sub(r"^data: .*$", f"data: {tmp_path}/moved.npz", text, flags=re.MULTILINE)
        (run / file).write_text(sealed_text(text))
    page = report(run, quiet=True)
    assert "This was not possible: " in scan(page).text
    assert "…/moved.npz" in scan(page).text
    assert str(tmp_path) not in page.read_text()
    assert not (run / "evaluation.json").exists()


def test_a_run_on_an_array_says_how_to_get_what_is_missing(tmp_path: Path) -> None:
    vectors, labels = blobs()
    run = cp.train(vectors, labels=labels, out=str(tmp_path / "run"), quiet=True, **SMALL)
    text = scan(report(run.path, quiet=True)).text
    for verb in ("evaluate", "diagnose"):
        assert f"cp.{verb}(run, data=X)" in text
    assert " by kNN (" in scan(report(run, quiet=True)).text  # the run that train returned has them


@pytest.mark.parametrize(
    ("status", "words"), [("interrupted", "counterpoint resume"), ("running", "training is running")]
)
def test_an_unfinished_run_gets_a_page_that_says_why_it_is_incomplete(
    copies: Callable[[str], Path], status: str, words: str
) -> None:
    run = copies(status)
    for file in ("encoder.json", "encoder.safetensors"):
        (run / file).unlink()
    edit_json(run / "run.json", lambda card: card.update(status=status))
    for is_bare in (False, True):
        text = scan(report(run, bare=is_bare, quiet=True)).text
        assert "There is no trained encoder to look at" in text
        assert words in text
        assert "labels" not in text.split("Accuracies were not measured.")[1].split("write the report again")[0]


def test_unlabelled_data_are_diagnosed_and_their_page_says_why_nothing_is_evaluated(tmp_path: Path) -> None:
    np.save(tmp_path / "plain.npy", blobs()[0])
    run = cp.train(str(tmp_path / "plain.npy"), out=str(tmp_path / "run"), quiet=True, **SMALL)
    text = scan(report(run, quiet=True)).text
    assert "has no labels, and accuracy needs them" in text
    assert "Not checked, as input was missing or too little: labels, raw input." in text
    assert json.loads(run.folder.findings.read_text())["verdict"]["sentence"] in text
