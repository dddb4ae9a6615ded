"""Paired data: two aligned arrays of one file, the second by the positions of the first."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from counterpoint.core.errors import DataError, UsageError
from counterpoint.core.settings import SourceSettings
from counterpoint.data.source import Source
from counterpoint.data.sources import open_source


@contextmanager
def silent(title: str, total: int) -> Iterator[Callable[[], None]]:
    yield lambda: None


def open_pair(path: Path, **settings: Any) -> Source:
    return open_source(path, SourceSettings(**settings), progress=silent)


def save(path: Path, **arrays: Any) -> Path:
    np.savez(path, **arrays)
    return path


def images(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.integers(0, 256, shape, dtype=np.uint8)


CASES: dict[str, tuple[tuple[str, str], tuple[int, ...], tuple[int, ...]]] = {
    "two views": (("view0", "view1"), (6, 8, 9, 3), (6, 8, 9, 3)),
    "views of vectors": (("view0", "view1"), (6, 5), (6, 5)),
    "captions": (("images", "captions"), (6, 8, 9, 3), (6, 12)),
    "two kinds of vectors": (("x0", "x1"), (6, 5), (6, 12)),
    "vectors and images": (("x0", "x1"), (6, 5), (6, 8, 9)),
}


@pytest.mark.parametrize(("keys", "first", "second"), CASES.values(), ids=CASES)
def test_both_arrays_come_by_the_same_positions(
    keys: tuple[str, str], first: tuple[int, ...], second: tuple[int, ...], tmp_path: Path, rng: np.random.Generator
) -> None:
    arrays = [
        images(rng, *shape) if len(shape) > 2 else rng.normal(size=shape).astype(np.float32)
        for shape in (first, second)
    ]
    path = save(tmp_path / "pair.npz", **dict(zip(keys, arrays, strict=True)), labels=np.array([0, 1, 0, 1, 2, 2]))
    source = open_pair(path)
    assert source.second is not None
    chosen = [5, 0, 3]
    for store, array, shape in (
        (source.store, arrays[0], source.shape),
        (source.second, arrays[1], source.second_shape),
    ):
        expected = torch.from_numpy(array[chosen])
        if array.ndim > 2:
            expected = expected.permute(0, 3, 1, 2) if array.ndim == 4 else expected[:, None]
        assert torch.equal(store.fetch(chosen), expected)
        assert shape == tuple(expected.shape[1:])
    assert source.kind == ("images" if len(first) > 2 else "vectors")
    assert source.labels is not None
    assert source.labels.tolist() == [0, 1, 0, 1, 2, 2]
    assert open_pair(path, labels="none").labels is None


def test_the_fingerprint_covers_both_arrays_and_labels(tmp_path: Path, rng: np.random.Generator) -> None:
    first, second = images(rng, 6, 8, 8), images(rng, 6, 8, 8)
    prints = [open_pair(save(tmp_path / "p.npz", view0=first, view1=second)).fingerprint]
    prints.append(open_pair(save(tmp_path / "p.npz", view0=first, view1=second, y=[0, 1] * 3)).fingerprint)
    prints.append(open_pair(save(tmp_path / "p.npz", view0=second, view1=first)).fingerprint)
    first[5, 7, 7] ^= 1
    prints.append(open_pair(save(tmp_path / "p.npz", view0=first, view1=second)).fingerprint)
    second[5, 7, 7] ^= 1
    prints.append(open_pair(save(tmp_path / "p.npz", view0=first, view1=second)).fingerprint)
    assert len(set(prints)) == 5


def test_captions_make_a_pair_and_other_arrays_do_not(tmp_path: Path, rng: np.random.Generator) -> None:
    plain = open_pair(save(tmp_path / "a.npz", images=images(rng, 6, 8, 8), other=np.zeros(3)))
    assert plain.second is None
    assert plain.second_shape is None
    paired = open_pair(save(tmp_path / "b.npz", images=images(rng, 6, 8, 8), captions=rng.normal(size=(6, 4))))
    assert paired.second_shape == (4,)


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "lengths": ({"view0": np.zeros((6, 4)), "view1": np.zeros((5, 4))}, "got 6 and 5"),
    "caption lengths": ({"images": np.zeros((6, 8, 8)), "captions": np.zeros((7, 4))}, "got 6 and 7"),
    "shapes": ({"view0": np.zeros((6, 4)), "view1": np.zeros((6, 5))}, "one shape, got (6, 4) and (6, 5)"),
    "captions are no vectors": ({"images": np.zeros((6, 8, 8)), "captions": np.zeros((6, 8, 8))}, "captions must be"),
    "range": ({"x0": np.zeros((6, 4)), "x1": np.full((6, 8, 8), 7.0)}, "x1 must have values in [0, 1]"),
    "not finite": ({"x0": np.zeros((6, 4)), "x1": np.full((6, 4), np.nan)}, "x1 must be finite, but sample 0"),
    "text": ({"x0": np.zeros((6, 4)), "x1": np.array([["a"]] * 6)}, "x1 must hold real numbers"),
    "objects": ({"images": np.zeros((6, 8, 8)), "captions": np.array(["a", None], object)}, "Python objects"),
    "labels": ({"x0": np.zeros((6, 4)), "x1": np.zeros((6, 4)), "labels": np.zeros(5, int)}, "6 samples"),
}


@pytest.mark.parametrize(("arrays", "complaint"), BAD.values(), ids=BAD)
def test_arrays_that_do_not_make_a_pair_are_refused(arrays: dict[str, Any], complaint: str, tmp_path: Path) -> None:
    path = save(tmp_path / "pair.npz", **arrays)
    with pytest.raises((DataError, UsageError)) as caught:
        open_pair(path)
    assert complaint in str(caught.value)
    assert "\n" not in str(caught.value)
