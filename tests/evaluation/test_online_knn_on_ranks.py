"""Every rank measures for itself: none waits for another, and all get the figure of one process, in shards too."""

from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from counterpoint.core.settings import OptimSettings, SourceSettings
from counterpoint.data.order import split_source
from counterpoint.data.sources import open_source
from counterpoint.engine.hooks import EpochEnd
from counterpoint.engine.optimisers import build_optimizer
from counterpoint.engine.progress import Reporter
from counterpoint.engine.sharding import shard, whole_tensor
from counterpoint.engine.weight_average import WeightAverage
from counterpoint.evaluation.online_knn import OnlineKNN
from counterpoint.nn.trained import Encoder, EncoderCard
from rank_processes import Result, run_on_ranks

WIDTH = 6


class Wiring(nn.Module):
    """An encoder of two blocks and a projector."""

    def __init__(self) -> None:
        super().__init__()
        blocks = [nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.BatchNorm1d(WIDTH), nn.ReLU()) for _ in range(2)]
        self.backbone = nn.Sequential(*blocks)
        self.projector = nn.Linear(WIDTH, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.projector(self.backbone(x)).square().mean()


def measured(*, is_sharded: bool) -> dict[str, Tensor]:
    """Figures between steps of training, of the weights and of their average, and the weights in the end."""
    rng = np.random.default_rng(0)
    labels = np.arange(90) % 3
    array = (rng.normal(size=(3, WIDTH))[labels] + 2.0 * rng.normal(size=(90, WIDTH))).astype(np.float32)
    source = open_source(array, SourceSettings(), labels=labels, progress=Reporter(quiet=True).bar)
    torch.manual_seed(0)
    method = Wiring()
    card = EncoderCard(
        architecture="custom", kind="vectors", in_shape=(WIDTH,), mean=(0.0,) * WIDTH, std=(1.0,) * WIDTH,
        width=WIDTH, projector="linear", hidden=WIDTH, features=3, nonnegative="none", d0=None,
    )  # fmt: skip
    encoder = Encoder(card, nn.Identity(), nn.Identity())
    settings = OptimSettings(learning_rate=0.1, weight_decay=0.0)
    optimizer = build_optimizer(method, settings, is_sharded=is_sharded)
    average = WeightAverage(method.state_dict(), 0.9)
    if is_sharded:
        shard(method, optimizer, torch.device("cpu"))
    split = split_source(90, source.labels, 0.4)
    plain, averaged = (OnlineKNN(source, split, encoder, 1, mean) for mean in (None, average))
    figures = []
    for step in range(3):
        optimizer.zero_grad()
        method.train()(torch.from_numpy(array[30 * step : 30 * (step + 1)])).backward()
        optimizer.step()
        average.update(method.state_dict(), step=step)
        moment = EpochEnd(step + 1, step + 1, step == 2, method)
        figures += [plain(moment)["knn20"], averaged(moment)["knn20"]]
    weights = {name: whole_tensor(value).clone() for name, value in method.state_dict().items()}
    return {"figures": torch.tensor(figures, dtype=torch.float64), **weights}


def copies_and_shards() -> Result:
    """What each rank does."""
    return {
        f"{is_sharded}.{name}": value
        for is_sharded in (False, True)
        for name, value in measured(is_sharded=is_sharded).items()
    }


def test_every_rank_gets_the_figures_of_one_process(tmp_path: Path) -> None:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # as the ranks have: sums of more threads end in other bits, which Adam enlarges
    try:
        with torch.random.fork_rng():
            expected = measured(is_sharded=False)
    finally:
        torch.set_num_threads(threads)
    assert len(expected["figures"].unique()) > 2  # weights and average, step for step, differ
    for result in run_on_ranks(copies_and_shards, 2, tmp_path):
        for is_sharded in (False, True):
            assert torch.equal(result.tensors[f"{is_sharded}.figures"], expected["figures"])
            for name, value in expected.items():
                assert torch.allclose(result.tensors[f"{is_sharded}.{name}"], value, rtol=1e-5, atol=1e-6)
