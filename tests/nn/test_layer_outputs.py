"""Layers of an encoder are those of the modules called by hand, and its hooks go again."""

# N samples, D features

import threading
from collections.abc import Sequence

import pytest
import torch
from torch import Tensor, nn

from counterpoint.core.errors import UsageError
from counterpoint.nn.layer_outputs import LayerReader
from counterpoint.nn.trained import Encoder, EncoderCard


class Tokens(nn.Module):
    """Vectors as three tokens."""

    def forward(self, x: Tensor) -> Tensor:
        return x.view(len(x), 3, -1)


def draw(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


def vectors(*layers: nn.Module, d0: int | None = None, nonnegative: str = "none") -> Encoder:
    torch.manual_seed(0)
    card = EncoderCard("mlp", "vectors", (6,), (0.5,) * 6, (2.0,) * 6, 6, "mlp", 4, 4, nonnegative, d0)
    return Encoder(card, nn.Sequential(*layers), nn.Linear(6, 4)).eval()


def read(encoder: Encoder, samples: Tensor, names: Sequence[str]) -> dict[str, Tensor]:
    with LayerReader(encoder, names) as reader:
        found = reader(samples)
    assert list(found) == list(names)
    assert num_hooks(encoder) == 0
    return found


def num_hooks(encoder: Encoder) -> int:
    return sum(len(module._forward_hooks) for module in encoder.modules())


@torch.no_grad()
def test_outputs_are_those_of_the_parts_by_hand() -> None:
    linear, samples = nn.Linear(6, 6), draw(7, 6)
    encoder = vectors(linear, nn.ReLU(), nonnegative="relu")
    found = read(encoder, samples, ["0", "representation", "projected", "embedding"])
    r_0 = linear((samples - 0.5) / 2)
    projected = encoder.projector(r_0.relu())
    positive = projected.relu()
    lengths = positive.norm(dim=1, keepdim=True)
    expected = {
        "0": r_0,
        "representation": r_0.relu(),
        "projected": projected,
        "embedding": torch.where(lengths > 0, positive / lengths, 0.0),
    }
    for name, rows in expected.items():
        assert torch.allclose(found[name], rows, atol=1e-6), name


@torch.no_grad()
def test_tokens_and_maps_are_averaged() -> None:
    samples = draw(5, 6)
    found = read(vectors(Tokens(), nn.Flatten()), samples, ["0"])
    assert torch.allclose(found["0"], ((samples - 0.5) / 2).view(5, 3, 2).mean(dim=1), atol=1e-6)
    card = EncoderCard("convnet", "images", (1, 8, 8), (0.5,), (0.25,), 2, "none", 2, 2, "none", None)
    torch.manual_seed(0)
    convolution = nn.Conv2d(1, 2, 3)
    backbone = nn.Sequential(convolution, nn.AdaptiveMaxPool2d(1), nn.Flatten())
    images = (draw(4, 1, 8, 8) * 255).abs().clamp(max=255).to(torch.uint8)
    found = read(Encoder(card, backbone, nn.Identity()), images, ["0", "representation"])
    maps = convolution((images / 255 - 0.5) / 0.25)
    assert torch.allclose(found["0"], maps.mean(dim=(2, 3)), atol=1e-5)
    assert torch.allclose(found["representation"], maps.amax(dim=(2, 3)), atol=1e-5)


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("blok", "unknown layer 'blok'; did you mean 'block'"),
        ("representations", "did you mean 'representation'"),
        ("", "unknown layer ''"),
    ],
)
def test_an_unknown_layer_names_the_nearest_and_leaves_no_hook(name: str, complaint: str) -> None:
    encoder = vectors(nn.Identity())
    encoder.backbone.add_module("block", nn.Identity())
    with pytest.raises(UsageError, match=complaint):
        LayerReader(encoder, ["block", name])
    assert num_hooks(encoder) == 0


def test_a_layer_that_no_sample_passes_is_named() -> None:
    encoder = vectors(nn.Identity())
    unused = nn.Module()
    unused.add_module("head", nn.Linear(6, 2))
    first = encoder.backbone.get_submodule("0")
    first.add_module("unused", unused)
    with pytest.raises(UsageError, match=r"layer 0\.unused\.head is not used"):
        read(encoder, draw(3, 6), ["0.unused.head"])


def test_threads_read_their_own_samples() -> None:
    encoder = vectors(nn.Linear(6, 6), nn.ReLU())
    parts = [draw(n, 6) for n in range(1, 41)]
    expected = [read(encoder, part, ["0", "embedding"]) for part in parts]
    found: dict[int, dict[str, Tensor]] = {}
    with LayerReader(encoder, ["0", "embedding"]) as reader:

        def work(first: int) -> None:
            for place in range(first, len(parts), 4):
                found[place] = reader(parts[place])

        threads = [threading.Thread(target=work, args=(first,)) for first in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    for place, layers in enumerate(expected):
        assert all(torch.equal(found[place][name], layers[name]) for name in layers)
