"""NumPy archives: read as NumPy reads them, and refused before memory is taken for what is not there."""

import struct
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from counterpoint.core.errors import DataError
from counterpoint.data.formats import npz_files
from counterpoint.data.formats.npz_files import npz_keys, read_npy, read_npz
from refusals import refused

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
        np.save(tmp_path / "a.npy", expected)
        assert np.array_equal(read_npy(tmp_path / "a.npy"), expected)


def test_objects_are_told_apart_and_never_read(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", names=np.array(["a", None], dtype=object), plain=np.zeros(3))
    assert "plain" in read_npz(tmp_path / "a.npz", ["plain"])
    with pytest.raises(DataError, match="Python objects, which are never unpickled"):
        read_npz(tmp_path / "a.npz", ["names"])


def headed(text: str, *, version: int = 1, length: int | None = None) -> bytes:
    written = text.encode()
    size = struct.pack("<H" if version == 1 else "<I", len(written) if length is None else length)
    return b"\x93NUMPY" + bytes([version, 0]) + size + written


def header(shape: str, descr: str = "'<f4'", num_bytes: int = 8) -> bytes:
    return headed(f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}\n") + bytes(num_bytes)


CLAIMS: dict[str, bytes] = {
    "terabytes": header("(1000000000000,)"),
    "one byte more": header("(9,)", "'|u1'"),
    "one byte less": header("(7,)", "'|u1'"),
    "overflow": header(f"({1 << 62}, {1 << 62}, 0)", "'|u1'"),
    "negative": header("(-8,)", "'|u1'"),
    "twice negative": header("(-1, -2)"),
    "no array": b"hello",
    "version": b"\x93NUMPY\x09\x00" + struct.pack("<H", 2) + b"{}",
    "code": headed("__import__('os').getcwd()\n"),
    "empty": b"",
    "unclosed": header("(2, ") + b"(((",
    "nested": header("(" * 3000),
    "signs": header("-" * 4000 + "1"),
    "truth": header("(True, 2)"),
    "fraction": header("(2.0,)"),
    "no tuple": header("[2]"),
    "digits": header("(" + "9" * 5000 + ",)"),
    "type": header("(2,)", "'<q9'"),
    "nested type": header("(2,)", "[" * 500 + "]" * 500),
    "call": header("(2,)", "__import__('os')"),
    "no fields": headed("{}"),
    "no mapping": headed("7"),
    "gigabytes": headed("{}", version=2, length=(1 << 32) - 1),
}


@pytest.mark.parametrize("content", CLAIMS.values(), ids=CLAIMS)
@pytest.mark.filterwarnings("error")
def test_a_header_that_promises_something_else_is_refused(content: bytes, tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("x.npy", content)
    (tmp_path / "a.npy").write_bytes(content)
    in_archive = refused(DataError, read_npz, tmp_path / "a.npz", ["x"])
    for message in (in_archive, refused(DataError, read_npy, tmp_path / "a.npy")):
        assert "readable NumPy file" in message
        assert len(message) < 400 + len(str(tmp_path))


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


def test_an_array_that_the_memory_cannot_hold_is_refused_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "x.npy").write_bytes(header("(2,)"))
    monkeypatch.setattr(npz_files, "available_memory", lambda: 7)
    with pytest.raises(DataError, match="an array of 8 bytes does not fit the memory: 7 are free"):
        read_npy(tmp_path / "x.npy")


def test_an_archive_packed_like_a_bomb_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    np.savez_compressed(tmp_path / "x.npz", x=np.zeros((1000, 1000), np.uint8))
    assert read_npz(tmp_path / "x.npz", ["x"])["x"].shape == (1000, 1000)
    monkeypatch.setattr(npz_files, "MAX_EASY_BYTES", 1 << 18)
    with pytest.raises(DataError, match=r"bytes to 1,000,128; above 262,144 at most 250 times as many are taken"):
        read_npz(tmp_path / "x.npz", ["x"])


def test_a_list_of_members_is_not_read_at_any_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with zipfile.ZipFile(tmp_path / "x.npz", "w") as archive:
        for number in range(50):
            archive.writestr(f"{number}.npy", b"")
    monkeypatch.setattr(npz_files, "MAX_PIECE_BYTES", 1000)
    with pytest.raises(DataError, match=r"a list or header in it has [\d,]+ bytes, at most 1,000 are"):
        read_npz(tmp_path / "x.npz", ["1"])
