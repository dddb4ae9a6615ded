"""NumPy archives: read as NumPy reads them, and refused before memory is taken for what is not there."""

import io
import struct
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from counterpoint.core.errors import DataError
from counterpoint.data.formats.npz_files import npz_keys, read_npy, read_npz

ARRAYS: dict[str, Any] = {
    "bytes": np.arange(24, dtype=np.uint8).reshape(2, 3, 4),
    "columns": np.asfortranarray(np.arange(12.0).reshape(3, 4)),
    "big endian": np.arange(5, dtype=">i8"),
    "text": np.array(["one", "zwölf"]),
    "empty": np.zeros((0, 3)),
    "scalar": np.array(7),
    "truth": np.array([True, False]),
}


@pytest.mark.parametrize("compressed", [False, True])
def test_arrays_are_those_that_were_saved(compressed: bool, tmp_path: Path) -> None:
    (np.savez_compressed if compressed else np.savez)(tmp_path / "a.npz", **ARRAYS)
    assert npz_keys(tmp_path / "a.npz") == tuple(ARRAYS)
    found = read_npz(tmp_path / "a.npz", [*ARRAYS, "absent"])
    assert found.keys() == ARRAYS.keys()
    for name, expected in ARRAYS.items():
        assert found[name].dtype == expected.dtype
        assert np.array_equal(found[name], expected)
        assert found[name].flags.writeable


@pytest.mark.parametrize("array", ARRAYS.values(), ids=ARRAYS)
def test_a_single_array_is_what_was_saved(array: np.ndarray, tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", array)
    assert np.array_equal(read_npy(tmp_path / "a.npy"), array)


def test_objects_are_told_apart_and_never_read(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", names=np.array(["a", None], dtype=object), plain=np.zeros(3))
    assert "plain" in read_npz(tmp_path / "a.npz", ["plain"])
    with pytest.raises(DataError, match="Python objects, which are never unpickled"):
        read_npz(tmp_path / "a.npz", ["names"])


def headed(shape: tuple[int, ...], dtype: str, content: bytes) -> bytes:
    stream = io.BytesIO()
    np.lib.format.write_array_header_1_0(stream, {"descr": dtype, "fortran_order": False, "shape": shape})
    return stream.getvalue() + content


CLAIMS: dict[str, bytes] = {
    "terabytes": headed((1 << 42,), "<f8", b"\0" * 64),
    "one byte more": headed((65,), "|u1", b"\0" * 64),
    "one byte less": headed((63,), "|u1", b"\0" * 64),
    "overflow": headed((1 << 62, 1 << 62, 0), "|u1", b"\0" * 64),
    "negative": headed((-64,), "|u1", b"\0" * 64),
    "no array": b"hello",
    "version": b"\x93NUMPY\x09\x00" + struct.pack("<H", 2) + b"{}",
    "code": b"\x93NUMPY\x01\x00" + struct.pack("<H", 26) + b"__import__('os').getcwd()\n",
    "empty": b"",
}


@pytest.mark.parametrize("content", CLAIMS.values(), ids=CLAIMS)
def test_a_header_that_promises_something_else_is_refused(content: bytes, tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("x.npy", content)
    (tmp_path / "a.npy").write_bytes(content)
    for read in (lambda: read_npz(tmp_path / "a.npz", ["x"]), lambda: read_npy(tmp_path / "a.npy")):
        with pytest.raises(DataError) as caught:
            read()
        assert "\n" not in str(caught.value)
        assert "readable NumPy file" in str(caught.value)


def test_what_is_no_archive_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    for content in (b"", b"PK\x03\x04", b"hello" * 100):
        path.write_bytes(content)
        with pytest.raises(DataError, match="readable NumPy file"):
            npz_keys(path)


def test_every_flip_is_refused_or_harmless(tmp_path: Path, rng: np.random.Generator) -> None:
    values: dict[str, Any] = {"x": rng.integers(0, 256, 600, dtype=np.uint8), "y": np.arange(9)}
    path, num_refused = tmp_path / "a.npz", 0
    np.savez_compressed(path, **values)
    whole = path.read_bytes()
    for place in range(0, len(whole), 2):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 0x41]) + whole[place + 1 :])
        try:
            found = read_npz(path, ["x", "y"])
        except DataError as error:
            num_refused += 1
            assert "\n" not in str(error)
        else:
            assert all(np.array_equal(array, values[name]) for name, array in found.items())
    assert num_refused > len(whole) // 3
