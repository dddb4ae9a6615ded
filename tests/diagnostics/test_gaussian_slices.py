"""Slices of features beside a Gaussian: the null distribution, what departs from it, and which losses it is held to."""

# N samples, D features, M slices

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from counterpoint.core.counter_random import epps_pulley
from counterpoint.diagnostics.evidence import EMBEDDING, Evidence
from counterpoint.diagnostics.finding import Finding
from counterpoint.diagnostics.findings import CATALOGUE
from counterpoint.diagnostics.gaussian_slices import GaussianSlices, critical_value, gaussian_slices
from counterpoint.diagnostics.measure import measure_place
from draws import draw_single as draw

CHECK = "gaussian-slices"


def on_sphere(z: Tensor) -> Tensor:
    return z / z.norm(dim=1, keepdim=True)


def measured(z: Tensor) -> GaussianSlices:
    return gaussian_slices(z, torch.arange(len(z)))


def evidence_of(z: Tensor, by: str = "theory") -> Evidence:
    place = measure_place(z, is_directional=by == "theory")
    names = place.suspect_names([str(row) for row in range(len(z))])
    return replace(Evidence({EMBEDDING: place.figures}, suspects=names), gaussian_by=by)


def judged(z: Tensor, by: str = "theory") -> Finding | None:
    return CATALOGUE[CHECK](evidence_of(z, by))


def test_the_limit_is_that_of_standardised_gaussian_slices() -> None:
    slices = draw(400, 20_000)
    statistic = epps_pulley((slices - slices.mean(0)) / slices.std(0, correction=0)).numpy()
    for level in (0.05, 0.01, 0.001):  # within five standard errors of a share, and the error of the asymptotic tail
        share, error = float(np.mean(statistic > critical_value(1, level))), (level / len(statistic)) ** 0.5
        assert abs(share - level) < 5 * error + 0.2 * level
    assert critical_value(100, 0.05) == critical_value(1, 0.0005)


@pytest.mark.parametrize("width", [8, 64])
@pytest.mark.parametrize("shape", ["gaussian", "uneven", "sphere"])
def test_gaussian_and_spherical_features_are_seldom_beyond_it(shape: str, width: int) -> None:
    beyond = 0
    for seed in range(20):
        z = draw(500, width, seed)
        if shape == "uneven":
            z = z * torch.linspace(1, 6, width) @ torch.linalg.qr(draw(width, width, seed + 100))[0]
        found = measured(on_sphere(z) if shape == "sphere" else z)
        beyond += found.worst > found.limit
    assert beyond <= 5  # of 20 at 5 %: more with a probability below 0.001


def test_what_departs_is_told_with_its_kind_and_the_samples_at_its_ends() -> None:
    rogue = draw(width=32)
    rogue[:, 5] = 4 * rogue[:, 5].sign() + rogue[:, 5]
    tails = draw(width=32)
    tails[:, 5] = tails[:, 5] ** 3
    groups = draw(width=32) + 8 * (torch.arange(1000) < 200)[:, None] * on_sphere(draw(1, 32, 9))
    kinds = {"dimension 5 falls into groups": rogue, "dimension 5 has heavy tails": tails, "a direction falls": groups}
    for words, z in kinds.items():
        finding = judged(z, "loss")
        assert finding is not None
        assert words in finding.title
        assert finding.level == "warning"
    finding = judged(groups, "loss")
    assert finding is not None
    near, far = finding.samples[:5], finding.samples[5:]
    assert all(int(row) < 200 for row in near)
    assert all(int(row) >= 200 for row in far)


def test_it_warns_only_where_the_loss_or_theory_wants_a_gaussian() -> None:
    z = draw(width=32)
    z[:, 5] = 4 * z[:, 5].sign() + z[:, 5]
    expected = {"loss": "warning", "theory": "warning", "": "note"}
    for by, level in expected.items():
        finding = judged(z, by)
        assert finding is not None
        assert finding.level == level
        evidence = evidence_of(z, by)
        assert CATALOGUE[CHECK](replace(evidence, is_supervised=True)) is None
        assert CATALOGUE[CHECK](replace(evidence, is_nonnegative=True)) is None
    classes = draw(width=32) + 2 * draw(10, 32, 1)[torch.arange(1000) % 10]
    assert judged(classes, "") is None
    by_theory = judged(classes)
    assert by_theory is not None
    assert by_theory.level in ("good", "note")
    fine = judged(draw(width=32))
    assert fine is not None
    assert fine.level == "good"


@pytest.mark.parametrize(
    "z",
    [
        draw(5, 32),
        torch.ones(500, 8),
        torch.ones(500, 1),
        draw(4, 8).repeat(200, 1),
        draw(300, 512),
        draw(500, 1),
        on_sphere(draw(500, 2)),
        torch.zeros(500, 8),
        1e-30 * draw(500, 8),
        1e30 * draw(500, 8),
    ],
    ids=["five", "constant", "one constant", "copies", "wide", "one", "circle", "zero", "tiny", "huge"],
)
def test_too_little_is_said_to_be_unknown(z: Tensor) -> None:
    found = evidence_of(z, "loss")
    place, finding = found.places[EMBEDDING], CATALOGUE[CHECK](found)
    is_known = place.slice_worst is not None
    assert ("whether slices are Gaussian" in found.not_looked_at) is not is_known
    assert is_known or finding is None
    if is_known:  # Gaussian features of few or many dimensions, and scales, are no fault
        assert place.slice_worst < 1.5 * place.slice_limit
        assert math.isfinite(place.slice_kurtosis)
