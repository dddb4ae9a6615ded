"""Data files that were made to hang a reader or to fill the memory: refused in one line, or left out by name."""

import io
import os
import pickle
import struct
import subprocess
import sys
import threading
import zlib
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from counterpoint.core import arrow_files
from counterpoint.core.errors import DataError
from counterpoint.data.formats import image_files, pickled_arrays
from counterpoint.data.formats.image_files import Room, decode, decoded_bytes
from counterpoint.data.formats.pickled_arrays import read_pickled
from counterpoint.data.formats.tar_shards import members_of
from counterpoint.data.manifest import Remark
from counterpoint.evaluation.vector_table import WRITERS, Table, read_table
from data import opened_data
from data import picture_files as pictures
from refusals import refused

open_data = partial(opened_data.open_data, max_bad=0.9)


@pytest.mark.parametrize("name", ["x.npy", "x.npz", "x.tar", "x.parquet", "x.arrow", "x.feather"])
def test_a_pipe_or_a_device_in_place_of_a_file_is_refused(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    os.mkfifo(path)
    with pytest.raises(DataError, match="cannot be read: it is a pipe, not a regular file"):
        open_data(path)
    path.unlink()
    path.symlink_to("/dev/zero")
    with pytest.raises(DataError, match="cannot be read: it is a device, not a regular file"):
        open_data(path)


def test_pictures_that_are_no_files_are_left_out_by_name(tmp_path: Path, rng: np.random.Generator) -> None:
    pictures.save_plain(tmp_path, ["good.png"], rng)
    os.mkfifo(tmp_path / "a.png")
    (tmp_path / "b.png").symlink_to("/dev/zero")
    for name in ("round.png", "round.txt"):
        (tmp_path / name).symlink_to(name)
    (tmp_path / "up").symlink_to(tmp_path)
    with (tmp_path / "hole.png").open("wb") as stream:
        stream.truncate(1 << 40)
    source = open_data(tmp_path)
    assert source.sample_names == ("good.png",)
    assert {item.name: item.reason for item in source.skipped} == {
        "a.png": "it is a pipe, not a regular file; copy its content to one",
        "b.png": "it is a device, not a regular file; copy its content to one",
        "hole.png": "it has 1,099,511,627,776 bytes, at most 134,217,728 are read",
        "round.png": "Too many levels of symbolic links",
        "round.txt": "no image suffix",
    }


def test_names_that_are_not_utf8_are_data_and_reach_every_table(tmp_path: Path, rng: np.random.Generator) -> None:
    folder = os.fsencode(tmp_path / "pictures")
    for place in (b"cl\xe9/p\xff.png", b"b/q.png"):
        os.makedirs(os.path.dirname(os.path.join(folder, place)))
        content = pictures.encoded(pictures.noise(rng, 16, 16), "PNG")
        Path(os.fsdecode(os.path.join(folder, place))).write_bytes(content)
    source = open_data(tmp_path / "pictures")
    assert source.sample_names == ("b/q.png", "cl\\udce9/p\\udcff.png")
    assert source.class_names == ("b", "cl\\udce9")
    assert open_data(tmp_path / "pictures").fingerprint == source.fingerprint  # also by the index in the cache
    table = Table(tuple(source.sample_names), np.ones((2, 3), np.float32), source.class_names)
    for suffix in (".npz", ".csv"):
        WRITERS[suffix](table, tmp_path / f"e{suffix}")
        assert read_table(tmp_path / f"e{suffix}").names == source.sample_names


def doubling(depth: int = 60) -> bytes:
    """Steps that leave a tuple on the stack whose text has 2**depth letters."""
    return b")" + b"".join(b"q%ch%c\x86" % (place, place) for place in range(depth))


NAMES = b"cnumpy.core.numeric\n_frombuffer\n"
TYPE = b"cnumpy\ndtype\nX\x02\x00\x00\x00u1\x85R"
BOMBS = {
    "as a module": doubling() + b"X\x01\x00\x00\x00a\x93",
    "as a type": b"cnumpy\ndtype\n" + doubling() + b"\x85R",
    "as a shape": NAMES + b"(C\x01a" + TYPE + doubling() + b"X\x01\x00\x00\x00Ct" + b"R",
    "as an encoding": b"c_codecs\nencode\nX\x01\x00\x00\x00a" + doubling() + b"\x86R",
    "as a value": b"}X\x01\x00\x00\x00k" + doubling() + b"s",
    "as a name": b"c" + b"a" * 100_000 + b"\nb\n",
}


@pytest.mark.parametrize("steps", BOMBS.values(), ids=BOMBS)
def test_a_pickle_whose_tuples_double_is_refused_in_one_line(steps: bytes, tmp_path: Path) -> None:
    (tmp_path / "batch").write_bytes(b"\x80\x04" + steps + b".")
    message = refused(DataError, read_pickled, tmp_path / "batch")
    assert "cannot be read as plain data" in message
    assert len(message) < 400 + len(str(tmp_path))


def test_a_text_that_a_pickle_names_often_is_held_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "batch").write_bytes(pickle.dumps({"names": [b"x" * 1000] * 1000}))
    first, *others = read_pickled(tmp_path / "batch")["names"]
    assert all(other is first for other in others)
    encoded = b"c_codecs\nencode\n" + b"X\x64\x00\x00\x00" + b"a" * 100 + b"X\x06\x00\x00\x00latin1\x86q\x01R0"
    again = b"c_codecs\nencode\nh\x01R0"
    (tmp_path / "batch").write_bytes(b"\x80\x02" + encoded.replace(b"0", b"") + again.replace(b"0", b"") * 50 + b".")
    monkeypatch.setattr(pickled_arrays, "MAX_BYTES", 4000)
    with pytest.raises(DataError, match="its texts make more than 4,000 bytes"):
        read_pickled(tmp_path / "batch")


def remarks(path: Path) -> list[str]:
    return [found.reason for found in members_of(path) if isinstance(found, Remark)]


def test_a_shard_that_is_a_hole_is_not_searched(tmp_path: Path) -> None:
    for content in (b"damaged" * 100, b""):
        with (tmp_path / "x.tar").open("wb") as stream:
            stream.write(content)
            stream.truncate(1 << 40)
        said = [f"damaged header; bytes 0 to {1 << 40} cannot be read"] if content else []
        assert remarks(tmp_path / "x.tar") == said


@pytest.mark.parametrize("lengths", [[1 << 40], [-1, 5]])
def test_a_table_has_no_more_rows_than_bytes(
    lengths: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pyarrow = pytest.importorskip("pyarrow", reason="pyarrow (extra `search`) is not installed")
    (tmp_path / "x.arrow").write_bytes(b"some bytes")
    paths = [tmp_path / "x.arrow"] * len(lengths)
    chunks = arrow_files._Chunks(pyarrow.schema([]), lengths, paths, lambda chunk, name: None, 0, 10)
    monkeypatch.setattr(arrow_files, "_ipc_chunks", lambda arrow, path: chunks)
    with pytest.raises(DataError, match="it claims"):
        arrow_files.TableFile(tmp_path / "x.arrow")


# --- memory of pictures


def bytes_per_pixel(image: Image.Image, form: str, *, is_turned: bool = False, **options: object) -> int:
    opened = Image.open(io.BytesIO(pictures.encoded(image, form, **options)))
    num_pixels = opened.width * opened.height
    return (decoded_bytes(opened, is_turned=is_turned) - 16 * (opened.width + opened.height)) // num_pixels


def test_memory_of_decoding_is_told_from_the_header() -> None:
    rgb, grey = Image.new("RGB", (64, 48)), Image.new("L", (64, 48))
    assert bytes_per_pixel(rgb, "PNG") == 4
    assert bytes_per_pixel(rgb, "PNG", is_turned=True) == 8
    assert bytes_per_pixel(grey, "PNG") == 5
    assert bytes_per_pixel(Image.new("RGBA", (64, 48)), "PNG") == 8
    assert bytes_per_pixel(rgb, "JPEG") == 4
    assert bytes_per_pixel(grey, "JPEG") == 5
    assert bytes_per_pixel(rgb, "JPEG", progressive=True) == 10
    assert bytes_per_pixel(Image.new("CMYK", (64, 48)), "JPEG", progressive=True) == 12
    assert bytes_per_pixel(rgb, "WEBP") == 20


def test_a_jpeg_of_several_scans_is_told_by_its_first() -> None:
    content = pictures.encoded(Image.new("RGB", (64, 48)), "JPEG")
    scan = content.index(b"\xff\xda")
    one_colour = content[: scan + 2] + b"\x00\x08\x01" + content[scan + 5 : scan + 7] + content[scan + 11 :]
    assert decoded_bytes(Image.open(io.BytesIO(one_colour)), is_turned=False) == 64 * 48 * 10 + 16 * 112


def test_a_picture_that_takes_too_much_is_refused_with_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    content = pictures.encoded(Image.new("RGBA", (512, 512)), "PNG")
    assert decode(content, np.asarray).shape == (512, 512, 3)
    monkeypatch.setattr(image_files, "MAX_DECODED_BYTES", 2 << 20)
    with pytest.raises(
        ValueError, match="512 x 512 pixels take 2 MB to decode, at most 2 MB are given; make it smaller"
    ):
        decode(content, np.asarray)


def with_orientation_behind(content: bytes) -> bytes:
    """A PNG that says behind its pixels that it is to be turned by a quarter."""
    data = b"MM\x00*\x00\x00\x00\x08\x00\x01\x01\x12\x00\x03\x00\x00\x00\x01\x00\x06\x00\x00\x00\x00\x00\x00"
    chunk = struct.pack(">I", len(data)) + b"eXIf" + data + struct.pack(">I", zlib.crc32(b"eXIf" + data))
    return content[:-12] + chunk + content[-12:]


def test_an_orientation_behind_the_pixels_counts_and_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    content = with_orientation_behind(pictures.encoded(pictures.halves(512, 384), "PNG"))
    assert decode(content, lambda image: image.size) == (512, 384)
    monkeypatch.setattr(image_files, "MAX_DECODED_BYTES", 512 * 384 * 5)
    with pytest.raises(ValueError, match="take 1 MB to decode"):
        decode(content, np.asarray)


@pytest.mark.parametrize("mode", ["RGBA", "LA", "P", "CMYK", "L", "1", "I;16", "I", "YCbCr"])
def test_pieces_are_converted_as_the_whole_is(
    mode: str, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    image = Image.fromarray(pictures.noise(rng, 33, 50, 4))
    if mode in ("I;16", "I"):
        image = Image.fromarray(rng.integers(0, 65536, (33, 50), dtype=np.uint16)).convert(mode)
    else:
        image = image.quantize(16) if mode == "P" else image.convert(mode)
    if mode == "P":
        image.info["transparency"] = 3
    whole = np.asarray(image_files._to_rgb(image))
    for size in (7, 60, 150):
        monkeypatch.setattr(image_files, "TILE_PIXELS", size)
        assert np.array_equal(np.asarray(image_files._to_rgb(image)), whole)


def test_threads_hold_no_more_than_there_is() -> None:
    room, held, most = Room(10 << 20), [0], [0]
    lock = threading.Lock()

    def take(size: int) -> None:
        with room.reserved(size):
            with lock:
                held[0] += size
                most[0] = max(most[0], held[0])
            with lock:
                held[0] -= size

    threads = [threading.Thread(target=take, args=((1 + number % 10) << 20,)) for number in range(60)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert 0 < most[0] <= 10 << 20
    assert room._left == 10 << 20


PEAK = """
import sys
from counterpoint.core.process_setup import at_work
from data.opened_data import open_data
def of_status(name):
    return next(int(line.split()[1]) >> 10 for line in open("/proc/self/status") if line.startswith(name))
at_work().__enter__()  # as the command does
before = of_status("VmRSS")
source = open_data(sys.argv[1], max_bad=0.9)
print(len(source), of_status("VmHWM") - before)
"""


def plain_png(side: int, kind: int, num_bytes: int) -> bytes:
    """A black PNG, packed row by row."""
    packer, row = zlib.compressobj(9), bytes(1 + side * num_bytes)
    pixels = b"".join(packer.compress(row) for _ in range(side)) + packer.flush()
    chunks = [(b"IHDR", struct.pack(">2I5B", side, side, 16 if num_bytes == 2 else 8, kind, 0, 0, 0))]
    chunks += [(b"IDAT", pixels), (b"IEND", b"")]
    body = b"".join(
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data)) for name, data in chunks
    )
    return b"\x89PNG\r\n\x1a\n" + body


@pytest.mark.skipif(sys.platform != "linux", reason="peak memory is read from /proc")
@pytest.mark.thorough
def test_pictures_of_many_pixels_peak_below_512_mb(tmp_path: Path) -> None:
    folder = tmp_path / "pictures"
    folder.mkdir()
    for number, (side, kind, num_bytes) in enumerate([(9459, 2, 3), (9459, 2, 3), (6500, 6, 4), (9459, 0, 2)] * 2):
        (folder / f"{number}.png").write_bytes(plain_png(side, kind, num_bytes))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", PEAK, str(folder)]
    words = subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout.split()
    assert int(words[0]) == 6  # two of 16 bits are refused
    assert int(words[1]) < 512
