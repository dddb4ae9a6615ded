"""Losses of a distribution: their gradient at collapse, and SIGReg's time beside a direct module.

python benchmarks/distribution_losses.py collapse     a table, in a second
python benchmarks/distribution_losses.py speed        processor time per step, in a minute
"""

import statistics
import sys
import time

import torch
from torch import Tensor, nn

from counterpoint.losses import RDMReg, SIGReg, VISReg
from counterpoint.losses.loss import Loss


class DirectSIGReg(nn.Module):
    """SIGReg as its formula reads: all 17 knots at once, cosines and sines of every projection stored."""

    def __init__(self, num_slices: int) -> None:
        super().__init__()
        self.num_slices, self.calls = num_slices, 0
        self.t = torch.linspace(-5, 5, 17)
        self.target = (-self.t.square() / 2).exp()

    def statistic(self, z_ND: Tensor, directions_DM: Tensor) -> Tensor:
        angles = (z_ND @ directions_DM)[..., None] * self.t
        error = (angles.cos().mean(0) - self.target).square() + angles.sin().mean(0).square()
        return len(z_ND) * torch.trapezoid(error * self.target, self.t, dim=-1).mean()

    def forward(self, z0: Tensor, z1: Tensor, weight: float = 0.05) -> Tensor:
        generator = torch.Generator().manual_seed(self.calls)
        self.calls += 1
        directions_DM = torch.randn(z0.shape[1], self.num_slices, generator=generator)
        directions_DM = directions_DM / directions_DM.norm(dim=0)
        centre = (z0 + z1) / 2
        prediction = torch.stack([(z0 - centre).square().mean(), (z1 - centre).square().mean()]).mean()
        statistics = [self.statistic(z, directions_DM) for z in (z0, z1)]
        return (1 - weight) * prediction + weight * torch.stack(statistics).mean()


def seconds(loss: nn.Module, z0: Tensor, z1: Tensor) -> float:
    """Processor time of a value and its gradient."""
    start = time.process_time()
    torch.autograd.grad(loss(z0, z1), (z0, z1))
    return time.process_time() - start


def speed() -> None:
    """Processor time per step of both modules, pair by pair; first that both have one value."""
    torch.set_num_threads(1)
    print("samples x 2  features  slices  direct [ms]  ours [ms]  median ratio")
    for n, d, num_slices in ((256, 128, 256), (256, 512, 1024), (1024, 128, 256)):
        z0 = torch.randn(n, d, generator=torch.Generator().manual_seed(0)).requires_grad_()
        z1 = (z0.detach() + 0.3).requires_grad_()
        ours, direct = SIGReg(num_slices=num_slices), DirectSIGReg(num_slices)
        values = [float(loss(z0, z1).detach()) for loss in (ours, direct)]
        if abs(values[0] / values[1] - 1) > 0.1:  # other directions, the same expectation
            sys.exit(f"the modules differ: {values}")
        pairs = [(seconds(direct, z0, z1), seconds(ours, z0, z1)) for _ in range(9)]
        direct_ms, ours_ms = (1e3 * statistics.median(times) for times in zip(*pairs, strict=True))
        ratio = statistics.median(a / b for a, b in pairs)
        print(f"{n:11}  {d:8}  {num_slices:6}  {direct_ms:11.1f}  {ours_ms:9.1f}  {ratio:12.2f}")


def spreading(loss: Loss, distance: float, spread: float) -> float:
    """Length of the gradient that moves the samples of a batch apart: less its mean over samples."""
    noise = torch.randn(2, 256, 64, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    z = (distance + spread * noise).requires_grad_()
    (slope,) = torch.autograd.grad(loss(z[0], z[1]), z)
    return float((slope - slope.mean(1, keepdim=True)).norm())


def collapse() -> None:
    """The gradient for batches that are ever more alike, around zero and around a point away from it."""
    losses = {"SIGReg": SIGReg(1.0), "VISReg": VISReg(invariance=0.0), "RDMReg": RDMReg(invariance=0.0)}
    print("| coordinates | " + " | ".join(losses) + " |\n|---|" + "---|" * len(losses))
    for distance, spread in ((0, 1), (0, 0.1), (0, 1e-3), (0, 0), (5, 1), (5, 0.1), (5, 1e-3), (5, 0)):
        lengths = [spreading(loss, float(distance), float(spread)) for loss in losses.values()]
        print(f"| {distance} ± {spread:g} | " + " | ".join(f"{length:.1e}" for length in lengths) + " |")


if __name__ == "__main__":
    {"speed": speed, "collapse": collapse}[sys.argv[1]]()
