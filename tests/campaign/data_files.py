"""One small valid file or folder of each form that is read as data, and what accidents or an attacker make of a file.

``mutated`` damages headers first, where the sizes, offsets and names stand. Where a checksum or a packing would refuse
the damage before a reader of ours sees it, it is undone, and done again over the damaged content.
"""

import gzip
import io
import re
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import numpy as np

from counterpoint.evaluation.vector_table import WRITERS, Table
from data import published_files, shard_files

HEADER_SHARE = 0.6  # of mutations that are kept to the first bytes or, for formats that end with their index, the last
HEADER_BYTES = 512
MAX_STEPS = 4
NUM_IMAGES = 6
PICTURES = {"PNG": "png", "JPEG": "jpg", "TIFF": "tif", "GIF": "gif", "WEBP": "webp", "BMP": "bmp", "PPM": "ppm"}

Make = Callable[[Path], Path]


def _draw() -> np.random.Generator:
    return np.random.default_rng(13)


def _written(path: Path, content: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def _npy(folder: Path) -> Path:
    np.save(folder / "x.npy", _draw().standard_normal((NUM_IMAGES, 5)).astype(np.float32))
    return folder / "x.npy"


def _npz(folder: Path) -> Path:
    rng = _draw()
    images = rng.integers(0, 256, (NUM_IMAGES, 8, 8, 3), dtype=np.uint8)
    np.savez_compressed(folder / "x.npz", images=images, labels=np.arange(NUM_IMAGES) % 2)
    return folder / "x.npz"


def _pack(folder: Path) -> Path:
    pictures = [shard_files.picture(_draw()) for _ in range(NUM_IMAGES)]
    offsets = np.cumsum([0, *map(len, pictures)])
    jpeg = np.frombuffer(b"".join(pictures), np.uint8)
    np.savez(folder / "pack.npz", jpeg=jpeg, offsets=offsets, labels=np.arange(NUM_IMAGES) % 2)
    return folder / "pack.npz"


def _pair(folder: Path) -> Path:
    rng = _draw()
    views = rng.standard_normal((2, NUM_IMAGES, 4)).astype(np.float32)
    np.savez(folder / "pair.npz", view0=views[0], view1=views[1])
    return folder / "pair.npz"


def _pictures(folder: Path, form: str) -> Path:
    rng = _draw()
    for number in range(NUM_IMAGES):
        content = shard_files.picture(rng, 16, form)
        _written(folder / "pictures" / "ab"[number % 2] / f"{number}.{PICTURES[form]}", content)
    return folder / "pictures"


def _splits(folder: Path) -> Path:
    rng, root = _draw(), folder / "tiny-imagenet-200"
    for number in range(NUM_IMAGES):
        _written(root / "train" / f"n{number % 2}" / "images" / f"{number}.JPEG", shard_files.picture(rng, 64))
        _written(root / "val" / "images" / f"val_{number}.JPEG", shard_files.picture(rng, 64))
    lines = [f"val_{number}.JPEG\tn{number % 2}\t0\t0\t9\t9" for number in range(NUM_IMAGES)]
    return _written(root / "val" / "val_annotations.txt", "\n".join(lines).encode()).parents[1]


def _shard(folder: Path, **options: object) -> Path:
    members = shard_files.labelled(_draw(), [f"{number:04d}" for number in range(NUM_IMAGES)])
    members["b" * 120 + ".json"] = b'{"label": "three"}'  # too long for a header: an extension says it
    members["b" * 120 + ".jpg"] = shard_files.picture(_draw())
    return shard_files.write_shard(folder / "x.tar", members, **options).path


def _table(folder: Path, name: str) -> Path:
    pictures = [shard_files.picture(_draw(), form="PNG") for _ in range(NUM_IMAGES)]
    return write_table(folder / name, pictures, [number % 2 for number in range(NUM_IMAGES)])


def write_table(path: Path, pictures: list[bytes], labels: list[int]) -> Path:
    """A table of pictures and classes, in the format that the path names."""
    import pyarrow as pa  # deferred: the extra `search` may be absent
    from pyarrow import feather, parquet  # deferred: as above

    images = pa.array([{"bytes": picture, "path": None} for picture in pictures])
    table = pa.table({"image": images, "label": pa.array(labels, pa.int64())})
    if path.suffix == ".parquet":
        parquet.write_table(table, path, row_group_size=4)
    elif path.suffix == ".feather":
        feather.write_feather(table, str(path))  # packed with lz4
    else:
        new = pa.ipc.new_stream if "stream" in path.name else pa.ipc.new_file
        with new(str(path), table.schema) as writer:
            writer.write_table(table, max_chunksize=4)
    return path


def _embeddings(folder: Path, name: str) -> Path:
    names = tuple(f"a/{number}.png" for number in range(NUM_IMAGES))
    vectors = _draw().standard_normal((NUM_IMAGES, 4)).astype(np.float32)
    table = Table(names, vectors, tuple("xy"[number % 2] for number in range(NUM_IMAGES)), "representation")
    WRITERS[Path(name).suffix](table, folder / name)
    return folder / name


def _cifar(folder: Path, num_classes: int = 10) -> Path:
    published_files.save_cifar(folder, _draw(), num_classes=num_classes)
    return folder


def _stl10(folder: Path) -> Path:
    published_files.save_stl10(folder, _draw())
    return folder


SEEDS: Mapping[str, Make] = {
    "npy": _npy,
    "npz": _npz,
    "pack": _pack,
    "pair": _pair,
    **{f"{form.lower()} folder": partial(_pictures, form=form) for form in PICTURES},
    "splits": _splits,
    "tar": _shard,
    "gnu tar": lambda folder: _shard(folder, format=tarfile.GNU_FORMAT),  # else pax
    "parquet": lambda folder: _table(folder, "x.parquet"),
    "arrow": lambda folder: _table(folder, "x.arrow"),
    "arrow stream": lambda folder: _table(folder, "stream.arrow"),
    "feather": lambda folder: _table(folder, "x.feather"),
    "embeddings npz": lambda folder: _embeddings(folder, "e.npz"),
    "embeddings csv": lambda folder: _embeddings(folder, "e.csv"),
    "embeddings parquet": lambda folder: _embeddings(folder, "e.parquet"),
    "cifar10": _cifar,
    "cifar100": lambda folder: _cifar(folder, num_classes=100),
    "stl10": _stl10,
}
# Seeds that are read by the name of a set, with the folder as ``source.root``; all others are opened by their path.
NAMED: Mapping[str, str] = {name: name for name in ("cifar10", "cifar100", "stl10")}
# Seeds that ``diagnose`` reads, not ``train``.
EMBEDDINGS = frozenset({"embeddings npz", "embeddings csv", "embeddings parquet"})


def damage(path: Path, draw: np.random.Generator) -> Path:
    """Mutate one file of a seed in place, and say which."""
    files = sorted(file for file in path.rglob("*") if file.is_file()) if path.is_dir() else [path]
    chosen = files[int(draw.integers(len(files)))]
    chosen.write_bytes(mutated(chosen.read_bytes(), draw))
    return chosen


def mutated(content: bytes, draw: np.random.Generator) -> bytes:
    """Content with one to four faults, most of them in its header."""
    if draw.random() < 0.5:
        for magic, inside in INSIDE.items():
            if content.startswith(magic):
                return inside(content, draw)
        if content[257:262] == b"ustar":
            return _inside_tar(content, draw)
    return _faults(content, draw)


def _faults(content: bytes, draw: np.random.Generator) -> bytes:
    for _ in range(int(draw.integers(1, MAX_STEPS + 1))):
        content = FAULTS[int(draw.integers(len(FAULTS)))](content, draw)
    return content


def _place(content: bytes, draw: np.random.Generator) -> int:
    """Somewhere in the content, most often in its first or last bytes."""
    reach = min(len(content), HEADER_BYTES)
    if draw.random() < HEADER_SHARE:
        near = int(draw.integers(max(1, reach)))
        return near if draw.random() < 0.7 else max(0, len(content) - 1 - near)
    return int(draw.integers(max(1, len(content))))


def _with(content: bytes, place: int, new: bytes, old: int) -> bytes:
    return content[:place] + new + content[place + old :]


def _flipped(content: bytes, draw: np.random.Generator) -> bytes:
    place = _place(content, draw)
    return _with(content, place, bytes(byte ^ (1 << int(draw.integers(8))) for byte in content[place : place + 1]), 1)


def _set(content: bytes, draw: np.random.Generator) -> bytes:
    return _with(content, _place(content, draw), bytes([int(draw.choice([0, 1, 10, 32, 127, 128, 254, 255]))]), 1)


def _counted(content: bytes, draw: np.random.Generator) -> bytes:
    """A number of two, four or eight bytes, at its own alignment, becomes an extreme one."""
    width = int(draw.choice([2, 4, 8]))
    value = NUMBERS[int(draw.integers(len(NUMBERS)))] & ((1 << 8 * width) - 1)
    order = "little" if draw.random() < 0.5 else "big"
    return _with(content, _place(content, draw) // width * width, value.to_bytes(width, order), width)


def _written_number(content: bytes, draw: np.random.Generator) -> bytes:
    """A number in digits becomes another one, of another kind or no number at all."""
    found = list(re.finditer(rb"\d+", content[:4096]))
    if not found:
        return _flipped(content, draw)
    hit = found[int(draw.integers(len(found)))]
    return _with(content, hit.start(), TOKENS[int(draw.integers(len(TOKENS)))], hit.end() - hit.start())


def _cut(content: bytes, draw: np.random.Generator) -> bytes:
    return content[: _place(content, draw)]


def _lost(content: bytes, draw: np.random.Generator) -> bytes:
    return _with(content, _place(content, draw), b"", int(draw.integers(1, 64)))


def _doubled(content: bytes, draw: np.random.Generator) -> bytes:
    start = _place(content, draw)
    piece = content[start : start + int(draw.integers(1, 600))]
    return _with(content, _place(content, draw), piece * int(draw.choice([1, 2, 50])), 0)


def _inserted(content: bytes, draw: np.random.Generator) -> bytes:
    return _with(content, _place(content, draw), TOKENS[int(draw.integers(len(TOKENS)))], 0)


FAULTS = (_flipped, _set, _counted, _written_number, _cut, _lost, _doubled, _inserted)
NUMBERS = (
    0,
    1,
    -1,
    255,
    1 << 15,
    (1 << 16) - 1,
    (1 << 31) - 1,
    1 << 31,
    (1 << 32) - 1,
    1 << 40,
    (1 << 63) - 1,
    1 << 63,
)
TOKENS = (
    b"-1",
    b"0",
    b"9" * 12,
    b"9" * 30,
    b"9" * 5000,
    b"4398046511104",
    b"1.5",
    b"1e999",
    b"nan",
    b"True",
    b"None",
    b"'x'",
    b"\0",
    b"\n",
    b"\r",
    b'"',
    b",",
    b"(" * 3000,
    b"[" * 3000,
    b"-" * 3000 + b"1",
    b"\xff\xfe",
    b"\xed\xb2\x80",  # a surrogate
    b"../../../etc/passwd",
    b"/dev/zero",
    b"\x1b[31m",
)


def _inside_zip(content: bytes, draw: np.random.Generator) -> bytes:
    """One member is damaged and packed again, with a sum that fits."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    chosen = list(members)[int(draw.integers(len(members)))]
    members[chosen] = _faults(members[chosen], draw)
    packing = zipfile.ZIP_DEFLATED if draw.random() < 0.5 else zipfile.ZIP_STORED
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", packing) as archive:
        for name, member in members.items():
            archive.writestr(name, member)
    return stream.getvalue()


def _inside_gzip(content: bytes, draw: np.random.Generator) -> bytes:
    return gzip.compress(_faults(gzip.decompress(content), draw))


def _inside_png(content: bytes, draw: np.random.Generator) -> bytes:
    """One chunk is damaged, and its checksum fits again."""
    place, chunks = 8, []
    while place < len(content):
        (size,) = struct.unpack_from(">I", content, place)
        chunks.append((content[place + 4 : place + 8], content[place + 8 : place + 8 + size]))
        place += size + 12
    chosen = int(draw.integers(len(chunks)))
    kind, data = chunks[chosen]
    is_pixels = kind == b"IDAT" and draw.random() < 0.5
    chunks[chosen] = (kind, zlib.compress(_faults(zlib.decompress(data), draw)) if is_pixels else _faults(data, draw))
    body = b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in chunks
    )
    return content[:8] + body


def _inside_tar(content: bytes, draw: np.random.Generator) -> bytes:
    """One header is damaged, and its checksum fits again."""
    headers = [place for place in range(0, len(content) - 511, 512) if content[place + 257 : place + 262] == b"ustar"]
    place = headers[int(draw.integers(len(headers)))]
    block = bytearray(_faults(content[place : place + 512], draw)[:512].ljust(512, b"\0"))
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    return _with(content, place, bytes(block), 512)


# How a file begins whose content is packed or summed, and what damages it below that.
INSIDE: Mapping[bytes, Callable[[bytes, np.random.Generator], bytes]] = {
    b"PK\x03\x04": _inside_zip,
    b"\x1f\x8b": _inside_gzip,
    b"\x89PNG": _inside_png,
}
