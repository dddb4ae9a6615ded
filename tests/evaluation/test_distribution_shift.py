"""Figures under corruptions, on other sources and along curves, from a run to its record, its text and its report."""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import counterpoint as cp
from counterpoint.core.errors import DataError, UsageError
from counterpoint.core.metric import loaded_metrics
from counterpoint.core.schemas import EvaluationRow, corruption_means
from counterpoint.diagnostics.evidence import Interval
from counterpoint.evaluation.distribution_shift import ORDERS, chosen_orders, selection_curve, selection_figures
from counterpoint.evaluation.evaluation_result import corruption_lines
from counterpoint.evaluation.knn import knn_score
from counterpoint.evaluation.linear_probe import probe_score
from counterpoint.evaluation.metric_types import Labelled, Score
from draws import draw
from oracles import selection_oracle as oracle
from oracles.number_checks import assert_numbers

# --- refusals, before anything is measured

REFUSED: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"metrics": ["sepin"]}, UsageError, r"metric sepin is gone: .*reproductions"),
    ({"metrics": ["corruption error"]}, UsageError, r"corruption error needs --corruptions"),
    ({"corruptions": ["fog"]}, DataError, r"corruptions are of pictures; array holds vectors"),
    ({"corruptions": ["fgo"]}, UsageError, "'fog'"),
    ({"severities": "0-3"}, UsageError, "'0-3'"),
    ({"selection": ["varience"]}, UsageError, r"unknown order of features 'varience'; did you mean 'variance'"),
    ({"ood": ["digits"]}, DataError, r"samples of digits have the shape \(1, 8, 8\), those of array \(6,\)"),
]


@pytest.mark.parametrize(("asked", "kind", "sentence"), REFUSED, ids=[sentence[:30] for _, _, sentence in REFUSED])
def test_what_cannot_be_measured_is_refused_in_one_line(
    run: cp.Run, asked: dict[str, Any], kind: type[Exception], sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("counterpoint.evaluation.protocol.gather_features", lambda *_: pytest.fail("began to measure"))
    with pytest.raises(kind, match=sentence) as caught:
        cp.evaluate(run, quiet=True, **asked)
    assert "\n" not in str(caught.value)


def test_features_without_their_encoder_cannot_be_corrupted(clusters: Any) -> None:
    with pytest.raises(UsageError, match="--corruptions needs the encoder; only features were given"):
        cp.evaluate(clusters.data, labels=clusters.labels, corruptions=["fog"], quiet=True)


# --- curves: orders of features against loops, figures against the metrics themselves

# N bank samples, Q queries, D features


def drawn(width: int = 6) -> Labelled:
    """Three classes in features of different sizes and signs."""
    sizes = torch.linspace(0.2, 3.0, width, dtype=torch.float64)[torch.randperm(width, generator=seeded(5))]
    bank, queries = draw(30, width, 0) * sizes + sizes / 2, draw(12, width, 1) * sizes + sizes / 2
    return Labelled(bank, torch.arange(30) % 3, queries, torch.arange(12) % 3, k=5, temperature=0.1)


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def seen(known: Labelled, order: str, size: int) -> Labelled:
    """What a metric is given."""
    given: list[Labelled] = []

    def measure(first: Labelled) -> Score:
        given.append(first)
        return Score(Interval(0.0), {})

    assert [*selection_curve(known, order, measure, sizes=[size])] == [size]
    return given[0]


@pytest.mark.parametrize("order", ["expected activation", "variance"])
def test_columns_are_kept_in_the_order_of_the_loops(order: str) -> None:
    known = drawn()
    for size in (1, 4, 6):
        columns = oracle.kept_columns(known.bank_ND.numpy(), order)[:size]
        first = seen(known, order, size)
        assert torch.equal(first.bank_ND, known.bank_ND[:, columns])
        assert torch.equal(first.queries_QD, known.queries_QD[:, columns])
        assert (first.k, first.temperature) == (known.k, known.temperature)
        assert torch.equal(first.labels_N, known.labels_N)


def test_the_non_negative_map_changes_order_and_features() -> None:
    known = drawn()
    columns = oracle.kept_columns(known.bank_ND.numpy(), "non-negative expected activation")
    bank = known.bank_ND.clone()
    bank[:, columns[0]] *= -1  # large by absolute value, almost nothing is left of it
    known = replace(known, bank_ND=bank)
    order = oracle.kept_columns(bank.numpy(), "non-negative expected activation")
    assert order[0] != columns[0]
    first = seen(known, "non-negative expected activation", 4)
    assert torch.equal(first.bank_ND, bank[:, order[:4]].relu())
    assert torch.equal(first.queries_QD, known.queries_QD[:, order[:4]].relu())


def test_first_features_are_kept_as_they_come() -> None:
    known = drawn()
    assert torch.equal(seen(known, "first", 3).queries_QD, known.queries_QD[:, :3])


def test_random_features_grow_by_more() -> None:
    known = drawn(20)
    two, five = (seen(known, "random", size) for size in (2, 5))
    assert torch.equal(two.bank_ND, five.bank_ND[:, :2])
    assert not torch.equal(five.bank_ND, known.bank_ND[:, :5])
    whole = seen(known, "random", 20).bank_ND
    assert torch.equal(whole.sort(dim=1).values, known.bank_ND.sort(dim=1).values)


@pytest.mark.parametrize("num_samples", [30, 4])
def test_components_are_those_of_the_singular_vectors(num_samples: int) -> None:
    known = drawn()
    known = replace(known, bank_ND=known.bank_ND[:num_samples], labels_N=known.labels_N[:num_samples])
    found = seen(known, "pca", 3)
    assert_numbers(found.queries_QD.abs(), oracle.components(known.bank_ND.numpy(), known.queries_QD.numpy())[:, :3])
    assert seen(replace(known, queries_QD=known.queries_QD.float()), "pca", 3).queries_QD.dtype == torch.float32


@pytest.mark.parametrize("order", list(ORDERS))
def test_a_curve_has_the_figures_of_the_metric_itself(order: str) -> None:
    known = drawn(5)
    measures = [knn_score, probe_score, loaded_metrics("evaluation")["precision@10"].measure]
    for measure in measures:
        curve = selection_curve(known, order, measure)
        assert [*curve] == [1, 2, 4, 5]
        for size, score in curve.items():
            assert score == measure(seen(known, order, size))
        if order not in ("pca", "non-negative expected activation"):  # all features, in another order
            assert math.isclose(curve[5].outcome.value, measure(known).outcome.value, abs_tol=1e-12)


def test_expected_activation_keeps_what_a_sparse_code_says_and_chance_does_not() -> None:
    """ncl2024's claim on a code in which it must hold: 4 of 32 features name the class, the others fire rarely."""
    labels = torch.arange(200) % 4
    rare = (torch.rand(200, 28, generator=seeded(0)) < 0.02) * torch.rand(200, 28, generator=seeded(1))
    code = torch.cat([rare, torch.eye(4)[labels]], dim=1)
    known = Labelled(code[:150], labels[:150], code[150:], labels[150:], k=10, temperature=0.1)
    by_activation, at_random = (
        selection_curve(known, order, knn_score, sizes=[4])[4].outcome.value
        for order in ("expected activation", "random")
    )
    assert by_activation == 1.0
    assert at_random < 0.6


def test_features_that_cannot_be_kept_are_refused() -> None:
    with pytest.raises(ValueError, match=r"order must be one of first, random, .*, got 'best'"):
        selection_curve(drawn(), "best", knn_score)
    for size in (0, 7):
        with pytest.raises(ValueError, match=f"sizes must be between 1 and the number of features, 6, got {size}"):
            selection_curve(drawn(), "first", knn_score, sizes=[2, size])


def test_a_curve_has_a_figure_for_each_order_and_size() -> None:
    metric = loaded_metrics("evaluation")["linear probe"]
    assert chosen_orders(["variance", "first"]) == ("first", "variance")
    known = drawn(5)
    figures = selection_figures("embedding", known, metric, "variance")
    assert [each.protocol for each in figures] == [f"linear probe keeping {size} by variance" for size in (1, 2, 4, 5)]
    curve = selection_curve(known, "variance", metric.measure, sizes=[2])
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
    # Sources of one name are told apart by their folders.
    (twin := other.with_name("twin") / other.name).parent.mkdir()
    twin.write_bytes(other.read_bytes())
    both = cp.evaluate(pictures, ood=[str(other), str(twin)], metrics=["linear-probe"], quiet=True).rows
    names = [each.protocol.rpartition(" on ")[2] for each in both if " on " in each.protocol]
    assert set(names) == {f"{other.parent.name}/other.npz", "twin/other.npz"}
    # Measured anew, the figures are the same.
    assert [
        each.written()
        for each in cp.evaluate(pictures, **asked, metrics=["linear-probe"], selection_step=64, quiet=True).rows
    ] == [each.written() for each in found.rows]
