"""diagnose(features, loss=): whom a loss would look at, and where it would have the classes, without a run."""

import math
from pathlib import Path

import numpy as np
import pytest

import counterpoint as cp
from counterpoint.core.errors import UsageError
from counterpoint.losses import DCL, InfoNCE, VICReg

N, D = 300, 6


def simplex() -> tuple[np.ndarray, np.ndarray]:
    """Three classes, each in one point: the vertices of an equilateral triangle."""
    vertices = np.zeros((3, D), np.float32)
    vertices[:, :2] = [[math.cos(2 * math.pi * k / 3), math.sin(2 * math.pi * k / 3)] for k in range(3)]
    labels = np.arange(N) % 3
    return vertices[labels], labels


def drawn() -> tuple[np.ndarray, np.ndarray]:
    draws = np.random.default_rng(0)
    z = draws.normal(size=(N, D)).astype(np.float32)
    return z, (z + 0.1 * draws.normal(size=z.shape)).astype(np.float32)


def test_balanced_classes_at_the_vertices_of_a_simplex_are_at_the_optimum() -> None:
    z, labels = simplex()
    classes = cp.diagnose(z, labels=labels, loss=InfoNCE(1.0), quiet=True).classes
    assert classes is not None
    assert classes.optimum is not None
    assert classes.optimum.distance == pytest.approx(0, abs=1e-3)
    assert classes.optimum.is_certified
    assert classes.optimum.question["negatives"] == "255, of any class"


def test_weights_of_the_negatives_are_softmax_of_their_cosines() -> None:
    z, w = drawn()
    pairs = cp.diagnose(z[:40], views=w[:40], loss=DCL(0.5), quiet=True).pairs
    assert pairs is not None
    both = np.concatenate([z[:40], w[:40]]).astype(np.float64)
    both /= np.linalg.norm(both, axis=1, keepdims=True)
    entropies = []
    for anchor in range(80):
        others = [j for j in range(80) if j % 40 != anchor % 40]
        weights = np.exp(both[others] @ both[anchor] / 0.5)
        weights /= weights.sum()
        entropies.append(-(weights * np.log(weights)).sum())
    assert pairs.num_negatives == 78
    assert pairs.effective_negatives == pytest.approx(float(np.exp(entropies).mean()), rel=1e-6)
    assert pairs.temperature == pytest.approx(0.5)


def test_a_cold_loss_is_found_and_no_change_of_a_run_is_advised() -> None:
    z, w = drawn()
    found = cp.diagnose(z, views=w, loss=InfoNCE(0.002), quiet=True).findings
    low = next(each for each in found if each.name == "temperature-low")
    assert low.level == "warning"
    assert low.changes == {}


def test_a_loss_without_weights_or_optimum_says_so() -> None:
    z, w = drawn()
    found = cp.diagnose(z, views=w, labels=np.arange(N) % 3, loss=VICReg(), quiet=True)
    assert found.pairs is not None
    assert found.pairs.why == "this loss weighs no pairs (VICReg)"
    assert found.classes is not None
    assert "no class-level risk" in found.classes.why_no_optimum


def test_what_cannot_be_asked_is_refused() -> None:
    z, w = drawn()
    with pytest.raises(UsageError, match=r"loss must be one of counterpoint\.losses, such as InfoNCE\(0\.2\), got int"):
        cp.diagnose(z, views=w, loss=3)  # pyright: ignore[reportArgumentType]
    with pytest.raises(UsageError, match=r"loss= needs views= .* or labels="):
        cp.diagnose(z, loss=InfoNCE())
    with pytest.raises(UsageError, match="loss= goes with features"):
        cp.diagnose(cp.Run(Path("nosuch")), loss=InfoNCE())
