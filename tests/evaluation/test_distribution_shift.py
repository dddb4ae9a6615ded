"""Figures under corruptions, on other sources and along curves, from a run to its record, its text and its report."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import counterpoint as cp
from counterpoint.core.errors import DataError, UsageError
from counterpoint.core.metric import loaded_metrics
from counterpoint.core.run_records import EvaluationRow, corruption_means
from counterpoint.evaluation.distribution_shift import chosen_orders, selection_curve, selection_figures
from counterpoint.evaluation.evaluation_result import corruption_lines
from counterpoint.evaluation.metric_types import Labelled

# --- refusals, before anything is measured

REFUSED: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"metrics": ["sepin"]}, UsageError, r"metric sepin is gone: .*reproductions"),
    ({"metrics": ["corruption error"]}, UsageError, r"corruption error needs --corruptions"),
    ({"corruptions": ["fog"]}, DataError, r"corruptions are of pictures; array holds vectors"),
    ({"corruptions": ["fgo"]}, UsageError, r"unknown corruption 'fgo'; did you mean 'fog'"),
    ({"severities": "0-3"}, UsageError, r"severities must be numbers from 1 to 5, such as 1-5 or 3, got '0-3'"),
    ({"selection": ["varience"]}, UsageError, r"unknown order of features 'varience'; did you mean 'variance'"),
    ({"ood": ["digits"]}, DataError, r"samples of digits have the shape \(1, 8, 8\), those of array \(6,\)"),
]


@pytest.mark.parametrize(("asked", "kind", "sentence"), REFUSED, ids=[sentence[:30] for _, _, sentence in REFUSED])
def test_what_cannot_be_measured_is_refused_in_one_line(
    run: cp.Run, asked: dict[str, Any], kind: type[Exception], sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("counterpoint.evaluation.protocol.gather", lambda *_: pytest.fail("began to measure"))
    with pytest.raises(kind, match=sentence) as caught:
        cp.evaluate(run, quiet=True, **asked)
    assert "\n" not in str(caught.value)


def test_features_without_their_encoder_cannot_be_corrupted(clusters: Any) -> None:
    with pytest.raises(UsageError, match="--corruptions needs the encoder; only features were given"):
        cp.evaluate(clusters.data, labels=clusters.labels, corruptions=["fog"], quiet=True)


# --- curves


def known(width: int = 5) -> Labelled:
    generator = torch.Generator().manual_seed(0)
    bank, queries = torch.randn(30, width, generator=generator), torch.randn(12, width, generator=generator)
    return Labelled(bank, torch.arange(30) % 3, queries, torch.arange(12) % 3, k=3, temperature=0.1)


def test_a_curve_has_a_figure_for_each_order_and_size() -> None:
    metric = loaded_metrics("evaluation")["linear probe"]
    assert chosen_orders(["variance", "first"]) == ("first", "variance")
    figures = selection_figures("embedding", known(), metric, "variance")
    assert [each.protocol for each in figures] == [f"linear probe keeping {size} by variance" for size in (1, 2, 4, 5)]
    curve = selection_curve(known(), "variance", metric.measure, sizes=[2])
    assert figures[1].figure == curve[2].outcome.value
    assert figures[1].settings.items() >= {"kept": 2, "features": 5, "order": "variance"}.items()


def row(protocol: str, value: float, **settings: Any) -> EvaluationRow:
    total = 1000
    share = {"accuracy": value, "correct": round(value * total), "total": total}
    return EvaluationRow(features="representation", protocol=protocol, settings=settings, **share)


def test_severities_are_averaged_by_corruption() -> None:
    rows = [row(f"knn under fog {s}", s / 10, corruption="fog", severity=s) for s in (1, 2, 3)]
    rows += [row("knn under snow 5", 0.5, corruption="snow", severity=5), row("knn", 0.9)]
    means = corruption_means(rows)
    assert means.keys() == {"knn"}
    assert {name: round(each["representation"], 12) for name, each in means["knn"].items()} == {"fog": 0.2, "snow": 0.5}
    told = corruption_lines(rows)
    assert told[-2].split() == ["fog", "20.0%"]


def test_tables_fit_a_hundred_columns() -> None:
    names = ["representation", "embedding", "untrained encoder", "layer backbone.layer4.1.conv2"]
    gaussian = row("linear probe under gaussian noise 1", 0.5, corruption="gaussian noise")
    wide = [gaussian.model_copy(update={"features": name}) for name in names]
    assert max(map(len, corruption_lines(wide))) <= 100


# --- from a run to its record


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> cp.Run:
    """One epoch on pictures of two classes: dark and bright."""
    rng = np.random.default_rng(0)
    labels = np.arange(80) % 2
    images = (rng.integers(0, 90, size=(80, 8, 8)) + 90 * labels[:, None, None]).astype(np.uint8)
    folder = tmp_path_factory.mktemp("conditions")
    np.savez(folder / "clean.npz", images=images, labels=np.array(["dark", "bright"])[labels])
    np.savez(folder / "other.npz", images=images[:30], labels=np.array(["dark", "Bright", "red"])[np.arange(30) % 3])
    return cp.train(
        data=str(folder / "clean.npz"), epochs=1, batch_size=16, source={"holdout": 0.4}, quiet=True,
        out=str(folder / "run"),
    )  # fmt: skip


@pytest.mark.thorough
def test_a_run_is_asked_under_corruptions_elsewhere_and_with_few_features(pictures: cp.Run) -> None:
    other, path = Path(pictures.path).parent / "other.npz", pictures.folder.evaluation
    asked = {"corruptions": ["fog", "jpeg"], "severities": "1,5", "ood": [str(other)], "selection": ["first"]}
    found = cp.evaluate(pictures, **asked, metrics=["linear-probe"], selection_step=64, quiet=True)
    rows = json.loads(path.read_text(encoding="utf-8"))["rows"]
    by_name = {(each["features"], each["protocol"]): each for each in rows}
    under = by_name["representation", "linear probe under fog 5"]
    assert under["settings"].items() >= {"corruption": "fog", "severity": 5, "seed": 0}.items()
    assert under["low"] <= under["accuracy"] <= under["high"]
    elsewhere = by_name["representation", "linear probe on other.npz"]
    assert elsewhere["total"] == 20
    assert elsewhere["settings"]["left out"] == "10 samples of 1 classes left out: red"
    assert by_name["representation", "linear probe"]["classes"].keys() == {"bright", "dark"}
    assert ("representation", "linear probe keeping 64 by first") in by_name
    told = str(found)
    assert max(map(len, told.splitlines()[1:])) <= 100
    assert "linear probe fitted to clean samples, under corruptions" in told
    page = Path(cp.report(pictures, quiet=True)).read_text(encoding="utf-8")
    assert "Under corruptions" in page
    assert "With a part of the features" in page
    # Measured anew, the figures are the same.
    assert [
        each.written()
        for each in cp.evaluate(pictures, **asked, metrics=["linear-probe"], selection_step=64, quiet=True).rows
    ] == [each.written() for each in found.rows]
