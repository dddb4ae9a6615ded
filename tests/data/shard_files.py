"""Tar shards as people have them, with the place of each member, and ways to damage files on purpose."""

import io
import tarfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image


@dataclass(frozen=True)
class Range:
    """Bytes of a member in its shard."""

    offset: int
    size: int


@dataclass(frozen=True)
class Shard:
    """A shard that was written: the bytes of each member by its name."""

    path: Path
    members: dict[str, Range]


def picture(rng: np.random.Generator, side: int = 24, form: str = "JPEG") -> bytes:
    """An encoded picture with smooth colours."""
    coarse = rng.integers(0, 256, (4, 4, 3), dtype=np.uint8)
    stream = io.BytesIO()
    Image.fromarray(coarse).resize((side, side), Image.Resampling.BILINEAR).save(stream, form)
    return stream.getvalue()


def write_shard(path: Path, members: dict[str, bytes], **options: object) -> Shard:
    """A shard with some members in order, written by Python's own tarfile."""
    with tarfile.open(path, "w", **options) as archive:  # pyright: ignore[reportCallIssue, reportArgumentType]
        for name, content in members.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    with tarfile.open(path) as archive:
        return Shard(path, {entry.name: Range(entry.offset_data, entry.size) for entry in archive})


def labelled(rng: np.random.Generator, keys: list[str], form: str = "JPEG") -> dict[str, bytes]:
    """A picture and a class for each key."""
    suffix = {"JPEG": "jpg", "PNG": "png"}[form]
    members = {}
    for number, key in enumerate(keys):
        members[f"{key}.{suffix}"] = picture(rng, form=form)
        members[f"{key}.cls"] = str(number % 12).encode()
    return members


def corrupt(rng: np.random.Generator, content: bytes, kind: str) -> bytes:
    """A picture's bytes as accidents leave them."""
    return {
        "truncated": content[: len(content) // 2],
        "random": rng.bytes(len(content)),
        "zeroed": bytes(len(content)),
        "html": b"<!DOCTYPE html><html><body>404 Not Found</body></html>",
        "empty": b"",
    }[kind]


KINDS = ("truncated", "random", "zeroed", "html", "empty")


def flip_bit(path: Path, byte: int, bit: int = 0) -> None:
    """Change one bit of a file."""
    with path.open("r+b") as stream:
        stream.seek(byte)
        value = stream.read(1)[0]
        stream.seek(byte)
        stream.write(bytes([value ^ (1 << bit)]))
