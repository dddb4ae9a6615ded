"""A cross-modal run from paired data to two encoders that share one space."""

from pathlib import Path

import numpy as np
import pytest
import torch

import counterpoint as cp
from counterpoint.core.errors import RunError


@pytest.fixture
def pairs(tmp_path: Path, rng: np.random.Generator) -> Path:
    """64 grey pictures of 8 x 8 pixels whose brightness and slope their captions tell."""
    level, slope = rng.uniform(0.2, 0.8, 64), rng.uniform(-0.2, 0.2, 64)
    ramp = np.linspace(-1, 1, 8)
    pictures = level[:, None, None] + slope[:, None, None] * ramp[None, None, :] + 0 * ramp[None, :, None]
    captions = np.stack([level, slope, level * 0], axis=1) + 0.01 * rng.normal(size=(64, 3))
    np.savez(
        tmp_path / "pairs.npz",
        images=(255 * pictures.clip(0, 1)).astype(np.uint8),
        captions=captions.astype(np.float32),
    )
    return tmp_path / "pairs.npz"


@pytest.mark.thorough
def test_both_encoders_are_saved_and_find_each_others_partner(pairs: Path, tmp_path: Path) -> None:
    settings = {"views": {"preset": "none"}, "optim": {"learning_rate": 0.005}}
    run = cp.train(pairs, method="cross-modal", out=tmp_path / "run", epochs=60, batch_size=32, quiet=True, **settings)
    with np.load(pairs) as stored:
        images, captions = stored["images"], stored["captions"]
    z0, z1 = cp.load(run).embed(images), cp.load(run, second=True).embed(captions)
    assert z0.shape == z1.shape
    rank_of_own = (z0 @ z1.T >= (z0 * z1).sum(1)[:, None]).sum(1)
    assert np.mean(rank_of_own <= 6) > 0.7  # by chance 6 of 64


def test_other_runs_have_no_second_encoder(tmp_path: Path) -> None:
    vectors = torch.randn(16, 4, generator=torch.Generator().manual_seed(0))
    run = cp.train(vectors, out=tmp_path / "run", epochs=1, batch_size=8, quiet=True)
    with pytest.raises(RunError, match="holds no second encoder"):
        cp.load(run, second=True)


def projected(encoder: cp.Encoder, samples: np.ndarray) -> np.ndarray:
    """What the projector returns, as float64."""
    with torch.no_grad():
        return encoder.projector(torch.from_numpy(encoder.represent(samples))).double().numpy()


@pytest.mark.parametrize("asked", ["auto", "none"])
@pytest.mark.parametrize("loss", ["cross-modal", "cross-modal-spectral"])
@pytest.mark.sampled(4)
def test_what_a_loss_makes_non_negative_is_exported_so(pairs: Path, tmp_path: Path, loss: str, asked: str) -> None:
    settings = {"loss": {"name": loss, "options": {"nonnegative": True}}, "output": {"nonnegative": asked}}
    run = cp.train(pairs, method="cross-modal", out=tmp_path / "run", epochs=1, batch_size=32, quiet=True, **settings)
    with np.load(pairs) as stored:
        kinds = (cp.load(run), stored["images"]), (cp.load(run, second=True), stored["captions"])
    for encoder, samples in kinds:
        positive = projected(encoder, samples).clip(min=0)
        length = np.linalg.norm(positive, axis=1, keepdims=True)
        assert (positive == 0).any()
        expected = np.divide(positive, length, out=np.zeros_like(positive), where=length > 0)
        assert np.abs(encoder.embed(samples) - expected).max() < 1e-5


def test_other_methods_export_the_relu_of_their_loss_too(tmp_path: Path) -> None:
    vectors = torch.randn(16, 4, generator=torch.Generator().manual_seed(0))
    labels, loss = np.arange(16) % 2, {"name": "nonnegative-cross-entropy"}
    settings = {"epochs": 1, "batch_size": 4, "quiet": True, "loss": loss, "projector": {"kind": "linear"}}
    run = cp.train(vectors, labels=labels, method="supervised", out=tmp_path / "run", **settings)
    assert "puts a ReLU on its inputs" in (run.path / "resolved.yaml").read_text()
    assert float(cp.load(run).embed(vectors).min()) == 0
