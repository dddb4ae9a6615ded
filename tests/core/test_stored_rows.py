"""Rows on disk are those of the array, whatever is asked for, and a file that fits nothing is refused."""

# N rows, D columns

import io
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from counterpoint.core.errors import DataError
from counterpoint.core.stored_rows import StoredRows, load, new_array, row_slices

DTYPES = ["<f4", ">f4", "<f2", "<f8", "<i8", "|u1"]


def write(folder: Path, array: np.ndarray, name: str = "rows.npy") -> Path:
    path = folder / name
    np.save(path, array)
    return path


def numbers(n: int, d: int, dtype: str = "<f4") -> np.ndarray:
    return np.random.default_rng(n + d).integers(0, 200, size=(n, d)).astype(dtype)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("rows")


@given(
    n=st.integers(1, 9),
    d=st.integers(1, 4),
    dtype=st.sampled_from(DTYPES),
    asked=st.tuples(*[st.none() | st.integers(-12, 12)] * 2, st.none() | st.integers(1, 4)),
    data=st.data(),
)
@settings(max_examples=40)
def test_slices_are_those_of_the_array(
    folder: Path, n: int, d: int, dtype: str, asked: tuple[Any, Any, Any], data: st.DataObject
) -> None:
    array, part = numbers(n, d, dtype), slice(*asked)
    rows, expected = StoredRows(write(folder, array)), array.astype(np.float32)
    assert rows.shape == (n, d)
    assert len(rows) == n
    assert rows[part].dtype == rows.dtype == torch.float32
    assert np.array_equal(rows[part].numpy(), expected[part])
    # Any order, some rows twice, and rows of rows.
    places = data.draw(st.lists(st.integers(0, n - 1), min_size=1, max_size=12))
    again = data.draw(st.lists(st.integers(0, len(places) - 1), max_size=6))
    some = rows.take(torch.tensor(places))
    assert np.array_equal(some[part].numpy(), expected[places][part])
    of_some = some.take(torch.tensor(again, dtype=torch.int64))
    assert of_some.shape == (len(again), d)
    assert np.array_equal(load(of_some).numpy(), expected[places][again].reshape(-1, d))


def test_rows_stay_those_of_the_file_that_was_opened(tmp_path: Path) -> None:
    path = write(tmp_path, numbers(5, 3))
    rows, places = StoredRows(path), torch.tensor([4, 1])
    np.save(tmp_path / "other.npy", numbers(5, 3) + 1)
    (tmp_path / "other.npy").replace(path)
    part = rows.take(places)
    del rows
    assert np.array_equal(load(part).numpy(), numbers(5, 3)[[4, 1]])


def test_changed_rows_are_the_function_of_what_is_read(tmp_path: Path) -> None:
    rows = StoredRows(write(tmp_path, numbers(5, 3)))
    changed = rows.changed(lambda part: part * 2 + 1)
    assert (changed.shape, len(changed), changed.dtype) == ((5, 3), 5, torch.float32)
    assert np.array_equal(load(changed).numpy(), numbers(5, 3) * 2 + 1)
    assert np.array_equal(changed[4:1].numpy(), np.empty((0, 3)))
    assert np.array_equal(changed[::2].numpy(), numbers(5, 3)[::2] * 2 + 1)
    assert np.array_equal(changed.take(torch.tensor([4, 1]))[:].numpy(), numbers(5, 3)[[4, 1]] * 2 + 1)
    assert np.array_equal(load(rows).numpy(), numbers(5, 3))


@pytest.mark.parametrize(
    "array",
    [np.ones(3), np.ones((2, 2, 2)), np.ones((2, 2), complex), np.array([["a"]]), np.asfortranarray(np.ones((2, 3)))],
    ids=["one axis", "three axes", "complex", "text", "columns first"],
)
def test_other_arrays_are_refused(tmp_path: Path, array: np.ndarray) -> None:
    with pytest.raises(ValueError, match=r"must hold numbers of shape \(n, d\) in C order"):
        StoredRows(write(tmp_path, array))


def test_a_file_that_was_cut_off_is_named(tmp_path: Path) -> None:
    path = write(tmp_path, numbers(6, 2))
    rows = StoredRows(path)
    os.truncate(path, path.stat().st_size - 4)
    assert len(rows[:5]) == 5
    with pytest.raises(DataError, match=r"rows\.npy ends early: it was changed while it was read"):
        rows[4:6]


def test_reading_keeps_no_row_in_the_memory_of_the_process(tmp_path: Path) -> None:
    """Every 50th row of 32 MB: through a mapping, most of the file would count."""

    def resident() -> int:
        lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("RssFile"))

    if not Path("/proc/self/status").exists():
        pytest.skip("the system does not say how much of a file is in memory")
    rows = StoredRows(write(tmp_path, np.ones((16_384, 512), np.float32)))
    before = resident()
    assert rows[::50].sum() == 328 * 512
    assert resident() - before < 4096  # KiB


@pytest.mark.parametrize("shape", [(0, 3), (5,), (7, 3), (4, 2, 3), (3, 0)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.uint8])
def test_a_new_array_is_what_numpy_would_have_written(tmp_path: Path, shape: tuple[int, ...], dtype: type) -> None:
    array = np.random.default_rng(1).integers(0, 99, size=shape).astype(dtype)
    path = tmp_path / "new.npy"
    with new_array(path, shape, dtype) as put:
        for part in reversed(row_slices(shape[0], 2)):
            put(part.start, array[part].astype(np.float64))  # what is given becomes what the file holds
    expected = io.BytesIO()
    np.save(expected, array)
    assert path.read_bytes() == expected.getvalue()
