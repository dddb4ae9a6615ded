import math

import numpy as np
import pytest
import torch

from counterpoint.core.errors import UsageError
from counterpoint.losses.imbalanced import GeneralizedContrastive
from counterpoint.losses.infonce import DCL, InfoNCE
from counterpoint.losses.spectral import SpectralContrastive
from counterpoint.losses.wrappers import HardNegatives
from counterpoint.theory.collapse.merged_minorities import (
    dual_matrix,
    least_eigenvalue,
    merged_minorities,
    merged_optimum,
    one_majority,
    splitting_margin,
)
from counterpoint.theory.collapse.minority_collapse import collapse_threshold
from counterpoint.theory.collapse.risk_setting import risk_setting
from counterpoint.theory.geometry.class_risk import ClassRisk, class_risk
from counterpoint.theory.geometry.optimal_geometry import optimal_geometry
from oracles import collapse_oracle

INF = math.inf


@pytest.mark.parametrize(
    ("k", "supervised", "expected"),
    [
        (1, False, 0.8075),
        (2, False, 0.8575),
        (8, False, 0.8903),
        (64, False, 0.8990),
        (INF, False, 0.9002),
        (1, True, 0.6915),
        (64, True, 0.7501),
        (INF, True, 0.7511),
    ],
)
@pytest.mark.sampled(3)
def test_known_thresholds_of_three_classes(k: float, supervised: bool, expected: float) -> None:
    assert collapse_threshold(3, num_negatives=k, supervised=supervised).share == pytest.approx(expected, abs=5e-5)


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


@pytest.mark.parametrize(("k", "supervised"), [(2, False), (INF, False), (3, True)])
def test_the_oracle_s_minimum_is_merged_above_the_threshold_and_apart_below(k: float, supervised: bool) -> None:
    share = collapse_threshold(3, num_negatives=k, supervised=supervised).share

    def best_cosine(at: float) -> float:
        shares = collapse_oracle.one_majority(at, 3)
        return collapse_oracle.least(
            lambda a: collapse_oracle.risk(collapse_oracle.curve(a, 3), shares, k, supervised), -1.0, 0.0, steps=50
        )

    assert best_cosine(share + 0.01) == pytest.approx(-1, abs=1e-8)
    assert best_cosine(share - 0.01) > -0.999


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
    ("num_classes", "k", "supervised"), [(3, 2, True), (4, INF, True), (9, 3, False), (9, 3, True)]
)
def test_three_classes_stand_for_all(num_classes: int, k: float, supervised: bool) -> None:
    """Margin, slopes and eigenvalues of all classes, calculated with all of them."""
    setting, group = risk_setting(None, k, supervised), range(1, num_classes)
    for log_odds in (-1.0, 0.5, 3.0):
        merged = merged_minorities(log_odds, num_classes, setting)
        risk = setting.risk(one_majority(log_odds, num_classes))
        gram_CC = merged_optimum(risk, group)
        dual_CC = dual_matrix(risk.at(gram_CC).gradient_CC, gram_CC)
        torch.testing.assert_close(merged.gram, gram_CC, rtol=0, atol=1e-12)
        assert merged.margin == pytest.approx(splitting_margin(dual_CC, group), abs=1e-12)
        assert merged.least_eigenvalue == pytest.approx(least_eigenvalue(dual_CC), abs=1e-12)
        assert merged.between == pytest.approx((num_classes - 1) * float(dual_CC[1, 2]), rel=1e-10)


def test_a_cosine_between_opposite_and_equal_is_found_for_all_classes() -> None:
    """The spectral loss is least away from -1."""
    setting = risk_setting(SpectralContrastive(), 4, False)
    merged = merged_minorities(0.3, 6, setting)
    risk = setting.risk(one_majority(0.3, 6))
    gram_CC = merged_optimum(risk, range(1, 6))
    assert -0.99 < merged.cosine < 0.99
    torch.testing.assert_close(merged.gram, gram_CC, rtol=0, atol=1e-10)
    dual_CC = dual_matrix(risk.at(gram_CC).gradient_CC, gram_CC)
    assert merged.margin == pytest.approx(splitting_margin(dual_CC, range(1, 6)), abs=1e-10)


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


def test_supervised_thresholds_do() -> None:
    assert collapse_threshold(100, supervised=True).share == pytest.approx(0.7304, abs=5e-5)


@pytest.mark.parametrize("temperature", [0.5, 0.1, 0.02])
def test_thresholds_at_low_temperatures_keep_their_digits(temperature: float) -> None:
    """k infinite, negatives of any class: 1 - t = t e^(-2/tau) (1 + (1 + D_m) / (1 + D_1)) / 2 in closed form."""
    found = collapse_threshold(3, loss=GeneralizedContrastive(temperature=temperature))
    rest, far = found.minority_share, math.exp(-2 / temperature)
    share = 1 - rest
    major, minor = share + rest * far, rest + share * far
    assert rest == pytest.approx(share * far * (1 + (1 + minor) / (1 + major)) / 2, rel=1e-9)
    assert "1 - " in str(found) or temperature > 0.1


def test_a_path_of_one_majority_gives_the_same_threshold() -> None:
    expected = collapse_threshold(4, num_negatives=3, supervised=True).share
    path = collapse_threshold(lambda t: [t] + [(1 - t) / 3] * 3, num_negatives=3, supervised=True)
    assert path.share == pytest.approx(expected, abs=1e-9)
    assert path.minority == (1, 2, 3)
    assert path.bounds is None


def test_a_path_may_run_the_other_way() -> None:
    found = collapse_threshold(lambda t: [1 - t, t / 2, t / 2], minority=[1, 2])
    assert 1 - found.share == pytest.approx(collapse_threshold(3).share, abs=1e-9)
    assert not found.collapses_above
    assert "where t is <=" in str(found) or "share is <=" in str(found)


@pytest.mark.parametrize(("k", "supervised"), [(INF, True), (INF, False), (2, True)])
@pytest.mark.thorough
def test_several_majorities_part_and_merge_as_the_oracle_finds(k: float, supervised: bool) -> None:
    found = collapse_threshold(
        lambda t: [t / 2, t / 2, (1 - t) / 2, (1 - t) / 2],
        num_negatives=k,
        supervised=supervised,
        bracket=(0.5, 0.9999),
    )
    assert found.minority == (2, 3)
    assert abs(found.least_eigenvalue) < 1e-8
    assert collapse_oracle.cost_of_parting(1 - 0.98 * found.minority_share, k, supervised) > 0
    assert collapse_oracle.cost_of_parting(1 - 1.02 * found.minority_share, k, supervised) < 0


def test_the_record_s_geometry_is_certified() -> None:
    found = collapse_threshold(lambda t: [0.6 * t, 0.4 * t, (1 - t) / 2, (1 - t) / 2], supervised=True)
    risk = class_risk(found.proportions_C, supervised=True)
    eigenvalues_C = torch.linalg.eigvalsh(dual_matrix(risk.at(found.gram_CC).gradient_CC, found.gram_CC))
    assert float(eigenvalues_C[0] / eigenvalues_C[-1]) > -1e-8
    assert found.gram_CC[2, 3] == pytest.approx(1)


def test_a_sum_over_negatives_has_another_threshold() -> None:
    mean, total = (collapse_threshold(3, num_negatives=8, loss=loss) for loss in (None, DCL(temperature=1.0)))
    assert total.bounds is None
    assert abs(mean.share - total.share) > 1e-3


def test_the_loss_s_own_negatives_are_taken() -> None:
    own = collapse_threshold(3, loss=GeneralizedContrastive(num_negatives=2, supervised=True))
    assert own.share == collapse_threshold(3, num_negatives=2, supervised=True).share
    assert (own.num_negatives, own.supervised) == (2, True)


def test_messages() -> None:
    text = str(collapse_threshold(3, num_negatives=64))
    assert text.startswith("the 2 minority classes merge where the majority's share is >= 0.8990 (64 negatives of any")
    assert "Corollary 6 states 0.9292" in text


def test_no_crossing_says_which_side_holds() -> None:
    with pytest.raises(UsageError, match=r"and a share of 0\.9900: the minority classes are merged at both ends"):
        collapse_threshold(3, bracket=(0.91, 0.99))
    with pytest.raises(UsageError, match=r"t = 0\.5 and t = 0\.8: the minority classes are apart at both ends"):
        collapse_threshold(lambda t: [t, (1 - t) / 2, (1 - t) / 2], bracket=(0.5, 0.8))
    with pytest.raises(UsageError, match="apart at both ends"):
        collapse_threshold(3, loss=SpectralContrastive(), bracket=(0.4, 0.99))


def unequal(t: float) -> list[float]:
    return [t, 0.6 * (1 - t), 0.4 * (1 - t)]


@pytest.mark.parametrize("k", [2, INF])
def test_without_supervision_only_the_sum_of_the_minorities_matters(k: float) -> None:
    """The risk of the real, unequal classes falls where they part below the threshold, and rises above it."""
    found = collapse_threshold(unequal, minority=[1, 2], num_negatives=k)
    assert found.share == pytest.approx(collapse_oracle.threshold(3, k, False), abs=1e-8)
    assert found.proportions_C.tolist() == unequal(found.share)
    assert abs(found.least_eigenvalue) < 1e-14
    for share, is_merged in ((found.share - 0.01, False), (found.share + 0.005, True)):
        gram_CC = optimal_geometry(unequal(share), num_negatives=k).gram
        assert (float(gram_CC[1, 2]) > 1 - 1e-6) == is_merged


@pytest.mark.parametrize(
    ("path", "settings", "message"),
    [
        (2, {}, "classes must be >= 3"),
        (3.0, {}, "classes must be a whole number >= 3 or a path"),
        (np.int64(2), {}, "classes must be >= 3"),
        (3, {"bracket": (0.95,)}, "bracket must be two shares"),
        (3, {"bracket": 0.95}, "bracket must be two shares"),
        (3, {"bracket": (0.5, 0.9, 0.99)}, "bracket must be two shares"),
        (3, {"bracket": ("low", "high")}, "bracket must be two shares"),
        (3, {"bracket": (0.5, math.nan)}, "bracket must be 0 < low < high < 1"),
        (3, {"bracket": (0.9, 0.5)}, "bracket must be 0 < low < high < 1"),
        (3, {"minority": [1, 2]}, "minority must be None"),
        (3, {"num_negatives": 0}, "num_negatives must be a whole number >= 1"),
        (3, {"loss": HardNegatives(InfoNCE(), beta=1.0)}, "hardness"),
        (3, {"loss": "infonce"}, "loss must be one of"),
        (lambda t: [t, t, t], {}, r"the path at t = 0.*must sum to 1"),
        (lambda t: [t, 1 - t, 0.0], {}, "must be > 0"),
        (lambda t: [1.0], {}, "at least 2 classes"),
        (unequal, {}, "name 2 or more classes as minority"),
        (unequal, {"minority": [1, 2], "supervised": True}, r"equal in proportion .* only their sum matters"),
        (unequal, {"minority": [2]}, "2 or more different classes"),
        (unequal, {"minority": [2, 3]}, "2 or more different classes"),
    ],
)
def test_bad_input(path: object, settings: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        collapse_threshold(path, **settings)  # type: ignore[arg-type]


def test_a_number_of_classes_may_come_from_numpy() -> None:
    (four,) = np.array([4])
    assert collapse_threshold(four, supervised=True).share == collapse_threshold(4, supervised=True).share


def test_a_path_may_be_in_single_precision() -> None:
    found = collapse_threshold(lambda t: torch.tensor([t, (1 - t) / 2, (1 - t) / 2]), bracket=(0.5, 0.99))
    assert found.share == pytest.approx(collapse_threshold(3).share, abs=1e-6)


def test_one_majority_next_to_one_keeps_the_small_shares() -> None:
    proportions = one_majority(100.0, 3)
    assert float(proportions[1]) == pytest.approx(math.exp(-100) / 2, rel=1e-12)
