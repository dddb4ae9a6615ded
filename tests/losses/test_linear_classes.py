"""Cross-entropy of a linear classifier: torch's own on logits made by hand, derivatives, bad input."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from whole_batch_checks import (
    assert_true_second_derivatives,
    draw_views,
)

from counterpoint.losses.cross_entropy import CrossEntropy
from tolerances import assert_close

LABELS = torch.tensor([2, 0, 1, 2, 2])


def build(num_classes: int = 3, num_features: int = 3, *, dtype: torch.dtype = torch.float64) -> CrossEntropy:
    """A loss whose biases are not zero."""
    loss = CrossEntropy(num_classes, num_features).to(dtype)
    with torch.no_grad():
        loss.class_biases.copy_(torch.linspace(-0.5, 1.0, num_classes))
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
    loss, (z0, z1) = build(), draw_views()
    inputs = [z0, z1, loss.class_weights, loss.class_biases]
    value, expected = loss(z0, z1, LABELS), by_hand(loss, z0, z1)
    assert_close(value, expected)
    for found, truth in zip(torch.autograd.grad(value, inputs), torch.autograd.grad(expected, inputs), strict=True):
        assert_close(found, truth)


def test_both_derivatives_are_true() -> None:
    assert_true_second_derivatives(build(), *draw_views(3, 3), LABELS[:3])


def test_silent_vectors_without_a_bias_are_at_chance() -> None:
    loss, z = CrossEntropy(4, 3).double(), torch.zeros(5, 3, dtype=torch.float64)
    assert_close(loss(z, z, LABELS), torch.tensor(loss.chance(5), dtype=torch.float64))
    assert loss.chance(5) == math.log(4)


def test_first_weights_are_drawn_as_a_linear_layer_s_from_no_global_state() -> None:
    state = torch.random.get_rng_state()
    first, second = CrossEntropy(50, 16), CrossEntropy(50, 16)
    other = CrossEntropy(50, 16, generator=torch.Generator().manual_seed(1))
    assert torch.equal(torch.random.get_rng_state(), state)
    assert torch.equal(first.class_weights, second.class_weights)
    assert not torch.equal(first.class_weights, other.class_weights)
    torch.manual_seed(0)
    like = nn.Linear(16, 50).weight
    torch.random.set_rng_state(state)
    assert float(first.class_weights.detach().abs().max()) <= 1 / 4
    # 800 draws of one distribution: deviations agree within 5 standard errors (relative, 0.45 / sqrt n for a uniform).
    assert abs(float((first.class_weights.std() / like.std()).detach()) - 1) < 5 * 0.45 * (2 / 800) ** 0.5
    assert not first.class_biases.any()


GOOD = torch.ones(4, 2)
BAD_LABELS: list[tuple[Any, str]] = [
    (None, r"labels must be given to CrossEntropy: loss\(z0, z1, labels\)"),
    (torch.tensor([0, 1, 3, 2]), r"labels must be from 0 to 2, got 3 in row 2"),
    (torch.tensor([0, -1, 3, 2]), r"labels must be from 0 to 2, got -1 in row 1"),
]


@pytest.mark.parametrize(("labels", "sentence"), BAD_LABELS)
def test_missing_and_unknown_labels_are_named(labels: Tensor | None, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        build(3, 2)(GOOD, GOOD, labels)


def test_what_does_not_fit_is_named() -> None:
    with pytest.raises(ValueError, match="z0 and z1 must have 5 features like the weights, got 2"):
        build(3, 5)(GOOD, GOOD, torch.zeros(4).long())
    with pytest.raises(ValueError, match="num_classes must be >= 2, got 1"):
        CrossEntropy(1, 4)
    with pytest.raises(ValueError, match="num_features must be >= 1, got 0"):
        CrossEntropy(3, 0)
