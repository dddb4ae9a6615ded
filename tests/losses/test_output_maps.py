"""nn.outputs: sub-vector, non-negative maps and unit length between projector and loss."""

# N samples, D features

import math

import pytest
import torch

from counterpoint.core.errors import UsageError
from counterpoint.nn.heads import NONNEGATIVE, OutputMap, check_subvector, relu_gelu
from oracles.number_checks import assert_numbers
from tolerances import assert_close


def test_known_values_of_the_maps() -> None:
    x = torch.tensor([-1.0, 0.0, 2.0], dtype=torch.float64)
    known = {
        "relu": [0.0, 0.0, 2.0],
        "relu-gelu": [0.0, 0.0, 2.0],
        "softplus": [math.log1p(math.exp(v)) for v in (-1, 0, 2)],
        "sigmoid": [1 / (1 + math.exp(-v)) for v in (-1, 0, 2)],
    }
    assert known.keys() == NONNEGATIVE.keys()
    for name, values in known.items():
        assert_numbers(NONNEGATIVE[name](x), values)


def test_relu_gelu_has_the_gradient_of_the_exact_gelu() -> None:
    x = torch.linspace(-6, 6, 40, dtype=torch.float64)
    upstream = torch.linspace(1, 2, 40, dtype=torch.float64)
    ours, gelu = x.clone().requires_grad_(), x.clone().requires_grad_()
    forward = relu_gelu(ours)
    forward.backward(upstream)
    torch.nn.functional.gelu(gelu, approximate="none").backward(upstream)
    assert ours.grad is not None
    assert gelu.grad is not None
    assert torch.equal(forward, x.clamp(min=0))
    assert_close(ours.grad, gelu.grad)
    assert bool((ours.grad[x.abs() < 2] != 0).all())  # a silent feature is still pulled


def test_the_subvector_is_cut_before_anything_else() -> None:
    """(3, -4 | 9): the 9 is out before the unit length is taken, the -4 is out by then too."""
    z = torch.tensor([[3.0, -4.0, 9.0]])
    assert_numbers(OutputMap(d0=2)(z), [[0.6, -0.8]], dtype=torch.float32)
    assert OutputMap(d0=2, nonnegative="relu")(z).tolist() == [[1.0, 0.0]]
    assert OutputMap(d0=2, normalize=False)(z).tolist() == [[3.0, -4.0]]
    assert OutputMap(normalize=False)(z) is z


@pytest.mark.parametrize("name", ["none", *NONNEGATIVE])
def test_rows_have_unit_length_unless_silent(name: str, generator: torch.Generator) -> None:
    z = torch.randn(6, 4, generator=generator, dtype=torch.float64)
    z[0] = -z[0].abs()  # silent under a ReLU
    lengths = OutputMap(nonnegative=name)(z).norm(dim=1)
    assert_numbers(lengths, [0.0 if name.startswith("relu") else 1.0, *[1.0] * 5])


def test_unknown_maps_and_subvectors_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match=r"nonnegative must be one of none, relu, .*, got 'abs'"):
        OutputMap(nonnegative="abs")
    check_subvector(4, 4)
    with pytest.raises(UsageError, match=r"output\.d0 must be at most the width of the vectors it cuts, 4, got 5"):
        check_subvector(5, 4)
