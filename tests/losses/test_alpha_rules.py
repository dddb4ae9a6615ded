"""The rules for alpha: the paper's formulas, the optimality conditions of their objectives, edges and bad input."""

# B anchors, M keys

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from counterpoint.losses.alpha_rules import RULES as CATALOGUE
from counterpoint.losses.alpha_rules import AlphaRule, Direct, Entropy, FixedInverse, InversePower, OwnRule, Square
from oracles import alpha_rules_oracle as oracle
from oracles.number_checks import assert_numbers
from tolerances import assert_close

ROUNDING = 1e-12  # objectives are sums of a few numbers near 1


@dataclasses.dataclass(frozen=True)
class Case:
    """A rule, the paper's weights, and the terms of its objective with the sum its rows must have (None: free)."""

    rule: AlphaRule
    weights: Callable[[list[float], float], list[float]]
    terms: tuple[oracle.Term, oracle.Term]
    row_sum: Callable[[list[float], float], float | None] = lambda costs, own: 1.0


def xi_share(tau: float, epsilon: float) -> Callable[[list[float], float], float]:
    """Theorem 2 for InfoNCE: xi / (xi + epsilon)."""

    def share(costs: list[float], own: float) -> float:
        xi = sum(math.exp((own - c) / tau) for c in costs)
        return xi / (xi + epsilon)

    return share


def direct_share(tau: float, p: float, epsilon: float) -> Callable[[list[float], float], float]:
    def share(costs: list[float], own: float) -> float:
        total = sum(math.exp(-(c ** (p / 2)) / tau) for c in costs)
        return total / (total + epsilon * len(costs))

    return share


CASES = {
    "entropy": Case(Entropy(0.5), lambda c, o: oracle.entropy(c, o, 0.5), oracle.entropy_terms(0.5)),
    "entropy-epsilon": Case(
        Entropy(0.5, 1.0), lambda c, o: oracle.entropy(c, o, 0.5, 1.0), oracle.entropy_terms(0.5), xi_share(0.5, 1.0)
    ),
    **{
        f"inverse-power-{gamma:g}-{tau:g}": Case(
            InversePower(tau, gamma),
            lambda c, o, tau=tau, gamma=gamma: oracle.inverse_power(c, tau, gamma),
            oracle.inverse_power_terms(tau, gamma),
        )
        for tau, gamma in ((0.5, 2.0), (0.02, 2.0), (0.5, 1.0), (0.05, 0.6), (0.01, 3.5))
    },
    **{
        f"square-{tau:g}": Case(Square(tau), lambda c, o, tau=tau: oracle.square(c, tau), oracle.square_terms(tau))
        for tau in (0.05, 0.5, 5.0)
    },
    **{
        f"direct-{p:g}": Case(Direct(0.5, p), lambda c, o, p=p: oracle.direct(c, 0.5, p), oracle.direct_terms(0.5, p))
        for p in (1.0, 2.0, 4.0, 5.0)
    },
    "direct-epsilon": Case(
        Direct(0.5, 4, 0.1),
        lambda c, o: oracle.direct(c, 0.5, 4, 0.1),
        oracle.direct_terms(0.5, 4),
        direct_share(0.5, 4, 0.1),
    ),
    "direct-free": Case(
        Direct(0.5, 4, normalised=False),
        lambda c, o: oracle.direct_unnormalised(c, 0.5, 4),
        (
            lambda a, c: oracle.direct_terms(0.5, 4)[0](a, c) - 0.5 * a,
            lambda a, c: oracle.direct_terms(0.5, 4)[1](a, c) - 0.5,
        ),
        lambda costs, own: None,
    ),
    "fixed-inverse": Case(
        FixedInverse(0.5), lambda c, o: oracle.fixed_inverse(c, 0.5, 1, 2), oracle.fixed_inverse_terms(0.5, 1, 2)
    ),
    "fixed-inverse-4": Case(
        FixedInverse(0.3, 0.5, 4),
        lambda c, o: oracle.fixed_inverse(c, 0.3, 0.5, 4),
        oracle.fixed_inverse_terms(0.3, 0.5, 4),
    ),
}
RULES = [
    Entropy(0.5),
    Entropy(0.5, 0.7),
    InversePower(0.05),
    Square(0.5),
    Direct(),
    Direct(epsilon=0.1),
    FixedInverse(),
    Direct(normalised=False),
]
each_case = pytest.mark.parametrize("case", CASES.values(), ids=CASES)
each_rule = pytest.mark.parametrize("rule", RULES, ids=str)


def draw_costs(num_rows: int = 5, num_keys: int = 7, *, seed: int = 0, highest: float = 2.0) -> tuple[Tensor, Tensor]:
    """Costs as between unit vectors, a third of them out, and own costs."""
    generator = torch.Generator().manual_seed(seed)
    cost = highest * torch.rand(num_rows, num_keys, generator=generator, dtype=torch.float64)
    is_out = torch.rand(num_rows, num_keys, generator=generator) < 1 / 3
    is_out[:, 0] = False
    return cost.masked_fill(is_out, math.inf), torch.rand(num_rows, generator=generator, dtype=torch.float64)


def of_oracle(case: Case, cost: Tensor, own: Tensor) -> list[list[float]]:
    """The paper's weights, zero where a pair does not count."""
    rows = []
    for costs, own_cost in zip(cost.tolist(), own.tolist(), strict=True):
        weights = iter(case.weights([c for c in costs if c < math.inf], own_cost))
        rows.append([next(weights) if c < math.inf else 0.0 for c in costs])
    return rows


def rows_of(alpha: Tensor, cost: Tensor) -> list[tuple[list[float], list[float]]]:
    """Weights and costs of the pairs that count, row by row."""
    return [(a[c < math.inf].tolist(), c[c < math.inf].tolist()) for a, c in zip(alpha, cost, strict=True)]


@each_case
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_weights_are_the_papers(case: Case, dtype: torch.dtype) -> None:
    cost, own = (z.to(dtype) for z in draw_costs())
    alpha = case.rule(cost, own)
    assert alpha.dtype == dtype
    assert_numbers(alpha, of_oracle(case, cost, own), dtype=dtype)


@each_case
def test_no_weight_of_the_optimum_can_be_moved_to_advantage(case: Case) -> None:
    """The certificate: the sum as required, equal slopes on the support, no lower slope off it."""
    cost, own = draw_costs(20, 9, seed=1)
    slope = case.terms[1]
    for (weights, costs), own_cost in zip(rows_of(case.rule(cost, own), cost), own.tolist(), strict=True):
        row_sum = case.row_sum(costs, own_cost)
        slopes = [slope(a, c) for a, c in zip(weights, costs, strict=True) if a > 0]
        level = 0.0 if row_sum is None else slopes[0]
        size = max(1.0, *(abs(s) for s in slopes))
        assert_numbers([size, *slopes], [size, *[level] * len(slopes)])
        assert all(slope(0.0, c) >= level - ROUNDING for a, c in zip(weights, costs, strict=True) if a == 0)
        if row_sum is not None:
            assert_numbers(sum(weights), row_sum)


def test_no_weight_rounds_below_zero_at_the_water_level() -> None:
    """Just as much water as it takes to reach the 40th key, give or take rounding."""
    generator = torch.Generator().manual_seed(0)
    for _ in range(300):
        row = torch.rand(1, 60, generator=generator, dtype=torch.float64).sort(dim=1).values
        water = float((row[0, 39] - row[0, :40]).sum())
        for tau in (water, math.nextafter(water, math.inf), math.nextafter(water, 0.0), water * (1 + 1e-15)):
            assert float(Square(tau)(row, torch.zeros(1)).min()) >= 0.0


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("tau", [0.01, 100.0])
@pytest.mark.parametrize("gamma", [0.1, 1.0, 2.0, 20.0])
@pytest.mark.parametrize("highest", [1e-7, 2.0, 1e6])
@pytest.mark.sampled(23)
def test_the_inverse_power_is_solved_at_any_size(dtype: torch.dtype, tau: float, gamma: float, highest: float) -> None:
    """Up to mu = 100 * 1000^20, which is beyond float32."""
    cost, own = (z.to(dtype) for z in draw_costs(6, 1000, highest=highest, seed=5))
    cost[0, 0] = 0.0
    alpha = InversePower(tau, gamma)(cost, own)
    assert_numbers(alpha.sum(1), [1.0] * 6, dtype=dtype)
    assert_numbers(alpha, [_padded(row, tau, gamma) for row in cost.tolist()], dtype=dtype)


def _padded(row: list[float], tau: float, gamma: float) -> list[float]:
    weights = iter(oracle.inverse_power([c for c in row if c < math.inf], tau, gamma))
    return [next(weights) if c < math.inf else 0.0 for c in row]


@each_rule
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_far_and_equal_vectors_give_finite_weights(rule: AlphaRule, dtype: torch.dtype) -> None:
    cost = torch.tensor([[0.0, 0.0, 2e6], [2e6, 2.1e6, math.inf], [0.0, math.inf, math.inf]], dtype=dtype)
    alpha = rule(cost, torch.zeros(3, dtype=dtype))
    assert bool(torch.isfinite(alpha).all())
    assert float(alpha[0, 0]) == float(alpha[0, 1]) > 0
    assert bool((alpha[cost == math.inf] == 0).all())


@each_rule
def test_each_row_is_decided_by_itself(rule: AlphaRule) -> None:
    cost, own = draw_costs(6, 5)
    assert rule.can_stream
    assert_close(torch.cat([rule(cost[:2], own[:2]), rule(cost[2:], own[2:])]), rule(cost, own))
    wider = torch.cat([cost, torch.full((6, 3), math.inf, dtype=torch.float64)], dim=1)
    assert_close(rule(wider, own)[:, :5], rule(cost, own))


@each_rule
def test_nearer_keys_never_weigh_less(rule: AlphaRule) -> None:
    cost, own = draw_costs(6, 9)
    alpha = rule(cost, own).gather(1, cost.argsort(1))
    assert bool((alpha.diff(dim=1) <= 0).all())
    total = rule.row_sum(9)
    assert total is not None
    assert bool((alpha.sum(1) <= total.most + ROUNDING).all())
    if total.is_constant:
        assert_numbers(alpha.sum(1), [total.most] * 6)


@pytest.mark.parametrize("epsilon", [0.0, 0.5, 3.0])
def test_the_largest_row_sum_with_slack_is_attained_by_keys_at_no_distance(epsilon: float) -> None:
    """W / (W + epsilon K) with W = K: every exponential is 1."""
    total = Direct(epsilon=epsilon).row_sum(7)
    assert total is not None
    assert_numbers(
        Direct(epsilon=epsilon)(torch.zeros(2, 7, dtype=torch.float64), torch.zeros(2)).sum(1), [total.most] * 2
    )


@each_rule
def test_derivatives_go_through_the_rule(rule: AlphaRule) -> None:
    """Through held roots and supports as well; pairs that do not count get none."""
    cost, own = draw_costs(3, 4, seed=8)
    cost.requires_grad_()
    own.requires_grad_()
    is_in = torch.isfinite(cost)

    def weights(inner: Tensor, own: Tensor) -> Tensor:
        return rule(torch.where(is_in, inner, math.inf), own)

    inner = torch.where(is_in, cost.detach(), 1.0).requires_grad_()
    assert torch.autograd.gradcheck(weights, (inner, own))
    assert torch.autograd.gradgradcheck(weights, (inner, own))


@pytest.mark.parametrize("exponent", [0.5, 1.0, 2.0, 4.0])
def test_a_coincident_pair_has_a_finite_derivative(exponent: float) -> None:
    cost = torch.tensor([[0.0, 0.3]], dtype=torch.float64, requires_grad=True)
    for rule in (Direct(0.5, exponent), FixedInverse(0.5, 1.0, exponent)):
        (slope,) = torch.autograd.grad(rule(cost, torch.zeros(1))[0, 0], cost)
        assert bool(torch.isfinite(slope).all())
        assert float(slope[0, 1]) > 0


BAD_ARGUMENTS: list[tuple[Callable[..., Any], dict[str, Any], str]] = [
    *((rule, {"temperature": 0}, r"temperature .*got 0") for rule in CATALOGUE.values()),
    *((rule, {"temperature": math.inf}, r"temperature .*got inf") for rule in CATALOGUE.values()),
    (Entropy, {"epsilon": -1}, r"epsilon must be >= 0 and finite, got -1; 0 makes"),
    (InversePower, {"gamma": 0}, r"gamma must be > 0, got 0; alphacl2022 uses 2"),
    (Direct, {"exponent": 0}, r"exponent must be > 0, got 0; alphacl2022 uses 4"),
    (Direct, {"epsilon": math.nan}, r"epsilon must be >= 0 and finite, got nan"),
    (Direct, {"epsilon": 0.1, "normalised": False}, r"epsilon must be 0 where alpha is not normalised, got 0\.1"),
    (FixedInverse, {"power": -1}, r"power must be > 0, got -1"),
    (FixedInverse, {"exponent": -1}, r"exponent must be > 0, got -1"),
]


@pytest.mark.parametrize(("rule", "wrong", "sentence"), BAD_ARGUMENTS)
def test_bad_arguments_are_named_with_their_range(rule: Any, wrong: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        rule(**wrong)


BAD_WEIGHTS: list[tuple[Callable[[Tensor, Tensor], Any], type[Exception], str]] = [
    (lambda cost, own: [[1.0]], TypeError, r"alpha must be a floating-point tensor, got list"),
    (lambda cost, own: (cost < 1).long(), TypeError, r"got torch\.int64; compute it from the costs"),
    (lambda cost, own: own, ValueError, r"alpha must be of the shape, .* of the costs, \(\(5, 7\), .*, got \(\(5,\)"),
    (lambda cost, own: torch.zeros_like(cost).float(), ValueError, r"float64, .*got .*torch\.float32"),
    (lambda cost, own: -torch.exp(-cost), ValueError, r"alpha must be >= 0 and finite, .* but row 0 is not; clamp it"),
    (lambda cost, own: cost, ValueError, r"alpha must be >= 0 and finite"),
    (lambda cost, own: torch.zeros_like(cost) / (own > own[3])[:, None], ValueError, r"alpha must be >= 0 and finite"),
    (lambda cost, own: torch.ones_like(cost), ValueError, r"and 0 where the cost is infinite .* mask it"),
]


@pytest.mark.parametrize(("function", "error", "sentence"), BAD_WEIGHTS)
def test_what_a_users_rule_returns_is_checked(function: Any, error: type[Exception], sentence: str) -> None:
    with pytest.raises(error, match=sentence):
        OwnRule(function)(*draw_costs())


def test_a_users_rule_must_be_a_function() -> None:
    with pytest.raises(TypeError, match=r"function must be callable, got float; give f\(cost, own\) -> alpha"):
        OwnRule(0.5)  # pyright: ignore[reportArgumentType]


def test_a_users_rule_gives_what_its_function_gives() -> None:
    cost, own = draw_costs()
    assert torch.equal(OwnRule(Square(0.5))(cost, own), Square(0.5)(cost, own))
    assert not OwnRule(Square(0.5)).can_stream
    assert OwnRule(Square(0.5), can_stream=True).can_stream


@pytest.mark.parametrize("gamma", [0.5, 1.0, 2.0, 3.7])
@pytest.mark.parametrize("temperature", [0.01, 0.5, 5.0])
def test_inverse_powers_without_derivatives_are_those_with(gamma: float, temperature: float) -> None:
    """Held weights are found by another solver, which the oracle's multiplier checks through the differentiable one."""
    generator = torch.Generator().manual_seed(3)
    cost = 2 * torch.rand(6, 40, generator=generator, dtype=torch.float64)
    cost[0, 1:] = 2.0  # one near key
    cost[1] = 0.5  # all alike
    cost[2, ::3] = math.inf
    own = torch.zeros(6, dtype=torch.float64)
    expected = InversePower(temperature, gamma)(cost, own)
    with torch.no_grad():
        found = InversePower(temperature, gamma)(cost, own)
        single = InversePower(temperature, gamma)(cost.float(), own.float())
    assert_close(found, expected)
    assert_close(single, expected)


def test_the_exact_inverse_power_is_flat_where_the_released_one_is_not() -> None:
    """Notes: 254 negatives, gamma = 2, tau = 0.5: mu near tau K^2 = 3.2e4, largest over smallest weight 1.00003."""
    cost = torch.linspace(0.0, 2.0, 254, dtype=torch.float64)[None]
    own = torch.zeros(1, dtype=torch.float64)
    exact, released = InversePower(0.5, 2.0)(cost, own), FixedInverse(0.5, 0.5)(cost, own)
    mu = float(0.5 / exact[0, 0] ** 2)
    assert_numbers(exact.max() / exact.min(), math.sqrt((2 + mu) / mu))
    assert 0.5 * 254**2 - 2 < mu < 0.5 * 254**2
    assert_numbers(released.max() / released.min(), math.sqrt(2.5 / 0.5))
