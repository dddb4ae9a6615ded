from typing import Any

import pytest
import torch

from counterpoint.core.errors import UsageError
from counterpoint.losses.family import Triplet
from counterpoint.losses.imbalanced import GeneralizedContrastive
from counterpoint.losses.infonce import InfoNCE
from counterpoint.losses.spectral import SpectralContrastive
from counterpoint.losses.wrappers import HardNegatives
from counterpoint.theory.collapse.rebalancing import rebalance, simplex_deviation
from counterpoint.theory.geometry.optimal_geometry import optimal_geometry


@pytest.mark.parametrize(
    ("proportions", "settings"),
    [
        ([0.6, 0.2, 0.2], {}),
        ([0.95, 0.03, 0.02], {"supervised": True}),
        ([0.4, 0.3, 0.2, 0.1], {"num_negatives": 4, "deviation": 0.01}),
        ([0.7, 0.2, 0.1], {"loss": GeneralizedContrastive(temperature=0.5), "deviation": 0.2}),
    ],
)
@pytest.mark.sampled(4)
def test_the_sampling_plan_keeps_to_the_deviation_and_uses_it_up(
    proportions: list[float], settings: dict[str, Any]
) -> None:
    plan = rebalance(proportions, **settings)  # type: ignore[arg-type]
    sampling, allowed = plan.sampling, settings.pop("deviation", 0.05)
    geometry = optimal_geometry(sampling.proportions_C, **settings)  # type: ignore[arg-type]
    assert simplex_deviation(geometry.gram) == pytest.approx(sampling.deviation, abs=1e-7)
    assert 0.99 * allowed < sampling.deviation <= allowed < plan.deviation_before
    assert 0 < sampling.exponent < 1
    power_C = plan.proportions_C**sampling.exponent
    torch.testing.assert_close(sampling.proportions_C, power_C / power_C.sum(), rtol=1e-12, atol=0)


def test_repeat_factors_keep_the_length_of_an_epoch() -> None:
    plan = rebalance([0.8, 0.15, 0.05])
    repeats_C = plan.sampling.repeat_factors_C
    assert float(plan.proportions_C @ repeats_C) == pytest.approx(1, rel=1e-12)
    torch.testing.assert_close(plan.proportions_C * repeats_C, plan.sampling.proportions_C, rtol=1e-12, atol=0)
    assert bool((repeats_C.diff() > 0).all())  # rarer classes are drawn more often


def test_a_minority_that_was_merged_comes_apart() -> None:
    plan = rebalance([0.95, 0.025, 0.025])
    assert plan.before.merged_classes == [[1, 2]]
    assert plan.sampling.geometry.merged_classes == []
    assert float(plan.sampling.geometry.gram[1, 2]) == pytest.approx(-0.5, abs=0.05)


@pytest.mark.thorough
def test_the_text_says_what_to_do() -> None:
    text = str(rebalance([0.6, 0.2, 0.2]))
    assert text.startswith("the optimum is 0.475 from the simplex (0.05 allowed)")
    assert "sample in proportion to lambda^0.1" in text
    many = torch.full((9,), 0.08)
    many[0] = 0.36
    assert ", ...)" in str(rebalance(many))


@pytest.mark.parametrize("proportions", [[0.25] * 4, [0.9, 0.1], [0.34, 0.33, 0.33]])
def test_nothing_to_do(proportions: list[float]) -> None:
    plan = rebalance(proportions)
    assert str(plan).startswith("nothing to do")
    assert plan.sampling.exponent == 1
    assert torch.equal(plan.sampling.repeat_factors_C, torch.ones(len(proportions), dtype=torch.float64))


@pytest.mark.parametrize("margin", [0.1, 1.0])
def test_a_hinge_whose_margin_the_simplex_keeps_leaves_nothing_to_do(margin: float) -> None:
    plan = rebalance([0.5, 0.3, 0.2], loss=Triplet(margin), num_negatives=2)
    assert str(plan).startswith("nothing to do")
    assert "though it may be one of several" in str(plan)


@pytest.mark.parametrize(
    ("proportions", "settings", "message"),
    [
        ([0.5, 0.3, 0.2], {"deviation": 0.0}, "deviation must be between 0 and 2"),
        ([0.5, 0.3, 0.2], {"loss": HardNegatives(InfoNCE(), beta=1.0)}, "no convex class-level risk"),
        ([0.5, 0.3, 0.2], {"loss": SpectralContrastive()}, "even with equal classes"),
    ],
)
def test_bad_input(proportions: list[float], settings: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        rebalance(proportions, **settings)  # type: ignore[arg-type]
