"""Orders of features against loops, curves against the metrics themselves, and the figure of a quarter kept."""

# N bank samples, Q queries, D features

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from counterpoint.core.metric import loaded_metrics
from counterpoint.core.paired_shares import score_interval
from counterpoint.evaluation.knn import knn_score
from counterpoint.evaluation.linear_probe import probe_score
from counterpoint.evaluation.metric_types import IntervalEstimate, Labelled, Proportion, Score
from counterpoint.evaluation.selection import ORDERS, quarter_score, selection_curve
from oracles import selection_oracle as oracle
from oracles.number_checks import assert_numbers

QUARTER = loaded_metrics("evaluation")["quarter kept"]


def draw(n: int, width: int, seed: int) -> Tensor:
    return torch.randn(n, width, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def drawn(width: int = 6) -> Labelled:
    """Three classes in features of different sizes and signs."""
    sizes = torch.linspace(0.2, 3.0, width, dtype=torch.float64)[torch.randperm(width, generator=seeded(5))]
    bank, queries = draw(30, width, 0) * sizes + sizes / 2, draw(12, width, 1) * sizes + sizes / 2
    return Labelled(bank, torch.arange(30) % 3, queries, torch.arange(12) % 3, k=5, temperature=0.1)


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def ends(outcome: IntervalEstimate | Proportion) -> tuple[float, float]:
    assert outcome.low is not None
    assert outcome.high is not None
    return outcome.low, outcome.high


def seen(known: Labelled, order: str, size: int, **settings: object) -> Labelled:
    """What a metric is given."""
    given: list[Labelled] = []

    def measure(first: Labelled) -> Score:
        given.append(first)
        return Score(IntervalEstimate(0.0), {})

    (point,) = selection_curve(known, order, measure, sizes=[size], **settings)  # pyright: ignore[reportArgumentType]
    assert point.num_features == size
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


def test_random_features_follow_the_seed_and_grow_by_more() -> None:
    known = drawn(20)
    two, five, other = (seen(known, "random", size, seed=seed) for size, seed in ((2, 7), (5, 7), (5, 8)))
    assert torch.equal(two.bank_ND, five.bank_ND[:, :2])
    assert not torch.equal(five.bank_ND, other.bank_ND)
    whole = seen(known, "random", 20).bank_ND
    assert torch.equal(whole.sort(dim=1).values, known.bank_ND.sort(dim=1).values)


@pytest.mark.parametrize("num_samples", [30, 4])
def test_components_are_those_of_the_singular_vectors(num_samples: int) -> None:
    known = drawn()
    known = replace(known, bank_ND=known.bank_ND[:num_samples], labels_N=known.labels_N[:num_samples])
    found = seen(known, "pca", 3)
    assert_numbers(found.queries_QD.abs(), oracle.components(known.bank_ND.numpy(), known.queries_QD.numpy())[:, :3])
    assert seen(replace(known, queries_QD=known.queries_QD.float()), "pca", 3).queries_QD.dtype == torch.float32


def test_an_order_may_come_from_other_features() -> None:
    """Transfer: features are chosen on the data trained on."""
    known, trained = drawn(), draw(40, 6, 3) * torch.tensor([1.0, 90.0, 1.0, 30.0, 1.0, 10.0], dtype=torch.float64)
    first = seen(known, "variance", 3, fit_ND=trained)
    assert torch.equal(first.bank_ND, known.bank_ND[:, [1, 3, 5]])


@pytest.mark.parametrize("order", list(ORDERS))
def test_a_curve_has_the_figures_of_the_metric_itself(order: str) -> None:
    known = drawn(5)
    measures = [knn_score, probe_score, loaded_metrics("evaluation")["precision@10"].measure]
    for measure in measures:
        curve = selection_curve(known, order, measure)
        assert [point.num_features for point in curve] == [1, 2, 4, 5]
        for point in curve:
            assert point.score == measure(seen(known, order, point.num_features))
        if order not in ("pca", "non-negative expected activation"):  # all features, in another order
            assert math.isclose(curve[-1].score.outcome.value, measure(known).outcome.value, abs_tol=1e-12)


def test_expected_activation_keeps_what_a_sparse_code_says_and_chance_does_not() -> None:
    """ncl2024's claim on a code in which it must hold: 4 of 32 features name the class, the others fire rarely."""
    labels = torch.arange(200) % 4
    rare = (torch.rand(200, 28, generator=seeded(0)) < 0.02) * torch.rand(200, 28, generator=seeded(1))
    code = torch.cat([rare, torch.eye(4)[labels]], dim=1)
    known = Labelled(code[:150], labels[:150], code[150:], labels[150:], k=10, temperature=0.1)
    by_activation, at_random = (
        selection_curve(known, order, knn_score, sizes=[4])[0].score.outcome.value
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
    with pytest.raises(ValueError, match="fit must be finite, but row 1"):
        selection_curve(drawn(), "first", knn_score, fit_ND=torch.tensor([[1.0], [math.nan]]))


def test_a_quarter_is_compared_with_all_on_the_same_queries() -> None:
    known = drawn(8)
    kept, whole = knn_score(seen(known, "expected activation", 2)), knn_score(known)
    score = QUARTER.measure(known)
    assert score.settings["kept"] == 2
    assert (score.settings["accuracy"], score.settings["accuracy_of_all"]) == (kept.outcome.value, whole.outcome.value)
    assert_numbers(score.outcome.value, kept.outcome.value - whole.outcome.value)
    low, high = ends(score.outcome)
    assert low < score.outcome.value < high
    assert QUARTER.on_request


@pytest.mark.parametrize("width", [1, 2, 5])
def test_of_few_features_at_least_one_is_kept(width: int) -> None:
    assert quarter_score(drawn(width)).settings["kept"] == 1


def test_perfect_random_and_constant_features_have_known_quarters() -> None:
    labels = torch.arange(80) % 2
    doubled = torch.eye(2)[labels].repeat(1, 4)  # the first two tell the class, and the others again
    perfect = Labelled(doubled[:40], labels[:40], doubled[40:], labels[40:], k=5, temperature=0.1)
    constant = replace(perfect, bank_ND=torch.ones(40, 8), queries_QD=torch.ones(40, 8))
    for known in (perfect, constant):
        found = quarter_score(known).outcome
        assert (found.value, *ends(found)) == (0.0, *score_interval(0, 0, 40))
    noise = replace(perfect, bank_ND=draw(40, 8, 0), queries_QD=draw(40, 8, 1))
    low, high = ends(quarter_score(noise).outcome)
    assert low < 0.0 < high
