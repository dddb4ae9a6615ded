"""Tiny runs that tests of exports share."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

import counterpoint as cp
from counterpoint.nn.encoders import build_encoder, with_pooling
from counterpoint.nn.heads import build_projector
from counterpoint.nn.trained import Encoder, EncoderCard
from export.stirred_norms import MakeEncoder, stirred


@pytest.fixture
def make_encoder() -> MakeEncoder:
    """Untrained encoders of any card."""

    def make(
        architecture: str = "convnet",
        in_shape: tuple[int, ...] = (3, 8, 8),
        *,
        nonnegative: str = "none",
        d0: int | None = None,
        projector: str = "mlp",
        module: nn.Module | None = None,
    ) -> Encoder:
        torch.manual_seed(0)
        backbone = with_pooling(module, in_shape) if module else build_encoder(architecture, in_shape)
        with torch.no_grad():
            width = backbone.eval()(torch.zeros(2, *in_shape)).shape[1]
        card = EncoderCard(
            architecture=architecture, kind="vectors" if len(in_shape) == 1 else "images", in_shape=in_shape,
            mean=(0.4,) * in_shape[0], std=(0.3,) * in_shape[0], width=width,
            projector=projector, hidden=16, features=6, nonnegative=nonnegative, d0=d0,
            norm="batch" if projector == "mlp" else "none", resizing="bicubic",
        )  # fmt: skip
        head = build_projector(projector, width, hidden=16, features=6, details=card.projector_details)
        return Encoder(card, stirred(backbone), stirred(head))

    return make


@pytest.fixture(scope="session")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pictures of 12 pixels in two classes."""
    folder, rng = tmp_path_factory.mktemp("photos"), np.random.default_rng(0)
    for number in range(60):
        (folder / f"class {number % 2}").mkdir(exist_ok=True)
        pixels = rng.integers(0, 256, (12, 12, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / f"class {number % 2}" / f"{number}.png")
    return folder


@pytest.fixture(scope="session")
def run(photos: Path, tmp_path_factory: pytest.TempPathFactory) -> cp.Run:
    """A run on those pictures, neither evaluated nor diagnosed."""
    settings = {"encoder": "convnet", "source": {"image_size": 12}, "epochs": 1, "batch_size": 8, "method": "ncl"}
    return cp.train(photos, out=tmp_path_factory.mktemp("runs") / "tiny", quiet=True, **settings)
