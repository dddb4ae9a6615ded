import math

import pytest
import torch

from counterpoint.core.errors import UsageError
from counterpoint.losses.infonce import DCL
from counterpoint.losses.loss import Loss
from counterpoint.losses.spectral import SpectralContrastive
from counterpoint.theory.collapse.minority_collapse import one_majority
from counterpoint.theory.collapse.phase import curve, minority_optimum, phase_diagram
from counterpoint.theory.geometry.class_risk import class_risk
from counterpoint.theory.geometry.correlation_solver import minimise_over_correlations
from oracles import collapse_oracle

INF = math.inf
SHARES = [0.1, 1 / 3, 0.5, 0.8, 0.97]


@pytest.mark.parametrize(("k", "supervised", "temperature"), [(1, False, 1.0), (3, True, 0.5), (INF, False, 0.2)])
@pytest.mark.thorough
def test_cosines_are_those_of_the_oracle_s_search_along_lemma_8(k: float, supervised: bool, temperature: float) -> None:
    diagram = phase_diagram(SHARES, [k], [temperature], supervised=supervised)
    for place, share in enumerate(SHARES):
        shares = collapse_oracle.one_majority(share, 3)
        best = collapse_oracle.least(
            lambda a, s=shares: collapse_oracle.risk(collapse_oracle.curve(a, 3), s, k, supervised, temperature),
            -1.0,
            0.0,
        )
        assert float(diagram.majority_cosine_KUT[0, 0, place]) == pytest.approx(best, abs=1e-6)
        assert float(diagram.minority_cosine_KUT[0, 0, place]) == pytest.approx(2 * best**2 - 1, abs=1e-5)


def test_section_7_2_sits_on_the_boundary() -> None:
    """At a share of 0.9 and k = 512, without supervision: all but merged, the threshold being 0.90005."""
    diagram = phase_diagram([0.9], [512, INF])
    assert not bool(diagram.is_merged_KUT.any())
    assert diagram.majority_cosine_KUT.flatten().tolist() == pytest.approx([-0.9999, -0.9996], abs=6e-5)
    assert diagram.minority_cosine_KUT.flatten().tolist() == pytest.approx([0.9997, 0.9986], abs=6e-5)


@pytest.mark.parametrize(("num_classes", "supervised"), [(3, False), (6, True)])
def test_the_full_solver_finds_the_same_geometry(num_classes: int, supervised: bool) -> None:
    for share in SHARES:
        proportions_C = one_majority(math.log(share / (1 - share)), num_classes)
        risk = class_risk(proportions_C, supervised=supervised)
        optimum = minority_optimum(risk)
        gram_CC = minimise_over_correlations(risk, tolerance=1e-12).gram_CC
        expected_CC = curve(optimum.majority_cosine, num_classes)
        torch.testing.assert_close(gram_CC, expected_CC, rtol=0, atol=2e-5)


def test_every_cell_is_certified_and_merges_from_the_threshold_on() -> None:
    diagram = phase_diagram(torch.linspace(0.05, 0.99, 30), [INF], [1.0, 0.5], num_classes=4, supervised=True)
    assert float(diagram.gap_KUT.max()) < 1e-12
    expected_KUT = diagram.shares_T >= diagram.threshold_KU[..., None]
    assert torch.equal(diagram.is_merged_KUT, expected_KUT)
    assert bool((diagram.majority_cosine_KUT[diagram.is_merged_KUT] == -1).all())
    assert bool((diagram.minority_cosine_KUT[diagram.is_merged_KUT] == 1).all())
    assert bool((diagram.minority_cosine_KUT.diff(dim=-1) >= 0).all())  # minorities draw nearer as the majority grows


@pytest.mark.thorough
def test_shape_and_order_of_the_axes() -> None:
    diagram = phase_diagram([0.5, 0.95], [1, INF], [1.0, 0.5, 0.25])
    assert diagram.minority_cosine_KUT.shape == (2, 3, 2)
    assert diagram.threshold_KU.shape == (2, 3)
    assert bool((diagram.threshold_KU[1] > diagram.threshold_KU[0]).all())  # more negatives, later merging
    assert bool((diagram.threshold_KU.diff(dim=1) > 0).all())  # lower temperature, later merging
    torch.testing.assert_close(diagram.threshold_minority_KU, 1 - diagram.threshold_KU, rtol=1e-9, atol=1e-15)
    lines = str(diagram).splitlines()
    assert lines[1].split()[:4] == ["negatives", "tau", "=", "1"]
    assert lines[2].split()[0] == "1"
    assert lines[3].split()[0] == "infinite"


@pytest.mark.parametrize("num_classes", [3, 5, 12])
def test_the_curve_of_lemma_8_is_singular_and_starts_at_one_less_than_all_classes(num_classes: int) -> None:
    """At a = 0 minorities have the cosine -1/(C-2); the end of the lemma's proof prints -1/(C-1)."""
    assert float(curve(0.0, num_classes)[1, 2]) == pytest.approx(-1 / (num_classes - 2), rel=1e-14)
    for cosine in (-1.0, -0.6, -0.1, 0.0):
        eigenvalues_C = torch.linalg.eigvalsh(curve(cosine, num_classes))
        assert float(eigenvalues_C.abs().min()) < 1e-14
        assert float(eigenvalues_C.min()) > -1e-14


def decoupled(temperature: float) -> Loss:
    return DCL(temperature=temperature)


def spectral(temperature: float) -> Loss:
    return SpectralContrastive()


def test_another_loss_as_a_function_of_temperature() -> None:
    ours, other = (phase_diagram([0.5], [8], [0.5], loss=loss) for loss in (None, decoupled))
    assert float((ours.minority_cosine_KUT - other.minority_cosine_KUT).abs()) > 1e-3
    assert float(other.gap_KUT) < 1e-12


def test_a_loss_whose_optimum_is_elsewhere_is_refused() -> None:
    with pytest.raises(UsageError, match="not on the curve of Lemma 8"):
        phase_diagram([0.5], [1], loss=spectral)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"shares": [0.0]}, "shares must be between 0 and 1"),
        ({"num_negatives": []}, "num_negatives must name"),
        ({"temperatures": []}, "temperatures must name"),
        ({"temperatures": [-1.0]}, "temperature .*-1"),
    ],
)
def test_bad_input(wrong: dict[str, object], message: str) -> None:
    settings = {"shares": [0.5], **wrong}
    with pytest.raises(ValueError, match=message):
        phase_diagram(**settings)  # type: ignore[arg-type]
