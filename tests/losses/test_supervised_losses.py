"""SupCon and multi-positive InfoNCE against khosla2020's and miech2020's equations."""

# N samples per view, D features

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from labelled_checks import LABELS, WithLabels, classes_of, truth_of
from loss_checks import (
    KERNELS,
    assert_matches,
    assert_parts_average_to_the_whole,
    draw_views,
    gradients,
    least_on_descent,
    on_kernel,
    simplex,
    with_edges,
)
from pytorch_metric_learning.losses import SupConLoss
from torch import Tensor

from counterpoint.losses.infonce import InfoNCE
from counterpoint.losses.supervised import MultiPositive, SupCon
from oracles import labelled_losses as oracle
from oracles.number_checks import assert_numbers
from tolerances import assert_close

MEMBERS: dict[str, tuple[type[SupCon] | type[MultiPositive], Callable[..., Any]]] = {
    "supcon": (SupCon, oracle.sup_con_out),
    "multi-positive": (MultiPositive, oracle.multi_positive),
}
each_member = pytest.mark.parametrize("name", MEMBERS)
each_kernel = pytest.mark.parametrize("kernel", KERNELS)
each_dtype = pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
each_labels = pytest.mark.parametrize("labels", LABELS.values(), ids=LABELS)
SIX = [5, 2, 2, 5, 5, 0]


@each_member
@each_kernel
@each_dtype
@each_labels
@pytest.mark.sampled(2)
def test_value_and_gradient_are_the_papers(
    *, name: str, kernel: str, dtype: torch.dtype, labels: list[int] | None
) -> None:
    make, paper = MEMBERS[name]
    z0, z1 = draw_views(dtype=dtype)
    with on_kernel(kernel):
        assert_matches(WithLabels(make(0.3), labels), truth_of(paper, labels, 0.3), z0, z1)


@each_member
@pytest.mark.parametrize("labels", [None, [2, 5]])
def test_samples_of_classes_of_their_own_make_nt_xent(name: str, labels: list[int] | None) -> None:
    z0, z1 = draw_views(2)
    value = WithLabels(MEMBERS[name][0](0.4), labels)(z0, z1)
    expected = InfoNCE(0.4)(z0, z1)
    assert_close(value, expected)
    assert_close(gradients(value, z0, z1), gradients(expected, z0, z1))


def test_the_peer_gives_nothing_for_a_single_class_where_the_equation_still_repels() -> None:
    z0, z1 = draw_views()
    labels = [1] * 5
    peer = SupConLoss()(torch.cat([z0, z1]), torch.tensor(2 * labels))
    assert float(peer.detach()) == 0.0
    assert_matches(WithLabels(SupCon(0.1), labels), truth_of(oracle.sup_con_out, labels, 0.1), z0, z1)


@each_member
@each_kernel
@pytest.mark.parametrize("labels", [None, SIX])
@pytest.mark.parametrize("num_parts", [2, 3, 6])
def test_parts_average_to_the_whole(name: str, kernel: str, labels: list[int] | None, num_parts: int) -> None:
    with on_kernel(kernel):
        assert_parts_average_to_the_whole(WithLabels(MEMBERS[name][0](0.5), labels), *draw_views(6, 2), num_parts)


@each_member
@each_kernel
def test_a_low_temperature_neither_overflows_nor_loses_the_gradient(name: str, kernel: str) -> None:
    make, paper = MEMBERS[name]
    with on_kernel(kernel):
        z0, z1 = with_edges(1e3, torch.float64)
        assert_matches(WithLabels(make(0.01), SIX), truth_of(paper, SIX, 0.01), z0, z1)
        single = [z.detach().float().requires_grad_() for z in (z0, z1)]
        value = make(0.01)(*single, torch.tensor(SIX))
        exact = make(0.01)(z0, z1, torch.tensor(SIX))
        assert_close(value, exact, dtype=torch.float32)
        assert bool(torch.isfinite(gradients(value, *single)).all())


@each_member
@each_kernel
def test_a_tiny_loss_keeps_its_digits(name: str, kernel: str) -> None:
    """Classes at opposite points: e^(-2 / 0.05) = 4e-18 is far below the precision of log-sum-exps of 40."""
    z = torch.tensor([[1.0, 0.0], [-1.0, 0.0]], requires_grad=True)
    make, _ = MEMBERS[name]
    with on_kernel(kernel):
        value = make(0.05)(z, z, torch.tensor([0, 1]))
    assert_numbers(value, math.log1p(2 * math.exp(-40)), dtype=torch.float32)


@each_member
@each_labels
def test_alpha_is_the_softmax_at_other_labels(name: str, labels: list[int] | None) -> None:
    z0, z1 = (z.detach() for z in draw_views())
    alpha = MEMBERS[name][0](0.3).importance(z0, z1, None if labels is None else torch.tensor(labels))
    assert_numbers(alpha, oracle.repulsion(z0.tolist(), z1.tolist(), classes_of(labels), 0.3))


def held_gradient(loss: SupCon | MultiPositive, z0: Tensor, z1: Tensor, labels: Tensor, weights: Tensor) -> Tensor:
    """Gradient of the documented energy on unit vectors: repulsion alpha, and weights of positives, all held."""
    vectors = torch.nn.functional.normalize(torch.cat([z0, z1]), dim=1)
    total = (loss.importance(z0, z1, labels) + weights) / len(vectors)
    return gradients((total.detach() * (vectors @ vectors.T)).sum(), z0, z1)


@each_member
def test_the_loss_has_the_gradient_of_held_weights(name: str) -> None:
    z0, z1 = draw_views()
    labels, tau = torch.tensor(LABELS["uneven"]), 0.3
    loss = MEMBERS[name][0](tau)
    class_V = torch.cat([labels, labels])
    is_positive = (class_V[:, None] == class_V) & ~torch.eye(10).bool()
    vectors = torch.nn.functional.normalize(torch.cat([z0, z1]).detach(), dim=1)
    s = (vectors @ vectors.T / tau).masked_fill(torch.eye(10).bool(), -math.inf)
    if name == "supcon":
        weights = (s.softmax(1) - 1 / is_positive.sum(1, keepdim=True).double()) / tau
    else:
        picked = s.masked_fill(~is_positive, -math.inf).softmax(1)
        weights = -loss.importance(z0, z1, labels).sum(1, keepdim=True) * picked
    expected = held_gradient(loss, z0, z1, labels, weights.masked_fill(~is_positive, 0.0))  # pyright: ignore
    assert_close(gradients(loss(z0, z1, labels), z0, z1), expected)


@each_member
@pytest.mark.parametrize("tau", [0.1, 1.0])
def test_vectors_that_are_all_alike_are_at_chance(name: str, tau: float) -> None:
    z = torch.tensor([[0.6, -0.8]], dtype=torch.float64).expand(5, 2)
    loss = MEMBERS[name][0](tau)
    assert_numbers(loss(z, z), loss.chance(5))
    classes = torch.tensor(LABELS["two classes"])
    expected = math.log(9) if name == "supcon" else (2 * math.log(9 / 3) + 3 * math.log(9 / 5)) / 5
    assert_numbers(loss(z, z, classes), expected)


@each_member
@pytest.mark.parametrize("nonnegative", [False, True])
@pytest.mark.sampled(4)
@pytest.mark.thorough
def test_nothing_goes_below_the_floor(name: str, nonnegative: bool) -> None:
    """Also where gradient descent pushes, for several labels."""
    for seed in range(2):
        labels = torch.randint(0, 3, (5,), generator=torch.Generator().manual_seed(seed))
        labels[0], labels[1] = 0, 1
        loss, start = MEMBERS[name][0](0.5), torch.stack(draw_views(5, 5, seed=seed))
        reached = least_on_descent(
            lambda z, loss=loss, labels=labels: loss(*(z.abs() if nonnegative else z), labels),
            start,
            lr=0.05,
            num_steps=150,
        )
        assert reached > loss.floor(5, nonnegative=nonnegative)


def test_floors_are_attained() -> None:
    for n in (2, 3, 6):
        z = simplex(n)
        assert_numbers(SupCon(0.3)(z, z, torch.arange(n)), SupCon(0.3).floor(n))
        basis = torch.eye(n, dtype=torch.float64)
        assert_numbers(SupCon(0.3)(basis, basis), SupCon(0.3).floor(n, nonnegative=True))
    z = simplex(2)
    assert_numbers(MultiPositive(0.3)(z, z), MultiPositive(0.3).floor(2))


@pytest.mark.parametrize("labels", [[7, 7, 7], [-2, -2, -2]])
def test_a_single_class_without_a_negative_is_named(labels: list[int]) -> None:
    z0, z1 = draw_views(3)
    with pytest.raises(
        ValueError, match=rf"at least 2 classes for MultiPositive, got label {labels[0]} only, .* use larger batches"
    ):
        MultiPositive()(z0, z1, torch.tensor(labels))
