"""Embedding tables: one row per sample in three formats, safe to open in a spreadsheet, never over another file."""

import csv
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import counterpoint as cp
from counterpoint.core.errors import RunError, UsageError
from data import picture_files as pictures

NAMES = ("=SUM(A1)/1.png", "+b/2.png", "-c/3.png", "@d/4.png", "plain/5.png", "plain/6.png")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pictures whose names a spreadsheet would run."""
    path = tmp_path_factory.mktemp("photos")
    pictures.save_plain(path, list(NAMES), np.random.default_rng(0), side=8)
    return path


@pytest.fixture(scope="module")
def run(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> cp.Run:
    """A run on those pictures."""
    return cp.train(
        folder, source={"holdout": 0.0}, batch_size=4, epochs=1, out=tmp_path_factory.mktemp("run") / "run", quiet=True
    )


def read_npz(path: Path) -> tuple[list[str], list[str], np.ndarray]:
    with np.load(path, allow_pickle=False) as arrays:
        assert set(arrays) == {"names", "vectors", "labels"}
        return arrays["names"].tolist(), arrays["labels"].tolist(), arrays["vectors"]


def read_csv(path: Path) -> tuple[list[str], list[str], np.ndarray]:
    with path.open(newline="", encoding="utf-8") as stream:
        header, *rows = list(csv.reader(stream))
    assert header == ["name", "label", *(f"v{i}" for i in range(len(header) - 2))]
    vectors = np.array([[float(cell) for cell in row[2:]] for row in rows], np.float32)
    return [row[0] for row in rows], [row[1] for row in rows], vectors


def read_parquet(path: Path) -> tuple[list[str], list[str], np.ndarray]:
    parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow (extra `search`) is not installed")
    table = parquet.read_table(path)
    assert table.column_names == ["name", "label", "vector"]
    vectors = np.array(table["vector"].to_pylist(), np.float32)
    return table["name"].to_pylist(), table["label"].to_pylist(), vectors


READERS: dict[str, Callable[[Path], tuple[list[str], list[str], np.ndarray]]] = {
    ".npz": read_npz,
    ".csv": read_csv,
    ".parquet": read_parquet,
}


@pytest.mark.parametrize("verb", [cp.embed, lambda run, data: cp.diagnose(run, data=data)])
def test_files_that_are_left_out_are_named(
    run: cp.Run, tmp_path: Path, verb: Callable[[cp.Run, Path], object], capsys: pytest.CaptureFixture[str]
) -> None:
    names = [f"{number}.png" for number in range(101)]
    pictures.save_plain(tmp_path, names, np.random.default_rng(1), side=8)
    (tmp_path / names[0]).write_bytes(b"no picture")
    verb(run, tmp_path)
    shown = capsys.readouterr().err
    assert "skipped 0.png: " in shown
    assert "skipped 1 of 101 files" in shown


@pytest.mark.parametrize("layer", ["representation", "embedding"])
@pytest.mark.parametrize("suffix", READERS)
def test_each_row_is_a_sample_with_its_name_and_label(
    tmp_path: Path, run: cp.Run, folder: Path, suffix: str, layer: Any
) -> None:
    if suffix == ".parquet":
        pytest.importorskip("pyarrow", reason="pyarrow (extra `search`) is not installed")
    path = tmp_path / f"table{suffix}"
    table = cp.embed(run, out=path, layer=layer, quiet=True)
    assert (table.path, table.layer, len(table)) == (path, layer, len(NAMES))
    assert table.names == tuple(sorted(NAMES))
    assert table.labels == tuple(name.split("/")[0] for name in table.names)
    names, labels, vectors = READERS[suffix](path)
    guard = "'" if suffix == ".csv" else ""
    guarded = [guard + name if name[0] in "=+-@" else name for name in table.names]
    assert names == guarded
    assert labels == [name.split("/")[0] for name in guarded]
    assert np.array_equal(vectors, table.vectors)
    encoder = cp.load(run)
    for name, vector in zip(table.names, table.vectors, strict=True):
        image = np.asarray(Image.open(folder / name))[None]
        expected = (encoder.represent if layer == "representation" else encoder.embed)(image)[0]
        assert np.allclose(vector, expected, rtol=1e-4, atol=1e-6)


def test_without_a_file_nothing_is_written(tmp_path: Path, run: cp.Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    table = cp.embed(run.path, quiet=True)
    assert table.path is None
    assert table.vectors.dtype == np.float32
    assert list(tmp_path.iterdir()) == []


def test_other_data_are_embedded_in_their_order(tmp_path: Path, run: cp.Run, rng: np.random.Generator) -> None:
    images = rng.random((7, 3, 8, 8)).astype(np.float32)
    table = cp.embed(run, images, quiet=True)
    assert table.names == tuple("0123456")
    assert table.labels is None
    expected = cp.load(run).represent((images * 255).round().astype(np.uint8))
    assert np.array_equal(table.vectors, expected)
    other = tmp_path / "other"
    pictures.save_plain(other, ["x.png", "y.png"], rng, side=20)
    assert cp.embed(run, other, quiet=True).names == ("x.png", "y.png")
    cp.embed(run, other, out=tmp_path / "other.csv", quiet=True)
    assert read_csv(tmp_path / "other.csv")[1] == ["", ""]


def test_other_data_need_no_row_in_the_labels_file_of_the_run(
    tmp_path: Path, folder: Path, rng: np.random.Generator
) -> None:
    labels = tmp_path / "labels.csv"
    labels.write_text("file,label\n" + "".join(f"{name},{i % 2}\n" for i, name in enumerate(NAMES)))
    run = cp.train(folder, source={"labels": str(labels)}, batch_size=2, epochs=1, out=tmp_path / "run", quiet=True)
    assert cp.embed(run, quiet=True).labels == tuple(str(NAMES.index(name) % 2) for name in sorted(NAMES))
    assert cp.embed(run, str(folder), quiet=True).labels == cp.embed(run, quiet=True).labels
    pictures.save_plain(tmp_path / "other", ["x.png", "y.png"], rng)
    assert cp.embed(run, tmp_path / "other", quiet=True).labels is None


@pytest.mark.parametrize(
    ("out", "complaint"),
    [
        ("table.xlsx", "must end in .npz, .csv, .parquet"),
        ("table", "must end in"),
        ("missing/table.csv", "does not exist"),
    ],
)
def test_a_file_that_cannot_be_written_is_refused_before_any_work(
    tmp_path: Path, run: cp.Run, out: str, complaint: str
) -> None:
    with pytest.raises((RunError, UsageError)) as caught:
        cp.embed(run, out=tmp_path / out, quiet=True)
    assert complaint in str(caught.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("suffix", [".npz", ".csv"])
def test_a_file_that_exists_is_replaced_only_when_asked(tmp_path: Path, run: cp.Run, suffix: str) -> None:
    path = tmp_path / f"table{suffix}"
    path.write_text("mine")
    with pytest.raises(RunError, match="exists; replace it with --overwrite"):
        cp.embed(run, out=path, quiet=True)
    assert path.read_text() == "mine"
    cp.embed(run, out=path, overwrite=True, quiet=True)
    assert len(READERS[suffix](path)[0]) == len(NAMES)
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


def test_a_write_that_fails_leaves_the_old_file(tmp_path: Path, run: cp.Run, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "table.npz"
    path.write_text("mine")

    def full(*args: Any, **options: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "savez_compressed", full)
    with pytest.raises(RunError, match="No space left on device"):
        cp.embed(run, out=path, overwrite=True, quiet=True)
    assert path.read_text() == "mine"
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


def test_an_unknown_layer_gets_the_nearest_name(run: cp.Run) -> None:
    with pytest.raises(UsageError, match="'embedding'"):
        cp.embed(run, layer="embeding")  # pyright: ignore[reportArgumentType]


def test_without_pyarrow_one_is_told_how_to_get_it(
    tmp_path: Path, run: cp.Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)  # import raises, as if it were not installed
    with pytest.raises(UsageError, match="pyarrow"):
        cp.embed(run, out=tmp_path / "table.parquet", quiet=True)
    assert list(tmp_path.iterdir()) == []


def test_progress_says_where_the_table_is(tmp_path: Path, run: cp.Run, capsys: pytest.CaptureFixture[str]) -> None:
    cp.embed(run, out=tmp_path / "table.csv")
    assert f"wrote 6 x 256 representations to {tmp_path / 'table.csv'}" in capsys.readouterr().err
