"""Every rank measures for itself: none waits for another, and all get the figure of one process, in shards too.

Ranks hold the same weights and agree to the last bit. One process has weights that are equal up to rounding: its
figures are the same because no vote is so near a tie that rounding could turn it, which is asserted in float64.
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from counterpoint.core.data_settings import SourceSettings
from counterpoint.core.settings import OptimSettings
from counterpoint.data.order import split_source
from counterpoint.data.sources import open_source
from counterpoint.engine.engine import shard, whole_tensor
from counterpoint.engine.optimisers import build_optimizer
from counterpoint.engine.progress import Reporter
from counterpoint.evaluation.online_knn import EpochKNN
from counterpoint.nn.trained import Encoder, EncoderCard
from oracles import class_votes
from rank_processes import Result, run_on_ranks
from tolerances import assert_close

pytestmark = pytest.mark.thorough

WIDTH, NUM_SAMPLES, NUM_STEPS = 6, 90, 3
LEARNING_RATE = 2.0
MARGIN = 1e-3  # of the features: a hundred times what float32 may err by, and no vote changes


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
    found: dict[str, Tensor] = {"train": split.train, "held_out": split.held_out}
    for step in range(NUM_STEPS):
        optimizer.zero_grad()
        method.train()(torch.from_numpy(array[30 * step : 30 * (step + 1)])).backward()
        optimizer.step()
        found[f"{step}.knn20"] = torch.tensor(
            measure(step + 1, step == NUM_STEPS - 1, method)["knn20"], dtype=torch.float64
        )
        found |= {f"{step}.{key}": whole_tensor(value).clone() for key, value in method.state_dict().items()}
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
    assert list(map(float, figures)) == list(exact_accuracies(expected))
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


def exact_accuracies(state: dict[str, Tensor]) -> Iterator[float]:
    """Accuracy of each moment by votes in float64, which features that are a little off do not change."""
    array, labels = clusters()
    samples, rng = torch.from_numpy(array).double(), np.random.default_rng(1)
    train, held_out = state["train"].tolist(), state["held_out"].tolist()
    for moment in (f"{step}." for step in range(NUM_STEPS)):
        method = Wiring().double().eval()
        names = method.state_dict()
        method.load_state_dict({name: state[moment + name].to(value.dtype) for name, value in names.items()})
        features = method.backbone(samples).detach().numpy()
        errors = [0.0 * features, *(MARGIN * abs(features).max() * rng.normal(size=(4, *features.shape)))]
        exact, *others = (votes(features + error, labels, train, held_out) for error in errors)
        assert all(other == exact for other in others), "a vote is near a tie; take other clusters"
        yield float(np.mean(np.array(exact) == labels[held_out]))


def votes(features: np.ndarray, labels: np.ndarray, train: list[int], held_out: list[int]) -> list[int]:
    """Class of each held-out sample."""
    bank, bank_labels = features[train].tolist(), labels[train].tolist()
    return [class_votes.knn_class(bank, bank_labels, query, 20, 0.1) for query in features[held_out].tolist()]
