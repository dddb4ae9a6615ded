"""A plan builds the same network again, through JSON, without the package."""

import json

import pytest
import torch
from torch import Tensor, nn

from counterpoint.core.errors import UsageError
from counterpoint.export.modeling_counterpoint import CounterpointEncoder, _built
from counterpoint.export.weights_folder import plan_of
from counterpoint.nn.encoders import build_encoder
from counterpoint.nn.heads import ProjectorDetails, build_projector
from foreign_files import filled

ENCODERS = [("convnet", (1, 28, 28)), ("resnet9-narrow", (3, 16, 16)), ("resnet9-narrow", (3, 80, 80)), ("mlp", (7,))]


class Doubled(nn.Module):
    """A layer that nobody else knows."""

    def forward(self, features: Tensor) -> Tensor:
        return 2 * features


class ReversedChain(nn.Sequential):
    """A sequence that is none."""

    def forward(self, input: Tensor) -> Tensor:
        for part in reversed(list(self)):
            input = part(input)
        return input


def is_built_again(module: nn.Module, samples: Tensor) -> bool:
    """Whether the network of the plan gives the same bits, with other statistics than those of a new one."""
    filled(module)
    rebuilt = _built(json.loads(json.dumps(plan_of(module, "backbone")))).eval()
    rebuilt.load_state_dict(module.state_dict())
    with torch.no_grad():
        return torch.equal(rebuilt(samples), module(samples))


@pytest.mark.parametrize(("name", "shape"), ENCODERS)
def test_encoders_of_the_catalogue_are_built_again(name: str, shape: tuple[int, ...]) -> None:
    assert is_built_again(build_encoder(name, shape), torch.randn(2, *shape))


@pytest.mark.parametrize("kind", ["none", "linear", "mlp", "low-rank", "diagonal"])
@pytest.mark.parametrize("norm", ["none", "batch", "batch-plain"])
def test_projectors_are_built_again(kind: str, norm: str) -> None:
    details = ProjectorDetails(layers=3, norm=norm, output_norm=norm != "none")
    assert is_built_again(build_projector(kind, 9, hidden=8, features=4, details=details), torch.randn(5, 9))


def test_layers_of_torch_in_sequence_are_built_again() -> None:
    layers = [nn.Conv2d(3, 4, (3, 5), (2, 1), (1, 2), groups=1), nn.GELU("tanh"), nn.MaxPool2d(2), nn.LeakyReLU(0.2)]
    network = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.LayerNorm(16))
    assert is_built_again(network, torch.randn(2, 3, 9, 9))


@pytest.mark.parametrize("part", [Doubled(), ReversedChain(nn.ReLU())])
def test_a_module_that_is_no_layer_of_torch_is_named(part: nn.Module) -> None:
    with pytest.raises(UsageError, match=rf"backbone\.1 \({type(part).__name__}\)"):
        plan_of(nn.Sequential(nn.ReLU(), part), "backbone")


def test_the_loader_refuses_other_formats_and_kinds() -> None:
    with pytest.raises(ValueError, match="format 1, got 2"):
        CounterpointEncoder({"format": 2})
    with pytest.raises(KeyError, match="library"):  # nothing that a file names is imported
        _built({"type": "library", "library": "os", "name": "x", "arguments": {}})
