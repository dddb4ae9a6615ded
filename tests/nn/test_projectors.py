"""Projectors: the head between representation and output map."""

import pytest
import torch
from torch import nn

from counterpoint.nn.projectors import build_projector


def test_none_is_the_identity(generator: torch.Generator) -> None:
    r = torch.randn(3, 7, generator=generator)
    assert build_projector("none", 7, hidden=5, features=4)(r) is r


def test_linear_is_one_matrix(generator: torch.Generator) -> None:
    projector = build_projector("linear", 7, hidden=5, features=4)
    first, second = torch.randn(2, 3, 7, generator=generator)
    assert [tuple(p.shape) for p in projector.parameters()] == [(4, 7)]
    assert torch.allclose(projector(first + 2 * second), projector(first) + 2 * projector(second), atol=1e-5)


def test_mlp_has_one_hidden_layer_and_no_norms(generator: torch.Generator) -> None:
    projector = build_projector("mlp", 7, hidden=5, features=4)
    assert [tuple(p.shape) for p in projector.parameters()] == [(5, 7), (5,), (4, 5), (4,)]
    assert list(projector.buffers()) == []  # a running statistic would have to be shared between ranks
    samples = torch.randn(6, 7, generator=generator)
    first, first_bias, second, second_bias = projector.parameters()
    expected = (samples @ first.T + first_bias).clamp(min=0) @ second.T + second_bias
    assert torch.allclose(projector(samples), expected, atol=1e-6)
    assert not any(isinstance(module, nn.modules.batchnorm._BatchNorm) for module in projector.modules())


def test_an_unknown_kind_is_refused() -> None:
    with pytest.raises(ValueError, match="projector kind must be one of none, linear, mlp, low-rank, diagonal, got 'deep'"):
        build_projector("deep", 7, hidden=5, features=4)
