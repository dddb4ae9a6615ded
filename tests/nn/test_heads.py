"""Projectors: the head between representation and output map."""

import pytest
import torch
from torch import nn

from counterpoint.nn.heads import ProjectorDetails, build_projector, output_width
from tolerances import assert_close, relative_error

BATCH_NORM = ProjectorDetails(layers=3, norm="batch")


def test_mlp_has_one_hidden_layer_and_no_norms(generator: torch.Generator) -> None:
    projector = build_projector("mlp", 7, hidden=5, features=4)
    assert [tuple(p.shape) for p in projector.parameters()] == [(5, 7), (5,), (4, 5), (4,)]
    assert list(projector.buffers()) == []  # a running statistic would have to be shared between ranks
    samples = torch.randn(6, 7, generator=generator)
    first, first_bias, second, second_bias = projector.parameters()
    expected = (samples @ first.T + first_bias).clamp(min=0) @ second.T + second_bias
    assert torch.allclose(projector(samples), expected, atol=1e-6)
    assert not any(isinstance(module, nn.modules.batchnorm._BatchNorm) for module in projector.modules())


@pytest.mark.parametrize("layers", [2, 3, 5])
@pytest.mark.parametrize("norm", ["none", "batch"])
def test_an_mlp_has_the_layers_asked_for(layers: int, norm: str) -> None:
    projector = build_projector("mlp", 7, hidden=5, features=4, details=ProjectorDetails(layers, norm))
    linear = [module for module in projector.modules() if isinstance(module, nn.Linear)]
    norms = [module for module in projector.modules() if isinstance(module, nn.BatchNorm1d)]
    assert [layer.in_features for layer in linear] == [7] + [5] * (layers - 1)
    assert [layer.out_features for layer in linear] == [5] * (layers - 1) + [4]
    assert len(norms) == (layers - 1 if norm == "batch" else 0)
    assert [layer.bias is None for layer in linear] == [norm == "batch"] * (layers - 1) + [False]


def test_batch_norm_stands_between_linear_layer_and_relu(generator: torch.Generator) -> None:
    projector = build_projector("mlp", 7, hidden=5, features=4, details=BATCH_NORM).double()
    x = torch.randn(6, 7, dtype=torch.float64, generator=generator)
    weights = [module.weight for module in projector.modules() if isinstance(module, nn.Linear)]
    expected = x
    for weight in weights[:-1]:
        hidden = expected @ weight.T
        expected = ((hidden - hidden.mean(0)) / (hidden.var(0, unbiased=False) + 1e-5).sqrt()).clamp(min=0)
    assert_close(projector(x), expected @ weights[-1].T + dict(projector.named_parameters())["6.bias"])


def test_simsiam_s_output_norm_has_no_weights(generator: torch.Generator) -> None:
    details = ProjectorDetails(layers=3, norm="batch", output_norm=True)
    projector = build_projector("mlp", 7, hidden=5, features=4, details=details).double()
    z = projector(torch.randn(50, 7, dtype=torch.float64, generator=generator))
    assert_close(z.mean(0) + 1, torch.ones(4, dtype=torch.float64))
    assert relative_error(z.var(0, unbiased=False), torch.ones(4)) < 1e-2
    assert isinstance(last := list(projector.children())[-1], nn.BatchNorm1d)
    assert list(last.parameters()) == []
    without = ProjectorDetails(layers=3, norm="none", output_norm=True)
    plain = build_projector("mlp", 7, hidden=5, features=4, details=without)
    assert not any(isinstance(module, nn.BatchNorm1d) for module in plain.modules())


@pytest.mark.parametrize(("norm", "has_scale"), [("batch", True), ("batch-plain", False)])
@pytest.mark.parametrize("output_scale", [True, False])
def test_norms_have_a_scale_where_it_is_asked_for(norm: str, has_scale: bool, output_scale: bool) -> None:
    details = ProjectorDetails(norm=norm, output_norm=True, output_scale=output_scale)
    projector = build_projector("mlp", 4, hidden=3, features=2, details=details)
    norms = [module for module in projector.modules() if isinstance(module, nn.BatchNorm1d)]
    assert [module.affine for module in norms] == [has_scale, output_scale]
    assert not any(module.bias is not None for module in projector.modules() if isinstance(module, nn.Linear))


@pytest.mark.parametrize("rank", [None, 1, 3, 8])
def test_low_rank_keeps_a_fixed_subspace(rank: int | None, generator: torch.Generator) -> None:
    projector = build_projector("low-rank", 8, hidden=5, features=4, details=ProjectorDetails(rank=rank)).double()
    expected = 4 if rank is None else rank
    matrix = projector(torch.eye(8, dtype=torch.float64)).T
    assert matrix.shape == (expected, 8)
    singular = torch.linalg.svdvals(matrix)
    assert relative_error(singular, torch.ones(expected)) < 1e-6  # drawn in float32
    assert list(projector.parameters()) == []
    assert list(projector.state_dict()) == ["rows_RD"]  # saved with the encoder, not drawn anew


def test_diagonal_starts_as_the_identity_and_is_trained(generator: torch.Generator) -> None:
    r = torch.randn(3, 7, generator=generator)
    projector = build_projector("diagonal", 7, hidden=5, features=4)
    assert torch.equal(projector(r), r)
    (scale,) = projector.parameters()
    projector(r).sum().backward()
    assert scale.grad is not None
    assert torch.allclose(scale.grad, r.sum(0))
    with torch.no_grad():
        scale.copy_(torch.arange(7.0))
    assert torch.equal(projector(r), r * torch.arange(7.0))


@pytest.mark.parametrize("kind", ["none", "linear", "mlp", "low-rank", "diagonal", "sparse"])
@pytest.mark.parametrize("rank", [None, 2])
def test_the_width_of_the_output_is_known_beforehand(kind: str, rank: int | None) -> None:
    projector = build_projector(kind, 9, hidden=5, features=4, details=ProjectorDetails(rank=rank, active=2))
    assert projector(torch.zeros(2, 9)).shape == (2, output_width(kind, 9, features=4, rank=rank))


@pytest.mark.parametrize(
    ("kind", "details", "sentence"),
    [
        ("mlp", ProjectorDetails(layers=1), "projector layers must be >= 2, got 1; one layer is the kind linear"),
        ("mlp", ProjectorDetails(norm="layer"), "projector norm must be one of none, batch, batch-plain, got 'layer'"),
        ("low-rank", ProjectorDetails(rank=8), "projector.rank must be between 1 and the width .*, 7, got 8"),
        ("low-rank", ProjectorDetails(rank=0), "projector.rank must be between 1 and the width .*, 7, got 0"),
    ],
)
def test_details_out_of_range_are_refused(kind: str, details: ProjectorDetails, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        build_projector(kind, 7, hidden=5, features=4, details=details)
