"""The BYOL / SimSiam regression against its papers' loops and against lightly."""

# N samples, D features

import pytest
import torch
from lightly.loss import NegativeCosineSimilarity
from whole_batch_checks import (
    Oracle,
    Rows,
    assert_matches,
    assert_order_of_samples_does_not_matter,
    assert_true_second_derivatives,
    draw_views,
    gradients,
    rotation,
)

from counterpoint.losses.noncontrastive import Form, Regression
from oracles import whole_batch_losses as oracle
from oracles.number_checks import assert_numbers
from tolerances import assert_close, relative_error

TRUTHS: dict[Form, Oracle] = {"cosine": oracle.negative_cosine, "squared": oracle.squared_regression}
each_form = pytest.mark.parametrize("form", TRUTHS)


def with_fixed_target(truth: Oracle, target: Rows) -> Oracle:
    """The oracle as a function of the prediction alone: its gradient for z1 is then zero."""
    return lambda prediction, _: truth(prediction, target)


@each_form
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize(("n", "d"), [(5, 3), (2, 3), (4, 1)])
def test_value_and_gradient_are_the_papers(*, form: Form, dtype: torch.dtype, n: int, d: int) -> None:
    z0, z1 = draw_views(n, d, dtype=dtype)
    assert_matches(Regression(form, detach_target=False), TRUTHS[form], z0, z1)
    assert_matches(Regression(form), with_fixed_target(TRUTHS[form], z1.tolist()), z0, z1)


def test_the_target_gets_no_gradient_unless_asked() -> None:
    z0, z1 = draw_views()
    stopped, open_ = (gradients(Regression("cosine", detach)(z0, z1), z0, z1) for detach in (True, False))
    assert not stopped[1].any()
    assert float(open_[1].abs().max()) > 1e-3
    assert_close(stopped[0], open_[0])


def test_equal_to_lightly() -> None:
    for dtype in (torch.float64, torch.float32):
        z0, z1 = draw_views(16, 8, dtype=dtype)
        ours, theirs = Regression(detach_target=False)(z0, z1), NegativeCosineSimilarity()(z0, z1)
        assert_close(ours, theirs)
        assert_close(gradients(ours, z0, z1), gradients(theirs, z0, z1))


@each_form
def test_both_derivatives_are_true(form: Form) -> None:
    assert_true_second_derivatives(Regression(form, detach_target=False), *draw_views(3, 3))


@each_form
def test_what_does_not_matter(form: Form) -> None:
    loss = Regression(form)
    z0, z1 = (z.detach() for z in draw_views())
    assert_order_of_samples_does_not_matter(loss, z0, z1)
    assert_close(loss(z0 @ rotation(3), z1 @ rotation(3)), loss(z0, z1))
    assert_close(loss(z1, z0), loss(z0, z1))  # the value; the gradient is the prediction's only
    for size in (1e-30, 1e3, 1e30):
        assert_close(loss(z0 * size, z1), loss(z0, z1))
    assert relative_error(loss(z0 + 1.0, z1 + 1.0), loss(z0, z1)) > 1e-3


@each_form
def test_digits_survive_near_agreement(form: Form) -> None:
    """Directions 1e-6 apart: 2 - 2 cos of rounded cosines would be 0 in float32; differences know 1e-12."""
    z0 = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    z1 = torch.tensor([[1.0, 1e-6], [1e-6, 1.0]])
    expected = -1.0 if form == "cosine" else 1e-12
    assert_numbers(Regression(form)(z0, z1), expected, dtype=torch.float32)


@each_form
def test_floor_and_chance(form: Form) -> None:
    """Vectors that are all alike reach the floor: nothing in this loss speaks against collapse."""
    loss = Regression(form)
    z = torch.tensor([[3.0, 4.0, 1.0]], dtype=torch.float64).expand(6, 3)
    for nonnegative in (False, True):
        assert_numbers(loss(z, 2 * z), loss.floor(6, nonnegative=nonnegative))
    assert loss.chance(6) == loss.floor(6)
    worst = 1.0 if form == "cosine" else 4.0
    assert_numbers(loss(z, -z), worst)
