"""The cases that anybody tries first: noise, copies, an offset, few samples, shuffled views, an untrained encoder."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import counterpoint as cp
from counterpoint.core.errors import DataError
from counterpoint.diagnostics.findings import Findings

CLASSES = np.arange(1000) % 10


def draw(n: int = 1000, width: int = 64, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(n, width)).astype(np.float32)


def bad(found: Findings) -> list[tuple[str, str]]:
    """Names and levels of what is not good, worst first."""
    return [(each.name, each.level) for each in found.findings if each.level != "good"]


def test_noise_has_no_collapse_and_nothing_says_that_it_is_good() -> None:
    alone, labelled = cp.diagnose(draw()), cp.diagnose(draw(), labels=CLASSES)
    assert bad(alone) == []
    assert alone.verdict == "No fault found. Whether the features are good was not measured."
    assert alone.limits.endswith(": labels, raw input, views.")
    for labels in (np.zeros(1000, int), np.arange(1000)):  # they are given, and tell nothing
        assert "too little: labels" in cp.diagnose(draw(), labels=labels).limits
    assert bad(labelled) == [("classes", "warning")]
    assert labelled.verdict.startswith("With a warning. At chance by kNN (")
    few_of_each = cp.diagnose(draw(500, 32), labels=CLASSES[:500] % 5)
    assert bad(few_of_each) == [("classes", "warning")]  # in 32 dimensions 20 samples can always be parted


def test_classes_that_are_told_apart_are_healthy_where_raw_input_tells_them_less() -> None:
    features = draw(10, seed=1)[CLASSES] + draw()
    found = cp.diagnose(features, labels=CLASSES)
    assert bad(found) == []
    assert found.verdict.startswith("No fault found. Above chance by kNN (")
    beside = cp.diagnose(features, labels=CLASSES, data=features + 6 * draw(seed=2), quiet=True)
    assert beside.verdict.startswith("Healthy: no fault found. Better than raw input: yes by kNN (")
    same = cp.diagnose(features, labels=CLASSES, data=features, quiet=True)
    assert "Healthy" not in same.verdict


def test_of_very_many_classes_some_are_asked_about() -> None:
    pairs = np.arange(4000) // 2
    features = 4 * draw(2000, seed=1)[pairs] + draw(4000)
    found = cp.diagnose(features, labels=pairs, quiet=True)
    assert found.verdict.startswith("No fault found. Above chance by kNN (100.0%)")
    assert "chance 0.2%" in found.verdict  # of 500 classes


def test_what_a_probe_sees_and_neighbours_do_not_counts() -> None:
    features = 5 * draw()
    features[:, :10] = 0.5 * draw(seed=1)[:, :10] + np.eye(10)[CLASSES]
    assert "not told apart by kNN" in (verdict := cp.diagnose(features, labels=CLASSES, data=5 * draw(seed=3)).verdict)
    assert "yes by the probe" in verdict


def test_of_few_samples_each_is_asked_about_and_it_is_said_how_many_would_tell() -> None:
    few, classes = draw(40), CLASSES[:40] % 2
    few[:, 0] += classes
    found = cp.diagnose(few, labels=classes, data=draw(40, seed=1), quiet=True)
    (shown,) = (each for each in found.findings if each.name == "gain")
    assert "40 queries; about" in shown.title
    with pytest.raises(DataError, match=r"40 rows and .* 39 samples"):
        cp.diagnose(few, labels=classes, data=draw(39), quiet=True)


@pytest.mark.parametrize(
    ("features", "expected"),
    [
        (np.concatenate([draw(500)] * 2), [("duplicates", "warning")]),
        (draw() + 6, [("offset", "note")]),
        (draw(width=40) @ np.linalg.qr(draw(128, 128, 2))[0][:40], [("dimensional-collapse", "severe")]),
        (np.pad(draw(width=98), ((0, 0), (0, 30))), [("dimensional-collapse", "warning"), ("dead-dimensions", "note")]),
        (np.full((300, 8), 0.1, np.float32), [("full-collapse", "severe")]),
        (draw(12), [("little-evidence", "note")]),
    ],
    ids=["copies", "offset", "rank 40 of 128", "silent", "constant", "twelve samples"],
)
def test_a_plain_fault_is_named(features: np.ndarray, expected: list[tuple[str, str]]) -> None:
    assert bad(cp.diagnose(features)) == expected


def test_a_long_offset_is_no_collapse_where_classes_are_told_apart() -> None:
    with_classes = draw() + draw(10, seed=1)[CLASSES]
    for offset, level in ((6, "note"), (100, "warning")):
        found = cp.diagnose(with_classes + offset, labels=CLASSES)
        assert bad(found) == [("offset", level)]
    assert bad(cp.diagnose(draw() + 100, labels=CLASSES))[0] == ("full-collapse", "severe")


def test_outliers_do_not_spoil_the_probe() -> None:
    features = draw() + draw(10, seed=1)[CLASSES]
    features[[3, 100, 200]] = 1e6
    assert "probe (100.0%)" in cp.diagnose(features, labels=CLASSES).verdict


def test_one_number_accuses_no_label_and_unknown_labels_are_counted(capsys: pytest.CaptureFixture[str]) -> None:
    means = np.repeat([0.0, 1.0, -1.0, 2.0, -2.0], 60)
    for seed in range(6):
        found = cp.diagnose((means + draw(300, 1, seed)[:, 0])[:, None], labels=np.repeat(np.arange(5) - 1, 60))
        assert "label-noise" not in dict(bad(found))
    assert "60 samples" in capsys.readouterr().err


def test_five_samples_get_no_verdict() -> None:
    assert cp.diagnose(draw(5)).verdict.startswith("No verdict: 5 ")


@pytest.mark.parametrize(
    ("views", "expected", "words"),
    [
        (draw() + 0.3 * draw(seed=1), [], "Views of one sample have cosine 0.96"),
        ((draw() + 0.3 * draw(seed=1))[::-1], [("unrelated-views", "severe")], "are in different orders"),
        (draw(seed=1), [("unrelated-views", "severe")], "The two views are unrelated"),
        (0.3 * draw() + draw(seed=1), [("alignment", "warning")], "different samples 0.00"),
    ],
    ids=["good", "reversed", "unrelated", "weak"],
)
def test_views_are_told_apart_from_other_samples(
    views: np.ndarray, expected: list[tuple[str, str]], words: str
) -> None:
    found = cp.diagnose(draw(), views=views)
    assert bad(found) == expected
    assert words in str(found)


def test_a_training_that_does_nothing_is_advised_to_go_faster_not_slower(tmp_path: Path) -> None:
    asked: dict[str, Any] = {"epochs": 1, "batch_size": 128, "optim": {"learning_rate": 1e-9}, "quiet": True}
    run = cp.train(draw(), labels=CLASSES, out=str(tmp_path / "run"), **asked)
    found = cp.diagnose(run, quiet=True)
    assert found.findings[0].name == "untrained"
    assert found.findings[0].remedy.startswith("a higher learning rate (--optim.learning-rate)")
    assert "lower learning rate" not in str(found)


@pytest.mark.thorough
def test_an_encoder_with_random_weights_is_called_untrained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    found = cp.diagnose("mlp", data=draw(width=6), quiet=True)
    assert found.findings[0].title == "The encoder is untrained: its weights are random"
    assert found.level == "warning"


def test_features_without_their_run_are_told_no_command_that_needs_it() -> None:
    flat = draw(1000, 3) @ draw(3, 64)
    tests = [finding.confirm for features in (draw() + 100, flat, draw()[CLASSES]) for finding in
             cp.diagnose(features, labels=CLASSES).findings]  # fmt: skip
    assert any("counterpoint evaluate FILE" in words for words in tests)
    assert not [words for words in tests if "RUN" in words]
