"""Digits, arrays in memory and array files: every layout comes to one form, and what cannot be used is refused."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from counterpoint.data.source import FOLDER
from counterpoint.data.sources import FORMS
from data.opened_data import numbers_of, open_data, refusal, samples_of

# --- digits


def test_the_digits_are_those_of_scikit_learn() -> None:
    source = open_data("digits")
    assert (len(source), source.kind, source.shape) == (1797, "images", (1, 8, 8))
    assert source.class_names == tuple("0123456789")
    assert (numbers_of(source) or [])[:10] == list(range(10))
    assert int(samples_of(source).max()) == 255
    assert open_data("digits", labels="none").labels is None


# --- arrays in memory


def byte_images(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.integers(0, 256, shape, dtype=np.uint8)


LAYOUTS = {
    "n h w": ((6, 8, 9), (1, 8, 9), lambda x: x[:, None]),
    "n h w 1": ((6, 8, 9, 1), (1, 8, 9), lambda x: x.transpose(0, 3, 1, 2)),
    "n h w 3": ((6, 8, 9, 3), (3, 8, 9), lambda x: x.transpose(0, 3, 1, 2)),
    "n 3 h w": ((6, 3, 8, 9), (3, 8, 9), lambda x: x),
    "n 1 h w": ((6, 1, 8, 9), (1, 8, 9), lambda x: x),
    "both ends could be channels": ((6, 3, 9, 3), (3, 3, 9), lambda x: x.transpose(0, 3, 1, 2)),
}
KINDS: dict[str, Callable[[np.ndarray], Any]] = {
    "uint8": lambda x: x,
    "float32": lambda x: (x / 255).astype(np.float32),
    "float64": lambda x: x / 255,
    "float16": lambda x: (x / 255).astype(np.float16),
    "tensor of bytes": torch.from_numpy,
    "tensor of floats": lambda x: torch.from_numpy(x / 255),
    "tensor with a gradient": lambda x: torch.from_numpy(x / 255).requires_grad_(),
    "Fortran order": np.asfortranarray,
    "reversed view": lambda x: x[::-1].copy()[::-1],
    "lists": lambda x: (x / 255).tolist(),
}


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
@pytest.mark.parametrize(("shape", "sample_shape", "channels_first"), LAYOUTS.values(), ids=LAYOUTS)
def test_images_of_every_layout_and_type_become_bytes_with_channels_first(
    kind: Callable[[np.ndarray], Any],
    shape: tuple[int, ...],
    sample_shape: tuple[int, ...],
    channels_first: Callable[[np.ndarray], np.ndarray],
    rng: np.random.Generator,
) -> None:
    pixels = byte_images(rng, *shape)
    source = open_data(kind(pixels))
    assert (source.name, source.kind, source.shape) == ("array", "images", sample_shape)
    assert torch.equal(samples_of(source), torch.from_numpy(channels_first(pixels).copy()))


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64, bool])
def test_vectors_become_float32_and_keep_their_range(dtype: type, rng: np.random.Generator) -> None:
    values = (100 * rng.normal(size=(7, 5))).astype(dtype)
    for array in (values, torch.from_numpy(values)):
        source = open_data(array)
        assert (source.kind, source.shape) == ("vectors", (5,))
        assert torch.equal(samples_of(source), torch.from_numpy(values).float())


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("shape", [(9, 6), (9, 8, 8)])
@pytest.mark.parametrize("as_tensor", [False, True])
def test_the_sample_that_is_not_finite_is_named(shape: tuple[int, ...], bad: float, as_tensor: bool) -> None:
    array = np.zeros(shape)
    array[4, ..., 1] = bad
    array[7] = bad
    message = refusal(torch.from_numpy(array) if as_tensor else array)
    assert "sample 4 " in message
    assert "finite" in message


@pytest.mark.parametrize(
    ("array", "complaint"),
    [
        (np.full((4, 8, 8), 1.5), "[0, 1]"),
        (np.full((4, 8, 8), -0.1), "[0, 1]"),
        (np.full((4, 8, 8), 200), "uint8"),
        (torch.full((4, 8, 8), 200), "uint8"),
        (np.zeros((4, 8, 8, 2)), "1 or 3 channels"),
        (np.zeros((4, 1, 8, 8, 8)), "1 or 3 channels"),
        (np.zeros((32, 32, 3)), "could be one picture (h, w, c) or 32 grey ones"),
        (torch.zeros(3, 28, 28), "could be one picture (c, h, w) or 3 grey ones"),
        (np.zeros(4), "(4,)"),
        (torch.zeros(4), "(4,)"),
        (np.zeros((0, 8, 8)), "(0, 8, 8)"),
        (torch.zeros(0, 8, 8), "(0, 8, 8)"),
        (torch.zeros(0, 8, 8, dtype=torch.uint8), "(0, 8, 8)"),
        (torch.zeros(5, 0), "(5, 0)"),
        (np.array([["a", "b"]]), "real numbers"),
        (np.zeros((4, 8), complex), "real numbers"),
        (torch.zeros(4, 8, dtype=torch.complex64), "real numbers"),
        ([[1.0, 2.0], [3.0]], "array"),
        (5, "()"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_arrays_that_cannot_be_samples_are_refused(array: Any, complaint: str) -> None:
    assert complaint in refusal(array)


# --- files


def test_the_list_of_forms_names_every_suffix(tmp_path: Path) -> None:
    suffixes = {suffix for form in FORMS for suffix in form.suffixes} - {FOLDER}
    assert suffixes >= {".npy", ".npz", ".tar", ".parquet", ".arrow", ".feather"}
    message = refusal(tmp_path / "nowhere")
    assert all(suffix in message for suffix in suffixes)


def test_a_npy_file_holds_samples(tmp_path: Path, rng: np.random.Generator) -> None:
    images = byte_images(rng, 6, 8, 8)
    np.save(tmp_path / "images.npy", images)
    source = open_data(tmp_path / "images.npy")
    assert torch.equal(samples_of(source)[:, 0], torch.from_numpy(images))
    assert source.labels is None
    assert source.fingerprint == open_data(images).fingerprint
    assert "one part only" in refusal(tmp_path / "images.npy", split="train")


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
@pytest.mark.parametrize(("samples_key", "labels_key"), [("images", "labels"), ("x", "y"), ("X", "targets")])
def test_a_npz_file_may_hold_labels(
    tmp_path: Path, save: Callable[..., None], samples_key: str, labels_key: str, rng: np.random.Generator
) -> None:
    images, labels = byte_images(rng, 6, 8, 8), np.array([2, 0, 1, 2, 0, 1])
    path = tmp_path / "data.npz"
    save(path, **{samples_key: images, labels_key: labels})
    source = open_data(str(path))
    assert torch.equal(samples_of(source)[:, 0], torch.from_numpy(images))
    assert numbers_of(source) == labels.tolist()
    assert open_data(path, labels="none").labels is None
    np.save(tmp_path / "other.npy", labels[::-1])
    assert numbers_of(open_data(path, labels=str(tmp_path / "other.npy"))) == labels[::-1].tolist()


def test_a_npz_file_may_lack_labels_but_not_samples(tmp_path: Path, rng: np.random.Generator) -> None:
    np.savez(tmp_path / "plain.npz", rng.normal(size=(5, 3)))
    assert open_data(tmp_path / "plain.npz").labels is None
    np.savez(tmp_path / "odd.npz", pictures=np.zeros((5, 3)))
    message = refusal(tmp_path / "odd.npz")
    assert "pictures" in message
    assert "images" in message
    np.savez(tmp_path / "short.npz", x=np.zeros((5, 3)), y=np.zeros(4, int))
    assert "5 samples" in refusal(tmp_path / "short.npz")


def test_factors_beside_samples_count_as_content_as_for_earlier_runs(tmp_path: Path, rng: np.random.Generator) -> None:
    images, factors = rng.integers(0, 256, (6, 8, 8), dtype=np.uint8), rng.integers(0, 3, (6, 2))
    np.savez(tmp_path / "named.npz", images=images, factors=factors)
    np.savez(tmp_path / "others.npz", images=images, factors=1 + factors)
    np.savez(tmp_path / "none.npz", images=images)
    sources = [open_data(str(tmp_path / f"{name}.npz")) for name in ("named", "others", "none")]
    assert len({source.fingerprint for source in sources}) == 3
