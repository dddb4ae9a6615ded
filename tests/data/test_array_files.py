"""Arrays in NumPy files: packs of encoded images are dealt with as folders are, pairs come by the same positions."""

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from data import picture_files as pictures
from data.opened_data import numbers_of, open_data, refusal, samples_of


def encoded(rng: np.random.Generator, height: int, width: int, *, kind: str = "JPEG") -> bytes:
    return pictures.encoded(pictures.noise(rng, height, width), kind)


def pack(files: Sequence[bytes], **more: Any) -> dict[str, Any]:
    offsets = np.cumsum([0, *(len(file) for file in files)]).astype(np.int64)
    return {"jpeg": np.frombuffer(b"".join(files), np.uint8), "offsets": offsets, **more}


def save(path: Path, **arrays: Any) -> Path:
    np.savez_compressed(path, **arrays)
    return path


@pytest.fixture
def files(rng: np.random.Generator) -> list[bytes]:
    return [encoded(rng, 24, 24) for _ in range(6)]


LABELS = np.array([2, 0, 1, 2, 0, 2], dtype=np.uint8)
NAMES = np.array(["ant", "bee", "cow", "dog"])


def test_images_of_one_size_keep_their_pixels(tmp_path: Path, files: list[bytes]) -> None:
    source = open_data(save(tmp_path / "p.npz", **pack(files, labels=LABELS, class_names=NAMES)))
    expected = np.stack([np.asarray(Image.open(io.BytesIO(file))) for file in files])
    assert (source.kind, source.shape) == ("images", (3, 24, 24))
    assert samples_of(source).dtype == torch.uint8
    assert torch.equal(samples_of(source), torch.from_numpy(expected).permute(0, 3, 1, 2))
    assert numbers_of(source) == LABELS.tolist()
    assert source.class_names == tuple(NAMES)  # also the one that no image has
    assert source.sample_names == tuple("012345")


def test_images_of_several_sizes_are_brought_to_one_as_in_folders(tmp_path: Path, rng: np.random.Generator) -> None:
    files = [encoded(rng, 30, 50, kind="PNG"), encoded(rng, 40, 33), encoded(rng, 90, 90), encoded(rng, 33, 34)]
    (tmp_path / "folder").mkdir()
    for number, file in enumerate(files):
        (tmp_path / "folder" / f"{number}.jpg").write_bytes(file)
    packed, folder = open_data(save(tmp_path / "p.npz", **pack(files))), open_data(tmp_path / "folder")
    assert packed.shape == folder.shape == (3, 32, 32)
    assert torch.equal(samples_of(packed), samples_of(folder))
    assert "median" in packed.notes["source.image_size"]


def test_names_are_class_numbers_where_the_file_has_none_or_pickled_ones(tmp_path: Path, files: list[bytes]) -> None:
    plain = open_data(save(tmp_path / "p.npz", **pack(files, labels=LABELS)))
    pickled = open_data(save(tmp_path / "q.npz", **pack(files, labels=LABELS, class_names=NAMES.astype(object))))
    assert plain.class_names == pickled.class_names == ("0", "1", "2")
    assert open_data(tmp_path / "p.npz", labels="none").labels is None
    np.save(tmp_path / "other.npy", LABELS[::-1])
    assert numbers_of(open_data(tmp_path / "p.npz", labels=str(tmp_path / "other.npy"))) == LABELS[::-1].tolist()


def test_bad_images_are_skipped_and_named_with_their_labels(tmp_path: Path, files: list[bytes]) -> None:
    files[1], files[4] = b"no image", files[4][:-200]
    path = save(tmp_path / "p.npz", **pack(files, labels=LABELS))
    source = open_data(path, max_bad=0.5)
    assert [item.name for item in source.skipped] == ["1", "4"]
    assert source.sample_names == ("0", "2", "3", "5")
    assert numbers_of(source) == [2, 1, 2, 2]
    assert source.shape == (3, 24, 24)
    assert "2 of 6" in refusal(path)


BROKEN: dict[str, tuple[dict[str, Any], str]] = {
    "falls": ({"offsets": np.array([0, 900, 800, 1000, 1100, 1200])}, "offsets must run from 0"),
    "start": ({"offsets": lambda o: o + (np.arange(len(o)) == 0)}, "got 1 to"),
    "end": ({"offsets": lambda o: o[:-1]}, "offsets must run from 0 to"),
    "within": ({"offsets": lambda o: o[[0, 2, 1, 3, 4, 5, 6]]}, "image 1 runs from"),
    "equal": ({"offsets": lambda o: o[[0, 1, 1, 3, 4, 5, 6]]}, "image 1 runs from"),
    "floats": ({"offsets": lambda o: o.astype(float)}, "whole numbers"),
    "unsigned": ({"offsets": lambda o: o[[0, 2, 1, 3, 4, 5, 6]].astype(np.uint64)}, "image 1 runs from"),
    "one": ({"offsets": np.array([0])}, "at least two"),
    "square": ({"offsets": np.zeros((2, 2), int)}, "at least two"),
    "jpeg": ({"jpeg": np.zeros((2, 2), np.uint8)}, "bytes in one row"),
    "wide jpeg": ({"jpeg": np.zeros(9, np.int64)}, "bytes in one row"),
    "objects": ({"jpeg": np.array([b"a", None], dtype=object)}, "Python objects"),
    "few labels": ({"labels": LABELS[:-1]}, "6 whole numbers"),
    "fractions": ({"labels": LABELS / 2}, "6 whole numbers"),
    "below": ({"labels": LABELS.astype(int) - 2}, "got -2"),
    "more than names": ({"labels": np.full(6, 1 << 40)}, "labels must be -1 (unknown) to 1048575, got 1099511627776"),
    "few names": ({"class_names": NAMES[:2]}, "3 or more texts"),
    "numbers as names": ({"class_names": np.arange(4)}, "3 or more texts"),
}


@pytest.mark.parametrize(("change", "complaint"), BROKEN.values(), ids=BROKEN)
def test_a_pack_that_does_not_add_up_is_refused(
    change: dict[str, Any], complaint: str, tmp_path: Path, files: list[bytes]
) -> None:
    arrays = pack(files, labels=LABELS, class_names=NAMES)
    made = {key: value(arrays[key]) if callable(value) else value for key, value in change.items()}
    assert complaint in refusal(save(tmp_path / "p.npz", **(arrays | made)))


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
    source = open_data(path)
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
    assert numbers_of(source) == [0, 1, 0, 1, 2, 2]
    assert open_data(path, labels="none").labels is None


def test_other_arrays_make_no_pair(tmp_path: Path, rng: np.random.Generator) -> None:
    plain = open_data(save(tmp_path / "a.npz", images=images(rng, 6, 8, 8), other=np.zeros(3)))
    assert plain.second is None
    assert plain.second_shape is None


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "lengths": ({"view0": np.zeros((6, 4)), "view1": np.zeros((5, 4))}, "got 6 and 5"),
    "caption lengths": ({"images": np.zeros((6, 8, 8)), "captions": np.zeros((7, 4))}, "got 6 and 7"),
    "shapes": ({"view0": np.zeros((6, 4)), "view1": np.zeros((6, 5))}, "one shape, got (6, 4) and (6, 5)"),
    "captions are no vectors": ({"images": np.zeros((6, 8, 8)), "captions": np.zeros((6, 8, 8))}, "captions must be"),
    "range": ({"x0": np.zeros((6, 4)), "x1": np.full((6, 8, 8), 7.0)}, "x1 must have values in [0, 1]"),
    "not finite": ({"x0": np.zeros((6, 4)), "x1": np.full((6, 4), np.nan)}, "every sample"),
    "text": ({"x0": np.zeros((6, 4)), "x1": np.array([["a"]] * 6)}, "x1 must hold real numbers"),
    "objects": ({"images": np.zeros((6, 8, 8)), "captions": np.array(["a", None], object)}, "Python objects"),
    "labels": ({"x0": np.zeros((6, 4)), "x1": np.zeros((6, 4)), "labels": np.zeros(5, int)}, "6 samples"),
}


@pytest.mark.parametrize(("arrays", "complaint"), BAD.values(), ids=BAD)
def test_arrays_that_do_not_make_a_pair_are_refused(arrays: dict[str, Any], complaint: str, tmp_path: Path) -> None:
    assert complaint in refusal(save(tmp_path / "pair.npz", **arrays))
