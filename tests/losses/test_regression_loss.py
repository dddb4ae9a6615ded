"""The BYOL / SimSiam regression against its papers' loops."""

# N samples, D features

import pytest
import torch
from loss_checks import Oracle, Rows, assert_matches, draw_views

from counterpoint.losses.noncontrastive import Form, Regression
from oracles import whole_batch_losses as oracle
from oracles.number_checks import assert_numbers

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
