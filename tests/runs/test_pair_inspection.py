"""diagnose() looks at the pairs of a run: its own loss, batches of its own size, pictures, and what is not known."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import counterpoint as cp
from counterpoint.core.numerics import evenly_spaced
from counterpoint.core.run import Run
from counterpoint.core.settings import LookSettings
from counterpoint.diagnostics.pair_record import PairRecord
from counterpoint.engine.checkpoint import restore_checkpoint
from counterpoint.engine.progress import Reporter
from counterpoint.evaluation.features import view_pairs
from counterpoint.evaluation.load_subject import Samples, open_subject
from counterpoint.losses import Attention, InfoNCE, SigmoidPair

LABELS = np.arange(64) % 4


def pictures(seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (64, 8, 8), dtype=np.uint8)


def trained(out: Path, **asked: Any) -> cp.Run:
    """One epoch on pictures."""
    usual = {"epochs": 1, "batch_size": 16, "projector": {"features": 8}, "encoder": "convnet", "quiet": True}
    return cp.train(data=pictures(), labels=LABELS, out=str(out), **{**usual, **asked})


def look(run: cp.Run | Run) -> PairRecord:
    found = cp.diagnose(run, quiet=True).pairs
    assert found is not None
    return found


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> cp.Run:
    return trained(tmp_path_factory.mktemp("pairs") / "run", temperature=0.3)


def test_a_run_is_looked_at_with_its_own_loss(run: cp.Run) -> None:
    found = look(run)
    assert (found.loss, found.temperature, found.why) == ("InfoNCE", 0.3, "")
    assert (found.run_batch, found.batch_size, found.num_negatives) == (16, 16, 30)
    assert found.effective_low is not None
    assert found.effective_negatives is not None
    assert found.effective_low < found.effective_negatives
    assert found.class_chance == pytest.approx(15 / 63, abs=0.1)  # of batches, not of all samples


def batches(run: cp.Run) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """The four batches of 16 view pairs, recomputed with the seed of the run."""
    subject = open_subject(run, Samples(None, None), LookSettings(), Reporter(quiet=True))
    chosen = evenly_spaced(torch.arange(64), 2048)
    with torch.inference_mode():
        z0, z1 = (z.double().clone() for z in view_pairs(subject, subject.encoder, ["embedding"], chosen)["embedding"])
    order = torch.randperm(64, generator=torch.Generator().manual_seed(0))
    return [(z0[at].clone(), z1[at].clone()) for at in order.split(16)]


@pytest.mark.thorough
def test_a_larger_batch_than_the_samples_is_said(tmp_path: Path) -> None:
    run = trained(tmp_path / "run", batch_size=48, source={"holdout": 0.0})
    few = cp.diagnose(run.path, data=pictures()[:30], labels=LABELS[:30], quiet=True).pairs
    assert few is not None
    assert (few.run_batch, few.batch_size, few.effective_low) == (48, 30, None)


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        ({"method": "byol"}, "(Regression)"),
        ({"method": "barlow-twins"}, "(BarlowTwins)"),
        ({"method": "supervised"}, "(CrossEntropy)"),
        ({"method": "moco", "target": {"queue_size": 32}}, "a queue of earlier keys"),
    ],
)
@pytest.mark.sampled(4)
def test_what_weighs_no_pairs_says_so(tmp_path: Path, asked: dict[str, Any], why: str) -> None:
    projector = {} if asked["method"] == "supervised" else {"features": 8}
    found = look(trained(tmp_path / "run", **asked, projector=projector))
    assert why in found.why
    assert found.effective_negatives is None
    assert found.nearest


def test_what_a_loss_has_learned_comes_from_the_checkpoint(tmp_path: Path) -> None:
    """A sigmoid loss learns its temperature: there is no other one to try, and its weights are the learned ones."""
    run = trained(tmp_path / "run", loss={"name": "sigmoid"}, optim={"learning_rate": 0.01}, epochs=4)
    found, learned, fresh = look(run), SigmoidPair(), SigmoidPair()
    state = restore_checkpoint(run.folder.checkpoints).snapshot.state.model
    learned.load_state_dict({name: state[f"loss.{name}"] for name in learned.state_dict()})
    assert found.temperature is None
    expected, other = (
        sum(Attention.of_importance(loss.importance(z0, z1)).mean_effective_negatives for z0, z1 in batches(run)) / 4
        for loss in (learned, fresh)
    )
    assert found.effective_negatives == pytest.approx(expected, rel=1e-5)
    assert expected != pytest.approx(other, rel=1e-4)


@pytest.mark.thorough
def test_a_loss_of_ones_own_is_asked_where_it_is_at_hand(tmp_path: Path) -> None:
    run = trained(tmp_path / "run", loss=InfoNCE(0.7))
    assert look(run).loss == "InfoNCE"
    assert look(run).temperature is None
    away = look(Run(run.path, data=pictures(), labels=LABELS))
    assert "not available" in away.why
