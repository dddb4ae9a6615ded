"""Encoders, which map a sample to its representation."""

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from counterpoint.core.array_layout import Kind
from counterpoint.core.checks import check_choice
from counterpoint.core.errors import UsageError, first_line, nearest, unknown_name
from counterpoint.core.torch_state import own_draws


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
    names = timm.list_pretrained(f"{model}.*") if tag else timm.list_models()
    if name not in names:
        raise UsageError(f"timm has no model {name!r}{nearest(name, names)}")
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


STEMS = ("small", "large", "small-padded", "small-cut")
PADDING = {"small-padded": 2, "small-cut": 0}  # solo-learn's for CIFAR; miossl's
INITIAL = ("uniform", "normal", "normal-zero")
FIRST_WIDTH = 64  # he2016's; each of the four stages is twice as wide as the one before
LARGEST_SMALL_SIDE = 64


def stem_for(height: int, width: int) -> str:
    """The stem for images of a size: ``small`` up to 64 px, ``large`` above.

    >>> stem_for(32, 32), stem_for(96, 64)
    ('small', 'large')
    """
    return "small" if max(height, width) <= LARGEST_SMALL_SIDE else "large"


class ResNet(nn.Module):
    """Residual network that returns pooled features (n, width).

    Args:
        in_channels: colour channels of the images.
        blocks_per_stage: number of residual blocks in each of the four stages.
        expansion: 1 for two 3 x 3 convolutions per block, 4 for bottleneck blocks.
        first_width: channels of stem and first stage.
        stem: ``large`` is a 7 x 7 convolution of stride 2 and a max-pooling of stride 2 (he2016, Table 1), which leaves
            maps of a quarter of the side; ``small`` is a 3 x 3 convolution that keeps it (he2016, section 4.2);
            ``small-padded`` pads by 2 and ``small-cut`` not at all, so that maps are 2 wider or narrower.
    """

    def __init__(
        self,
        in_channels: int,
        blocks_per_stage: tuple[int, int, int, int],
        *,
        expansion: int = 1,
        first_width: int = FIRST_WIDTH,
        stem: str = "small",
    ) -> None:
        super().__init__()
        check_choice(stem, "stem", STEMS)
        kernel, stride = (7, 2) if stem == "large" else (3, 1)
        layers: list[nn.Module] = [
            nn.Conv2d(in_channels, first_width, kernel, stride, PADDING.get(stem, kernel // 2), bias=False),
            nn.BatchNorm2d(first_width),
            nn.ReLU(),
        ]
        self.stem = nn.Sequential(*layers, *([nn.MaxPool2d(3, 2, 1)] if stem == "large" else []))
        blocks: list[nn.Module] = []
        width_in = first_width
        for stage, count in enumerate(blocks_per_stage):
            width = first_width * 2**stage
            for place in range(count):
                # he2016, Table 1: the first block of each stage but the first halves the map.
                stride = 2 if stage > 0 and place == 0 else 1
                blocks.append(ResidualBlock(width_in, width, stride, expansion))
                width_in = width * expansion
        self.blocks = nn.Sequential(*blocks)

    def forward(self, images: Tensor) -> Tensor:
        """Map images (n, c, h, w) to features (n, width)."""
        return self.blocks(self.stem(images)).mean(dim=(2, 3))


class ResidualBlock(nn.Module):
    """Two 3 x 3 convolutions, or 1 x 1, 3 x 3, 1 x 1 when ``expansion`` > 1, around a shortcut."""

    def __init__(self, width_in: int, width: int, stride: int, expansion: int) -> None:
        super().__init__()
        width_out = width * expansion
        if expansion == 1:
            sizes = [(width_in, width, 3, stride), (width, width_out, 3, 1)]
        else:
            # Differs from he2016, where the first 1 x 1 convolution has the stride and drops three of four places: here
            # the 3 x 3 one has it, as in torchvision, and sees them all.
            sizes = [(width_in, width, 1, 1), (width, width, 3, stride), (width, width_out, 1, 1)]
        layers: list[nn.Module] = []
        for before, after, kernel, step in sizes:
            layers += [
                # No bias: the norm that follows would subtract it.
                nn.Conv2d(before, after, kernel, step, kernel // 2, bias=False),
                nn.BatchNorm2d(after),
                nn.ReLU(),
            ]
        self.residual = nn.Sequential(*layers[:-1])  # the last ReLU comes after the sum
        self.shortcut: nn.Module = nn.Identity()
        # he2016, section 3.3, option B: a projection where sizes differ, the identity elsewhere.
        if stride != 1 or width_in != width_out:
            self.shortcut = nn.Sequential(
                nn.Conv2d(width_in, width_out, 1, stride, bias=False), nn.BatchNorm2d(width_out)
            )

    def forward(self, features: Tensor) -> Tensor:
        """Add the residual to the shortcut."""
        return F.relu(self.residual(features) + self.shortcut(features))


def draw_kernels(module: nn.Module, initial: str) -> None:
    """Draw the kernels of a network again; ``uniform`` leaves those that torch drew.

    Source: he2015, Eq. 10, with the fan-out, as torchvision has it; goyal2017, section 5.1 (the last scale of a
    residual branch begins at 0, so that each block begins as its shortcut).

    Args:
        module: network whose convolutions are drawn, from torch's generator.
        initial: distribution of the kernels: ``uniform``, ``normal`` or ``normal-zero``.
    """
    check_choice(initial, "initial", INITIAL)
    if initial == "uniform":
        return
    for part in module.modules():
        if isinstance(part, nn.Conv2d):
            nn.init.kaiming_normal_(part.weight, mode="fan_out", nonlinearity="relu")
        elif isinstance(part, ResidualBlock) and initial == "normal-zero":
            nn.init.zeros_(cast(nn.BatchNorm2d, part.residual[-1]).weight)


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
    """Tell whether an encoder's stem is chosen by the size of the images."""
    return name in CATALOGUE and CATALOGUE[name].has_stem


def build_encoder(name: str, in_shape: Shape, stem: str = "auto", initial: str = "uniform") -> nn.Module:
    """Build an untrained encoder by name.

    Args:
        name: a key of ``CATALOGUE`` or ``timm:NAME``.
        in_shape: shape of one sample: (channels, height, width) or (features,).
        stem: stem of the built-in ResNets, a name of ``STEMS``; ``auto`` goes by the size of the images.
        initial: distribution of the ResNets' kernels, see ``draw_kernels``.

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
        UsageError: the name is neither, or timm does not know the model.
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
    expected: Kind = CATALOGUE[name].kind if name in CATALOGUE else "images"
    if kind != expected:
        fitting = [other for other, entry in CATALOGUE.items() if entry.kind == kind]
        raise UsageError(f"encoder {name!r} takes {expected}, but the data are {kind}; use {', '.join(fitting)}")


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
