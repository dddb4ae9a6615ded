"""Orders of features against loops, and curves against the metrics themselves."""

# N bank samples, Q queries, D features

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from counterpoint.core.metric import loaded_metrics
from counterpoint.diagnostics.evidence import Interval
from counterpoint.evaluation.distribution_shift import ORDERS, selection_curve
from counterpoint.evaluation.knn import knn_score
from counterpoint.evaluation.linear_probe import probe_score
from counterpoint.evaluation.metric_types import Labelled, Score
from oracles import selection_oracle as oracle
from oracles.number_checks import assert_numbers


def draw(n: int, width: int, seed: int) -> Tensor:
    return torch.randn(n, width, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


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
