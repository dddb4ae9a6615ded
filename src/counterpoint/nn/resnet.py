"""ResNet-9, 18 and 50 with he2016's stem for photographs, or that for small images."""

from typing import cast

import torch.nn.functional as F
from torch import Tensor, nn

from counterpoint.core.checks import check_choice

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
        module: its convolutions are drawn from torch's generator.
        initial: ``uniform``, ``normal`` or ``normal-zero``.
    """
    check_choice(initial, "initial", INITIAL)
    if initial == "uniform":
        return
    for part in module.modules():
        if isinstance(part, nn.Conv2d):
            nn.init.kaiming_normal_(part.weight, mode="fan_out", nonlinearity="relu")
        elif isinstance(part, ResidualBlock) and initial == "normal-zero":
            nn.init.zeros_(cast(nn.BatchNorm2d, part.residual[-1]).weight)
