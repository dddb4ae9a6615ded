import math

import pytest
import torch

from counterpoint.core.errors import UsageError
from counterpoint.losses.spectral import SpectralContrastive
from counterpoint.theory.collapse.merged_minorities import (
    dual_matrix,
    least_eigenvalue,
    membership,
    merged_optimum,
    splitting_margin,
)
from counterpoint.theory.geometry.class_risk import class_risk
from counterpoint.theory.geometry.geometry_cases import MergedRisk

SHARES = torch.tensor([0.4, 0.3, 0.1, 0.1, 0.1], dtype=torch.float64)
GROUP = [2, 3, 4]


def a_gram(generator: torch.Generator, size: int) -> torch.Tensor:
    rows = torch.randn(size, size, generator=generator, dtype=torch.float64)
    rows = rows / rows.norm(dim=1, keepdim=True)
    return rows @ rows.T


def a_direction(generator: torch.Generator, size: int) -> torch.Tensor:
    matrix = torch.randn(size, size, generator=generator, dtype=torch.float64)
    return (matrix + matrix.T).fill_diagonal_(0.0)


@pytest.mark.parametrize("k", [1, 3, math.inf])
def test_without_supervision_merged_classes_are_one_class(generator: torch.Generator, k: float) -> None:
    merged = MergedRisk(class_risk(SHARES, num_negatives=k), membership(5, GROUP))
    one_class = class_risk(merged.members_CM.T @ SHARES, num_negatives=k)
    gram_MM = a_gram(generator, 3)
    assert merged.at(gram_MM).value == pytest.approx(one_class.value(gram_MM), rel=1e-12)
    torch.testing.assert_close(
        merged.at(gram_MM).gradient_CC, one_class.at(gram_MM).gradient_CC, rtol=1e-10, atol=1e-13
    )


@pytest.mark.parametrize(("k", "supervised"), [(2, True), (math.inf, True), (math.inf, False)])
def test_derivatives_of_the_merged_risk(generator: torch.Generator, k: float, supervised: bool) -> None:
    merged = MergedRisk(class_risk(SHARES, num_negatives=k, supervised=supervised), membership(5, GROUP))
    gram_MM, direction_MM, step = 0.5 * a_gram(generator, 3), a_direction(generator, 3), 1e-4
    gram_MM = gram_MM.fill_diagonal_(1.0)
    at = merged.at(gram_MM)
    sides = [merged.at(gram_MM + sign * step * direction_MM) for sign in (1, -1)]
    slope = (sides[0].value - sides[1].value) / (2 * step)
    assert slope == pytest.approx(float((at.gradient_CC * direction_MM).sum()), rel=1e-6)
    change_MM = (sides[0].gradient_CC - sides[1].gradient_CC) / (2 * step)
    torch.testing.assert_close(at.curvature(direction_MM), change_MM, rtol=1e-5, atol=1e-8)
    assert float(at.gradient_CC.diagonal().abs().max()) == 0
    assert at.own_slope_C.shape == (3,)


def test_the_margin_is_an_eigenvalue_of_the_dual_matrix_on_parting_directions() -> None:
    risk = class_risk(SHARES)
    gram_CC = merged_optimum(risk, GROUP)
    dual_CC = dual_matrix(risk.at(gram_CC).gradient_CC, gram_CC)
    parting_C = torch.tensor([0.0, 0.0, 1.0, -0.5, -0.5], dtype=torch.float64)
    eigenvalue = float(dual_CC[2, 2] - dual_CC[2, 3])
    torch.testing.assert_close(dual_CC @ parting_C, eigenvalue * parting_C, rtol=1e-10, atol=1e-14)
    assert splitting_margin(dual_CC, GROUP) * eigenvalue > 0
    torch.testing.assert_close(dual_CC @ gram_CC, torch.zeros_like(gram_CC), rtol=0, atol=1e-9)
    assert least_eigenvalue(dual_CC) < -0.01  # these shares keep their minorities apart


def test_two_merged_vectors_need_not_be_opposite() -> None:
    """The spectral loss punishes any cosine but 0 between classes of different pairs."""
    shares = torch.tensor([0.6, 0.2, 0.2], dtype=torch.float64)
    gram_CC = merged_optimum(class_risk(shares, loss=SpectralContrastive()), [1, 2])
    assert float(gram_CC[0, 1]) == pytest.approx(0, abs=1e-12)
    assert float(gram_CC[1, 2]) == 1


def test_all_classes_may_merge() -> None:
    assert torch.equal(merged_optimum(class_risk(SHARES), range(5)), torch.ones(5, 5, dtype=torch.float64))


def test_a_flat_risk_has_no_margin() -> None:
    assert math.isnan(splitting_margin(torch.zeros(3, 3), [1, 2]))


@pytest.mark.parametrize("group", [[], [1], [1, 1], [0, 5], [-1, 2]])
def test_groups_that_are_none(group: list[int]) -> None:
    with pytest.raises(UsageError, match="2 or more different classes, 0 to 4"):
        membership(5, group)
