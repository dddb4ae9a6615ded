"""The index of a source: kept in the cache, believed only while it holds, and never the reason that nothing works."""

import os
from collections.abc import Callable
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from counterpoint.core.errors import DataError
from counterpoint.core.settings import SourceSettings
from counterpoint.data.formats import indexed_images
from counterpoint.data.formats.image_files import decode_square
from counterpoint.data.manifest import Manifest, cache_folder, manifest_path, read_manifest, write_manifest
from counterpoint.data.source import Source
from counterpoint.data.sources import open_source
from data import picture_files as pictures
from data.opened_data import silent

NAMES = ["a/1.png", "a/2.png", "a/3.png", "b/4.png", "b/5.png", "b/6.png"]


def open_pictures(folder: Path, **settings: object) -> Source:
    return open_source(folder, SourceSettings(**{"image_size": 16, **settings}), progress=silent)


@pytest.fixture
def folder(tmp_path: Path, rng: np.random.Generator) -> Path:
    path = tmp_path / "photos"
    pictures.save_plain(path, NAMES, rng)
    return path


@pytest.fixture
def num_decoded(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """One entry per image that opening decodes."""
    calls: list[str] = []
    decode = indexed_images.decode

    def counted(content: bytes, use: Callable[[Image.Image], object]) -> object:
        calls.append(sha256(content).hexdigest())
        return decode(content, use)

    monkeypatch.setattr(indexed_images, "decode", counted)
    return calls


def the_manifest(folder: Path) -> Path:
    (path,) = cache_folder().rglob("manifests/*.json")
    assert path == manifest_path(str(folder), [])
    return path


def manifest_of(folder: Path) -> Manifest:
    manifest = read_manifest(the_manifest(folder))
    assert manifest.rows
    return manifest


def test_a_row_says_all_there_is_to_know_of_a_sample(folder: Path) -> None:
    (folder / "a" / "2.png").write_bytes(b"<html>")
    source = open_pictures(folder, max_bad=0.5)
    rows = manifest_of(folder).rows
    assert [row.name for row in rows] == NAMES
    assert [row.id for row in rows] == [0, None, 1, 2, 3, 4]
    assert [row.status for row in rows] == ["ok", "bad", "ok", "ok", "ok", "ok"]
    assert rows[1].reason == "not an image"
    for row in rows:
        content = Path(row.file).read_bytes()
        assert (row.offset, row.size, row.hash) == (0, len(content), sha256(content).hexdigest())
        if row.id is not None:
            assert source.sample_names[row.id] == row.name
            assert (row.height, row.width) == (16, 16)


def test_a_second_opening_of_a_large_folder_decodes_nothing(
    folder: Path, num_decoded: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(indexed_images, "MEMORY_BUDGET_BYTES", 0)
    first = open_pictures(folder, image_size="auto")
    assert len(num_decoded) == len(NAMES)
    again = open_pictures(folder, image_size="auto")
    assert len(num_decoded) == len(NAMES)
    assert (again.fingerprint, again.notes, again.shape) == (first.fingerprint, first.notes, first.shape)
    os.utime(folder / NAMES[0])  # another time, the same bytes: looked at again, and found to be the same
    assert open_pictures(folder).fingerprint == open_pictures(folder).fingerprint
    assert num_decoded[len(NAMES) :] == [sha256((folder / NAMES[0]).read_bytes()).hexdigest()]


@pytest.mark.parametrize("budget", [0, 1 << 30])
def test_altered_content_is_refused_or_taken_as_asked(
    folder: Path, rng: np.random.Generator, budget: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(indexed_images, "MEMORY_BUDGET_BYTES", budget)
    before = open_pictures(folder)
    original = (folder / NAMES[4]).read_bytes()
    pictures.save_plain(folder, [NAMES[4]], rng)
    for _ in range(2):
        with pytest.raises(DataError) as caught:
            open_pictures(folder)
        message = str(caught.value)
        assert "1 of 6 samples" in message
        assert NAMES[4] in message
        assert "--source.altered reindex" in message
        assert "\n" not in message
    (folder / NAMES[4]).write_bytes(original)
    assert open_pictures(folder).fingerprint == before.fingerprint
    pictures.save_plain(folder, [NAMES[4]], rng)
    taken = open_pictures(folder, altered="reindex")
    assert torch.equal(taken.store.fetch([4])[0], decode_square((folder / NAMES[4]).read_bytes(), 16))
    assert open_pictures(folder).fingerprint == taken.fingerprint != before.fingerprint


def test_a_bad_file_that_is_repaired_is_welcome(folder: Path, rng: np.random.Generator) -> None:
    whole = (folder / NAMES[0]).read_bytes()
    (folder / NAMES[0]).write_bytes(whole[:60])
    assert len(open_pictures(folder, max_bad=0.5)) == 5
    (folder / NAMES[0]).write_bytes(whole)
    assert len(open_pictures(folder)) == 6


def test_content_that_changes_under_training_stops_it(
    folder: Path, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(indexed_images, "MEMORY_BUDGET_BYTES", 0)
    source = open_pictures(folder)
    whole = (folder / NAMES[2]).read_bytes()
    place = whole.index(b"IDAT") + 20
    for content in (whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :], whole[:-1], whole + b"x", b""):
        (folder / NAMES[2]).write_bytes(content)
        with pytest.raises(DataError, match=NAMES[2]) as caught:
            source.store.fetch([0, 2])
        assert "\n" not in str(caught.value)
    (folder / NAMES[2]).unlink()
    with pytest.raises(DataError, match="no such file"):
        source.store.fetch([2])
    assert source.store.fetch([0, 1]).shape == (2, 3, 16, 16)


@pytest.mark.parametrize("damage", ["flip", "cut", "empty", "foreign", "version", "list", "text"])
def test_a_damaged_or_foreign_manifest_is_built_anew_and_that_is_said(
    folder: Path, damage: str, rng: np.random.Generator
) -> None:
    first = open_pictures(folder)
    path = the_manifest(folder)
    content = path.read_bytes()
    for _ in range(20 if damage in ("flip", "cut") else 1):
        place = int(rng.integers(0, len(content) - 1))
        path.write_bytes(
            {
                "flip": content[:place] + bytes([content[place] ^ (1 << int(rng.integers(8)))]) + content[place + 1 :],
                "cut": content[:place],
                "empty": b"",
                "foreign": b'{"format": "other"}',
                "version": content.replace(b'"version":2', b'"version":1'),
                "list": b"[]\n[]\n",
                "text": b"\xff\xfe\x00",
            }[damage]
        )
        again = open_pictures(folder)
        assert "damaged or foreign" in again.notes["source.manifest"]
        assert again.fingerprint == first.fingerprint
        assert path.read_bytes() == content


def test_a_cache_that_cannot_be_written_is_a_note(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("in the way", encoding="utf-8")
    monkeypatch.setenv("COUNTERPOINT_CACHE", str(tmp_path / "file"))
    for _ in range(2):
        source = open_pictures(folder)
        assert len(source) == 6
        assert "could not be kept" in source.notes["source.manifest"]


def test_the_cache_lies_where_one_asks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COUNTERPOINT_CACHE", str(tmp_path / "own"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "shared"))
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "own"
    monkeypatch.delenv("COUNTERPOINT_CACHE")
    assert cache_folder() == tmp_path / "shared" / "counterpoint"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_folder() == tmp_path / ".cache" / "counterpoint"


def test_what_is_written_is_read_again(folder: Path, tmp_path: Path) -> None:
    open_pictures(folder)
    manifest = manifest_of(folder)
    odd = replace(manifest.rows[0], name="caf\udce9 \n", label="ä", id=None, status="bad")
    assert write_manifest(tmp_path / "x.jsonl", replace(manifest, rows=(odd, *manifest.rows))) == ""
    again = read_manifest(tmp_path / "x.jsonl")
    assert again.rows == (odd, *manifest.rows)
    assert again.stamps == manifest.stamps
