"""Merged shards are the file that one process writes; what is missing, damaged or doubled is refused by name."""

import shutil
from pathlib import Path

import numpy as np
import pytest

import counterpoint as cp
from counterpoint.core import arrow_files
from counterpoint.core.errors import RunError, UsageError
from counterpoint.core.files import sha256_of, write_sealed
from counterpoint.evaluation.shard_files import ShardBlock, ShardFolder, TablePlan, make_shards, open_shards
from counterpoint.search.embedding_shards import Shards, embed_shards
from counterpoint.search.shard_merge import merge_shards, regrouped

pytest.importorskip("pyarrow", reason="pyarrow (extra `search`) is not installed")
NUM_ROWS, SHARD_ROWS, WIDTH = 47, 10, 3


def plan_of(**changes: object) -> TablePlan:
    usual = {"num_rows": NUM_ROWS, "shard_rows": SHARD_ROWS, "layer": "representation", "encoder": "e", "data": "d"}
    return TablePlan.model_validate({**usual, "software": "s", "has_labels": True, **changes})


def block_of(rows: slice) -> ShardBlock:
    """Rows whose content says which they are; some names are no UTF-8, and some labels unknown."""
    numbers = range(rows.start, rows.stop)
    names = ["p\udcff.png" if number == 5 else f"{number}.png" for number in numbers]
    labels = [None if number % 7 == 0 else f"class {number % 3}" for number in numbers]
    vectors_ND = np.arange(rows.start * WIDTH, rows.stop * WIDTH, dtype=np.float32).reshape(-1, WIDTH)
    return ShardBlock(names, labels, vectors_ND)


def fill(path: Path, **changes: object) -> ShardFolder:
    folder = make_shards(path, plan_of(**changes))
    for number in range(folder.plan.num_shards):
        folder.write(number, block_of(folder.plan.rows(number)))
    return folder


@pytest.fixture
def folder(tmp_path: Path) -> ShardFolder:
    return fill(tmp_path / "shards")


def test_the_merged_table_is_the_file_that_one_process_writes(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    run = cp.train(rng.normal(size=(200, 5)).astype("f"), epochs=1, batch_size=50, out=tmp_path / "run", quiet=True)
    cp.embed(run, out=tmp_path / "one.parquet", quiet=True)
    for rows in (30, 64):
        embed_shards(run, shards=Shards(tmp_path / f"{rows}", rows), quiet=True)
        merge_shards(tmp_path / f"{rows}", tmp_path / f"{rows}.parquet", quiet=True)
        assert (tmp_path / f"{rows}.parquet").read_bytes() == (tmp_path / "one.parquet").read_bytes()


@pytest.mark.parametrize("size", [1, 4, 10, 16, 47, 100])
def test_row_groups_do_not_depend_on_where_shards_begin(folder: ShardFolder, size: int) -> None:
    blocks = list(regrouped(folder.blocks(), size))
    whole = block_of(slice(0, NUM_ROWS))
    assert [len(block.names) for block in blocks] == [size] * (NUM_ROWS // size) + [NUM_ROWS % size] * bool(
        NUM_ROWS % size
    )
    assert np.array_equal(np.concatenate([block.vectors_ND for block in blocks]), whole.vectors_ND)
    assert [label for block in blocks for label in block.labels] == list(whole.labels)


def test_arrays_are_those_of_all_rows(folder: ShardFolder, tmp_path: Path) -> None:
    whole = block_of(slice(0, NUM_ROWS))
    with np.load(merge_shards(folder.path, tmp_path / "t.npz", quiet=True)) as arrays:
        assert set(arrays) == {"names", "vectors", "labels"}
        assert arrays["names"].tolist() == [name.replace("\udcff", "\\udcff") for name in whole.names]
        assert arrays["labels"].tolist() == [label or "" for label in whole.labels]
        assert arrays["vectors"].dtype == np.float32
        assert np.array_equal(arrays["vectors"], whole.vectors_ND)
    assert np.array_equal(np.load(merge_shards(folder.path, tmp_path / "t.npy", quiet=True)), whole.vectors_ND)
    again = merge_shards(folder.path, tmp_path / "again.npz", quiet=True)
    assert again.read_bytes() == (tmp_path / "t.npz").read_bytes()


def test_missing_shards_are_named_and_nothing_is_written(folder: ShardFolder, tmp_path: Path) -> None:
    for number in (1, 4):
        folder.file(number).with_suffix(".json").unlink()
    with pytest.raises(RunError, match=r"lacks 2 of 5 shards: 1, 4; run the command that made it again"):
        merge_shards(folder.path, tmp_path / "t.parquet", quiet=True)
    assert not (tmp_path / "t.parquet").exists()


@pytest.mark.parametrize("suffix", [".parquet", ".npz", ".npy"])
def test_a_damaged_shard_is_named_and_the_target_stays(folder: ShardFolder, tmp_path: Path, suffix: str) -> None:
    target = tmp_path / f"t{suffix}"
    target.write_text("mine")
    content = folder.file(3).read_bytes()
    folder.file(3).write_bytes(content[:50] + bytes([content[50] ^ 4]) + content[51:])
    with pytest.raises(RunError, match=r"shard-000003\.parquet is damaged"):
        merge_shards(folder.path, target, overwrite=True, quiet=True)
    assert target.read_text() == "mine"
    assert not list(tmp_path.glob(".*"))


@pytest.mark.parametrize("rows", [slice(10, 20), slice(21, 31), slice(20, 29)])
def test_rows_that_are_twice_or_missing_are_refused(tmp_path: Path, rows: slice) -> None:
    # A shard whose record and hash are right, and whose rows are not those of its place.
    wrong = fill(tmp_path / "wrong")
    block, record, path = block_of(rows), wrong.record(2), wrong.file(2)
    assert record is not None
    with arrow_files.vector_writer(path, WIDTH, rows.start) as add:
        add(block.names, block.labels, block.vectors_ND)
    changed = record.model_copy(update={"size": path.stat().st_size, "content": sha256_of(path)})
    write_sealed(path.with_suffix(".json"), changed.model_dump())
    with pytest.raises(RunError, match=r"shard-000002\.parquet (has other rows than 20 to 29|ends at row 28)"):
        merge_shards(wrong.path, tmp_path / "t.parquet", quiet=True)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"encoder": "f"}, "of another encoder: encoder f, this is e"),
        ({"data": "x"}, "of other data: data x, this is d"),
        ({"software": "t"}, "of another version: software t, this is s"),
    ],
)
def test_a_shard_of_another_run_is_refused_by_name(
    folder: ShardFolder, tmp_path: Path, changes: dict[str, object], words: str
) -> None:
    other = fill(tmp_path / "other", **changes)
    for suffix in (".parquet", ".json"):
        shutil.copy(other.file(1).with_suffix(suffix), folder.path)
    with pytest.raises(RunError, match=rf"shard-000001\.json is {words}"):
        merge_shards(folder.path, tmp_path / "t.parquet", quiet=True)


def test_a_folder_that_is_none_of_shards_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"is no folder of shards: it has no plan\.json"):
        merge_shards(tmp_path, tmp_path / "t.npz")
    (tmp_path / "plan.json").write_text('{"format": 1}')
    with pytest.raises(RunError, match=r"plan\.json is damaged"):
        open_shards(tmp_path)
    with pytest.raises(UsageError, match="must end in"):
        merge_shards(tmp_path, tmp_path / "t.csv")
