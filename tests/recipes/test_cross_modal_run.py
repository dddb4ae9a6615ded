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
