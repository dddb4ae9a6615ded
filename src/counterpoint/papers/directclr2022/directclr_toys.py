"""The toy models of directclr2022, trained with either of its losses."""

# D dimensions

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from counterpoint.papers.directclr2022.flow_losses import DistanceInfoNCE, FlowLoss, ProductInfoNCE
from counterpoint.papers.directclr2022.flow_network import ToyNetwork, decaying_network, embed
from counterpoint.papers.directclr2022.flow_spectrum import log_spectrum
from counterpoint.papers.directclr2022.flow_training import NetworkPath, SgdPlan, gradient_descent
from counterpoint.papers.directclr2022.toy_augmentations import ToyData, gaussian_points, isotropic_noise

NUM_DIMS = 16
NUM_POINTS = 10_000
WEAK, STRONG = 0.001, 1.5  # noise of the released toys
# Eq. 2 is a sum over the batch, so its rate is smaller; it has settled after a tenth of the time.
RELEASED = SgdPlan(rate=0.01, num_steps=10_000, batch_size=128, num_records=51)
EQ_2 = SgdPlan(rate=0.001, num_steps=2_000, batch_size=128, num_records=51)
QUICK_RELEASED = SgdPlan(rate=0.05, num_steps=2_000, batch_size=64, num_records=21)
QUICK_EQ_2 = SgdPlan(rate=0.002, num_steps=1_000, batch_size=64, num_records=21)


@dataclass(frozen=True)
class Toy:
    """One loss on one data model: how to train on it, and what to call it."""

    name: str
    loss: FlowLoss
    data: ToyData
    descent: SgdPlan
    seed: int
    progress: Callable[[str], None]

    def train(self, start: ToyNetwork) -> NetworkPath:
        """SGD from a start, each run with batches of the same seed."""
        kind = "ReLU" if start.is_rectified else "linear"
        self.progress(f"{self.name}: {self.descent.num_steps} steps, {kind}, depth {start.depth}")
        generator = torch.Generator().manual_seed(self.seed + 1)
        return gradient_descent(start, self.data, self.loss, descent=self.descent, generator=generator)

    def start(self, depth: int, *, is_rectified: bool = False) -> ToyNetwork:
        """The released start, the same for the first layers of every depth."""
        generator = torch.Generator().manual_seed(self.seed + 2)
        return decaying_network(depth, NUM_DIMS, generator=generator, is_rectified=is_rectified)

    def spectrum(self, network: ToyNetwork) -> Tensor:
        """Log spectrum (d,) of the embedded points."""
        assert self.data.points_PD is not None
        return log_spectrum(embed(network, self.data.points_PD))


def make_toys(
    seed: int, quick: bool, progress: Callable[[str], None], noise_DD: Tensor | None = None
) -> tuple[Toy, Toy]:
    """Both losses, the released one first."""
    points_PD = gaussian_points(NUM_POINTS, NUM_DIMS, generator=torch.Generator().manual_seed(seed))
    data = ToyData(isotropic_noise(NUM_DIMS, WEAK) if noise_DD is None else noise_DD, points_PD)
    released, eq_2 = (QUICK_RELEASED, QUICK_EQ_2) if quick else (RELEASED, EQ_2)
    return (
        Toy("released loss", ProductInfoNCE(), data, released, seed, progress),
        Toy("Eq. 2", DistanceInfoNCE(), data, eq_2, seed, progress),
    )
