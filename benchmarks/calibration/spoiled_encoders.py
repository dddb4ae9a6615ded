"""Encoders with a fault: dimensions that are silent, or that say the same."""

# N samples, D features

import itertools

import torch
from torch import Tensor, nn


class Spoiled(nn.Module):
    """A small convolutional encoder whose output passes through one more function.

    Args:
        ending: of (n, width) features.
        width: of the features before it.
    """

    def __init__(self, ending: nn.Module, width: int = 64) -> None:
        super().__init__()
        sizes = (3, 32, 64, width)
        self.body = nn.Sequential(
            *[part for a, b in itertools.pairwise(sizes) for part in _stage(a, b)],
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(width, width),
        )
        self.ending = ending

    def forward(self, images: Tensor) -> Tensor:
        """Features (n, d)."""
        return self.ending(self.body(images))


class Silenced(nn.Module):
    """Some features are always 0.

    Args:
        share: of the features, the first ones.
    """

    def __init__(self, share: float) -> None:
        super().__init__()
        self.share = share

    def forward(self, z_ND: Tensor) -> Tensor:
        """With zeros."""
        return z_ND * (torch.arange(z_ND.shape[1], device=z_ND.device) >= self.share * z_ND.shape[1])


class Narrowed(nn.Module):
    """Features pass a layer of few dimensions and come out as wide as before.

    Args:
        rank: of that layer.
        width: of the features.
    """

    def __init__(self, rank: int, width: int = 96) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(width, rank), nn.Linear(rank, width))

    def forward(self, z_ND: Tensor) -> Tensor:
        """In as many directions as the narrow layer has."""
        return self.layers(z_ND)


class Repeated(nn.Module):
    """Each feature occurs several times, with other scales and signs.

    Args:
        scales: of each copy.
    """

    def __init__(self, scales: tuple[float, ...]) -> None:
        super().__init__()
        self.scales = scales

    def forward(self, z_ND: Tensor) -> Tensor:
        """All copies side by side."""
        return torch.cat([scale * z_ND for scale in self.scales], dim=1)


def _stage(num_in: int, num_out: int) -> list[nn.Module]:
    """Half the side."""
    return [nn.Conv2d(num_in, num_out, 3, stride=2, padding=1), nn.BatchNorm2d(num_out), nn.ReLU()]
