"""MATLAB files: the same arrays as SciPy reads; damage is one line and never more memory than the file's own."""

import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.io

from counterpoint.core.errors import DataError
from counterpoint.data.sets.svhn import read_mat

ARRAYS: dict[str, np.ndarray] = {
    "bytes": np.arange(120, dtype=np.uint8).reshape(2, 3, 4, 5),
    "column": np.arange(7, dtype=np.uint8)[:, None],
    "small": np.array([[3]], dtype=np.uint8),
    "signed": np.array([[-3, 300]], dtype=np.int16),
    "doubles": np.array([[0.5, -2.0, 1e300]]),
    "singles": np.array([[0.5, -2.0]], dtype=np.float32),
    "longs": np.array([[1 << 40]], dtype=np.int64),
    "none": np.zeros((0, 3), dtype=np.uint8),
}
OTHERS: dict[str, Any] = {"text": "hello", "cell": np.array(["a", 1.5], dtype=object), "record": {"a": 1, "b": [1, 2]}}


@pytest.mark.parametrize("packed", [False, True])
def test_arrays_are_those_that_scipy_reads(packed: bool, tmp_path: Path) -> None:
    path = tmp_path / "a.mat"
    scipy.io.savemat(path, {**OTHERS, **ARRAYS}, do_compression=packed)
    expected = scipy.io.loadmat(path)
    found = read_mat(path, [*ARRAYS, "absent"])
    assert found.keys() == ARRAYS.keys()
    for name, array in found.items():
        assert array.dtype == expected[name].dtype
        assert array.shape == expected[name].shape
        assert np.array_equal(array, expected[name])


def element(kind: int, content: bytes, *, order: str = "<") -> bytes:
    return struct.pack(f"{order}II", kind, len(content)) + content + b"\0" * (-len(content) % 8)


def array_element(name: bytes, shape: tuple[int, ...], values: bytes, *, order: str = "<", flags: int = 9) -> bytes:
    parts = element(6, struct.pack(f"{order}II", flags, 0), order=order)
    parts += element(5, struct.pack(f"{order}{len(shape)}i", *shape), order=order)
    return element(14, parts + element(1, name, order=order) + element(2, values, order=order), order=order)


def header(order: bytes = b"IM") -> bytes:
    return b"MATLAB 5.0 MAT-file".ljust(124) + b"\x00\x01" + order


def test_both_orders_of_bytes_are_read(tmp_path: Path) -> None:
    for mark, order in ((b"IM", "<"), (b"MI", ">")):
        (tmp_path / "a.mat").write_bytes(header(mark) + array_element(b"x", (2, 3), bytes(range(6)), order=order))
        assert read_mat(tmp_path / "a.mat", ["x"])["x"].tolist() == [[0, 2, 4], [1, 3, 5]]


GOOD = array_element(b"x", (2, 3), bytes(range(6)))
BAD: dict[str, bytes] = {
    "empty": b"",
    "no header": b"x" * 200,
    "version 7.3": b"MATLAB 7.3 MAT-file".ljust(512) + b"\x89HDF\r\n\x1a\n",
    "shape": header() + array_element(b"x", (2, 4), bytes(range(6))),
    "negative shape": header() + array_element(b"x", (-2, -3), bytes(range(6))),
    "terabytes": header() + array_element(b"x", (1 << 20, 1 << 20), bytes(range(6))),
    "many axes": header() + array_element(b"x", (1,) * 40, b"a"),
    "complex": header() + array_element(b"x", (2, 3), bytes(range(6)), flags=9 | 0x0800),
    "long element": header() + struct.pack("<II", 14, 1 << 31) + GOOD[8:],
    "half a tag": header() + GOOD + b"\x0e\0\0",
    "packed and cut": header() + element(15, zlib.compress(GOOD)[:-6]),
    "packed garbage": header() + element(15, b"garbage!"),
    "packed nothing": header() + element(15, zlib.compress(b"")),
    "no name": header() + element(14, element(6, bytes(8))),
    "small element of 9 bytes": header() + struct.pack("<I", 9 << 16 | 14) + bytes(12),
}


@pytest.mark.parametrize("content", BAD.values(), ids=BAD)
def test_other_content_is_refused_in_one_line(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "good.mat").write_bytes(header() + GOOD)
    assert read_mat(tmp_path / "good.mat", ["x"])["x"].shape == (2, 3)
    (tmp_path / "bad.mat").write_bytes(content)
    with pytest.raises(DataError, match="not a readable MATLAB file") as caught:
        read_mat(tmp_path / "bad.mat", ["x"])
    assert "\n" not in str(caught.value)


def test_unpacking_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("counterpoint.data.sets.svhn.MAX_EASY_BYTES", 1 << 16)
    (tmp_path / "a.mat").write_bytes(header() + element(15, zlib.compress(bytes(1 << 24))))
    with pytest.raises(DataError, match="unpacks to more than"):
        read_mat(tmp_path / "a.mat", ["x"])


@pytest.mark.parametrize("packed", [False, True])
def test_1000_changes_are_refused_or_give_arrays(packed: bool, tmp_path: Path, rng: np.random.Generator) -> None:
    path, num_refused = tmp_path / "a.mat", 0
    scipy.io.savemat(path, ARRAYS, do_compression=packed)
    whole = path.read_bytes()
    for _ in range(500):
        changed = bytearray(whole)
        for place in rng.integers(0, len(whole), 3):
            changed[place] = int(rng.integers(256))
        path.write_bytes(bytes(changed[: rng.integers(1, len(whole))] if rng.random() < 0.2 else changed))
        try:
            found = read_mat(path, list(ARRAYS))
        except DataError as error:
            num_refused += 1
            assert "\n" not in str(error)
        else:
            assert all(array.size <= len(whole) * 8 for array in found.values())
    assert num_refused > 100
