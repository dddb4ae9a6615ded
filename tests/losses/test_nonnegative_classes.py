"""Non-negative cross-entropy against the paper's loops, with the sign the paper lost."""

# N samples per view, D features, C classes

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from whole_batch_checks import (
    Oracle,
    assert_matches,
    assert_true_second_derivatives,
    draw_views,
    gradients,
)

from counterpoint.losses.cross_entropy import NonNegativeCrossEntropy
from counterpoint.losses.loss import Part
from oracles import whole_batch_losses as oracle
from oracles.number_checks import assert_numbers
from tolerances import assert_close

LABELS = torch.tensor([2, 0, 1, 2, 2])


def build(
    num_classes: int = 3, num_features: int = 3, *, dtype: torch.dtype = torch.float64
) -> NonNegativeCrossEntropy:
    """A loss whose class weights have both signs."""
    loss = NonNegativeCrossEntropy(num_classes, num_features).to(dtype)
    generator = torch.Generator().manual_seed(8)
    with torch.no_grad():
        loss.class_weights.copy_(torch.randn(num_classes, num_features, generator=generator) + 0.3)
    return loss


def truth_of(loss: NonNegativeCrossEntropy, labels: Tensor) -> Oracle:
    weights = loss.class_weights.tolist()
    return lambda a, b: oracle.nonnegative_cross_entropy(a, b, weights, labels.tolist())


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize(("n", "d"), [(5, 3), (2, 3), (4, 1)])
def test_value_and_gradient_are_the_papers(*, dtype: torch.dtype, n: int, d: int) -> None:
    loss = build(3, d, dtype=dtype)
    assert_matches(loss, truth_of(loss, LABELS[:n]), *draw_views(n, d, dtype=dtype), LABELS[:n])


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_the_class_weights_get_their_gradient(dtype: torch.dtype) -> None:
    loss = build(dtype=dtype)
    z0, z1 = draw_views(dtype=dtype)
    slopes = torch.autograd.grad(loss(z0, z1, LABELS), loss.class_weights)[0]
    rows, flat = (z0.tolist(), z1.tolist()), loss.class_weights.flatten().tolist()

    def of_weights(weights: list[oracle.Number]) -> oracle.Number:
        return oracle.nonnegative_cross_entropy(*rows, [weights[k : k + 3] for k in (0, 3, 6)], LABELS.tolist())

    assert_numbers(slopes.flatten(), oracle.complex_step(of_weights, flat), dtype=dtype)
    assert not slopes[loss.class_weights < 0].any()
    assert bool((loss.class_weights < 0).any())


def test_it_is_cross_entropy_of_rectified_vectors_without_a_bias() -> None:
    loss = build()
    z0, z1 = draw_views()
    weights = loss.class_weights.clamp(min=0)
    expected = (
        F.cross_entropy(z0.clamp(min=0) @ weights.T, LABELS) + F.cross_entropy(z1.relu() @ weights.T, LABELS)
    ) / 2
    assert_close(loss(z0, z1, LABELS), expected)
    assert list(loss.state_dict()) == ["class_weights"]


def test_a_right_answer_lowers_it() -> None:
    """The erratum: without the minus it would fall for wrong answers."""
    loss = NonNegativeCrossEntropy(2, 2)
    with torch.no_grad():
        loss.class_weights.copy_(torch.eye(2))
    z = 5 * torch.eye(2)
    right, wrong = (float(loss(z, z, torch.tensor(labels)).detach()) for labels in ([0, 1], [1, 0]))
    assert_numbers([right, wrong], [math.log(1 + math.exp(-5)), math.log(1 + math.exp(5))], dtype=torch.float32)


def test_both_derivatives_are_true() -> None:
    assert_true_second_derivatives(build(), *draw_views(3, 3), LABELS[:3])


def test_silent_vectors_are_at_chance() -> None:
    z = -torch.rand(6, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    labels = torch.tensor([0, 1, 2, 3, 3, 3])
    loss = build(4, 3)
    assert_numbers(loss(z, z, labels), loss.chance(6))
    assert loss.chance(6) == math.log(4)


@pytest.mark.parametrize("nonnegative", [False, True])
def test_long_vectors_along_their_class_approach_the_floor(nonnegative: bool) -> None:
    loss = NonNegativeCrossEntropy(3, 3).double()
    with torch.no_grad():
        loss.class_weights.copy_(torch.eye(3))
    z = 40 * torch.eye(3, dtype=torch.float64)
    value = float(loss(z, z, torch.arange(3)).detach())
    assert 0 <= value - loss.floor(3, nonnegative=nonnegative) < 1e-15


def test_first_weights_are_alive_and_drawn_from_no_global_state() -> None:
    state = torch.random.get_rng_state()
    first, second = NonNegativeCrossEntropy(5, 16), NonNegativeCrossEntropy(5, 16)
    other = NonNegativeCrossEntropy(5, 16, generator=torch.Generator().manual_seed(1))
    assert torch.equal(torch.random.get_rng_state(), state)
    assert torch.equal(first.class_weights, second.class_weights)
    assert not torch.equal(first.class_weights, other.class_weights)
    for loss in (first, other):
        relative = loss.class_weights.detach() * math.sqrt(16)
        assert 0 <= float(relative.min()) < float(relative.max()) <= 1
        assert float(relative.std()) > 0.2


def test_inputs_decide_the_precision() -> None:
    z0, z1 = draw_views()
    assert build(dtype=torch.float32)(z0, z1, LABELS).dtype == torch.float64
    assert build()(z0.float(), z1.float(), LABELS).dtype == torch.float32


GOOD = torch.ones(4, 2)


def test_weights_that_do_not_fit_are_named() -> None:
    labels = torch.zeros(4).long()
    with pytest.raises(ValueError, match=r"must be on one device, got cpu and meta; use loss\.to\(z0\.device\)"):
        build(3, 2).to("meta")(GOOD, GOOD, labels)
    broken = build(3, 2)
    with torch.no_grad():
        broken.class_weights[1, 0] = math.nan
    with pytest.raises(ValueError, match="class_weights must be finite, but row 1 holds NaN or infinity"):
        broken(GOOD, GOOD, labels)


def test_the_whole_batch_is_taken_in_every_process() -> None:
    z0, z1 = draw_views()
    loss, part = build(), Part(0, 2, lambda statistic, is_log: statistic)
    ours, whole = loss(z0, z1, LABELS, part=part), loss(z0, z1, LABELS)
    assert torch.equal(ours, whole)
    assert torch.equal(gradients(ours, z0, z1), gradients(whole, z0, z1))
