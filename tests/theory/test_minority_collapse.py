import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from counterpoint.core.errors import UsageError
from counterpoint.losses.imbalanced import GeneralizedContrastive
from counterpoint.losses.infonce import DCL, InfoNCE
from counterpoint.losses.loss import Loss
from counterpoint.losses.spectral import SpectralContrastive
from counterpoint.losses.wrappers import HardNegatives
from counterpoint.theory.collapse.minority_collapse import (
    collapse_threshold,
    merged_minorities,
    one_majority,
    risk_setting,
)
from counterpoint.theory.geometry.class_risk import ClassRisk, class_risk
from counterpoint.theory.geometry.geometry_cases import MergedRisk
from counterpoint.theory.geometry.optimal_geometry import optimal_geometry
from oracles import collapse_oracle, cvx_geometry

INF = math.inf


@pytest.mark.parametrize(
    ("num_classes", "k", "supervised", "expected"),
    [
        (3, 1, False, 0.8075),
        (3, 2, False, 0.8575),
        (3, 8, False, 0.8903),
        (3, 64, False, 0.8990),
        (3, INF, False, 0.9002),
        (3, 1, True, 0.6915),
        (3, 64, True, 0.7501),
        (3, INF, True, 0.7511),
        (100, INF, True, 0.7304),
    ],
)
@pytest.mark.sampled(3)
def test_known_thresholds(num_classes: int, k: float, supervised: bool, expected: float) -> None:
    found = collapse_threshold(num_classes, num_negatives=k, supervised=supervised)
    assert found.share == pytest.approx(expected, abs=5e-5)


@pytest.mark.parametrize(
    ("num_classes", "k", "supervised"),
    [(3, 1, False), (3, 4, False), (3, INF, False), (3, 4, True), (4, 2, False), (5, 3, True), (10, INF, True)],
)
@pytest.mark.sampled(2)
def test_the_threshold_is_where_the_oracle_s_slope_at_merged_turns(
    num_classes: int, k: float, supervised: bool
) -> None:
    found = collapse_threshold(num_classes, num_negatives=k, supervised=supervised)
    assert found.share == pytest.approx(collapse_oracle.threshold(num_classes, k, supervised), abs=1e-8)
    assert found.collapses_above
    assert abs(found.least_eigenvalue) < 1e-14


@pytest.mark.parametrize("k", [1, INF])
def test_unsupervised_thresholds_depend_on_no_number_of_classes(k: float) -> None:
    shares = [collapse_threshold(c, num_negatives=k).share for c in (3, 4, 10, 100)]
    assert max(shares) - min(shares) < 1e-12


@pytest.mark.parametrize("k", [2, INF])
def test_nor_on_how_the_minorities_divide_their_share(k: float) -> None:
    share = collapse_threshold(3, num_negatives=k).share
    above, below = (
        optimal_geometry([t, 0.7 * (1 - t), 0.3 * (1 - t)], num_negatives=k) for t in (share + 0.005, share - 0.005)
    )
    assert above.merged_classes == [[1, 2]]
    assert below.merged_classes == []
    assert float(below.gram[1, 2]) < 0.99


@pytest.mark.parametrize(
    ("num_classes", "k", "supervised", "loss"),
    [
        (3, 2, True, None),
        (4, INF, True, None),
        (9, 3, False, None),
        (9, 3, True, None),
        (6, 4, False, SpectralContrastive()),  # least away from -1
    ],
)
def test_three_classes_stand_for_all(num_classes: int, k: float, supervised: bool, loss: Loss | None) -> None:
    """Margin and eigenvalues of all classes, calculated with all of them, at a cosine where the risk is least."""
    setting = risk_setting(loss, k, supervised)
    for log_odds in (-1.0, 0.3, 3.0):
        merged = merged_minorities(log_odds, num_classes, setting)
        risk, gram_CC = setting.risk(one_majority(log_odds, num_classes)), merged.gram
        gradient_CC = risk.at(gram_CC).gradient_CC
        dual_CC = gradient_CC - torch.diag((gradient_CC * gram_CC).sum(1))
        own, between = float(dual_CC[1, 1]), float(dual_CC[1, 2])
        assert merged.margin == pytest.approx((own - between) / (abs(own) + abs(between)), abs=1e-10)
        values_C = torch.linalg.eigvalsh(dual_CC)
        assert merged.least_eigenvalue == pytest.approx(float(values_C[0] / values_C.abs().max()), abs=1e-10)
        assert merged.between == pytest.approx((num_classes - 1) * between, rel=1e-10)
        values = [risk.value(replace(merged, cosine=x).gram) for x in torch.linspace(-1, 1, 41).tolist()]
        assert risk.value(gram_CC) <= min(values) + 1e-12
        assert (merged.cosine > -0.99) == (loss is not None)


def test_a_thousand_classes_are_no_more_work_than_three(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    risk_at = ClassRisk.at

    def counted(risk: ClassRisk, gram_CC: torch.Tensor) -> object:
        sizes.append(len(gram_CC))
        return risk_at(risk, gram_CC)

    monkeypatch.setattr(ClassRisk, "at", counted)
    found = collapse_threshold(1000, supervised=True)
    assert max(sizes) == 3
    minor, far = found.minority_share / 999, math.exp(-2)
    to_major = found.share / (1 - minor)  # a negative of a minority anchor is of the majority
    weight = 1 + to_major * far + 1 - to_major
    cross = (found.share / 999 * far / (1 + far) + minor * to_major * far / weight) / 2
    assert cross == pytest.approx(999 * minor * minor / (1 - minor) / weight, rel=1e-10)
    assert found.proportions_C.shape == (1000,)


@pytest.mark.parametrize("temperature", [0.5, 0.1, 0.02])
def test_thresholds_at_low_temperatures_keep_their_digits(temperature: float) -> None:
    """k infinite, negatives of any class: 1 - t = t e^(-2/tau) (1 + (1 + D_m) / (1 + D_1)) / 2 in closed form."""
    found = collapse_threshold(3, loss=GeneralizedContrastive(temperature=temperature))
    rest, far = found.minority_share, math.exp(-2 / temperature)
    share = 1 - rest
    major, minor = share + rest * far, rest + share * far
    assert rest == pytest.approx(share * far * (1 + (1 + minor) / (1 + major)) / 2, rel=1e-9)
    assert "1 - " in str(found) or temperature > 0.1


def test_a_sum_over_negatives_has_another_threshold() -> None:
    mean, total = (collapse_threshold(3, num_negatives=8, loss=loss) for loss in (None, DCL(temperature=1.0)))
    assert abs(mean.share - total.share) > 1e-3


def test_the_loss_s_own_negatives_are_taken() -> None:
    own = collapse_threshold(3, loss=GeneralizedContrastive(num_negatives=2, supervised=True))
    assert own.share == collapse_threshold(3, num_negatives=2, supervised=True).share
    assert (own.num_negatives, own.supervised) == (2, True)


def test_messages() -> None:
    text = str(collapse_threshold(3, num_negatives=64))
    assert text.startswith("the 2 minority classes merge where the majority's share is >= 0.8990 (64 negatives of any")


def test_a_number_of_classes_may_come_from_numpy() -> None:
    (four,) = np.array([4])
    assert collapse_threshold(four, supervised=True).share == collapse_threshold(4, supervised=True).share


def test_one_majority_next_to_one_keeps_the_small_shares() -> None:
    proportions = one_majority(100.0, 3)
    assert float(proportions[1]) == pytest.approx(math.exp(-100) / 2, rel=1e-12)


@pytest.mark.parametrize(
    ("num_classes", "settings", "message"),
    [
        (2, {}, "num_classes must be >= 3"),
        (3.0, {}, "num_classes must be a whole number >= 3"),
        (3, {"num_negatives": 0}, "num_negatives must be a whole number >= 1"),
        (3, {"loss": HardNegatives(InfoNCE(), beta=1.0)}, "hardness"),
        (3, {"loss": "infonce"}, "loss must be one of"),
        (3, {"loss": SpectralContrastive()}, r"above a share of 0\.3333: the minority classes are apart at any share"),
    ],
)
def test_bad_input(num_classes: object, settings: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        collapse_threshold(num_classes, **settings)  # type: ignore[arg-type]


SHARES = torch.tensor([0.4, 0.3, 0.1, 0.1, 0.1], dtype=torch.float64)
MEMBERS = torch.nn.functional.one_hot(torch.tensor([0, 1, 2, 2, 2])).double()


def a_gram(rng: np.random.Generator) -> torch.Tensor:
    return torch.from_numpy(cvx_geometry.random_gram(rng, 3))


@pytest.mark.parametrize("k", [1, 3, math.inf])
def test_without_supervision_merged_classes_are_one_class(rng: np.random.Generator, k: float) -> None:
    merged = MergedRisk(class_risk(SHARES, num_negatives=k), MEMBERS)
    one_class = class_risk(merged.members_CM.T @ SHARES, num_negatives=k)
    gram_MM = a_gram(rng)
    assert merged.at(gram_MM).value == pytest.approx(one_class.value(gram_MM), rel=1e-12)
    torch.testing.assert_close(
        merged.at(gram_MM).gradient_CC, one_class.at(gram_MM).gradient_CC, rtol=1e-10, atol=1e-13
    )


@pytest.mark.parametrize(("k", "supervised"), [(2, True), (math.inf, True), (math.inf, False)])
def test_derivatives_of_the_merged_risk(rng: np.random.Generator, k: float, supervised: bool) -> None:
    merged = MergedRisk(class_risk(SHARES, num_negatives=k, supervised=supervised), MEMBERS)
    gram_MM, direction_MM, step = (0.5 * a_gram(rng)).fill_diagonal_(1.0), a_gram(rng).fill_diagonal_(0.0), 1e-4
    at = merged.at(gram_MM)
    sides = [merged.at(gram_MM + sign * step * direction_MM) for sign in (1, -1)]
    slope = (sides[0].value - sides[1].value) / (2 * step)
    assert slope == pytest.approx(float((at.gradient_CC * direction_MM).sum()), rel=1e-6)
    change_MM = (sides[0].gradient_CC - sides[1].gradient_CC) / (2 * step)
    torch.testing.assert_close(at.curvature(direction_MM), change_MM, rtol=1e-5, atol=1e-8)
    assert float(at.gradient_CC.diagonal().abs().max()) == 0
    assert at.own_slope_C.shape == (3,)
