"""MIG, modularity and DCI: loops, the reference over the whole grid of dSprites, and codes whose scores are known."""

# N samples, D dimensions of the code, F factors

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from counterpoint.core.metric import loaded_metrics
from counterpoint.data.order import random_order
from counterpoint.data.sets.dsprites import GRID, factors_at
from counterpoint.evaluation import disentanglement as module
from counterpoint.evaluation.disentanglement import (
    FactorImportance,
    factor_importance,
    factor_information,
)
from counterpoint.evaluation.metric_types import IntervalEstimate, Labelled
from oracles import disentanglement_oracle as oracle
from oracles.number_checks import assert_numbers

EXACT = 1e-12


def draw(n: int, width: int, seed: int = 0) -> Tensor:
    return torch.randn(n, width, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def grid(*sizes: int) -> Tensor:
    """Every combination of factor values once."""
    return torch.cartesian_prod(*map(torch.arange, sizes))


def dsprites() -> Tensor:
    return factors_at(torch.arange(math.prod(GRID)))


SMALL = grid(3, 4, 6, 2)


@given(n=st.integers(6, 30), width=st.integers(2, 4), num_bins=st.integers(2, 8), seed=st.integers(0, 99))
@settings(max_examples=40)
def test_informations_are_those_of_the_loops(n: int, width: int, num_bins: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    factors = torch.randint(-1, 3, (n, 2), generator=generator)
    factors[:2] = torch.tensor([[5, 7], [6, 7]])[:, :2] - torch.tensor([[0, 0], [0, 1]])  # at least two values each
    codes = draw(n, width, seed)
    codes[:, 0] = codes[:, 0].round()  # values on the edges of bins
    found = factor_information(codes, factors, num_bins=num_bins)
    table = oracle.informations(codes.numpy(), factors.numpy(), num_bins)
    entropies = [oracle.information(factor, factor) for factor in factors.T.tolist()]
    assert_numbers([[1.0] * 2, *found.information_DF.tolist()], [[1.0] * 2, *table])
    assert_numbers(found.entropy_F, entropies)
    assert_numbers([1.0, found.gap], [1.0, oracle.gap(table, entropies)])
    assert_numbers(found.modularity, oracle.modularity(table))


@pytest.mark.thorough
def test_the_gap_is_the_references_over_the_whole_grid_of_dsprites() -> None:
    factors = dsprites()
    noise = draw(len(factors), 1)
    mixed = factors.double() @ draw(5, 1, seed=1) + noise
    codes = torch.cat([factors.double(), mixed, noise, torch.ones(len(factors), 1)], dim=1)
    for columns in (codes, codes[:, 5:]):
        ours = factor_information(columns, factors).gap
        assert abs(ours - oracle.reference_gap(columns.numpy(), factors.numpy(), num_bins=20)) <= EXACT


@pytest.mark.thorough
def test_the_known_gaps_over_the_whole_grid_of_dsprites() -> None:
    factors = dsprites()
    identity = factors.double()
    whole = factor_information(identity, factors, num_bins=max(GRID))
    assert abs(whole.gap - 1.0) <= EXACT
    assert whole.modularity == 1.0
    assert factor_information(torch.cat([identity, identity], dim=1), factors).gap == 0.0
    assert factor_information(torch.ones(len(factors), 5), factors).gap == 0.0
    # 40 values in 20 bins of two; of 32 values, 12 share a bin and 8 stand alone.
    pairs = math.log(20) / math.log(40)
    uneven = (24 / 32 * math.log(16) + 8 / 32 * math.log(32)) / math.log(32)
    assert abs(factor_information(identity, factors).gap - (2 + pairs + 2 * uneven) / 5) <= EXACT


def test_the_factors_themselves_score_one() -> None:
    found = factor_information(SMALL.double(), SMALL)
    assert abs(found.gap - 1.0) <= EXACT
    assert found.modularity == 1.0
    shuffled = factor_information(-7.0 * SMALL[:, [2, 0, 3, 1]].double() + 3.0, SMALL)
    assert abs(shuffled.gap - 1.0) <= EXACT


def test_a_constant_code_scores_zero() -> None:
    found = factor_information(torch.full((len(SMALL), 3), 0.3), SMALL)
    assert (found.gap, found.modularity) == (0.0, 0.0)
    assert found.information_DF.tolist() == [[0.0] * 4] * 3


def test_duplicates_have_no_gap_but_are_modular() -> None:
    found = factor_information(SMALL.double().repeat(1, 2), SMALL)
    assert (found.gap, found.modularity) == (0.0, 1.0)


def test_independent_codes_have_next_to_no_gap() -> None:
    factors = grid(3, 4, 5).repeat(400, 1)
    assert factor_information(draw(len(factors), 6), factors).gap < 0.002


def test_a_code_of_two_factors_is_not_modular() -> None:
    """Both dimensions tell both factors alike."""
    factors = grid(4, 4)
    both = torch.stack([4 * factors[:, 0] + factors[:, 1], 4 * factors[:, 1] + factors[:, 0]], dim=1)
    found = factor_information(both.double(), factors)
    assert abs(found.gap) <= EXACT
    assert abs(found.modularity) <= EXACT


def test_values_that_float32_can_hardly_tell_apart_get_bins_of_their_own() -> None:
    """A collapsed code: 1 and the two numbers after it."""
    factors = grid(3, 2)
    step = torch.finfo(torch.float32).eps
    code = torch.stack([1 + step * factors[:, 0], 1 + step * factors[:, 1]], dim=1).float()
    assert abs(factor_information(code, factors).gap - 1.0) <= EXACT


def test_threads_change_no_bit() -> None:
    codes, num_threads = draw(len(SMALL), 9), torch.get_num_threads()
    found = []
    for number in (1, 2):
        torch.set_num_threads(number)
        try:
            found.append(factor_information(codes, SMALL).information_DF)
        finally:
            torch.set_num_threads(num_threads)
    assert torch.equal(*found)


@given(st.integers(0, 99), st.integers(2, 5), st.integers(2, 4))
@settings(max_examples=30)
def test_concentrations_are_those_of_the_loops(seed: int, num_dims: int, num_factors: int) -> None:
    importance = draw(num_dims, num_factors, seed).abs()
    importance[0, 0] = 0.0
    known = FactorImportance(importance, torch.ones(num_factors))
    assert_numbers(known.disentanglement, oracle.concentration(importance.tolist()))
    assert_numbers(known.completeness, oracle.concentration(importance.T.tolist()))


@pytest.mark.parametrize(
    ("importance", "disentanglement", "completeness"),
    [
        ([[0, 2, 0], [1, 0, 0], [0, 0, 3]], 1.0, 1.0),
        ([[1, 1], [1, 1]], 0.0, 0.0),
        ([[0, 0], [0, 0]], 0.0, 0.0),
        ([[1, 0], [1, 0], [0, 1], [0, 1]], 1.0, 0.5),  # two dimensions for each factor
        ([[1, 1, 0, 0], [0, 0, 1, 1]], 0.5, 1.0),  # two factors in each dimension
    ],
)
def test_known_importances_have_known_scores(
    importance: list[list[int]], disentanglement: float, completeness: float
) -> None:
    known = FactorImportance(torch.tensor(importance, dtype=torch.float64), torch.tensor([0.5, 1.0]))
    assert_numbers([1.0, known.disentanglement, known.completeness], [1.0, disentanglement, completeness])
    assert known.informativeness == 0.75


def test_predictors_find_the_dimension_of_each_factor() -> None:
    factors = grid(3, 4, 2).repeat(25, 1)
    codes = factors.double()
    found = factor_importance(torch.cat([codes, torch.ones(len(codes), 1)], dim=1), factors)
    assert (found.disentanglement, found.completeness, found.informativeness) == (1.0, 1.0, 1.0)
    twice = factor_importance(codes.repeat(1, 2), factors)
    assert twice.disentanglement == 1.0
    assert twice.completeness < 0.9
    assert twice.informativeness == 1.0


def test_predictors_find_nothing_in_noise_and_in_constants() -> None:
    factors = grid(2, 3).repeat(40, 1)
    constant = factor_importance(torch.ones(len(factors), 3), factors)
    assert (constant.disentanglement, constant.completeness) == (0.0, 0.0)
    noise = factor_importance(draw(len(factors), 3), factors)
    assert max(noise.disentanglement, noise.completeness) < 0.1
    assert noise.informativeness < 0.55  # by chance 5 / 12
    again = factor_importance(draw(len(factors), 3), factors)
    assert torch.equal(noise.importance_DF, again.importance_DF)


BAD: list[tuple[dict[str, Any], str]] = [
    ({"factors_NF": SMALL[:5]}, r"factors must be whole numbers of shape \(144, factors\), got torch.int64 of shape"),
    ({"factors_NF": SMALL.double()}, "factors must be whole numbers of shape .*, got torch.float64"),
    ({"factors_NF": SMALL[:, :1]}, "at least 2 dimensions and 2 factors are compared, got 4 and 1"),
    ({"codes_ND": SMALL[:, :1].float()}, "at least 2 dimensions and 2 factors are compared, got 1 and 4"),
    ({"codes_ND": SMALL.double() / 0}, "codes must be finite, but row 0"),
    ({"factors_NF": SMALL * torch.tensor([1, 1, 0, 1])}, "factor 2 has one value only, 0; leave its column out"),
]


@pytest.mark.parametrize(("wrong", "sentence"), BAD, ids=[case[1][:40] for case in BAD])
@pytest.mark.parametrize("function", [factor_information, factor_importance])
def test_bad_input_is_named(function: Any, wrong: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        function(**{"codes_ND": SMALL.double(), "factors_NF": SMALL, **wrong})


def test_what_is_left_out_is_measured_as_if_it_had_never_been_there() -> None:
    """Without each group the figures are those of the other samples alone, as long as the bins stay."""
    factors = grid(3, 4, 5).repeat(5, 1)
    codes = factors.double() @ draw(3, 4, 1) + draw(len(factors), 4)
    lowest, highest = (torch.full((1, 4), side * 100.0).double() for side in (-1, 1))
    codes = torch.cat([codes, lowest, highest])  # ends that keep the bins, whichever group is left out
    factors = torch.cat([factors, factors[:1], factors[:1]])
    found = factor_information(codes, factors, num_bins=400)
    group_N = random_order(0, 0, len(codes)) % 10
    assert len(found.left_out) == 10
    for group in range(10):
        if group in group_N[-2:]:
            continue  # the bins would be others
        kept = group_N != group
        table = oracle.informations(codes[kept].numpy(), factors[kept].numpy(), 400)
        entropies = [oracle.information(factor, factor) for factor in factors[kept].T.tolist()]
        assert_numbers(found.left_out[group].information_DF, table)
        assert_numbers(found.left_out[group].entropy_F, entropies)


def test_few_samples_have_no_interval() -> None:
    factors = grid(3, 4, 5).repeat(3, 1)
    assert not factor_information(factors.double(), factors).left_out
    metric = loaded_metrics("evaluation")["mig"]
    known = Labelled(factors.double(), factors[:, 0], factors.double(), factors[:, 0], k=1, temperature=1.0)
    assert metric.measure(replace(known, factors_MF=factors.repeat(2, 1))).outcome.low is not None
    half = replace(known, queries_QD=known.queries_QD[:10], factors_MF=torch.cat([factors, factors[:10]]))
    assert metric.measure(half).outcome.low is None


@pytest.mark.thorough
def test_intervals_hold_what_other_samples_give() -> None:
    """In 200 draws of 600 samples, the mean over draws lies in nearly as many intervals as they say."""
    mixing, generator = draw(3, 4, 1), torch.Generator().manual_seed(0)
    metric, found = loaded_metrics("evaluation")["mig"], []
    for _ in range(200):
        factors = torch.stack([torch.randint(size, (600,), generator=generator) for size in (3, 4, 5)], dim=1)
        noise = torch.randn(600, 4, generator=generator, dtype=torch.float64)
        codes = factors.double() @ mixing + 0.3 * noise
        known = Labelled(codes, factors[:, 0], codes[:0], factors[:0, 0], k=1, temperature=1.0)
        found.append(metric.measure(replace(known, factors_MF=factors)).outcome)
    mean = sum(each.value for each in found) / len(found)
    held = sum(each.low <= mean <= each.high for each in found) / len(found)
    assert 0.9 <= held <= 0.99


def test_bad_settings_are_named() -> None:
    with pytest.raises(ValueError, match="num_bins must be >= 2, got 1; 20 is usual"):
        factor_information(SMALL.double(), SMALL, num_bins=1)


def measured(codes: Tensor, factors: Tensor, name: str) -> float:
    """A metric's figure, where the last samples are the queries."""
    border, labels = 2 * len(codes) // 3, factors[:, 0]
    known = Labelled(codes[:border], labels[:border], codes[border:], labels[border:], k=1, temperature=1.0)
    score = loaded_metrics("evaluation")[name].measure(replace(known, factors_MF=factors))
    assert isinstance(score.outcome, IntervalEstimate)
    return score.outcome.value


@pytest.mark.parametrize(
    ("name", "identity"),
    [("mig", 1.0), ("modularity", 1.0), ("dci", 1.0), ("dci completeness", 1.0), ("dci informativeness", 1.0)],
)
def test_the_metrics_know_the_factors_themselves_and_a_constant(name: str, identity: float) -> None:
    factors = grid(3, 4, 5).repeat(4, 1)
    assert_numbers(measured(factors.double(), factors, name), identity)
    constant = measured(torch.ones(len(factors), 3), factors, name)
    assert constant < 0.4 if name == "dci informativeness" else constant == 0.0


def test_the_metrics_are_those_of_all_samples() -> None:
    factors = grid(3, 4, 5).repeat(2, 1)
    codes = draw(len(factors), 6) + factors.double() @ draw(3, 6, 1)
    found = factor_information(codes, factors)
    assert measured(codes, factors, "mig") == found.gap
    assert measured(codes, factors, "modularity") == found.modularity
    assert measured(codes, factors, "dci") == factor_importance(codes, factors).disentanglement


def test_what_the_metrics_share_is_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    factors, calls = grid(3, 4).repeat(4, 1), []
    known = Labelled(*([factors.double(), factors[:, 0]] * 2), k=1, temperature=1.0)
    known = replace(known, factors_MF=factors.repeat(2, 1))

    def counted(*asked: Tensor) -> FactorImportance:
        calls.append(asked)
        return FactorImportance(torch.eye(2), torch.ones(2))

    monkeypatch.setattr(module, "factor_importance", counted)
    for name in ("dci", "dci completeness", "dci informativeness"):
        loaded_metrics("evaluation")[name].measure(known)
    assert len(calls) == 1
