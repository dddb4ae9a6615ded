"""Encoders: what maps a sample to its representation."""

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn

from counterpoint.core.array_layout import Kind
from counterpoint.core.errors import UsageError, first_line, nearest, unknown_name
from counterpoint.core.torch_state import own_draws
from counterpoint.nn.resnet import ResNet, draw_kernels, stem_for


def check_timm_name(name: str) -> Any:
    """Require a name that timm knows, with or without the tag of published weights, and return timm.

    Raises:
        UsageError: timm is not installed, or does not know the name.
    """
    try:
        import timm  # deferred: the extra `vision` may be absent, and timm takes seconds to import
    except ImportError:
        raise UsageError(f"encoder timm:{name} needs timm; install it with: pip install timm") from None
    # A tag, as in `vit_small_patch16_224.dino`, changes no layer: it says how the images were normalised.
    model, _, tag = name.partition(".")
    known = timm.list_pretrained(f"{model}.*") if tag else timm.list_models()
    if name not in known:
        raise UsageError(f"timm has no model {name!r}{nearest(name, known)}")
    return timm


def build_timm(name: str, in_shape: tuple[int, ...]) -> nn.Module:
    """Build an untrained timm model that returns pooled features.

    Args:
        name: timm's model name, such as ``resnet18`` or ``vit_tiny_patch16_224``.
        in_shape: (channels, height, width) of the images.

    Raises:
        UsageError: timm is not installed, does not know the name, or cannot build it for this image size.
    """
    timm = check_timm_name(name)
    channels, height, width = in_shape
    options: dict[str, Any] = {"num_classes": 0, "in_chans": channels}
    try:
        # Transformers need the size of the images, as their position embeddings have it.
        return timm.create_model(name, img_size=(height, width), **options)
    except TypeError:
        return timm.create_model(name, **options)  # convolutional models take any size and no such argument
    except (AssertionError, ValueError, RuntimeError) as error:
        raise UsageError(f"timm:{name} cannot be built for {height} x {width} images: {error}") from None


TIMM_PREFIX, IDENTITY = "timm:", "identity"
Shape = tuple[int, ...]
CONVNET_WIDTHS = (32, 64, 128, 256)
CONVNET_MAP_SIDE = 16
POOLED_AXES: Mapping[int, Shape] = {2: (), 3: (1,), 4: (2, 3)}  # of vectors, tokens (n, t, c), maps (n, c, h, w)


class ConvNet(nn.Sequential):
    """Four convolutions with BatchNorm and ReLU for images up to about 64 pixels; pooled features of width 256.

    The first convolution strides so that all others work on maps of at most 16 x 16: minutes, not hours, on a laptop.
    """

    def __init__(self, in_channels: int, side: int) -> None:
        # 28 px: 1, 32 px: 2, 64 px: 4
        strides = (max(1, side // CONVNET_MAP_SIDE), 2, 2, 2)
        layers: list[nn.Module] = []
        for width_in, width, stride in zip((in_channels, *CONVNET_WIDTHS), CONVNET_WIDTHS, strides, strict=False):
            kernel = 3 if stride <= 2 else stride + 2  # no pixel is stepped over
            layers += [nn.Conv2d(width_in, width, kernel, stride, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU()]
        super().__init__(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten())


class MLP(nn.Sequential):
    """Two hidden layers with BatchNorm and ReLU for vectors; features of width ``width``."""

    def __init__(self, in_features: int, width: int = 256) -> None:
        layers: list[nn.Module] = []
        for width_in in (in_features, width):
            layers += [nn.Linear(width_in, width, bias=False), nn.BatchNorm1d(width), nn.ReLU()]
        super().__init__(*layers)


class Pooled(nn.Module):
    """A module whose feature maps (n, c, h, w) or tokens (n, t, c) are averaged to (n, c)."""

    def __init__(self, body: nn.Module, axes: tuple[int, ...]) -> None:
        super().__init__()
        self.body = body
        self.axes = axes

    def forward(self, samples: Tensor) -> Tensor:
        """Average over space or tokens."""
        return self.body(samples).mean(dim=self.axes)


@dataclass(frozen=True)
class EncoderEntry:
    """One encoder of the catalogue."""

    summary: str
    kind: Kind
    build: Callable[[Shape, str], nn.Module]
    has_stem: bool = False


def has_stem(name: str) -> bool:
    """Whether an encoder's stem is chosen by the size of the images."""
    return name in CATALOGUE and CATALOGUE[name].has_stem


def build_encoder(name: str, in_shape: Shape, stem: str = "auto", initial: str = "uniform") -> nn.Module:
    """Build an untrained encoder by name.

    Args:
        name: a key of ``CATALOGUE`` or ``timm:NAME``.
        in_shape: shape of one sample: (channels, height, width) or (features,).
        stem: of the built-in ResNets, a name of ``STEMS``; ``auto`` goes by the size of the images.
        initial: how their kernels are drawn, see ``draw_kernels``.

    Raises:
        UsageError: unknown name, or an encoder for another kind of sample.
    """
    check_encoder_name(name)
    check_kind(name, in_shape)
    if name.startswith(TIMM_PREFIX):
        return with_pooling(build_timm(name.removeprefix(TIMM_PREFIX), in_shape), in_shape)
    chosen = stem_for(*in_shape[1:]) if stem == "auto" and has_stem(name) else stem
    encoder = CATALOGUE[name].build(in_shape, chosen)
    if has_stem(name):
        draw_kernels(encoder, initial)
    return encoder


def check_encoder_name(name: str) -> None:
    """Require a key of ``CATALOGUE`` or ``timm:NAME``.

    Raises:
        UsageError: neither, or a model that timm does not know.
    """
    if name.startswith(TIMM_PREFIX):
        check_timm_name(name.removeprefix(TIMM_PREFIX))
    elif name not in CATALOGUE:
        raise unknown_name("encoder", name, [*CATALOGUE, TIMM_PREFIX + "NAME"])


def check_kind(name: str, in_shape: Shape) -> None:
    """Require an encoder for samples of a shape; those of other libraries are for images.

    Raises:
        UsageError: images for an encoder of vectors, or the other way round.
    """
    kind: Kind = "vectors" if len(in_shape) == 1 else "images"
    needed: Kind = CATALOGUE[name].kind if name in CATALOGUE else "images"
    if kind != needed:
        fitting = [other for other, entry in CATALOGUE.items() if entry.kind == kind]
        raise UsageError(f"encoder {name!r} takes {needed}, but the data are {kind}; use {', '.join(fitting)}")


def initial_encoder(name: str, in_shape: Shape, seed: int, stem: str = "auto", initial: str = "uniform") -> nn.Module:
    """The untrained encoder of a run: the same weights for the same seed, whatever was drawn before."""
    with own_draws(seed):
        return build_encoder(name, in_shape, stem, initial)


def own_copy(module: nn.Module) -> nn.Module:
    """A copy of a user's module to train or to fill with weights, so that theirs stays as it is.

    Raises:
        UsageError: the module, or something it holds, cannot be copied.
    """
    try:
        return copy.deepcopy(module)
    except Exception as error:  # whatever a foreign module holds, its user should see in one line
        raise UsageError(
            f"the encoder {type(module).__name__} cannot be copied ({first_line(error)}), and training works on a copy "
            "of it; build it again, and without what copy.deepcopy refuses (open files, locks, tensors with a history)"
        ) from None


def with_pooling(module: nn.Module, in_shape: Shape) -> nn.Module:
    """Wrap a module so that it returns one vector per sample, as found by a dry run.

    Raises:
        UsageError: the module cannot take the samples, or returns something other than vectors, maps or tokens.
    """
    shape = _dry_run(module, in_shape)
    if len(shape) not in POOLED_AXES or shape[0] != 2:
        raise UsageError(f"the encoder must return (samples, features), got shape {tuple(shape)} for 2 samples")
    axes = POOLED_AXES[len(shape)]
    return Pooled(module, axes) if axes else module


def feature_width(module: nn.Module, in_shape: Shape) -> int:
    """Width of the representation, found by a dry run on two blank samples."""
    return _dry_run(module, in_shape)[1]


def _dry_run(module: nn.Module, in_shape: Shape) -> Shape:
    """Output shape for two blank samples; leaves the module's mode and statistics as they were."""
    modes = [(part, part.training) for part in module.modules()]
    # Blank samples must not enter running statistics.
    module.eval()
    try:
        parameter = next(module.parameters(), torch.empty(0))
        with torch.no_grad():
            output = module(torch.zeros(2, *in_shape, device=parameter.device))
    except Exception as error:  # whatever a foreign module raises, its user should see in one line
        raise UsageError(f"the encoder cannot take samples of shape {in_shape}: {first_line(error)}") from None
    finally:
        for part, is_training in modes:  # a user may have frozen single layers
            part.training = is_training
    if not isinstance(output, Tensor):
        raise UsageError(f"the encoder must return a tensor, got {type(output).__name__}")
    return tuple(output.shape)


def _resnet(*blocks: int, **sizes: int) -> Callable[[Shape, str], nn.Module]:
    return lambda shape, stem: ResNet(shape[0], cast(tuple[int, int, int, int], blocks), stem=stem, **sizes)


CATALOGUE: Mapping[str, EncoderEntry] = {
    "convnet": EncoderEntry(
        "four convolutions for images up to about 64 px, width 256",
        "images",
        lambda shape, _: ConvNet(shape[0], max(shape[1:])),
    ),
    "resnet9-narrow": EncoderEntry(
        "ResNet-9 with a quarter of its widths, for small images on a CPU, width 128",
        "images",
        _resnet(1, 1, 1, 1, first_width=16),
        has_stem=True,
    ),
    "resnet9": EncoderEntry(
        "ResNet with one block per stage, stem by the size of the images, width 512",
        "images",
        _resnet(1, 1, 1, 1),
        has_stem=True,
    ),
    "resnet18": EncoderEntry(
        "ResNet-18, stem by the size of the images, width 512", "images", _resnet(2, 2, 2, 2), has_stem=True
    ),
    "resnet50": EncoderEntry(
        "ResNet-50, stem by the size of the images, width 2048",
        "images",
        _resnet(3, 4, 6, 3, expansion=4),
        has_stem=True,
    ),
    "identity": EncoderEntry("vectors as they are: features of another encoder", "vectors", lambda *_: nn.Identity()),
    "mlp": EncoderEntry("two hidden layers for vectors, width 256", "vectors", lambda shape, _: MLP(shape[0])),
}
