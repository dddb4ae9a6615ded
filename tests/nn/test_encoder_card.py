"""Every projector comes back from the two files of an encoder, and files of the first release still read."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import counterpoint as cp
from counterpoint.core.run_files import create_run
from counterpoint.core.rundir import RunFolder
from counterpoint.nn.encoders import build_encoder
from counterpoint.nn.heads import build_projector
from counterpoint.nn.trained import Encoder, EncoderCard, save_encoder

MLP = EncoderCard(
    architecture="mlp", kind="vectors", in_shape=(5,), mean=(0.5,) * 5, std=(2.0,) * 5, width=256,
    projector="mlp", hidden=32, features=16, nonnegative="none", d0=None,
)  # fmt: skip
CARDS = {
    "deep mlp with norms": (replace(MLP, layers=3, norm="batch"), 16),
    "simsiam's": (replace(MLP, layers=3, norm="batch", output_norm=True), 16),
    "low-rank": (replace(MLP, projector="low-rank", rank=9), 9),
    "low-rank by default": (replace(MLP, projector="low-rank"), 128),
    "low-rank, cut": (replace(MLP, projector="low-rank", rank=9, d0=4), 4),
    "diagonal": (replace(MLP, projector="diagonal"), 256),
    "sparse": (replace(MLP, projector="sparse", features=24, active=3), 24),
}
RESNET = replace(
    MLP, architecture="resnet9-narrow", kind="images", in_shape=(1, 80, 80), mean=(0.5,), std=(2.0,), width=128
)
NEW_FIELDS = ("layers", "norm", "output_norm", "rank", "active")


def saved(folder: Path, card: EncoderCard) -> tuple[Encoder, RunFolder]:
    torch.manual_seed(0)
    sizes = {"hidden": card.hidden, "features": card.features}
    projector = build_projector(card.projector, card.width, **sizes, details=card.projector_details)
    for name, buffer in projector.named_buffers():
        if name.endswith("running_mean"):
            buffer.uniform_(-0.1, 0.1)
    encoder, run = (
        Encoder(card, build_encoder(card.architecture, card.in_shape, card.stem), projector),
        create_run(folder, overwrite=False),
    )
    save_encoder(run, encoder)
    return encoder, run


@pytest.mark.parametrize("name", CARDS)
def test_every_projector_comes_back(tmp_path: Path, name: str) -> None:
    card, dims = CARDS[name]
    encoder, run = saved(tmp_path / "run", card)
    loaded = cp.load(run.path)
    assert loaded.card == card
    samples = torch.randn(4, 5, generator=torch.Generator().manual_seed(1))
    assert torch.equal(loaded.embed(samples), encoder.embed(samples))
    assert loaded.embed(samples).shape == (4, dims)
    assert loaded.embedding_dims == dims


def test_a_card_of_the_first_release_still_reads(tmp_path: Path) -> None:
    encoder, run = saved(tmp_path / "run", MLP)
    values = json.loads(run.encoder_card.read_text(encoding="utf-8"))
    old = {**{k: v for k, v in values.items() if k not in (*NEW_FIELDS, "sha256")}, "format": 1}
    run.encoder_card.write_text(json.dumps(old), encoding="utf-8")
    assert set(NEW_FIELDS) <= set(values)
    loaded = cp.load(run.path)
    assert loaded.card == MLP
    samples = torch.randn(4, 5, generator=torch.Generator().manual_seed(1))
    assert torch.equal(loaded.embed(samples), encoder.embed(samples))


@pytest.mark.parametrize("stem", ["small", "large"])
def test_the_stem_comes_back(tmp_path: Path, stem: str) -> None:
    encoder, run = saved(tmp_path / "run", replace(RESNET, stem=stem))
    assert json.loads(run.encoder_card.read_text(encoding="utf-8"))["stem"] == stem
    images = torch.rand(2, 1, 80, 80, generator=torch.Generator().manual_seed(1))
    assert torch.equal(cp.load(run.path).represent(images), encoder.represent(images))
