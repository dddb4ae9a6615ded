"""Losses with weights per class: cross-entropy by its formula, the non-negative one by the paper's loops."""

# N samples per view, D features, C classes

import math

import pytest
import torch
from loss_checks import Oracle, assert_matches, assert_true_second_derivatives, draw_views, gradients
from torch import Tensor, nn

from counterpoint.losses.cross_entropy import ClassLoss, CrossEntropy, NonNegativeCrossEntropy
from counterpoint.losses.loss import Part
from oracles import whole_batch_losses as oracle
from oracles.number_checks import assert_numbers
from tolerances import assert_close

LABELS = torch.tensor([2, 0, 1, 2, 2])
GOOD = torch.ones(4, 2)
each_kind = pytest.mark.parametrize("kind", [CrossEntropy, NonNegativeCrossEntropy])
each_dtype = pytest.mark.parametrize("dtype", [torch.float64, torch.float32])


def linear(num_classes: int = 3, num_features: int = 3) -> CrossEntropy:
    """A loss whose biases are not zero."""
    loss = CrossEntropy(num_classes, num_features).double()
    with torch.no_grad():
        loss.class_biases.copy_(torch.linspace(-0.5, 1.0, num_classes))
    return loss


def nonnegative(
    num_classes: int = 3, num_features: int = 3, *, dtype: torch.dtype = torch.float64
) -> NonNegativeCrossEntropy:
    """A loss whose class weights have both signs."""
    loss = NonNegativeCrossEntropy(num_classes, num_features).to(dtype)
    generator = torch.Generator().manual_seed(8)
    with torch.no_grad():
        loss.class_weights.copy_(torch.randn(num_classes, num_features, generator=generator) + 0.3)
    return loss


def by_hand(loss: CrossEntropy, z0: Tensor, z1: Tensor) -> Tensor:
    """The mean over views and samples of minus the logarithm of the softmax."""
    total = torch.zeros((), dtype=z0.dtype)
    for z in (z0, z1):
        for row, label in zip(z, LABELS.tolist(), strict=True):
            logits = [(row * w).sum() + b for w, b in zip(loss.class_weights, loss.class_biases, strict=True)]
            total = total - (logits[label].exp() / torch.stack(logits).exp().sum()).log()
    return total / (2 * len(z0))


def test_value_and_gradients_are_those_of_the_formula() -> None:
    loss, (z0, z1) = linear(), draw_views()
    inputs = [z0, z1, loss.class_weights, loss.class_biases]
    value, expected = loss(z0, z1, LABELS), by_hand(loss, z0, z1)
    assert_close(value, expected)
    for found, truth in zip(torch.autograd.grad(value, inputs), torch.autograd.grad(expected, inputs), strict=True):
        assert_close(found, truth)


def truth_of(loss: NonNegativeCrossEntropy, labels: Tensor) -> Oracle:
    weights = loss.class_weights.tolist()
    return lambda a, b: oracle.nonnegative_cross_entropy(a, b, weights, labels.tolist())


@each_dtype
@pytest.mark.parametrize(("n", "d"), [(5, 3), (2, 3), (4, 1)])
def test_value_and_gradient_are_the_papers(*, dtype: torch.dtype, n: int, d: int) -> None:
    loss = nonnegative(3, d, dtype=dtype)
    assert_matches(loss, truth_of(loss, LABELS[:n]), *draw_views(n, d, dtype=dtype), LABELS[:n])


@each_dtype
def test_nonnegative_class_weights_get_their_gradient(dtype: torch.dtype) -> None:
    loss = nonnegative(dtype=dtype)
    z0, z1 = draw_views(dtype=dtype)
    slopes = torch.autograd.grad(loss(z0, z1, LABELS), loss.class_weights)[0]
    rows, flat = (z0.tolist(), z1.tolist()), loss.class_weights.flatten().tolist()

    def of_weights(weights: list[oracle.Number]) -> oracle.Number:
        return oracle.nonnegative_cross_entropy(*rows, [weights[k : k + 3] for k in (0, 3, 6)], LABELS.tolist())

    assert_numbers(slopes.flatten(), oracle.complex_step(of_weights, flat), dtype=dtype)
    assert not slopes[loss.class_weights < 0].any()
    assert bool((loss.class_weights < 0).any())


@pytest.mark.parametrize("build", [linear, nonnegative])
def test_both_derivatives_are_true(build: type[ClassLoss]) -> None:
    assert_true_second_derivatives(build(3, 3), *draw_views(3, 3), LABELS[:3])


@each_kind
def test_silent_vectors_without_a_bias_are_at_chance(kind: type[ClassLoss]) -> None:
    loss, z = kind(4, 3).double(), torch.zeros(5, 3, dtype=torch.float64)
    assert_close(loss(z, z, LABELS), torch.tensor(loss.chance(5), dtype=torch.float64))
    assert loss.chance(5) == math.log(4)


@each_kind
def test_long_vectors_along_their_class_approach_the_floor(kind: type[ClassLoss]) -> None:
    loss = kind(3, 3).double()
    with torch.no_grad():
        loss.class_weights.copy_(torch.eye(3))
    z = 40 * torch.eye(3, dtype=torch.float64)
    value = float(loss(z, z, torch.arange(3)).detach())
    for nonnegative in (False, True):
        assert 0 <= value - loss.floor(3, nonnegative=nonnegative) < 1e-15


@each_kind
def test_first_weights_are_drawn_from_no_global_state(kind: type[ClassLoss]) -> None:
    state = torch.random.get_rng_state()
    first, second = kind(50, 16), kind(50, 16)
    other = kind(50, 16, generator=torch.Generator().manual_seed(1))
    assert torch.equal(torch.random.get_rng_state(), state)
    assert torch.equal(first.class_weights, second.class_weights)
    assert not torch.equal(first.class_weights, other.class_weights)


def test_first_weights_are_a_linear_layer_s_or_alive() -> None:
    torch.manual_seed(0)
    like, loss = nn.Linear(16, 50).weight, CrossEntropy(50, 16)
    assert float(loss.class_weights.detach().abs().max()) <= 1 / 4
    # 800 draws of one distribution: deviations agree within 5 standard errors (relative, 0.45 / sqrt n for a uniform).
    assert abs(float((loss.class_weights.std() / like.std()).detach()) - 1) < 5 * 0.45 * (2 / 800) ** 0.5
    assert not loss.class_biases.any()
    relative = NonNegativeCrossEntropy(5, 16).class_weights.detach() * math.sqrt(16)
    assert 0 <= float(relative.min()) < float(relative.max()) <= 1
    assert float(relative.std()) > 0.2


def test_inputs_decide_the_precision() -> None:
    z0, z1 = draw_views()
    assert nonnegative(dtype=torch.float32)(z0, z1, LABELS).dtype == torch.float64
    assert nonnegative()(z0.float(), z1.float(), LABELS).dtype == torch.float32


@pytest.mark.parametrize(
    ("labels", "sentence"),
    [
        (None, r"labels must be given to CrossEntropy: loss\(z0, z1, labels\)"),
        (torch.tensor([0, 1, 3, 2]), r"labels must be from 0 to 2, got 3 in row 2"),
        (torch.tensor([0, -1, 3, 2]), r"labels must be from 0 to 2, got -1 in row 1"),
    ],
)
def test_missing_and_unknown_labels_are_named(labels: Tensor | None, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        linear(3, 2)(GOOD, GOOD, labels)


def test_weights_that_do_not_fit_are_named() -> None:
    labels = torch.zeros(4).long()
    with pytest.raises(ValueError, match="z0 and z1 must have 5 features like the weights, got 2"):
        linear(3, 5)(GOOD, GOOD, labels)
    with pytest.raises(ValueError, match="num_classes must be >= 2, got 1"):
        CrossEntropy(1, 4)
    with pytest.raises(ValueError, match="num_features must be >= 1, got 0"):
        CrossEntropy(3, 0)
    with pytest.raises(ValueError, match=r"must be on one device, got cpu and meta; use loss\.to\(z0\.device\)"):
        nonnegative(3, 2).to("meta")(GOOD, GOOD, labels)
    broken = nonnegative(3, 2)
    with torch.no_grad():
        broken.class_weights[1, 0] = math.nan
    with pytest.raises(ValueError, match=r"class_weights .*row 1"):
        broken(GOOD, GOOD, labels)


def test_the_whole_batch_is_taken_in_every_process() -> None:
    z0, z1 = draw_views()
    loss, part = nonnegative(), Part(0, 2, lambda statistic, is_log: statistic)
    ours, whole = loss(z0, z1, LABELS, part=part), loss(z0, z1, LABELS)
    assert torch.equal(ours, whole)
    assert torch.equal(gradients(ours, z0, z1), gradients(whole, z0, z1))


def test_a_right_answer_lowers_it() -> None:
    """The erratum: without the minus it would fall for wrong answers."""
    loss = NonNegativeCrossEntropy(2, 2)
    with torch.no_grad():
        loss.class_weights.copy_(torch.eye(2))
    z = 5 * torch.eye(2)
    right, wrong = (float(loss(z, z, torch.tensor(labels)).detach()) for labels in ([0, 1], [1, 0]))
    assert_numbers([right, wrong], [math.log(1 + math.exp(-5)), math.log(1 + math.exp(5))], dtype=torch.float32)
