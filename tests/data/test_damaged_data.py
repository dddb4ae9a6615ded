"""Damage that was planted, in folders and shards, before and after they were indexed: all of it named, nothing else."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from counterpoint.core.errors import DataError
from counterpoint.core.settings import SourceSettings
from counterpoint.data.formats import indexed_images
from counterpoint.data.loader import BatchLoader
from counterpoint.data.order import Order
from counterpoint.data.source import Source
from counterpoint.data.sources import open_source
from data import shard_files as files
from data.opened_data import silent

NUM_SAMPLES = 60
NUM_PLANTED = 3  # 5 %
KEYS = [f"{number:04d}" for number in range(NUM_SAMPLES)]


def open_data(path: Path, **settings: object) -> Source:
    return open_source(path, SourceSettings(**{"image_size": 16, "max_bad": 0.5, **settings}), progress=silent)


def write_folder(path: Path, contents: dict[str, bytes]) -> Path:
    path.mkdir()
    for name, content in contents.items():
        (path / name).write_bytes(content)
    return path


def write_shards(path: Path, contents: dict[str, bytes]) -> Path:
    path.mkdir()
    names = list(contents)
    for number in range(3):
        files.write_shard(path / f"{number}.tar", {name: contents[name] for name in names[number::3]})
    return path


def batches(source: Source, num_workers: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    order = Order(torch.arange(len(source)), 8, 5)
    loader = BatchLoader(source.store, order, num_workers=num_workers)
    result = [(batch.ids, batch.samples) for epoch in range(2) for batch in loader.epoch(epoch)]
    loader.close()
    return result


@pytest.mark.parametrize("write", [write_folder, write_shards])
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.sampled(4)
@pytest.mark.thorough
def test_planted_corrupt_images_are_skipped_named_and_change_nothing_else(
    tmp_path: Path, write: Callable[[Path, dict[str, bytes]], Path], seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(seed)
    monkeypatch.setattr(indexed_images, "MEMORY_BUDGET_BYTES", 0)  # so that workers have something to do
    contents = {f"{key}.jpg": files.picture(rng) for key in KEYS}
    planted = {KEYS[number] + ".jpg" for number in rng.permutation(NUM_SAMPLES)[: NUM_PLANTED + 2]}
    for name, kind in zip(sorted(planted), files.KINDS, strict=True):
        contents[name] = files.corrupt(rng, contents[name], kind)
    path = write(tmp_path / "data", contents)
    source = open_data(path)
    assert {item.name.rsplit("/", 1)[-1] for item in source.skipped} == planted
    assert len(source.skipped) == len(planted)
    assert len(source) == NUM_SAMPLES - len(planted)
    whole = write(tmp_path / "whole", {name: content for name, content in contents.items() if name not in planted})
    expected = batches(open_data(whole), 0) if write is write_folder else batches(source, 0)
    for num_workers in (0, 1, 3):
        for opened in (source, open_data(path)):
            found = batches(opened, num_workers)
            assert {samples.shape for _, samples in found} == {(8, 3, 16, 16)}
            assert len(found) == len(expected) == 2 * (len(source) // 8)
            for (ids, samples), (expected_ids, expected_samples) in zip(found, expected, strict=True):
                assert torch.equal(ids, expected_ids)
                assert torch.equal(samples, expected_samples)


@pytest.mark.parametrize("is_in_memory", [True, False])
@pytest.mark.thorough
def test_flipped_bits_of_an_indexed_shard_are_refused_where_they_touch_a_sample(
    tmp_path: Path, is_in_memory: bool, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not is_in_memory:
        monkeypatch.setattr(indexed_images, "MEMORY_BUDGET_BYTES", 0)
    shard = files.write_shard(tmp_path / "x.tar", files.labelled(rng, KEYS))
    whole = shard.path.read_bytes()
    samples = open_data(shard.path).store.fetch(range(NUM_SAMPLES))
    for _ in range(25):
        shard.path.write_bytes(whole)
        touched = set()
        for byte in rng.integers(0, len(whole), int(rng.integers(1, 12))):  # headers and padding, too
            files.flip_bit(shard.path, int(byte), int(rng.integers(8)))
        now = shard.path.read_bytes()
        for name, place in shard.members.items():
            here = slice(place.offset, place.offset + place.size)
            if name.endswith(".jpg") and now[here] != whole[here]:
                touched.add(name)
        try:
            found = open_data(shard.path).store.fetch(range(NUM_SAMPLES))
        except DataError as error:
            assert "changed since they were indexed" in str(error)
        else:
            assert not touched
            assert torch.equal(found, samples)
