"""The encoder a user loads: written and read without loss, and answering whatever layout it is asked in."""

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import counterpoint as cp
from counterpoint.core.errors import CounterpointError, DataError, RunError, UsageError
from counterpoint.core.rundir import RunFolder
from counterpoint.core.user_objects import CUSTOM
from counterpoint.nn.trained import Encoder, EncoderCard, load_encoder, save_encoder
from counterpoint.runs.run_files import create_run
from refusals import refused
from tolerances import assert_close
from untrained_encoders import encoder_of

GREY = EncoderCard(
    architecture="convnet", kind="images", in_shape=(1, 8, 8), mean=(0.3,), std=(0.25,), width=256,
    projector="mlp", hidden=32, features=16, nonnegative="none", d0=None,
)  # fmt: skip
COLOUR = replace(GREY, in_shape=(3, 8, 8), mean=(0.3, 0.4, 0.5), std=(0.25, 0.2, 0.3))
VECTORS = replace(GREY, architecture="mlp", kind="vectors", in_shape=(5,), mean=(0.5,) * 5, std=(2.0,) * 5)
NCL = replace(GREY, nonnegative="relu")
RESNET = replace(GREY, architecture="resnet9-narrow", in_shape=(1, 80, 80), width=128)
CARDS = {  # and the width of the embedding
    "grey": (GREY, 16),
    "colour": (COLOUR, 16),
    "vectors": (VECTORS, 16),
    "non-negative": (NCL, 16),
    "first features": (replace(GREY, projector="none", d0=7), 7),
    "linear": (replace(GREY, projector="linear"), 16),
    "deep mlp with norms": (replace(VECTORS, layers=3, norm="batch"), 16),
    "simsiam's": (replace(VECTORS, layers=3, norm="batch", output_norm=True), 16),
    "low-rank": (replace(VECTORS, projector="low-rank", rank=9), 9),
    "low-rank by default": (replace(VECTORS, projector="low-rank"), 128),
    "low-rank, cut": (replace(VECTORS, projector="low-rank", rank=9, d0=4), 4),
    "diagonal": (replace(VECTORS, projector="diagonal"), 256),
    "sparse": (replace(VECTORS, projector="sparse", features=24, active=3), 24),
    "small stem": (replace(RESNET, stem="small"), 16),
    "large stem": (replace(RESNET, stem="large"), 16),
}
NEW_FIELDS = ("layers", "norm", "output_norm", "rank", "active")  # since the first release


def saved(folder: Path, encoder: Encoder) -> RunFolder:
    run = create_run(folder, overwrite=False)
    save_encoder(run, encoder)
    return run


def grey_bytes(rng: np.random.Generator, num_images: int = 6, side: int = 8) -> np.ndarray:
    return rng.integers(0, 256, (num_images, side, side), dtype=np.uint8)


# --- writing and reading


@pytest.mark.parametrize(("card", "dims"), CARDS.values(), ids=CARDS)
def test_what_is_loaded_is_what_was_saved_bit_for_bit(tmp_path: Path, card: EncoderCard, dims: int) -> None:
    encoder = encoder_of(card)
    run = saved(tmp_path / "run", encoder)
    for loaded in (cp.load(run.path), cp.load(str(run.path)), cp.load(cp.Run(run.path))):
        assert loaded.card == card
        for part in ("backbone", "projector"):
            before, after = getattr(encoder, part).state_dict(), getattr(loaded, part).state_dict()
            assert before.keys() == after.keys()
            assert all(torch.equal(before[name], after[name]) for name in before)
        samples = torch.rand(4, *card.in_shape)
        assert torch.equal(loaded.represent(samples), encoder.represent(samples))
        assert torch.equal(loaded.embed(samples), encoder.embed(samples))
        assert loaded.embed(samples).shape == (4, dims)
        assert loaded.embedding_dims == dims


def test_a_card_of_the_first_release_still_reads(tmp_path: Path) -> None:
    encoder = encoder_of(VECTORS)
    run = saved(tmp_path / "run", encoder)
    assert json.loads(run.encoder_card.read_text(encoding="utf-8")).keys() >= set(NEW_FIELDS)
    rewrite_card(run, sha256=..., format=1, **dict.fromkeys(NEW_FIELDS, ...))
    loaded = cp.load(run.path)
    assert loaded.card == VECTORS
    samples = torch.rand(4, 5)
    assert torch.equal(loaded.embed(samples), encoder.embed(samples))


def test_loading_leaves_the_global_random_numbers_alone(tmp_path: Path) -> None:
    run = saved(tmp_path / "run", encoder_of(GREY))
    before = torch.get_rng_state()
    cp.load(run.path)
    assert torch.equal(torch.get_rng_state(), before)


def own_module() -> nn.Module:
    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU())


def test_a_run_of_the_users_module_needs_that_module(tmp_path: Path) -> None:
    encoder = encoder_of(replace(GREY, architecture=CUSTOM, width=4), own_module())
    run = saved(tmp_path / "run", encoder)
    with pytest.raises(UsageError, match="your own module; pass it as encoder="):
        cp.load(run.path)
    samples = torch.rand(3, 1, 8, 8)
    for loaded in (cp.load(run.path, encoder=own_module()), cp.load(cp.Run(run.path, encoder=own_module()))):
        assert torch.equal(loaded.represent(samples), encoder.represent(samples))
    with pytest.raises(RunError, match="cannot be read"):
        cp.load(run.path, encoder=nn.Sequential(nn.Conv2d(1, 4, 5)))


def test_weights_that_are_tied_or_transposed_are_saved_all_the_same(tmp_path: Path) -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(64, 64), nn.Linear(64, 64)
            self.second.weight = self.first.weight
            self.register_buffer("turned", torch.rand(3, 5).T)

        def forward(self, images: Tensor) -> Tensor:
            return self.second(self.first(images.flatten(1)).relu())

    encoder = encoder_of(replace(GREY, architecture=CUSTOM, width=64), Tied())
    run = saved(tmp_path / "run", encoder)
    samples = torch.rand(3, 1, 8, 8)
    assert torch.equal(cp.load(run.path, encoder=Tied()).represent(samples), encoder.represent(samples))


def flip_last_byte(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


DAMAGES: dict[str, tuple[str, Callable[[RunFolder], Any]]] = {
    "a changed byte": ("encoder.safetensors is damaged", lambda run: flip_last_byte(run.weights)),
    "truncated": ("encoder.safetensors is damaged", lambda run: run.weights.write_bytes(run.weights.read_bytes()[:99])),
    "weights missing": ("encoder.safetensors", lambda run: run.weights.unlink()),
    "card missing": ("no trained encoder yet", lambda run: run.encoder_card.unlink()),
    "card empty": ("encoder.json is damaged", lambda run: run.encoder_card.write_text("")),
    "card not a record": ("encoder.json is damaged", lambda run: run.encoder_card.write_text("[1, 2]")),
    "card lacks a field": ("encoder.json is damaged", lambda run: rewrite_card(run, width=...)),
    "card of the future": ("has format 99", lambda run: rewrite_card(run, sha256=..., format=99, new_field=1)),
    "card with another mean": ("was changed after it was written", lambda run: rewrite_card(run, mean=[0.4] * 3)),
    "card without its seal": ("was changed after it was written", lambda run: rewrite_card(run, sha256=...)),
    "card of 0.1.0 with text for a number": (
        "encoder.json is damaged: width",
        lambda run: rewrite_card(run, sha256=..., format=1, width="many"),
    ),
}


def rewrite_card(run: RunFolder, **changes: Any) -> None:
    """Change entries of the card; ``...`` removes one."""
    values = {**json.loads(run.encoder_card.read_text()), **changes}
    run.encoder_card.write_text(json.dumps({key: value for key, value in values.items() if value is not ...}))


@pytest.mark.parametrize(("complaint", "damage"), DAMAGES.values(), ids=DAMAGES)
def test_damage_is_named(tmp_path: Path, complaint: str, damage: Callable[[RunFolder], Any]) -> None:
    run = saved(tmp_path / "run", encoder_of(VECTORS))
    damage(run)
    assert complaint in refused(RunError, load_encoder, run)


# --- answering


@pytest.mark.parametrize("card", [GREY, COLOUR], ids=["grey", "colour"])
def test_arrays_and_tensors_are_answered_in_kind(card: EncoderCard, rng: np.random.Generator) -> None:
    encoder, images = encoder_of(card), rng.integers(0, 256, (6, 8, 8, card.in_shape[0]), dtype=np.uint8)
    floats = images / 255
    tensors = (torch.from_numpy(images), torch.from_numpy(floats).requires_grad_())
    for method, width in ((encoder.represent, card.width), (encoder.embed, card.features)):
        expected = method(images)
        assert (expected.dtype, expected.shape) == (np.float32, (6, width))
        for given in (images, floats, floats.tolist(), *tensors):
            answer = method(given)
            assert isinstance(answer, Tensor if isinstance(given, Tensor) else np.ndarray)
            assert_close(torch.as_tensor(answer), torch.from_numpy(expected))


def test_the_answer_is_that_of_the_network_on_standardised_input(rng: np.random.Generator) -> None:
    encoder = encoder_of(COLOUR)
    images = rng.random((4, 3, 8, 8)).astype(np.float32)
    mean, std = (np.array(values, np.float32)[:, None, None] for values in (COLOUR.mean, COLOUR.std))
    with torch.no_grad():
        expected = encoder.backbone(torch.from_numpy((images - mean) / std))
        projected = encoder.projector(expected)
    assert_close(torch.from_numpy(encoder.represent(images)), expected)
    unit = projected / projected.norm(dim=1, keepdim=True)
    assert_close(torch.from_numpy(encoder.embed(images)), unit)


# --- as a module


@pytest.mark.parametrize("card", [GREY, COLOUR, VECTORS], ids=["grey", "colour", "vectors"])
def test_the_forward_pass_prepares_its_input(card: EncoderCard, rng: np.random.Generator) -> None:
    encoder = encoder_of(card)
    samples = torch.from_numpy(rng.integers(0, 256, (4, *card.in_shape), dtype=np.uint8))
    for given in [samples / 255] if card is VECTORS else [samples, samples / 255]:
        answer = encoder(given)
        assert answer.requires_grad
        assert_close(answer.detach(), encoder.represent(given))
    if card is not VECTORS:
        large = torch.rand(2, card.in_shape[0], 12, 10)
        assert_close(encoder(large).detach(), encoder.represent(large))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda rows: rows.to_sparse(), ".to_dense()"),
        (lambda rows: rows[0], "samples must be vectors (n, d), got shape (5,)"),
        (lambda rows: rows.to("meta"), "meta"),
    ],
    ids=["sparse", "one row", "meta"],
)
def test_what_is_no_batch_of_numbers_is_refused(change: Callable[[Tensor], Tensor], words: str) -> None:
    with pytest.raises((TypeError, DataError), match=re.escape(words)):
        encoder_of(VECTORS)(change(torch.zeros(4, 5)))


def test_the_forward_pass_refuses_what_is_too_large_for_its_precision() -> None:
    with pytest.raises(DataError, match="every sample"):
        encoder_of(VECTORS)(torch.full((3, 5), 1e300, dtype=torch.float64))


def test_a_sample_too_large_for_the_sums_of_the_encoder_is_named() -> None:
    encoder, samples = encoder_of(replace(VECTORS, std=(0.1,) * 5)), torch.rand(3, 5)
    samples[1] = 3e38
    for function in (encoder, encoder.represent, encoder.embed):
        with pytest.raises(DataError, match=r"representations must be finite, but sample 1 .* scale the samples down"):
            function(samples)


def test_what_is_traced_or_mapped_reads_no_number() -> None:
    encoder, samples = encoder_of(VECTORS), torch.rand(3, 5)
    expected = encoder(samples)
    compiled = torch.compile(encoder, backend="eager", fullgraph=True)  # one graph: nothing is read in between
    traced: Any = torch.jit.trace(encoder, (samples,))  # pyright: ignore[reportUnknownMemberType]
    mapped = torch.func.vmap(lambda row: encoder(row[None])[0])
    for function in (compiled, traced, mapped):
        assert_close(function(samples), expected)
        assert function(samples * torch.nan).isnan().all()
    leaf = samples.clone().requires_grad_()
    encoder(leaf).sum().backward()
    assert leaf.grad is not None


def test_more_samples_than_fit_one_pass_are_answered_in_order() -> None:
    encoder = encoder_of(VECTORS)
    samples = torch.randn(1100, 5)
    together = encoder.represent(samples)
    assert together.shape == (1100, VECTORS.width)
    for rows in (slice(0, 3), slice(510, 514), slice(1097, 1100)):
        assert_close(together[rows], encoder.represent(samples[rows]))


def test_in_many_samples_the_bad_one_is_named_by_its_place() -> None:
    samples = torch.zeros(700, 5)
    samples[600, 2] = float("nan")
    with pytest.raises(DataError, match="sample 600 holds NaN"):
        encoder_of(VECTORS).represent(samples)


@pytest.mark.parametrize("shape", [(32, 32, 3), (28, 28, 1), (3, 28, 28)])
def test_what_could_be_one_picture_or_many_is_refused_with_the_remedy(
    shape: tuple[int, int, int], rng: np.random.Generator
) -> None:
    encoder, picture = encoder_of(COLOUR), rng.random(shape).astype(np.float32)
    with pytest.raises(DataError, match=r"x\[None\]"):
        encoder.represent(picture)
    assert len(encoder.represent(picture[None])) == 1


def test_images_of_another_size_are_cropped_to_the_middle_and_resized(rng: np.random.Generator) -> None:
    encoder = encoder_of(GREY)
    small = grey_bytes(rng)
    flat = np.full((2, 30, 17), 77, np.uint8)
    assert_close(torch.from_numpy(encoder.represent(flat)), torch.from_numpy(encoder.represent(flat[:, :8, :8])))
    wide = np.zeros((6, 8, 14), np.uint8)
    wide[:, :, 3:11] = small
    assert np.array_equal(encoder.represent(wide), encoder.represent(small))


def test_grey_images_go_through_a_colour_encoder_but_not_the_other_way(rng: np.random.Generator) -> None:
    grey = grey_bytes(rng)
    colour = encoder_of(COLOUR)
    expected = colour.represent(np.repeat(grey[..., None], 3, axis=3))
    assert np.array_equal(colour.represent(grey), expected)
    with pytest.raises(DataError, match=r"takes 1 channel\(s\), got 3"):
        encoder_of(GREY).represent(np.repeat(grey[..., None], 3, axis=3))


@pytest.mark.parametrize(
    ("card", "samples", "complaint"),
    [
        (GREY, np.zeros((4, 5)), "images"),
        (GREY, np.zeros((4, 8, 8, 2)), "1 or 3 channels"),
        (GREY, np.full((4, 8, 8), np.nan), "every sample"),
        (VECTORS, np.zeros((4, 6)), "takes 5 features per sample, got 6"),
        (VECTORS, np.zeros((4, 8, 8)), "vectors"),
        (VECTORS, np.full((4, 5), np.inf), "every sample"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_samples_that_do_not_fit_are_refused(card: EncoderCard, samples: Any, complaint: str) -> None:
    for method in (encoder_of(card).represent, encoder_of(card).embed):
        assert complaint in refused(CounterpointError, method, samples)


# --- embeddings


def test_embeddings_of_ncl_are_non_negative_and_zero_rows_stay_zero(rng: np.random.Generator) -> None:
    encoder = encoder_of(NCL)
    embedding = encoder.embed(grey_bytes(rng, 64))
    assert (embedding >= 0).all()
    assert (embedding == 0).any()
    assert_close(torch.from_numpy(np.linalg.norm(embedding, axis=1)), torch.ones(64))
    assert isinstance(encoder.projector, nn.Sequential)
    last = encoder.projector[2]
    assert isinstance(last, nn.Linear)
    with torch.no_grad():
        last.weight.zero_()
        last.bias.fill_(-1.0)  # every feature is silent
    assert (encoder.embed(grey_bytes(rng)) == 0).all()
