"""Tables of images and vectors: every format gives the same samples, rows are read at random, damage is named."""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from counterpoint.core.errors import DataError, UsageError
from counterpoint.core.settings import SourceSettings
from counterpoint.data.formats import indexed_images
from counterpoint.data.formats.arrow_and_csv import open_table
from counterpoint.data.formats.image_files import decode_square
from counterpoint.data.loader import BatchLoader
from counterpoint.data.order import Order
from counterpoint.data.source import Source
from data import shard_files as files
from data.opened_data import silent

pa = pytest.importorskip("pyarrow", reason="pyarrow (extra `search`) is not installed")
parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed (extra `search`)")
NUM_ROWS = 23
NAMES = ["zebra", "ant", "mole"]


def open_rows(path: Path, **settings: object) -> Source:
    return open_table(path, SourceSettings(**{"image_size": 16, **settings}), silent)


def write_parquet(table: Any, path: Path) -> Path:
    parquet.write_table(table, path.with_suffix(".parquet"), row_group_size=5)
    return path.with_suffix(".parquet")


def write_file(table: Any, path: Path) -> Path:
    with pa.ipc.new_file(path.with_suffix(".arrow"), table.schema) as writer:
        writer.write_table(table, max_chunksize=5)
    return path.with_suffix(".arrow")


def write_stream(table: Any, path: Path) -> Path:
    with pa.ipc.new_stream(path.with_suffix(".arrow"), table.schema) as writer:
        writer.write_table(table, max_chunksize=5)
    return path.with_suffix(".arrow")


def write_feather(table: Any, path: Path) -> Path:
    options = pa.ipc.IpcWriteOptions(compression="lz4")  # as Feather compresses by default
    with pa.ipc.new_file(path.with_suffix(".feather"), table.schema, options=options) as writer:
        writer.write_table(table, max_chunksize=5)
    return path.with_suffix(".feather")


FORMS = {each.__name__: each for each in (write_parquet, write_file, write_stream, write_feather)}
FEATURES = {"image": {"_type": "Image"}, "label": {"names": NAMES, "_type": "ClassLabel"}}


@pytest.fixture
def contents(rng: np.random.Generator) -> list[bytes]:
    return [files.picture(rng) for _ in range(NUM_ROWS)]


def image_table(contents: list[bytes], *, has_names: bool = True) -> Any:
    rows = [{"bytes": content, "path": f"{number}.jpg"} for number, content in enumerate(contents)]
    labels = [None if number == 4 else -1 if number == 5 else number % 3 for number in range(len(contents))]
    table = pa.table({"image": rows, "size": [1] * len(rows), "label": labels})
    metadata = {"huggingface": json.dumps({"info": {"features": FEATURES}})}
    return table.replace_schema_metadata(metadata) if has_names else table


@pytest.mark.parametrize("is_in_memory", [True, False])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.sampled(9)
def test_every_form_gives_the_same_images_and_labels(
    tmp_path: Path, form: str, is_in_memory: bool, contents: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(indexed_images, "MEMORY_BUDGET_BYTES", 1 << 30 if is_in_memory else 0)
    path = FORMS[form](image_table(contents), tmp_path / "table")
    source = open_rows(path)
    assert (len(source), source.kind, source.shape) == (NUM_ROWS, "images", (3, 16, 16))
    expected = torch.stack([decode_square(content, 16) for content in contents])
    positions = [22, 0, 7, 7, 21, 3]
    assert torch.equal(source.store.fetch(positions), expected[positions])
    assert source.class_names == tuple(NAMES)  # in the order of their numbers, not of the alphabet
    assert source.labels is not None
    assert source.labels.tolist() == [-1 if number in (4, 5) else number % 3 for number in range(NUM_ROWS)]
    assert open_rows(path, labels="none").labels is None
    assert open_rows(path).fingerprint == source.fingerprint
    for num_workers in (1, 3) if not is_in_memory else ():
        loader = BatchLoader(source.store, Order(torch.arange(NUM_ROWS), 6, 0), num_workers=num_workers)
        for batch in loader.epoch(0):
            assert torch.equal(batch.samples, expected[batch.ids])
        loader.close()


def test_labels_without_names_and_plain_bytes(tmp_path: Path, contents: list[bytes]) -> None:
    table = image_table(contents, has_names=False)
    assert open_rows(write_file(table, tmp_path / "a")).class_names == ("0", "1", "2")  # -1 is no class
    plain = pa.table({"picture": contents, "other": contents, "class": [NAMES[i % 3] for i in range(NUM_ROWS)]})
    source = open_rows(write_parquet(plain, tmp_path / "b"))
    assert source.class_names == ("ant", "mole", "zebra")
    with pytest.raises(UsageError, match=r"several columns of samples: a, b; choose with --source\.image-column"):
        open_rows(write_parquet(pa.table({"a": contents, "b": contents}), tmp_path / "c"))
    assert len(open_rows(tmp_path / "c.parquet", image_column="b")) == NUM_ROWS


@pytest.mark.parametrize("is_fixed", [True, False])
def test_vectors(tmp_path: Path, is_fixed: bool, rng: np.random.Generator) -> None:
    vectors = rng.standard_normal((NUM_ROWS, 6)).astype(np.float32)
    column = pa.array(list(vectors), pa.list_(pa.float32(), 6 if is_fixed else -1))
    path = write_parquet(
        pa.table({"name": ["x"] * NUM_ROWS, "vector": column, "label": list("abc" * 7 + "ab")}), tmp_path / "v"
    )
    source = open_rows(path)
    assert (source.kind, source.shape, source.class_names) == ("vectors", (6,), ("a", "b", "c"))
    assert torch.equal(source.store.fetch(range(NUM_ROWS)), torch.from_numpy(vectors))


@pytest.mark.parametrize("odd", [[1.0], None, [1.0, None], [1.0, float("nan")]])
def test_vectors_that_do_not_fit_are_refused_by_row(tmp_path: Path, odd: Any) -> None:
    table = pa.table({"vector": pa.array([[1.0, 2.0], odd, [3.0, 4.0]], pa.list_(pa.float32()))})
    with pytest.raises(DataError, match=r"row 1|sample 1"):
        open_rows(write_file(table, tmp_path / "v"))


def test_bad_rows_are_skipped_and_named(tmp_path: Path, contents: list[bytes]) -> None:
    table = image_table(contents).to_pylist()
    table[2]["image"]["bytes"] = contents[2][:50]
    table[9]["image"] = None
    table[11]["image"] = {"bytes": None, "path": "/etc/passwd"}
    path = write_stream(pa.Table.from_pylist(table, image_table(contents).schema), tmp_path / "bad")
    source = open_rows(path, max_bad=0.5)
    reasons = {item.name: item.reason for item in source.skipped}
    assert set(reasons) == {"2", "9", "11"}
    assert "empty" in reasons["9"]
    assert "only a path" in reasons["11"]
    assert len(source) == NUM_ROWS - 3


def test_a_changed_cell_is_noticed(tmp_path: Path, contents: list[bytes]) -> None:
    path = write_file(image_table(contents), tmp_path / "a")
    open_rows(path)
    place = path.read_bytes().index(contents[8]) + len(contents[8]) // 2
    files.flip_bit(path, place)
    with pytest.raises(DataError, match=r"1 of 23 samples .*: 8; "):
        open_rows(path)
    assert len(open_rows(path, altered="reindex", max_bad=0.5)) in (NUM_ROWS - 1, NUM_ROWS)


def test_damaged_tables_are_one_line(tmp_path: Path, contents: list[bytes], rng: np.random.Generator) -> None:
    for write in (write_parquet, write_file, write_stream):
        path = write(image_table(contents), tmp_path / write.__name__)
        whole = path.read_bytes()
        for content in (b"", b"PAR1", rng.bytes(300), whole[: len(whole) // 2], whole[len(whole) // 2 :]):
            path.unlink()
            path.write_bytes(content)
            with pytest.raises(DataError) as caught:
                open_rows(path, max_bad=0.0)
            assert "\n" not in str(caught.value)
            assert str(path) in str(caught.value)


def test_columns_and_parts_that_are_not_there(tmp_path: Path, contents: list[bytes]) -> None:
    path = write_file(image_table(contents), tmp_path / "a")
    for settings, message in (
        ({"image_column": "imag"}, "did you mean 'image'"),
        ({"image_column": "size"}, "holds integer, not image or bytes or vector"),
        ({"label_column": "lable"}, "did you mean 'label'"),
        ({"label_column": "image"}, "holds image, not integer or text"),
        ({"split": "test"}, "can be auto, got 'test'"),
    ):
        with pytest.raises(UsageError, match=message):
            open_rows(path, **settings)
    with pytest.raises(DataError, match=r"has 1 row.s. below its header"):
        open_rows(write_file(pa.table({"size": [1]}), tmp_path / "b"))


def test_without_pyarrow_one_is_told_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.parquet").write_bytes(b"PAR1")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(UsageError, match=r"\.parquet needs pyarrow; install it with: pip install pyarrow"):
        open_rows(tmp_path / "a.parquet")
