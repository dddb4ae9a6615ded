"""Every rank measures for itself: none waits for another, and all get the figure of one process, in shards too.

Ranks hold the same weights and agree to the last bit. One process has weights that are equal up to rounding: its
figures are the same because no vote is near a tie. In float64, features may err by a thousandth before a vote changes.
"""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from counterpoint.core.settings import OptimSettings, SourceSettings
from counterpoint.data.order import split_source
from counterpoint.data.sources import open_source
from counterpoint.engine.engine import shard
from counterpoint.engine.optimisers import build_optimizer
from counterpoint.engine.progress import Reporter
from counterpoint.evaluation.online_knn import EpochKNN
from counterpoint.nn.trained import Encoder, EncoderCard
from rank_processes import Result, run_on_ranks
from tolerances import assert_close

pytestmark = pytest.mark.thorough

WIDTH, NUM_SAMPLES, NUM_STEPS = 6, 90, 3
LEARNING_RATE = 2.0


class Wiring(nn.Module):
    """An encoder of two blocks and a projector."""

    def __init__(self) -> None:
        super().__init__()
        blocks = [nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.BatchNorm1d(WIDTH), nn.Tanh()) for _ in range(2)]
        self.backbone = nn.Sequential(*blocks)
        self.projector = nn.Linear(WIDTH, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.projector(self.backbone(x)).square().mean()


def clusters() -> tuple[np.ndarray, np.ndarray]:
    """Three overlapping clusters and their classes."""
    rng = np.random.default_rng(17)
    labels = np.arange(NUM_SAMPLES) % 3
    samples = rng.normal(size=(3, WIDTH))[labels] + 2.0 * rng.normal(size=(NUM_SAMPLES, WIDTH))
    return samples.astype(np.float32), labels


def measured(*, is_sharded: bool) -> dict[str, Tensor]:
    """Figures between steps of training, of the weights and of their average, and all these weights."""
    array, labels = clusters()
    source = open_source(array, SourceSettings(), labels=labels, progress=Reporter(quiet=True).bar)
    torch.manual_seed(0)
    method = Wiring()
    card = EncoderCard(
        architecture="custom", kind="vectors", in_shape=(WIDTH,), mean=(0.0,) * WIDTH, std=(1.0,) * WIDTH,
        width=WIDTH, projector="linear", hidden=WIDTH, features=3, nonnegative="none", d0=None,
    )  # fmt: skip
    encoder = Encoder(card, nn.Identity(), nn.Identity())
    # Adam divides by the size of the gradient, which makes rounding of a tiny one a change of the weights.
    settings = OptimSettings(name="sgd", learning_rate=LEARNING_RATE, weight_decay=0.0)
    optimizer = build_optimizer(method, settings, is_sharded=is_sharded)
    if is_sharded:
        shard(method, optimizer, torch.device("cpu"))
    split = split_source(NUM_SAMPLES, source.labels, 0.4)
    measure = EpochKNN(source, split, encoder, 1)
    found: dict[str, Tensor] = {}
    for step in range(NUM_STEPS):
        optimizer.zero_grad()
        method.train()(torch.from_numpy(array[30 * step : 30 * (step + 1)])).backward()
        optimizer.step()
        found[f"{step}.knn20"] = torch.tensor(
            measure(step + 1, step == NUM_STEPS - 1, method)["knn20"], dtype=torch.float64
        )
        for key, value in method.state_dict().items():
            found[f"{step}.{key}"] = (value.full_tensor() if isinstance(value, DTensor) else value).clone()
    return found


def copies_and_shards() -> Result:
    """What each rank does."""
    return {
        f"{is_sharded}.{name}": value
        for is_sharded in (False, True)
        for name, value in measured(is_sharded=is_sharded).items()
    }


def test_every_rank_gets_the_figures_of_one_process(tmp_path: Path) -> None:
    with torch.random.fork_rng():
        expected = measured(is_sharded=False)
    figures = [value for name, value in expected.items() if name.endswith("knn20")]
    assert len(set(map(float, figures))) > 1  # they differ step for step
    first, second = run_on_ranks(copies_and_shards, 2, tmp_path)
    for name, value in first.tensors.items():
        assert torch.equal(value, second.tensors[name]), name
    for is_sharded in (False, True):
        for name, value in expected.items():
            found = first.tensors[f"{is_sharded}.{name}"]
            if value.dtype == torch.float32:
                assert_close(found, value)
            else:
                assert torch.equal(found, value), name  # figures and counts
