"""The layers that samples pass, in the order of use."""

import pytest
import torch
from torch import Tensor, nn

from counterpoint.nn.encoders import Pooled, build_encoder
from counterpoint.nn.heads import build_projector
from counterpoint.nn.layer_outputs import layers_of
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


def test_a_layer_is_read_before_the_next_one_works_in_place() -> None:
    torch.manual_seed(0)
    known = encoder(nn.Sequential(nn.Linear(6, 6), nn.ReLU(inplace=True)), nn.Identity())
    assert names(known, draw(9, 6)) == ["0", "representation", "embedding"]
