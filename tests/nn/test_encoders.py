"""Encoders: every one of the catalogue, timm's by name, and the user's own module."""

import pytest
import torch
import torchvision
from torch import Tensor, nn

from counterpoint.core.errors import UsageError
from counterpoint.nn.encoders import CATALOGUE, ResNet, build_encoder, feature_width, with_pooling
from refusals import refused
from tolerances import assert_close

WIDTHS = {"convnet": 256, "resnet9-narrow": 128, "resnet9": 512, "resnet18": 512, "resnet50": 2048, "mlp": 256}
WIDTHS["identity"] = 5  # of five features
IMAGE_ENCODERS = [name for name, entry in CATALOGUE.items() if entry.kind == "images"]


def refusal(module: nn.Module, in_shape: tuple[int, ...] = (1, 8, 8)) -> str:
    return refused(UsageError, with_pooling, module, in_shape)


# --- the catalogue


def test_every_encoder_has_its_width_written_here() -> None:
    assert CATALOGUE.keys() == WIDTHS.keys()


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("side", [8, 32])
@pytest.mark.parametrize("name", IMAGE_ENCODERS)
@pytest.mark.sampled(3)
def test_an_image_encoder_gives_one_vector_per_image(
    name: str, side: int, channels: int, generator: torch.Generator
) -> None:
    encoder = build_encoder(name, (channels, side, side))
    with torch.no_grad():
        features = encoder(torch.rand(2, channels, side, side, generator=generator))
    assert features.shape == (2, WIDTHS[name])
    assert feature_width(encoder, (channels, side, side)) == WIDTHS[name]
    assert bool(torch.isfinite(features).all())
    assert float((features[0] - features[1]).abs().max()) > 0


@pytest.mark.parametrize("side", [8, 16, 31, 32, 48, 64, 96, 160])
def test_the_small_convnet_looks_at_every_pixel(side: int, generator: torch.Generator) -> None:
    encoder = build_encoder("convnet", (1, side, side)).eval()
    images = torch.rand(4, 1, side, side, generator=generator, requires_grad=True)
    encoder(images).square().sum().backward()
    assert images.grad is not None
    is_seen = images.grad.abs().sum(dim=(0, 1)) > 0
    assert bool(is_seen.all()), f"{int((~is_seen).sum())} of {side * side} pixels change nothing"


@pytest.mark.parametrize(("name", "count"), [("resnet18", 11_176_512), ("resnet50", 23_508_032)])
def test_the_bottleneck_and_basic_blocks_have_the_published_sizes(name: str, count: int) -> None:
    # torchvision's without the classifier; the 7 x 7 stem of 9,408 weights is 3 x 3 of 1,728 for small images.
    for side, expected in ((224, count), (32, count - 9_408 + 1_728)):
        assert sum(p.numel() for p in build_encoder(name, (3, side, side)).parameters()) == expected


def test_large_images_get_the_published_stem() -> None:
    """torchvision's, for images above 64 px: four times fewer pixels along each side reach the first block."""
    for side, kernel, maps in ((64, 3, 64), (65, 7, 17), (128, 7, 32)):
        encoder = build_encoder("resnet9-narrow", (3, side, side))
        assert isinstance(encoder, ResNet)
        assert encoder.state_dict()["stem.0.weight"].shape[2:] == (kernel, kernel)
        assert encoder.stem(torch.zeros(1, 3, side, side)).shape[2:] == (maps, maps)


def test_a_stem_can_be_asked_for() -> None:
    small, large = (build_encoder("resnet9-narrow", (3, 96, 96), stem) for stem in ("small", "large"))
    assert isinstance(small, ResNet)
    assert isinstance(large, ResNet)
    assert (len(small.stem), len(large.stem)) == (3, 4)
    with pytest.raises(ValueError, match="stem must be one of small, large, small-padded, small-cut"):
        build_encoder("resnet9", (3, 32, 32), "medium")


@pytest.mark.parametrize(("stem", "side"), [("small", 32), ("small-padded", 34), ("small-cut", 30)])
def test_a_small_stem_pads_as_asked(stem: str, side: int) -> None:
    """solo-learn pads the 3 x 3 convolution of CIFAR by 2, miossl not at all."""
    encoder = build_encoder("resnet9-narrow", (3, 32, 32), stem)
    assert isinstance(encoder, ResNet)
    assert encoder.stem(torch.zeros(1, 3, 32, 32)).shape[2:] == (side, side)


@pytest.mark.parametrize("name", ["resnet18", "resnet50"])
def test_kernels_can_be_drawn_as_torchvision_draws_them(name: str) -> None:
    def deviations(module: nn.Module) -> list[float]:
        return sorted(float(part.weight.detach().std()) for part in module.modules() if isinstance(part, nn.Conv2d))

    torch.manual_seed(0)
    peer = getattr(torchvision.models, name)()
    ours = build_encoder(name, (3, 224, 224), "large", "normal")
    plain = build_encoder(name, (3, 224, 224), "large")
    # The smallest kernels have 4096 weights: a difference of two deviations has a standard error of 1 / 64 of them.
    assert deviations(ours) == pytest.approx(deviations(peer), rel=5 / 64)
    assert deviations(plain) != pytest.approx(deviations(peer), rel=0.2)


def test_blocks_can_begin_as_their_shortcut(generator: torch.Generator) -> None:
    encoder = build_encoder("resnet9-narrow", (3, 32, 32), "small", "normal-zero").eval()
    assert isinstance(encoder, ResNet)
    features = torch.rand(2, 16, 8, 8, generator=generator)
    assert_close(encoder.blocks[0](features), features)
    drawn = build_encoder("resnet9-narrow", (3, 32, 32), "small", "normal").eval()
    assert isinstance(drawn, ResNet)
    assert not torch.allclose(drawn.blocks[0](features), features)


def test_an_unknown_encoder_gets_the_nearest_name() -> None:
    with pytest.raises(UsageError, match=r"unknown encoder 'resnet19'; did you mean 'resnet18'\?|'resnet9'"):
        build_encoder("resnet19", (3, 32, 32))


# --- timm


def test_a_timm_model_by_name(generator: torch.Generator) -> None:
    pytest.importorskip("timm", reason="timm (extra `vision`) is not installed")
    for channels in (1, 3):
        encoder = build_encoder("timm:resnet18", (channels, 32, 32))
        assert encoder(torch.rand(2, channels, 32, 32, generator=generator)).shape == (2, 512)
        assert feature_width(encoder, (channels, 32, 32)) == 512


def test_a_timm_model_that_does_not_fit_is_refused() -> None:
    pytest.importorskip("timm", reason="timm (extra `vision`) is not installed")
    with pytest.raises(UsageError, match=r"cannot take samples of shape \(3, 8, 8\)"):
        build_encoder("timm:vit_tiny_patch16_224", (3, 8, 8))


# --- the user's own module


class Maps(nn.Module):
    """Feature maps (n, 4, h, w)."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(1, 4, 3, padding=1)

    def forward(self, images: Tensor) -> Tensor:
        return self.convolution(images)


class Tokens(nn.Module):
    """Tokens (n, t, 4)."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Linear(8, 4)

    def forward(self, images: Tensor) -> Tensor:
        return self.embedding(images[:, 0])


class Returns(nn.Module):
    """Hands its input to any function."""

    def __init__(self, function) -> None:
        super().__init__()
        self.function = function

    def forward(self, images: Tensor) -> Tensor:
        return self.function(images)


@pytest.mark.parametrize(("module", "axes"), [(Maps(), (2, 3)), (Tokens(), (1,))], ids=["maps", "tokens"])
def test_maps_and_tokens_are_averaged(module: nn.Module, axes: tuple[int, ...], generator: torch.Generator) -> None:
    images = torch.rand(3, 1, 8, 8, generator=generator)
    pooled = with_pooling(module, (1, 8, 8))
    assert torch.equal(pooled(images), module(images).mean(dim=axes))
    assert feature_width(pooled, (1, 8, 8)) == 4


@pytest.mark.parametrize(
    ("function", "complaint"),
    [
        (lambda x: (x.flatten(1), x), "must return a tensor, got tuple"),
        (lambda x: {"features": x}, "must return a tensor, got dict"),
        (lambda x: x.mean(), "got shape ()"),
        (lambda x: x[..., None], "got shape (2, 1, 8, 8, 1)"),
        (lambda x: x.flatten(1)[:1], "got shape (1, 64)"),
        (lambda x: x @ torch.zeros(9, 9), "cannot take samples of shape (1, 8, 8)"),
        (lambda x: x.no_such_thing, "no attribute 'no_such_thing'"),
        (lambda x: {}["missing"], "missing"),
        (lambda x: x[7], "out of bounds"),
    ],
    ids=["tuple", "dict", "scalar", "five axes", "half the batch", "shapes", "attribute", "key", "index"],
)
def test_a_module_that_cannot_be_an_encoder_is_refused_in_one_line(function, complaint: str) -> None:
    assert complaint in refusal(Returns(function))


@pytest.mark.parametrize("is_training", [True, False])
def test_the_dry_run_leaves_mode_and_statistics_as_they_were(is_training: bool) -> None:
    module = nn.Sequential(nn.Flatten(), nn.BatchNorm1d(64)).train(is_training)
    before = {name: value.clone() for name, value in module.state_dict().items()}
    assert feature_width(with_pooling(module, (1, 8, 8)), (1, 8, 8)) == 64
    assert all(child.training == is_training for child in module.modules())
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())
