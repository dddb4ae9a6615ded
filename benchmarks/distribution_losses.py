"""Losses of a distribution: their gradient at collapse, their time beside direct modules, and what they train.

    python benchmarks/distribution_losses.py collapse     a table, in a second
    python benchmarks/distribution_losses.py speed        processor time per step, in a minute
    python benchmarks/distribution_losses.py train --data cifar10=TRAIN.npz,TEST.npz --out FILE.csv     18 trainings

``train`` gives six methods the same pictures, epochs and seeds, and measures the representation of every checkpoint:
kNN and linear probe on the test pictures, effective rank; and the share of zeros in the embedding. The rank correlation
of loss and probe is taken along each run. Runs that are finished are not trained again.
"""

import argparse
import csv
import itertools
import json
import statistics
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import numpy as np
import torch
from scipy.stats import spearmanr
from torch import Tensor, nn

import counterpoint as cp
from counterpoint.core.settings import SourceSettings
from counterpoint.data.sources import open_source
from counterpoint.diagnostics.concepts import sparsity
from counterpoint.diagnostics.spectra import covariance_spectrum, effective_rank
from counterpoint.engine.checkpoint import checkpoints_by_step
from counterpoint.engine.progress import Reporter
from counterpoint.evaluation.knn import knn_predict
from counterpoint.evaluation.linear_probe import fit_probe
from counterpoint.evaluation.trained_run import encoder_at
from counterpoint.losses import RDMReg, SIGReg, VISReg
from counterpoint.losses.loss import Loss

METHODS = ("simclr", "vicreg", "ncl", "lejepa", "visreg", "rectified-lejepa")


class Direct(nn.Module):
    """A loss of slices as its formula reads; the directions of a call from torch's generator."""

    def __init__(self, num_slices: int) -> None:
        super().__init__()
        self.num_slices = num_slices
        self.generator = torch.Generator().manual_seed(0)

    def directions(self, z_ND: Tensor) -> Tensor:
        drawn_DM = torch.randn(z_ND.shape[1], self.num_slices, generator=self.generator)
        return drawn_DM / drawn_DM.norm(dim=0)


class DirectSIGReg(Direct):
    """All 17 knots at once, cosines and sines of every projection stored."""

    def __init__(self, num_slices: int) -> None:
        super().__init__(num_slices)
        self.t = torch.linspace(-5, 5, 17)
        self.target = (-self.t.square() / 2).exp()

    def statistic(self, z_ND: Tensor, directions_DM: Tensor) -> Tensor:
        angles = (z_ND @ directions_DM)[..., None] * self.t
        error = (angles.cos().mean(0) - self.target).square() + angles.sin().mean(0).square()
        return len(z_ND) * torch.trapezoid(error * self.target, self.t, dim=-1).mean()

    def forward(self, z0: Tensor, z1: Tensor, weight: float = 0.05) -> Tensor:
        directions_DM, centre = self.directions(z0), (z0 + z1) / 2
        prediction = torch.stack([(z0 - centre).square().mean(), (z1 - centre).square().mean()]).mean()
        statistics = [self.statistic(z, directions_DM) for z in (z0, z1)]
        return (1 - weight) * prediction + weight * torch.stack(statistics).mean()


class DirectVISReg(Direct):
    """Standardised features, whose sorted slices meet a normal's quantiles."""

    def forward(self, z0: Tensor, z1: Tensor) -> Tensor:
        directions_DM = self.directions(z0)
        quantiles = torch.distributions.Normal(0.0, 1.0).icdf((torch.arange(len(z0)) + 0.5) / len(z0))
        scale, shape = z0.new_zeros(()), z0.new_zeros(())
        for z in (z0, z1):
            deviation = (z.var(dim=0) + 1e-4).sqrt()
            scale = scale + (1 - deviation).square().mean() / 2
            slices = ((z - z.mean(dim=0)) / deviation.detach()) @ directions_DM
            shape = shape + (slices.sort(dim=0).values - quantiles[:, None]).square().mean() / 2
        return (z0 - z1).square().mean() + scale + shape


class DirectRDMReg(Direct):
    """Sorted slices that meet those of equally many draws of the rectified Laplace distribution."""

    def forward(self, z0: Tensor, z1: Tensor) -> Tensor:
        directions_DM = self.directions(z0)
        uniform = torch.rand(z0.shape, generator=self.generator) - 0.5
        drawn = (-(0.5**0.5) * uniform.sign() * torch.log1p(-2 * uniform.abs())).relu()
        target = (drawn @ directions_DM).sort(dim=0).values
        distances = [((z @ directions_DM).sort(dim=0).values - target).square().mean() for z in (z0, z1)]
        return (z0 - z1).square().mean() + torch.stack(distances).mean()


def seconds(loss: nn.Module, z0: Tensor, z1: Tensor) -> float:
    """Processor time of a value and its gradient."""
    start = time.process_time()
    torch.autograd.grad(loss(z0, z1), (z0, z1))
    return time.process_time() - start


def speed() -> None:
    """Print processor time per step of both modules, pair by pair; first check that both have one value."""
    torch.set_num_threads(1)
    print("loss    samples x 2  features  slices  direct [ms]  ours [ms]  median ratio")
    pairs = ((SIGReg, DirectSIGReg), (VISReg, DirectVISReg), (RDMReg, DirectRDMReg))
    sizes = ((256, 128, 256), (256, 512, 1024), (1024, 128, 256))
    for (kind, direct_kind), (n, d, num_slices) in itertools.product(pairs, sizes):
        z0 = torch.randn(n, d, generator=torch.Generator().manual_seed(0)).relu_().requires_grad_()
        z1 = (z0.detach() + 0.3).requires_grad_()
        ours, direct = kind(num_slices=num_slices), direct_kind(num_slices)
        values = [float(loss(z0, z1).detach()) for loss in (ours, direct)]
        if abs(values[0] / values[1] - 1) > 0.1:  # other directions, the same expectation
            sys.exit(f"the modules of {kind.__name__} differ: {values}")
        times = [(seconds(direct, z0, z1), seconds(ours, z0, z1)) for _ in range(9)]
        direct_ms, ours_ms = (1e3 * statistics.median(each) for each in zip(*times, strict=True))
        ratio = statistics.median(a / b for a, b in times)
        name = kind.__name__
        print(f"{name:6}  {n:11}  {d:8}  {num_slices:6}  {direct_ms:11.1f}  {ours_ms:9.1f}  {ratio:12.2f}")


def spreading(loss: Loss, distance: float, spread: float) -> float:
    """Length of the gradient that moves the samples of a batch apart: less its mean over samples."""
    noise = torch.randn(2, 256, 64, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    z = (distance + spread * noise).requires_grad_()
    (slope,) = torch.autograd.grad(loss(z[0], z[1]), z)
    return float((slope - slope.mean(1, keepdim=True)).norm())


def collapse() -> None:
    """Print the gradient for batches that are ever more alike, around zero and around a point away from it."""
    losses = {"SIGReg": SIGReg(1.0), "VISReg": VISReg(invariance=0.0), "RDMReg": RDMReg(invariance=0.0)}
    print("| coordinates | " + " | ".join(losses) + " |\n|---|" + "---|" * len(losses))
    for distance, spread in ((0, 1), (0, 0.1), (0, 1e-3), (0, 0), (5, 1), (5, 0.1), (5, 1e-3), (5, 0)):
        lengths = [spreading(loss, float(distance), float(spread)) for loss in losses.values()]
        print(f"| {distance} ± {spread:g} | " + " | ".join(f"{length:.1e}" for length in lengths) + " |")


@dataclass(frozen=True)
class State:
    """A checkpoint: the mean loss of the epoch before it, and what its features are worth on the test pictures."""

    data: str
    method: str
    seed: int
    epoch: int
    loss: float
    knn: float
    probe: float
    rank: float
    zeros: float


@dataclass(frozen=True)
class Pictures:
    """Pictures for training and for queries, (n, c, h, w), with their classes."""

    name: str
    train: Tensor
    classes: Tensor
    test: Tensor
    test_classes: Tensor


def read_pictures(spec: str, side: int, most: int) -> Pictures:
    """Draw the same pictures of NAME=TRAIN,TEST for every method and seed."""
    name, _, paths = spec.partition("=")
    parts = []
    for path in paths.split(","):
        source = open_source(path, SourceSettings(image_size=side), progress=Reporter(quiet=True).bar)
        chosen = np.random.default_rng(0).permutation(len(source))[:most]
        assert source.labels is not None
        parts += [source.store.fetch(chosen.tolist()), source.labels[chosen]]
    return Pictures(name, *parts)


def states_of(data: Pictures, method: str, seed: int, flags: argparse.Namespace) -> Iterator[State]:
    """Train unless that is done, and measure every checkpoint."""
    run = cp.train(
        data.train,
        labels=data.classes,
        method=method,
        seed=seed,
        encoder=flags.encoder,
        epochs=flags.epochs,
        batch_size=flags.batch_size,
        source={"holdout": 0.0},
        engine={"checkpoint_every": 1, "keep": flags.epochs},
        out=str(flags.runs / data.name / f"{method}-{seed}"),
        resume=True,
        quiet=True,
    )
    records = [json.loads(line) for line in (run.path / "metrics.jsonl").read_text().splitlines()]
    loss_at = {record["step"]: record["loss"] for record in records}
    for epoch, step in enumerate(sorted(set(checkpoints_by_step(run.folder.checkpoints)) - {0}), 1):
        encoder = encoder_at(run.folder, cp.load(run), step)
        bank, queries = (encoder.represent(samples) for samples in (data.train, data.test))
        voted, fitted = knn_predict(bank, data.classes, queries), fit_probe(bank, data.classes).predict(queries)
        knn, probe = (float((predicted == data.test_classes).double().mean()) for predicted in (voted, fitted))
        rank = effective_rank(covariance_spectrum(bank))
        yield State(data.name, method, seed, epoch, loss_at[step], knn, probe, rank, sparsity(encoder.embed(data.test)))


def line(states: list[State]) -> str:
    """A line of the table: means over the seeds at the end, deviations, and correlations along the runs."""
    last = max(state.epoch for state in states)
    ends = [state for state in states if state.epoch == last]
    runs = [[state for state in states if state.seed == end.seed] for end in ends]
    falls = [float(np.asarray(spearmanr([-s.loss for s in run], [s.probe for s in run]))[0]) for run in runs]
    cells = [
        f"{statistics.mean(values):.1f} ± {statistics.stdev(values) if len(values) > 1 else 0:.1f}"
        for values in (
            [100 * end.knn for end in ends],
            [100 * end.probe for end in ends],
            [end.rank for end in ends],
            [100 * end.zeros for end in ends],
        )
    ]
    spread = f"{statistics.mean(falls):.2f} ({min(falls):.2f} to {max(falls):.2f})"
    return " | ".join(["", ends[0].data, ends[0].method, *cells, spread, ""]).strip()


def train() -> None:
    """Train and measure all runs; write a file of all checkpoints, then print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", action="append", required=True, help="NAME=TRAIN,TEST: two files of pictures")
    parser.add_argument("--out", type=Path, required=True, help="CSV of all checkpoints")
    parser.add_argument("--runs", type=Path, default=Path("runs/distribution-losses"))
    parser.add_argument("--pictures", type=int, default=1500, help="of each file at most")
    parser.add_argument("--side", type=int, default=32)
    parser.add_argument("--encoder", default="convnet")
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--seeds", type=int, default=3)
    flags = parser.parse_args(sys.argv[2:])
    sets = [read_pictures(spec, flags.side, flags.pictures) for spec in flags.data]
    states: list[State] = []
    with flags.out.open("w", newline="") as file:
        writer = csv.DictWriter(file, [field.name for field in fields(State)])
        writer.writeheader()
        for seed, data, method in itertools.product(range(flags.seeds), sets, METHODS):
            run_states = list(states_of(data, method, seed, flags))
            writer.writerows(asdict(state) for state in run_states)
            file.flush()
            states += run_states
    lines = [
        line([state for state in states if (state.data, state.method) == (data.name, method)])
        for data, method in itertools.product(sets, METHODS)
    ]
    print("| data | method | kNN [%] | probe [%] | effective rank | zeros [%] | Spearman of -loss and probe |")
    print("|---|---|---|---|---|---|---|", *lines, sep="\n")


if __name__ == "__main__":
    {"speed": speed, "collapse": collapse, "train": train}[sys.argv[1]]()
