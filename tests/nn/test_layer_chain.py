"""The layers that samples pass, in the order of use, and linear layers that follow each other."""

import pytest
import torch
from torch import Tensor, nn

from counterpoint.nn.encoders import Pooled, build_encoder
from counterpoint.nn.heads import build_projector
from counterpoint.nn.layer_outputs import layers_of, linear_pairs
from counterpoint.nn.trained import Encoder, EncoderCard


def encoder(backbone: nn.Module, projector: nn.Module, in_shape: tuple[int, ...] = (6,), width: int = 6) -> Encoder:
    kind = "vectors" if len(in_shape) == 1 else "images"
    scale = ((0.0,) * in_shape[0], (1.0,) * in_shape[0])
    card = EncoderCard("custom", kind, in_shape, *scale, width, "mlp", 4, 4, "none", None)
    return Encoder(card, backbone, projector).eval()


def draw(*shape: int) -> Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(0))


class Residual(nn.Module):
    """A block around a shortcut, which is one layer."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.norm = nn.Linear(6, 6), nn.LayerNorm(6)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.norm(self.inner(x))


def names(known: Encoder, samples: Tensor) -> list[str]:
    return [layer.name for layer in layers_of(known, samples)]


def test_sequences_are_taken_apart_and_blocks_are_one_layer() -> None:
    torch.manual_seed(0)
    backbone = nn.Sequential(nn.Sequential(nn.Linear(6, 6), nn.Dropout(0.5), nn.ReLU()), Residual(), nn.Linear(6, 5))
    found = layers_of(encoder(backbone, build_projector("mlp", 5, hidden=7, features=4)), draw(9, 6))
    assert [layer.name for layer in found] == [
        *("0.0", "0.2", "1", "representation", "projector.0", "projector.1", "projector.2", "embedding")
    ]
    assert [layer.kind for layer in found][2:4] == ["Residual", "Linear"]
    assert [layer.num_dims for layer in found] == [6, 6, 6, 5, 7, 7, 4, 4]
    assert not any(layer.is_pooled for layer in found)


def test_maps_are_averaged_and_a_wrapper_is_looked_into() -> None:
    torch.manual_seed(0)
    body = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(inplace=True), nn.Conv2d(4, 6, 3))
    found = layers_of(encoder(Pooled(body, (2, 3)), nn.Linear(6, 2), (3, 8, 8)), draw(5, 3, 8, 8))
    assert [layer.name for layer in found] == ["body.0", "body.1", "representation", "projected", "embedding"]
    assert [layer.is_pooled for layer in found] == [True, True, True, False, False]


@pytest.mark.parametrize("name", ["convnet", "resnet18"])
def test_layers_of_our_own_encoders(name: str) -> None:
    torch.manual_seed(0)
    known = encoder(build_encoder(name, (3, 32, 32)), nn.Identity(), (3, 32, 32), 512)
    found = names(known, draw(4, 3, 32, 32))
    assert found[-2:] == ["representation", "embedding"]
    assert found[0] == ("stem.0" if name == "resnet18" else "0")
    assert len(found) == {"convnet": 13, "resnet18": 12}[name]


def test_pairs_pass_norms_and_activations_only() -> None:
    torch.manual_seed(0)
    norm = nn.BatchNorm1d(7)
    first, second, third = nn.Linear(6, 7), nn.Linear(7, 6), nn.Linear(6, 4)
    with torch.no_grad():
        norm.weight.copy_(draw(7) + 1)
    norm.running_var = draw(7) + 0.5
    assert norm.running_var is not None
    known = encoder(nn.Sequential(first, norm, nn.ReLU(), nn.Dropout(), second), nn.Sequential(nn.GELU(), third))
    a, b = linear_pairs(known)
    assert (a.below, a.above, b.below, b.above) == ("0", "4", "4", "projector.1")
    # In evaluation a BatchNorm scales each row of the layer before it.
    x = draw(5, 6)
    with torch.no_grad():
        shifted = norm(first(x)) - norm(first(torch.zeros_like(x)))
    torch.testing.assert_close((x.double() @ a.below_HD.T).float(), shifted)
    torch.testing.assert_close(a.above_KH.float(), second.weight.detach())
    assert torch.equal(b.below_HD.float(), second.weight.detach())


def test_a_layer_is_read_before_the_next_one_works_in_place() -> None:
    torch.manual_seed(0)
    known = encoder(nn.Sequential(nn.Linear(6, 6), nn.ReLU(inplace=True)), nn.Identity())
    assert names(known, draw(9, 6)) == ["0", "representation", "embedding"]
