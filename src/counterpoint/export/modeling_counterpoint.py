"""Load an encoder that Counterpoint exported. This needs torch and safetensors.

    from modeling_counterpoint import CounterpointEncoder

    encoder = CounterpointEncoder.from_pretrained("path/of/this/folder")
    features = encoder(images)  # uint8, or floats in [0, 1], of shape (n, channels, height, width)
    features.representation, features.embedding

This file is copied into each exported folder as it is, and imports nothing of Counterpoint. Nothing is unpickled.
"""

import json
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch import Tensor, nn

FORMAT = 1
TORCH_LAYERS = (
    "Conv2d", "Linear", "BatchNorm1d", "BatchNorm2d", "LayerNorm", "MaxPool2d", "AdaptiveAvgPool2d", "Flatten", "GELU",
    "LeakyReLU", "ReLU", "SiLU", "Tanh", "Sigmoid", "Identity",
)  # fmt: skip
NONNEGATIVE = {
    "none": lambda z: z,
    "relu": F.relu,
    "relu-gelu": F.relu,
    "softplus": F.softplus,
    "sigmoid": torch.sigmoid,
}


class Features(NamedTuple):
    """The outputs of an encoder: the representation (n, width), and the embedding (n, dims) at unit length."""

    representation: Tensor
    embedding: Tensor


class CounterpointEncoder(nn.Module):
    """Preparation of the input, backbone, projector and output map, in evaluation mode.

    Args:
        config: the mapping ``counterpoint`` in ``config.json``.
    """

    mean: Tensor
    std: Tensor

    def __init__(self, config: dict[str, Any]) -> None:
        super().__init__()
        if config["format"] != FORMAT:
            raise ValueError(f"this loader reads format {FORMAT}, got {config['format']}")
        self.config = config
        self.backbone = _built(config["backbone"])
        self.projector = _built(config["projector"])
        shape = (-1, 1, 1) if config["kind"] == "images" else (-1,)
        self.register_buffer("mean", torch.tensor(config["mean"]).reshape(shape), persistent=False)
        self.register_buffer("std", torch.tensor(config["std"]).reshape(shape), persistent=False)
        self.eval()

    @classmethod
    def from_pretrained(cls, folder: str | Path) -> "CounterpointEncoder":
        """Build the encoder of a folder and fill it with its weights."""
        config = json.loads((Path(folder) / "config.json").read_text(encoding="utf-8"))
        encoder = cls(config["counterpoint"])
        encoder.load_state_dict(load_file(Path(folder) / "model.safetensors"))
        return encoder

    def forward(self, samples: Tensor) -> Features:
        """Features of images (n, c, h, w), uint8 or floats in [0, 1], or of vectors (n, d)."""
        output = self.config["output"]
        representation = self.backbone(self.prepare(samples))
        z = NONNEGATIVE[output["nonnegative"]](self.projector(representation)[:, : output["d0"]])
        largest = z.abs().amax(dim=1, keepdim=True)
        z = z / torch.where(largest == 0, 1.0, largest)  # squares of short rows would be 0
        length = torch.linalg.vector_norm(z, dim=1, keepdim=True)
        return Features(representation, z / torch.where(length == 0, 1.0, length))

    def prepare(self, samples: Tensor) -> Tensor:
        """Cut and resize images to the size that was trained with; normalise by mean and deviation."""
        if self.config["kind"] == "vectors":
            return (samples.to(self.mean.dtype) - self.mean) / self.std
        levels = samples.float() if samples.dtype == torch.uint8 else samples * 255
        channels, height, width = self.config["in_shape"]
        levels = levels.expand(-1, channels, -1, -1)  # a grey picture gets as many equal channels
        if levels.shape[2:] != (height, width):
            high, wide = levels.shape[2:]
            if height == width:
                high = wide = min(high, wide)
            if self.config.get("resizing") == "bicubic":
                levels = bicubic(levels, (high, wide), (height, width))
            else:
                top, left = (levels.shape[2] - high) // 2, (levels.shape[3] - wide) // 2
                levels = levels[:, :, top : top + high, left : left + wide]
                levels = F.interpolate(levels, (height, width), mode="bilinear", antialias=True, align_corners=False)
        return (levels.float() / 255 - self.mean) / self.std


def bicubic(levels: Tensor, window: tuple[int, int], size: tuple[int, int]) -> Tensor:
    """Resize the middle of pictures (n, c, h, w), levels 0 to 255, as Pillow does: the width, then the height.

    Args:
        levels: pixel values of the pictures.
        window: height and width of the middle part.
        size: new height and width of this part.
    """
    for axis in (1, 0):
        length, scale = levels.shape[2 + axis], window[axis] / size[axis]
        centre = (length - window[axis]) / 2 + (torch.arange(size[axis]).double() + 0.5) * scale
        x = (torch.arange(length) + 0.5 - centre[:, None]).abs() / max(scale, 1.0)
        near, far = (1.5 * x - 2.5) * x * x + 1, (((x - 5) * x + 8) * x - 4) * -0.5
        weights = torch.where(x < 1, near, torch.where(x < 2, far, 0.0))
        # Weights of 22 bits, and sums rounded to whole levels: the same bits on every machine.
        units = (weights / weights.sum(dim=1, keepdim=True) * 2**22).to(levels.device)
        units = units.sign() * (units.abs() + 0.5).floor()
        levels = levels.double().round()
        levels = levels @ units.mT if axis else units @ levels
        levels = (levels / 2**22 + 0.5).floor().clamp(0, 255)
    return levels


class Mean(nn.Module):
    """The average over space or tokens."""

    def __init__(self, axes: list[int]) -> None:
        super().__init__()
        self.axes = axes

    def forward(self, features: Tensor) -> Tensor:
        """Average."""
        return features.mean(dim=self.axes)


class Block(nn.Module):
    """A residual branch beside a shortcut."""

    def __init__(self, residual: nn.Module, shortcut: nn.Module) -> None:
        super().__init__()
        self.residual = residual
        self.shortcut = shortcut

    def forward(self, features: Tensor) -> Tensor:
        """Add both."""
        return F.relu(self.residual(features) + self.shortcut(features))


class LowRankLayer(nn.Module):
    """A fixed projection."""

    rows_RD: Tensor

    def __init__(self, shape: list[int]) -> None:
        super().__init__()
        self.register_buffer("rows_RD", torch.zeros(shape))

    def forward(self, features: Tensor) -> Tensor:
        """Project."""
        return features @ self.rows_RD.T


class DiagonalLayer(nn.Module):
    """A scale per dimension."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.scale_D = nn.Parameter(torch.ones(width))

    def forward(self, features: Tensor) -> Tensor:
        """Scale."""
        return features * self.scale_D


def _built(plan: dict[str, Any]) -> nn.Module:
    kind, arguments = plan["type"], {name: value for name, value in plan.items() if name != "type"}
    if kind in TORCH_LAYERS:
        tupled = {name: tuple(value) if isinstance(value, list) else value for name, value in arguments.items()}
        return getattr(nn, kind)(**tupled)
    if kind == "chain":
        chain = nn.Sequential()
        for name, part in arguments["parts"].items():
            chain.add_module(name, _built(part))
        return chain
    if kind == "block":
        return Block(_built(arguments["residual"]), _built(arguments["shortcut"]))
    return {"mean": Mean, "low-rank": LowRankLayer, "diagonal": DiagonalLayer}[kind](**arguments)
