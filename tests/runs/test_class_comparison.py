"""Classes of a run beside the optimum of its own loss: the question is read from the run, the distance falls."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import counterpoint as cp
from counterpoint.core.errors import UsageError
from counterpoint.core.run import Run
from counterpoint.core.settings import LookSettings
from counterpoint.engine.progress import Reporter
from counterpoint.evaluation.load_subject import Samples, open_subject
from counterpoint.losses.build import build_loss
from counterpoint.losses.class_level import LogOfSum
from counterpoint.runs.class_comparison import ClassQuestion, class_question, class_record, compare_classes
from counterpoint.theory.geometry.optimal_geometry import optimal_geometry

COUNTS = [90, 45, 45, 20, 20, 20, 10, 10, 10, 10]


def vectors(sizes: list[int], seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """One Gaussian cloud per class."""
    generator = np.random.default_rng(seed)
    labels = np.repeat(np.arange(len(sizes)), sizes)
    centres = 3 * generator.normal(size=(len(sizes), 8))
    return (centres[labels] + generator.normal(size=(len(labels), 8))).astype(np.float32), labels


def trained(folder: Path, *, sizes: list[int] | None = None, **asked: Any) -> tuple[Run, np.ndarray, np.ndarray]:
    x, labels = vectors(sizes or [40, 20, 20])
    labels = asked.pop("labels", labels)
    settings = {"epochs": 1, "batch_size": 16, "quiet": True, "projector": {"features": 8}, **asked}
    if settings.get("method") in ("directclr", "supervised"):
        settings.pop("projector")
    return cp.train(x, labels=labels, out=str(folder / "run"), **settings), x, labels


def question(run: Run, **given: Any) -> ClassQuestion:
    return class_question(open_subject(run, Samples(**given), LookSettings(), Reporter(quiet=True)))


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """SupCon on imbalanced digits, every epoch kept."""
    folder = tmp_path_factory.mktemp("digits") / "run"
    engine = {"keep": 20, "checkpoint_every": 1}
    source = {"class_counts": COUNTS}
    cp.train(
        "digits", method="supcon", source=source, engine=engine, epochs=8, batch_size=64, out=str(folder), quiet=True
    )
    return folder


def test_the_distance_falls_from_the_first_to_the_last_checkpoint(digits: Path) -> None:
    steps = sorted(int(path.name.split("-")[1]) for path in (digits / "checkpoints").glob("step-*"))
    first, last = (
        compare_classes(digits, checkpoint=str(step), quiet=True).record.optimum for step in (steps[0], steps[-1])
    )
    assert first is not None
    assert last is not None
    assert first.low is not None
    assert last.high is not None
    assert last.high < first.low  # the intervals lie apart


def test_the_question_is_that_of_the_run_and_the_answer_that_of_theory(digits: Path) -> None:
    found = compare_classes(digits, quiet=True)
    asked, optimum = found.question, found.record.optimum
    shares = torch.tensor(COUNTS) / sum(COUNTS)
    assert asked.proportions_C.tolist() == pytest.approx(shares.tolist())
    # docs/theory-reference.md: a margin of log 2 is epsilon 1/2, less the constant log 2.
    loss = build_loss("infonce", {"temperature": 0.1, "epsilon": 0.5}, {})
    expected = optimal_geometry(asked.proportions_C, loss=loss, num_negatives=63)
    assert found.geometry.gram.flatten().tolist() == pytest.approx(expected.gram.flatten().tolist(), abs=1e-5)
    assert optimum is not None
    assert optimum.is_certified
    assert [row.count for row in found.record.rows] == COUNTS
    assert sum(row.is_rare for row in found.record.rows) in (4, 7)
    measured = np.array(optimum.measured, float) - np.array(optimum.optimum, float)
    assert optimum.distance == pytest.approx(math.sqrt((measured**2).sum() / 90))
    assert optimum.held_out is not None


@pytest.mark.thorough
def test_a_diagnosis_keeps_the_comparison(digits: Path) -> None:
    found = cp.diagnose(str(digits), quiet=True)
    written = json.loads((digits / "findings.json").read_text())
    assert found.classes is not None
    assert found.classes.optimum is not None
    assert written["classes"]["optimum"]["distance"] == pytest.approx(found.classes.optimum.distance)
    assert found.held_out is not None
    assert {name: part.num_samples for name, part in found.held_out.parts.items()} == {
        "training": sum(COUNTS),
        "held out": sum(COUNTS),
    }
    page = cp.report(str(digits), bare=True, quiet=True).read_text()
    assert "Where do its classes lie?" in page
    assert "held-out" in page


@pytest.mark.parametrize(
    ("asked", "number", "margin", "is_nonnegative"),
    [
        ({"method": "simclr"}, 15, math.log(2), False),
        ({"method": "ncl"}, 15, math.log(2), True),
        ({"method": "simclr", "loss": {"negatives": "cross-view"}}, 15, 0.0, False),
        ({"method": "moco", "target": {"queue_size": 32}}, 32, 0.0, False),
        (
            {"method": "simclr", "loss": {"name": "hard-negatives", "options": {"loss": "infonce"}}},
            15,
            math.log(2),
            False,
        ),
    ],
    ids=["two views", "non-negative", "cross-view", "queue", "hard negatives"],
)
def test_negatives_are_counted_as_the_loss_has_them(
    asked: dict[str, Any], number: int, margin: float, is_nonnegative: bool, tmp_path: Path
) -> None:
    run, _, _ = trained(tmp_path, **asked)
    found = question(run)
    assert isinstance(found.record, LogOfSum)
    assert (found.num_negatives, found.nonnegative) == (number, is_nonnegative)
    assert found.record.margin == pytest.approx(margin)
    assert found.proportions_C.tolist() == pytest.approx([0.5, 0.25, 0.25])
    assert any("second view" in note for note in found.notes)


def test_balanced_sampling_has_equal_proportions(tmp_path: Path) -> None:
    run, _, _ = trained(tmp_path, source={"sampling": "balanced"})
    assert question(run).proportions_C.tolist() == pytest.approx([1 / 3] * 3)


def test_samples_without_a_class_are_left_out_and_counted(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    pixels = np.random.default_rng(0).integers(0, 255, (60, 8, 8), dtype=np.uint8)
    for place, picture in enumerate(pixels):
        Image.fromarray(picture).save(data / f"{place:02d}.png")
    rows = [f"{place:02d}.png,class {place % 3}" for place in range(60) if place % 4]
    (tmp_path / "labels.csv").write_text("\n".join(["file,label", *rows]))
    source = {"labels": str(tmp_path / "labels.csv")}
    run = cp.train(str(data), source=source, epochs=1, batch_size=16, out=str(tmp_path / "run"), quiet=True)
    record = compare_classes(run, quiet=True).record
    assert [row.name for row in record.rows] == ["class 0", "class 1", "class 2"]
    assert record.num_unlabelled is not None
    assert 0 < record.num_unlabelled <= 15
    num_train = run.folder.read_status().num_train
    assert record.num_unlabelled + sum(row.count or 0 for row in record.rows) == num_train


def test_labels_may_come_later(tmp_path: Path) -> None:
    run, x, _ = trained(tmp_path, labels=None)
    with pytest.raises(UsageError, match=r"has no labels.*give --labels FILE"):
        compare_classes(run, quiet=True)
    found = cp.diagnose(run, data=x, labels=vectors([40, 20, 20])[1], quiet=True).classes
    assert found is not None
    assert found.optimum is not None
    assert len(found.rows) == 3


@pytest.mark.thorough
def test_few_dimensions_have_no_certificate_and_say_so(tmp_path: Path) -> None:
    run, _, _ = trained(tmp_path, sizes=[20, 10, 10, 10], projector={"features": 2})
    found = compare_classes(run, quiet=True)
    assert found.question.dimension == 2
    assert not found.geometry.is_certified
    assert "no certificate exists" in found.geometry.status
    diagnosed = cp.diagnose(run, quiet=True)
    assert diagnosed.classes is not None
    assert diagnosed.classes.optimum is None
    assert "takes longer than a diagnosis" in diagnosed.classes.why_no_optimum


@pytest.mark.parametrize("method", ["vicreg", "barlow-twins", "alpha-cl", "simsiam", "supervised"])
@pytest.mark.sampled(5)
def test_a_loss_that_theory_does_not_cover_says_so(method: str, tmp_path: Path) -> None:
    run, _, _ = trained(tmp_path, method=method)
    with pytest.raises(UsageError, match="InfoNCE"):
        compare_classes(run, quiet=True)
    found = cp.diagnose(run, quiet=True)
    assert found.classes is not None
    assert (found.classes.optimum, len(found.classes.rows)) == (None, 3)
    assert found.classes.why_no_optimum


def test_learned_scales_are_those_of_the_last_checkpoint(tmp_path: Path) -> None:
    run, _, _ = trained(tmp_path, loss={"name": "sigmoid"}, optim={"learning_rate": 0.05}, epochs=2)
    record = question(run).record
    assert record.scale != 10.0
    assert record.scale == pytest.approx(10.0, rel=0.9)


def test_features_from_anywhere_have_a_table_of_classes_and_no_optimum() -> None:
    x, labels = vectors([40, 20, 20])
    found = cp.diagnose(x, labels=labels)
    assert found.classes is not None
    assert [row.count for row in found.classes.rows] == [40, 20, 20]
    assert found.classes.optimum is None
    assert cp.diagnose(x).classes is None
    assert class_record(torch.from_numpy(x), torch.zeros(80, dtype=torch.int64), ("a",)) is None


def test_merged_minorities_are_named() -> None:
    generator = np.random.default_rng(0)
    labels = np.repeat(np.arange(4), [400, 400, 30, 30])
    means = generator.normal(size=(4, 16)) * 2
    means[3] = means[2]
    x = (means[labels] + 0.3 * generator.normal(size=(860, 16))).astype(np.float32)
    found = {finding.name: finding for finding in cp.diagnose(x, labels=labels).findings}
    assert found["minority-collapse"].level == "warning"
    assert "2, 3" in found["minority-collapse"].title
    means[3] = generator.normal(size=16) * 2
    x = (means[labels] + 0.3 * generator.normal(size=(860, 16))).astype(np.float32)
    assert "minority-collapse" not in {finding.name for finding in cp.diagnose(x, labels=labels).findings}


def test_noise_with_random_labels_raises_none_of_the_new_findings() -> None:
    new = {"minority-collapse", "duplicate-dimensions", "held-out", "leakage"}
    for seed in range(10):
        generator = np.random.default_rng(seed)
        x = generator.normal(size=(600, 32)).astype(np.float32)
        labels = generator.choice(5, 600, p=[0.6, 0.3, 0.04, 0.03, 0.03])
        assert not new & {finding.name for finding in cp.diagnose(x, labels=labels).findings}
