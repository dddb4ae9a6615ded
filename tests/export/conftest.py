"""Tiny runs that tests of exports share."""

from pathlib import Path

import numpy as np
import pytest

import counterpoint as cp
from data.picture_files import save_plain


@pytest.fixture(scope="session")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pictures of 12 pixels in two classes."""
    folder, rng = tmp_path_factory.mktemp("photos"), np.random.default_rng(0)
    save_plain(folder, [f"class {number % 2}/{number}.png" for number in range(60)], rng, side=12)
    return folder


@pytest.fixture(scope="session")
def run(photos: Path, tmp_path_factory: pytest.TempPathFactory) -> cp.Run:
    """A run on those pictures, neither evaluated nor diagnosed."""
    settings = {"encoder": "convnet", "source": {"image_size": 12}, "epochs": 1, "batch_size": 8, "method": "ncl"}
    return cp.train(photos, out=tmp_path_factory.mktemp("runs") / "tiny", quiet=True, **settings)
