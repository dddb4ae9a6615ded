"""Section 6 of alphacl2022 as printed and as released: whose sum Eq. 12 is, whole squares, and a water level."""

import math

import pytest
import torch
from torch import Tensor

from counterpoint.losses.alpha_rules import Direct, Entropy, Square
from counterpoint.losses.importance import AlphaCL
from oracles import alpha_rules_oracle as oracle
from oracles.number_checks import assert_numbers
from tolerances import assert_close


def draw_costs(num_keys: int, seed: int = 0) -> list[float]:
    """Draw costs from 0 to 2, as half squared distances of unit vectors have."""
    generator = torch.Generator().manual_seed(seed)
    return (2 * torch.rand(num_keys, generator=generator, dtype=torch.float64)).tolist()


def of_rule(rule: Direct | Entropy | Square, costs: list[float]) -> Tensor:
    return rule(torch.tensor([costs], dtype=torch.float64), torch.zeros(1, dtype=torch.float64))[0]


@pytest.mark.parametrize("num_samples", [2, 5])
def test_erratum_equation_12_leaves_out_the_anchor_and_its_positive(num_samples: int) -> None:
    """Printed, the sum runs over all j: an anchor's distance to itself is 0, and puts exp(0) = 1 in its denominator."""
    z_ND = torch.randn(2 * num_samples, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    alpha = AlphaCL(Direct(0.5, exponent=4)).importance(*z_ND.chunk(2))
    assert_close(alpha.sum(1), torch.ones(2 * num_samples, dtype=torch.float64))  # section 6: rows sum to 1
    for i, row in enumerate(z_ND.tolist()):
        everyone = [oracle.half_square(row, other, True).real for other in z_ND.tolist()]
        terms = [math.exp(-(cost**2) / 0.5) for cost in everyone]
        negatives = oracle.negatives_of(i, num_samples, "two-view")
        assert_numbers(alpha[i, negatives], [terms[j] / sum(terms[j] for j in negatives) for j in negatives])
        as_printed = sum(terms[j] for j in negatives) / sum(terms)
        assert as_printed < 0.9


@pytest.mark.parametrize("exponent", [2.0, 4.0])
def test_whole_squares_need_a_higher_temperature(exponent: float) -> None:
    """d^2 is half the squared distance: whole squares have the same alpha at 2 tau, in Eq. 12 at 2^(p/2) tau."""
    costs = draw_costs(6)
    whole_squares = [2 * cost for cost in costs]
    assert_close(of_rule(Entropy(2 * 0.5), whole_squares), of_rule(Entropy(0.5), costs))
    higher = 2 ** (exponent / 2) * 0.5
    assert_close(of_rule(Direct(higher, exponent), whole_squares), of_rule(Direct(0.5, exponent), costs))
    for rule in (Entropy(0.5), Direct(0.5, exponent)):
        assert float((of_rule(rule, whole_squares) - of_rule(rule, costs)).abs().max()) > 0.01


def released_square(costs: list[float], tau: float) -> list[float]:
    """Loss type "quadratic": the level over the kept keys and one more; the nearest alone where all are kept."""
    ordered = sorted(costs)
    levels = [(tau + math.fsum(ordered[: k + 1])) / (k + 1) for k in range(len(ordered))]
    dropped = [k for k, level in enumerate(levels) if ordered[k] >= level]
    mu = levels[dropped[0] if dropped else 0]
    weights = [max(mu - cost, 0.0) for cost in costs]
    return [weight / math.fsum(weights) for weight in weights]


@pytest.mark.parametrize(("tau", "least", "most"), [(0.5, 0.01, 0.06), (5.0, 0.001, 0.006)])
def test_the_released_water_level_is_one_key_off(tau: float, least: float, most: float) -> None:
    """Ours is the minimiser; theirs is off by a share of the largest weight that falls as the key more matters less."""
    errors = []
    for seed in range(10):
        costs = draw_costs(254, seed)
        exact, released = of_rule(Square(tau), costs).tolist(), released_square(costs, tau)
        value = oracle.square_terms(tau)[0]
        ours, theirs = (sum(map(value, weights, costs)) for weights in (exact, released))
        assert ours < theirs
        errors.append(max(abs(a - b) for a, b in zip(exact, released, strict=True)) / max(exact))
    assert least < max(errors) < most


def test_the_released_water_level_where_every_key_is_kept() -> None:
    """Four keys at tau = 5: the level should cover all, and is that of the nearest key alone."""
    costs = [0.0, 0.5, 1.0, 1.5]
    assert_numbers(of_rule(Square(5.0), costs), [0.4, 0.3, 0.2, 0.1])  # mu = 2
    assert_numbers(released_square(costs, 5.0), [5 / 17, 4.5 / 17, 4 / 17, 3.5 / 17])  # mu = 5, renormalised
