import math
from typing import Any

import pytest
import torch

from counterpoint.core.errors import UsageError
from counterpoint.losses.family import LinearTriplet, Triplet
from counterpoint.losses.imbalanced import GeneralizedContrastive
from counterpoint.losses.infonce import InfoNCE
from counterpoint.losses.loss import Loss
from counterpoint.losses.spectral import SpectralContrastive
from counterpoint.losses.wrappers import HardNegatives
from counterpoint.theory.collapse.phase import curve
from counterpoint.theory.collapse.rebalancing import rebalance, simplex_deviation
from counterpoint.theory.geometry.class_risk import class_risk
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


@pytest.mark.parametrize(
    ("proportions", "settings"),
    [([0.4, 0.35, 0.25], {}), ([0.49, 0.3, 0.21], {"supervised": True}), ([0.45, 0.3, 0.25], {"num_negatives": 3})],
)
def test_three_classes_below_one_half_have_exact_anchor_weights(
    proportions: list[float], settings: dict[str, object]
) -> None:
    plan = rebalance(proportions, deviation=0.01, **settings)  # type: ignore[arg-type]
    weighting = plan.weighting
    assert weighting.is_exact
    assert weighting.deviation < 1e-6
    assert float(weighting.anchor_weights_C.sum()) == pytest.approx(1, rel=1e-12)
    risk = class_risk(plan.proportions_C, anchor_weights=weighting.anchor_weights_C, **settings)  # type: ignore[arg-type]
    gradient_CC = risk.at(curve(-0.5, 3)).gradient_CC
    between = gradient_CC[[0, 0, 1], [1, 2, 2]]
    assert float(between.max() - between.min()) < 1e-12 * float(between.max())


def test_exact_weights_in_closed_form() -> None:
    """k infinite: w_i = lambda_i (1 + D_i) x_i with x_i + x_j in proportion to 1 / (lambda_i lambda_j)."""
    shares = [0.4, 0.35, 0.25]
    far = math.exp(-1.5)
    inverse = [1 / s for s in shares]
    x = [inverse[0] * (inverse[1] + inverse[2]) - inverse[1] * inverse[2]]
    x.append(inverse[1] * (inverse[0] + inverse[2]) - inverse[0] * inverse[2])
    x.append(inverse[2] * (inverse[0] + inverse[1]) - inverse[0] * inverse[1])
    weights = [s * (1 + s + (1 - s) * far) * v for s, v in zip(shares, x, strict=True)]
    expected = [w / sum(weights) for w in weights]
    plan = rebalance(shares)
    assert plan.weighting.anchor_weights_C.tolist() == pytest.approx(expected, rel=1e-10)
    sample_C = plan.weighting.anchor_weights_C / plan.proportions_C
    torch.testing.assert_close(plan.weighting.sample_weights_C, sample_C, rtol=1e-12, atol=0)


@pytest.mark.parametrize("proportions", [[0.6, 0.2, 0.2], [0.3, 0.25, 0.2, 0.15, 0.1]])
def test_where_no_weights_are_exact_the_plan_says_how_near_they_come(proportions: list[float]) -> None:
    plan = rebalance(proportions)
    weighting = plan.weighting
    assert not weighting.is_exact
    assert plan.allowed < weighting.deviation <= plan.deviation_before
    assert f"{weighting.deviation:.3g} from it, the nearest that was found" in str(plan)


@pytest.mark.thorough
def test_the_text_says_what_to_do() -> None:
    text = str(rebalance([0.6, 0.2, 0.2]))
    assert text.startswith("the optimum is 0.475 from the simplex (0.05 allowed)")
    assert "sample in proportion to lambda^0.1" in text
    assert "the simplex, exactly" in str(rebalance([0.4, 0.35, 0.25]))
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
    assert plan.weighting.is_exact
    assert plan.weighting.anchor_weights_C.tolist() == [0.5, 0.3, 0.2]
    assert plan.weighting.deviation < 1e-12


@pytest.mark.parametrize("proportions", [[0.5, 0.3, 0.2], [0.6, 0.2, 0.2], [0.6, 0.1, 0.1, 0.1, 0.1]])
@pytest.mark.thorough
def test_the_weighted_optimum_of_a_hinge_is_certified(proportions: list[float]) -> None:
    """The sharp hinge's own value is compared: no correlation matrix that is tried has less."""
    loss = Triplet(2.0)
    weighting = rebalance(proportions, loss=loss, num_negatives=2).weighting
    assert weighting.is_certified
    risk = class_risk(weighting.proportions_C, loss=loss, num_negatives=2, anchor_weights=weighting.anchor_weights_C)
    generator = torch.Generator().manual_seed(0)
    tries = torch.randn(200, len(proportions), 3, generator=generator, dtype=torch.float64)
    tries = tries / tries.norm(dim=2, keepdim=True)
    assert risk.value(weighting.gram_CC) <= min(risk.value(v @ v.T) for v in tries) + 1e-8


def test_a_loss_that_is_not_strictly_convex_may_have_other_optima() -> None:
    weighting = rebalance([0.4, 0.2, 0.2, 0.2], loss=LinearTriplet()).weighting
    assert weighting.is_exact
    assert not weighting.is_unique
    assert "the simplex, exactly, though it may be one optimum of several" in str(weighting)
    risk = class_risk(
        weighting.proportions_C, loss=LinearTriplet(), anchor_weights=torch.tensor([0.0, 1.0, 1.0, 1.0]) / 3
    )
    square_C = torch.tensor([1.0, 1.0, -1.0, -1.0])
    assert risk.value(square_C.outer(square_C)) == pytest.approx(risk.value(weighting.gram_CC), rel=1e-9)
    assert rebalance([0.4, 0.35, 0.25]).weighting.is_unique


@pytest.mark.parametrize("loss", [None, LinearTriplet(), Triplet(2.0)])
@pytest.mark.parametrize("proportions", [[0.5, 0.25, 0.25], [0.6, 0.2, 0.2]])
@pytest.mark.sampled(9)
def test_weights_that_leave_the_majority_without_anchors_say_so(loss: Loss | None, proportions: list[float]) -> None:
    plan = rebalance(proportions, loss=loss, num_negatives=2)
    assert plan.weighting.anchor_weights_C.tolist() == pytest.approx([0, 0.5, 0.5], abs=1e-12)
    assert plan.weighting.without_anchors == (0,)
    assert "with (0, 0.5, 0.5)" in str(plan)
    assert "class 0 (the majority) would get no anchors at all" in str(plan)
    assert "no anchors" not in str(rebalance([0.4, 0.35, 0.25]))


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
