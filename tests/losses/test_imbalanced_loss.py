"""The generalised contrastive loss against imbalanced2026's Eq. 20; ``theory`` has its class-level risk."""

# N samples per view, A anchors, M vectors, K draws, D features

import math
from typing import Any

import pytest
import torch
from labelled_checks import LABELS, WithLabels, classes_of
from loss_checks import (
    KERNELS,
    Oracle,
    assert_matches,
    assert_parts_average_to_the_whole,
    draw_views,
    gradients,
    least_on_descent,
    on_kernel,
    with_edges,
)

from counterpoint.losses.imbalanced import GeneralizedContrastive, draw_negatives
from counterpoint.losses.labelled import label_vectors
from oracles import labelled_losses as oracle
from oracles.number_checks import assert_numbers
from tolerances import assert_close

each_kernel = pytest.mark.parametrize("kernel", KERNELS)
each_dtype = pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
each_pool = pytest.mark.parametrize("supervised", [False, True], ids=["UCL", "SCL"])
each_number = pytest.mark.parametrize("k", [None, 1, 7])
SIX = [5, 2, 2, 5, 5, 0]


def negatives_of(labels: list[int] | None, k: int | None, supervised: bool, n: int, step: int) -> list[list[int]]:
    """What the paper's loops take: the draws, or all admissible vectors."""
    if k is None:
        return oracle.all_negatives(classes_of(labels, n), supervised)
    z = torch.zeros(n, 1)
    vectors = label_vectors(z, z, None if labels is None else torch.tensor(labels))
    return draw_negatives(vectors, k, seed=3, step=step, other_labels_only=supervised).tolist()


def case(
    labels: list[int] | None, k: int | None, supervised: bool, lengths: Any, tau: float, *, n: int = 5, step: int = 2
) -> tuple[WithLabels, Oracle]:
    """A loss with its labels, and the same from the paper."""
    loss = GeneralizedContrastive(k, supervised, lengths, tau, seed=3)
    negatives, classes = negatives_of(labels, k, supervised, n, step), classes_of(labels, n)
    return WithLabels(loss, labels, step=step), lambda a, b: oracle.generalized(a, b, classes, negatives, tau, lengths)


@each_kernel
@each_dtype
@each_number
@pytest.mark.parametrize("lengths", ["sphere", "ball", "none"])
@pytest.mark.parametrize(
    ("labels", "supervised"),
    [(None, False), *((LABELS[x], s) for x in ("uneven", "four of one") for s in (True, False))],
)
@pytest.mark.sampled(15)
def test_value_and_gradient_are_the_papers(
    *, kernel: str, dtype: torch.dtype, k: int | None, lengths: str, labels: list[int] | None, supervised: bool
) -> None:
    z0, z1 = draw_views(dtype=dtype)
    with on_kernel(kernel):
        assert_matches(*case(labels, k, supervised, lengths, 0.8), z0, z1)


@each_kernel
@each_number
@each_pool
@pytest.mark.parametrize("num_parts", [2, 3, 6])
@pytest.mark.sampled(3)
def test_parts_average_to_the_whole(kernel: str, k: int | None, supervised: bool, num_parts: int) -> None:
    """Draws belong to places in the batch: every process draws what one process would."""
    with on_kernel(kernel):
        assert_parts_average_to_the_whole(case(SIX, k, supervised, "sphere", 0.5, n=6)[0], *draw_views(6, 2), num_parts)


@each_kernel
@each_dtype
@each_pool
@pytest.mark.parametrize("k", [None, 5])
@pytest.mark.parametrize(
    ("lengths", "size", "tau"),
    [("sphere", 1e3, 0.05), ("sphere", 1.0, 100.0), ("ball", 1e3, 0.1), ("none", 3.0, 1.0)],
)
@pytest.mark.sampled(6)
def test_duplicated_silent_and_long_vectors(
    *, kernel: str, dtype: torch.dtype, supervised: bool, k: int | None, lengths: str, size: float, tau: float
) -> None:
    with on_kernel(kernel):
        assert_matches(*case(SIX, k, supervised, lengths, tau, n=6), *with_edges(size, dtype))


@each_pool
@each_number
def test_the_loss_has_the_gradient_of_held_weights(supervised: bool, k: int | None) -> None:
    z0, z1 = draw_views()
    labels = torch.tensor(LABELS["uneven"])
    loss = GeneralizedContrastive(k, supervised, "none", 0.8, seed=3)
    alpha = loss.importance(z0, z1, labels, step=2)
    vectors = torch.cat([z0, z1])
    s = (vectors @ vectors.T).detach() / 0.8
    negatives = negatives_of(LABELS["uneven"], k, supervised, 5, 2)
    class_V = torch.cat([labels, labels])
    beta = torch.zeros_like(s)
    for i, drawn in enumerate(negatives):
        level = torch.logsumexp(s[i, drawn], 0) - math.log(len(drawn))
        same = class_V == class_V[i]
        beta[i, same] = torch.sigmoid(level - s[i, same]) / int(same.sum()) / 0.8
        assert sorted(set(drawn)) == alpha[i].nonzero().flatten().tolist()
    assert_close(alpha.sum(1), beta.sum(1))
    expected = gradients(((alpha - beta) * (vectors @ vectors.T)).sum() / 10, z0, z1)
    assert_close(gradients(loss(z0, z1, labels, step=2), z0, z1), expected)


@each_pool
@pytest.mark.parametrize(("k", "nonnegative"), [(None, False), (3, True)])
@pytest.mark.sampled(4)
def test_nothing_goes_below_the_floor(supervised: bool, k: int | None, nonnegative: bool) -> None:
    """Also where gradient descent pushes."""
    labels = torch.tensor([0, 0, 1, 2, 1])
    for lengths in ("sphere", "ball"):
        loss = GeneralizedContrastive(k, supervised, lengths, 0.5)
        start = torch.stack(draw_views(5, 5))
        reached = least_on_descent(
            lambda z, loss=loss: loss(*(z.abs() if nonnegative else z), labels), start, lr=0.05, num_steps=150
        )
        assert reached > loss.floor(5, nonnegative=nonnegative)
        assert loss.floor(5) < loss.floor(5, nonnegative=True) < loss.chance(5)


def test_floors_are_attained() -> None:
    loss = GeneralizedContrastive(4, True, temperature=0.3)
    opposite = torch.tensor([[1.0], [-1.0]], dtype=torch.float64)
    basis = torch.eye(2, dtype=torch.float64)
    labels = torch.arange(2)
    assert_numbers(loss(opposite, opposite, labels), loss.floor(2))
    assert_numbers(loss(basis, basis, labels), loss.floor(2, nonnegative=True))
    assert GeneralizedContrastive(normalize="none").floor(4) == 0.0


@each_pool
@each_number
def test_vectors_that_are_all_alike_are_at_chance(supervised: bool, k: int | None) -> None:
    z = torch.tensor([[0.3, -0.4]], dtype=torch.float64).expand(5, 2)
    for lengths in ("sphere", "ball", "none"):
        loss = GeneralizedContrastive(k, supervised, lengths, 0.2)
        assert_numbers(loss(z, z, torch.tensor(LABELS["uneven"])), loss.chance(5))


def test_bad_settings_are_named() -> None:
    for k in (0, -3, 2.5, True):
        with pytest.raises(
            ValueError, match=rf"num_negatives must be a whole number from 1 to .*, got {k}; None takes all"
        ):
            GeneralizedContrastive(k)  # pyright: ignore[reportArgumentType]
    for seed in (-1, 2**64):
        with pytest.raises(ValueError, match=rf"seed must be a whole number from 0 to {2**64 - 1}, got {seed}"):
            GeneralizedContrastive(seed=seed)
    with pytest.raises(ValueError, match=r"temperature .*got 0"):
        GeneralizedContrastive(temperature=0)
    with pytest.raises(ValueError, match=r"normalize must be one of sphere, ball, none, got 'cube'"):
        GeneralizedContrastive(normalize="cube")  # pyright: ignore[reportArgumentType]
    for n in (0, 1):
        with pytest.raises(ValueError, match=f"needs at least 2 samples, got {n}"):
            GeneralizedContrastive().floor(n)
        with pytest.raises(ValueError, match=f"needs at least 2 samples, got {n}"):
            GeneralizedContrastive().chance(n)
    z0, z1 = draw_views()
    with pytest.raises(ValueError, match=r"step must be a whole number from 0 to 4294967295, got -1; number the calls"):
        GeneralizedContrastive(3)(z0, z1, step=-1)


@pytest.mark.parametrize("k", [None, 3])
def test_labels_that_leave_no_negative_are_named(k: int | None) -> None:
    z0, z1 = draw_views(3)
    with pytest.raises(ValueError, match=r"labels must be given, got None: supervised=True .* or use supervised=False"):
        GeneralizedContrastive(k, True)(z0, z1)
    with pytest.raises(
        ValueError, match=r"at least 2 classes for .*supervised=True\), got label 8 only, .* larger batches"
    ):
        GeneralizedContrastive(k, True)(z0, z1, torch.tensor([8, 8, 8]))
    assert math.isfinite(float(GeneralizedContrastive(k)(z0, z1, torch.tensor([8, 8, 8])).detach()))
