"""The classifier of a supervised run: its logits are those of the loss, and it outlives the run."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import counterpoint as cp
from counterpoint.core.errors import RunError, UsageError
from counterpoint.losses.cross_entropy import CrossEntropy, NonNegativeCrossEntropy
from counterpoint.nn.classifier import load_classifier

SMALL: dict[str, Any] = {"epochs": 1, "batch_size": 16, "quiet": True}
VECTORS = np.random.default_rng(0).normal(size=(48, 5)).astype(np.float32)
NAMES = np.array(["cat", "dog", "owl"])[np.arange(48) % 3]
METHODS = ("supervised", "nonnegative-supervised")


@pytest.fixture(scope="module", params=METHODS)
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> cp.Run:
    out = tmp_path_factory.mktemp("classifier") / "run"
    return cp.train(VECTORS, labels=NAMES, method=request.param, out=str(out), source={"holdout": 0.0}, **SMALL)


def test_its_logits_give_the_loss(run: cp.Run) -> None:
    encoder, numbers = cp.load(run), torch.arange(48) % 3
    assert encoder.classifier is not None
    loss = (NonNegativeCrossEntropy if encoder.classifier.is_nonnegative else CrossEntropy)(3, encoder.embedding_dims)
    loss.load_state_dict(encoder.classifier.state_dict())
    r = torch.from_numpy(encoder.represent(VECTORS))
    z = F.relu(encoder.projector(r)) if encoder.card.nonnegative == "relu" else encoder.projector(r)
    logits = torch.from_numpy(encoder.logits(VECTORS))
    assert F.cross_entropy(logits, numbers).item() == pytest.approx(loss(z, z, numbers).item(), rel=1e-5)
    assert encoder.classify(VECTORS[:4]) == tuple(np.array(["cat", "dog", "owl"])[logits[:4].argmax(1)])


@pytest.mark.thorough
def test_both_methods_have_one_architecture_with_and_without_a_projector(tmp_path: Path) -> None:
    for kind in ("auto", "none", "mlp"):
        cards = [
            cp.load(
                cp.train(
                    VECTORS, labels=NAMES, method=method, out=str(tmp_path / f"{method}-{kind}"),
                    projector={"kind": kind}, **SMALL,
                )
            ).card
            for method in METHODS
        ]  # fmt: skip
        assert len({(card.projector, card.hidden, card.features, card.layers) for card in cards}) == 1
        assert cards[0].projector == ("none" if kind == "auto" else kind)


def test_verify_compares_it_with_the_last_checkpoint(run: cp.Run) -> None:
    checks = {check.what: check for check in cp.verify(cp.Run(run.path, VECTORS, NAMES), quiet=True).checks}
    assert "its weights are those of step-" in checks["classifier.safetensors"].detail


@pytest.mark.parametrize("name", ["classifier.safetensors", "classifier.json"])
def test_a_damaged_one_is_named_and_written_again(tmp_path: Path, name: str) -> None:
    run = cp.train(VECTORS, labels=NAMES, method="supervised", out=str(tmp_path / "run"), **SMALL)
    before = run.folder.classifier_weights.read_bytes()
    (run.path / name).write_bytes(b"{}")
    with pytest.raises(RunError, match=f"{name} is damaged"):
        cp.load(run)
    assert not cp.verify(run, quiet=True).is_intact
    cp.resume(run, quiet=True)
    assert cp.load(run).classifier is not None
    assert run.folder.classifier_weights.read_bytes() == before


def test_a_run_of_an_earlier_version_has_none_and_loads(tmp_path: Path) -> None:
    run = cp.train(VECTORS, labels=NAMES, method="supervised", out=str(tmp_path / "run"), **SMALL)
    for path in (run.folder.classifier_weights, run.folder.classifier_card):
        path.unlink()
    encoder = cp.load(run)
    assert load_classifier(run.folder, encoder.embedding_dims) is None
    assert cp.verify(run, quiet=True).is_intact
    with pytest.raises(UsageError, match="this encoder has no classifier; supervised and nonnegative-supervised train"):
        encoder.classify(VECTORS)
