"""Shards by byte offset: what tarfile writes is found again, what is unsafe is refused, what is damaged is named."""

import io
import os
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from counterpoint.core.errors import DataError
from counterpoint.core.settings import SourceSettings
from counterpoint.data.formats import indexed_images, tar_shards
from counterpoint.data.formats.image_files import decode_square
from counterpoint.data.formats.tar_shards import BLOCK, members_of
from counterpoint.data.manifest import Remark
from counterpoint.data.source import Source
from counterpoint.data.stores import Located
from data import shard_files as files
from data.opened_data import labels_of, silent


def open_tar(path: Path, **settings: Any) -> Source:
    return tar_shards.open_shards(path, SourceSettings(**{"image_size": 16, **settings}), silent)


def skipped(source: Source) -> dict[str, str]:
    return {item.name: item.reason for item in source.skipped}


LONG = "deep/" * 40 + "x" * 90
NAMES = ["a.jpg", "folder/b.c.jpg", "ä ö.png", LONG + ".jpg", "d" * 99 + "/" + "e" * 80 + ".jpg"]


@pytest.mark.parametrize("form", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_members_lie_where_tarfile_says(tmp_path: Path, form: int, rng: np.random.Generator) -> None:
    names = [name for name in NAMES if form != tarfile.USTAR_FORMAT or name != LONG + ".jpg"]
    shard = files.write_shard(tmp_path / "x.tar", {name: rng.bytes(700) for name in names}, format=form)
    found = list(members_of(shard.path))
    assert found == [Located(name, shard.path, place.offset, place.size) for name, place in shard.members.items()]
    assert [member.name for member in found if isinstance(member, Located)] == names


def test_a_sample_is_all_members_of_a_key_wherever_they_stand(tmp_path: Path, rng: np.random.Generator) -> None:
    one, two, three = (files.picture(rng) for _ in range(3))
    members = {"b.cls": b"10\n", "a.jpg": one, "s/b.jpg": two, "a.cls": b" 9 ", "b.jpg": three, "s/b.cls": b"10"}
    files.write_shard(tmp_path / "x.tar", members)
    source = open_tar(tmp_path / "x.tar")
    assert labels_of(source) == {"b.jpg": "10", "a.jpg": "9", "s/b.jpg": "10"}
    assert source.class_names == ("9", "10")  # whole numbers by value
    expected = torch.stack([decode_square(content, 16) for content in (three, one, two)])
    assert torch.equal(source.store.fetch(range(3)), expected)
    assert source.skipped == ()


LABELS = {
    "cls": ("cls", b"cat", "cat"),
    "json field": ("json", b'{"label": "cat", "cls": 3}', "cat"),
    "json number": ("json", b'{"class": 7}', "7"),
    "json alone": ("json", b'"cat"', "cat"),
    "not text": ("cls", b"\xff\xfe", None),
    "not json": ("json", b"{", None),
    "list": ("json", b'{"label": [1]}', None),
    "two lines": ("cls", b"cat\x1b[31m", None),
    "too long": ("cls", b"1" * 70_000, None),
}


@pytest.mark.parametrize(("suffix", "content", "label"), LABELS.values(), ids=LABELS)
def test_labels(tmp_path: Path, suffix: str, content: bytes, label: str | None, rng: np.random.Generator) -> None:
    members = {"a.jpg": files.picture(rng), f"a.{suffix}": content}
    for key in "bcdef":
        members |= {f"{key}.jpg": files.picture(rng), f"{key}.cls": b"dog"}
    files.write_shard(tmp_path / "x.tar", members)
    assert labels_of(open_tar(tmp_path / "x.tar")) == {"a.jpg": label, **{f"{key}.jpg": "dog" for key in "bcdef"}}
    assert open_tar(tmp_path / "x.tar", labels="none").labels is None


def test_the_label_field_can_be_named_and_is_part_of_the_index(tmp_path: Path, rng: np.random.Generator) -> None:
    members = {}
    for key, json in {"a": b'{"label": "cat", "breed": "manx"}', "b": b'{"label": "cat", "breed": "sphynx"}'}.items():
        members |= {f"{key}.jpg": files.picture(rng), f"{key}.json": json}
    files.write_shard(tmp_path / "x.tar", members)
    assert open_tar(tmp_path / "x.tar").class_names == ("cat",)
    assert open_tar(tmp_path / "x.tar", label_column="breed").class_names == ("manx", "sphynx")


# --- what is refused


def add(archive: tarfile.TarFile, name: str, content: bytes = b"", **fields: object) -> None:
    entry = tarfile.TarInfo(name)
    entry.size = len(content)
    for field, value in fields.items():
        setattr(entry, field, value)
    archive.addfile(entry, io.BytesIO(content))


def test_unsafe_members_are_refused_by_name_and_nothing_is_written(tmp_path: Path, rng: np.random.Generator) -> None:
    image = files.picture(rng)
    with tarfile.open(tmp_path / "x.tar", "w") as archive:
        add(archive, "good.jpg", image)
        add(archive, "/absolute.jpg", image)
        add(archive, "../up.jpg", image)
        add(archive, "a/../../up.jpg", image)
        add(archive, "back\\slash.jpg", image)
        add(archive, "link.jpg", type=tarfile.SYMTYPE, linkname="good.jpg")
        add(archive, "hard.jpg", type=tarfile.LNKTYPE, linkname="good.jpg")
        add(archive, "device.jpg", type=tarfile.CHRTYPE)
        add(archive, "pipe.jpg", type=tarfile.FIFOTYPE)
        add(archive, "sparse.jpg", image, type=tarfile.GNUTYPE_SPARSE)
        add(archive, "pax-sparse.jpg", image, pax_headers={"GNU.sparse.major": "1"})
        add(archive, "red\x1b[31m.jpg", image)
        add(archive, "folder.jpg", type=tarfile.DIRTYPE)
        add(archive, ".hidden.jpg", image)
        add(archive, "good.jpg", files.picture(rng))
        add(archive, "good.png", image)
        add(archive, "lonely.cls", b"3")
    before = sorted(tmp_path.iterdir())
    source = open_tar(tmp_path / "x.tar", max_bad=0.0)
    assert source.sample_names == ("good.jpg",)
    assert torch.equal(source.store.fetch([0])[0], decode_square(image, 16))
    assert sorted(tmp_path.iterdir()) == before
    assert {name: reason.split(";")[0] for name, reason in skipped(source).items()} == {
        "/absolute.jpg": "its name points outside of the archive",
        "../up.jpg": "its name points outside of the archive",
        "a/../../up.jpg": "its name points outside of the archive",
        "back\\slash.jpg": "its name points outside of the archive",
        **dict.fromkeys(("link.jpg", "hard.jpg", "device.jpg", "pipe.jpg"), "a link or a device, not a plain file"),
        "sparse.jpg": "a sparse file, not a plain file",
        "pax-sparse.jpg": "a sparse file, not a plain file",
        "red[31m.jpg": "its name is empty or has control characters",
        "good.jpg": "a second member of this name",
        "good.png": "its key's image is good.jpg",
        "lonely.cls": "no image has this key",
    }
    assert skipped(open_tar(tmp_path / "x.tar")) == skipped(source)  # the second time from the manifest


def test_a_file_that_is_no_archive_is_refused(tmp_path: Path, rng: np.random.Generator) -> None:
    for content in (b"", rng.bytes(5000), bytes(4096)):
        (tmp_path / "x.tar").write_bytes(content)
        with pytest.raises(DataError, match="no images in the shards") as caught:
            open_tar(tmp_path / "x.tar")
        assert "\n" not in str(caught.value)


# --- damage, with no earlier index


@pytest.mark.parametrize("is_wiped", [False, True])
def test_a_damaged_header_ends_the_shard_and_is_named(tmp_path: Path, rng: np.random.Generator, is_wiped: bool) -> None:
    keys = [f"{i:04d}" for i in range(12)]
    shard = files.write_shard(tmp_path / "x.tar", {f"{key}.jpg": files.picture(rng) for key in keys})
    whole, place = shard.path.read_bytes(), shard.members["0009.jpg"].offset - BLOCK
    if is_wiped:  # not even the name is left
        shard.path.write_bytes(whole[:place] + bytes(BLOCK) + whole[place + BLOCK :])
    else:
        files.flip_bit(shard.path, place + 130)  # its size
    with pytest.raises(DataError, match=r"1 of 10 images .* .damaged header"):
        open_tar(shard.path)
    source = open_tar(shard.path, max_bad=0.2)
    assert source.sample_names == tuple(f"{key}.jpg" for key in keys[:9])
    reach = f"bytes {place} to {len(whole)}"
    assert skipped(source) == {reach if is_wiped else "0009.jpg": f"damaged header; {reach} cannot be read"}
    assert skipped(open_tar(shard.path, max_bad=0.2)) == skipped(source)
    shard.path.write_bytes(whole)
    os.utime(shard.path, ns=(1, 1))
    assert open_tar(shard.path).sample_names == tuple(f"{key}.jpg" for key in keys)  # whole again, of the same size


def test_a_size_below_zero_is_damage_and_the_walk_ends(tmp_path: Path, rng: np.random.Generator) -> None:
    shard = files.write_shard(tmp_path / "x.tar", {"a.jpg": files.picture(rng), "b.jpg": files.picture(rng)})
    content = bytearray(shard.path.read_bytes())
    header = shard.members["b.jpg"].offset - BLOCK
    content[header + 124 : header + 136] = b"\xff" * 10 + b"\xfe\x00"  # -512: the walk would never end
    content[header + 148 : header + 156] = b" " * 8
    content[header + 148 : header + 156] = b"%06o\0 " % sum(content[header : header + BLOCK])
    shard.path.write_bytes(content)
    first, second = members_of(shard.path)
    assert first.name == "a.jpg"
    assert isinstance(second, Remark)
    assert second.is_lost


def test_every_cut_of_a_shard_is_noticed(tmp_path: Path, rng: np.random.Generator) -> None:
    shard = files.write_shard(tmp_path / "x.tar", files.labelled(rng, ["0", "1", "2"]))
    content = shard.path.read_bytes()
    last = max(place.offset + place.size for place in shard.members.values())
    lengths = [*range(0, last, 97), *range(0, last, BLOCK), last]
    for length in lengths:
        shard.path.write_bytes(content[:length])
        damage = [found for found in members_of(shard.path) if isinstance(found, Remark)]
        assert damage, length
    shard.path.write_bytes(content)
    assert not [found for found in members_of(shard.path) if isinstance(found, Remark)]


def test_what_lies_behind_the_end_mark_is_named(tmp_path: Path, rng: np.random.Generator) -> None:
    for name in ("a", "b"):
        files.write_shard(tmp_path / f"{name}.part", {f"{name}.jpg": files.picture(rng)})
    (tmp_path / "x.tar").write_bytes((tmp_path / "a.part").read_bytes() + (tmp_path / "b.part").read_bytes())
    source = open_tar(tmp_path / "x.tar", max_bad=0.5)
    assert source.sample_names == ("a.jpg",)
    assert "after the end mark; pack archives that were joined" in next(iter(skipped(source).values()))


# --- with an index


def test_an_unchanged_shard_is_not_walked_again(
    tmp_path: Path, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a.tar", "b.tar"):
        files.write_shard(tmp_path / name, files.labelled(rng, ["1", "2"]))
    first = open_tar(tmp_path)
    walked: list[str] = []
    scan = tar_shards.scan_shard

    def watched(path: Path, *rest: object) -> object:
        walked.append(path.name)
        return scan(path, *rest)  # pyright: ignore[reportArgumentType]

    monkeypatch.setattr(tar_shards, "scan_shard", watched)
    again = open_tar(tmp_path)
    assert walked == []
    assert again.fingerprint == first.fingerprint
    files.write_shard(tmp_path / "b.tar", files.labelled(rng, list("3456789")))
    assert len(open_tar(tmp_path)) == 9
    assert walked == ["b.tar"]


def test_shards_too_large_for_memory_are_read_at_their_offsets(
    tmp_path: Path, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    files.write_shard(tmp_path / "x.tar", files.labelled(rng, [str(i) for i in range(9)]))
    in_memory = open_tar(tmp_path / "x.tar")
    monkeypatch.setattr(indexed_images, "MEMORY_BUDGET_BYTES", 0)
    on_disk = open_tar(tmp_path / "x.tar")
    assert type(on_disk.store) is not type(in_memory.store)
    assert torch.equal(on_disk.store.fetch([5, 0, 5]), in_memory.store.fetch([5, 0, 5]))
    assert on_disk.fingerprint == in_memory.fingerprint
