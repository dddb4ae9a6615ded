"""Kept samples come back as they were written, and nothing that was changed or does not fit is read."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from counterpoint.core.errors import RunError
from counterpoint.core.files import sha256_of, write_json, write_sealed
from counterpoint.core.rundir import RunFolder
from counterpoint.evaluation.map_samples import (
    NUM_NEIGHBOURS,
    NUM_TOP,
    Collection,
    Dimensions,
    Sheet,
    read_collection,
    write_collection,
)
from counterpoint.report.map_layout import Layout, MapRecord, read_map
from kept_samples import keep_samples

NUM, DIMS = 5, 3


def toy() -> Collection:
    generator = np.random.default_rng(0)
    scores = {place: generator.normal(size=(NUM, 4)).astype(np.float16).astype(float) for place in PLACES}
    dims = Dimensions(
        fires_D=np.array([1.0, 0.5, 0.0]),
        expected_D=np.array([0.5, 0.25, 0.0]),
        purity_D=np.array([0.5, 1.0, np.nan]),
        class_D=np.array([-1, 1, -1]),
        top_DT=np.full((DIMS, NUM_TOP), -1),
        values_DT=np.zeros((DIMS, NUM_TOP)),
    )
    return Collection(
        num_samples=9,
        rows_N=np.arange(0, 9, 2),
        names=("a", "<b>", 'c "d"', "ü/写真", "e"),
        labels_N=np.array([0, 1, 1, -1, 0]),
        class_names=("cat", "dog & co"),
        scores=scores,
        variance={place: np.full(4, 0.25) for place in PLACES},
        neighbours_NM=np.full((NUM, NUM_NEIGHBOURS), -1),
        dominant_N=np.array([0, 1, 2, -1, 0]),
        dims=dims,
        sheet=Sheet(b"picture", 3, 8),
    )


PLACES = ("embedding", "representation")


def test_what_is_written_is_read(tmp_path: Path) -> None:
    known = toy()
    read = read_collection(keep_samples(tmp_path, known))
    assert read is not None
    assert (read.names, read.class_names, read.num_samples, read.sheet) == (
        known.names,
        known.class_names,
        known.num_samples,
        known.sheet,
    )
    for name in ("rows_N", "labels_N", "neighbours_NM", "dominant_N"):
        np.testing.assert_array_equal(getattr(read, name), getattr(known, name))
    for name in ("fires_D", "expected_D", "purity_D", "class_D", "top_DT", "values_DT"):
        np.testing.assert_array_equal(getattr(read.dims, name), getattr(known.dims, name))
    for place in PLACES:
        np.testing.assert_array_equal(read.scores[place], known.scores[place])


def test_nothing_is_read_where_nothing_was_kept(tmp_path: Path) -> None:
    assert read_collection(RunFolder(tmp_path)) is None
    assert read_map(RunFolder(tmp_path), None) is None


def test_a_changed_file_is_refused(tmp_path: Path) -> None:
    folder = keep_samples(tmp_path, toy())
    content = bytearray(folder.collection.read_bytes())
    content[len(content) // 2] ^= 1
    folder.collection.write_bytes(content)
    with pytest.raises(RunError, match=r"collection\.npz .*counterpoint diagnose"):
        read_collection(folder)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"names": ("a",)}, "not equally many"),
        ({"labels_N": np.array([0, 1, 2, 0, 0])}, "labels must be from -1 to 1"),
        ({"dominant_N": np.array([0, 1, 3, 0, 0])}, "dominant must be from -1 to 2"),
        ({"neighbours_NM": np.full((NUM, NUM_NEIGHBOURS), NUM)}, "neighbours must be from -1 to 4"),
        ({"neighbours_NM": np.zeros((NUM, 2), int)}, "cannot reshape"),
        ({"sheet": Sheet(b"picture", 0, 8)}, "0 in a row"),
    ],
    ids=str,
)
def test_what_does_not_fit_is_refused_in_one_line(tmp_path: Path, change: dict, message: str) -> None:
    with pytest.raises(RunError, match=message) as caught:
        read_collection(keep_samples(tmp_path, replace(toy(), **change)))
    assert "\n" not in str(caught.value)


def test_what_is_no_archive_is_refused(tmp_path: Path) -> None:
    folder = keep_samples(tmp_path, toy())
    folder.collection.write_bytes(b"no archive")
    write_json(folder.findings, {"collection": {"sha256": sha256_of(folder.collection)}})
    with pytest.raises(RunError, match=r"collection\.npz is damaged"):
        read_collection(folder)


def test_a_map_counts_for_the_collection_it_was_made_of_only(tmp_path: Path) -> None:
    folder, known = keep_samples(tmp_path, toy()), toy()
    layout = Layout(x=(0,) * NUM, y=(0,) * NUM, trustworthiness=1.0)
    record = MapRecord(made_of=sha256_of(folder.collection), tsne={"embedding": layout}, pca_trustworthiness={})
    write_sealed(folder.map_layout, record.written())
    assert read_map(folder, known) == record
    write_collection(folder, replace(known, num_samples=10))
    assert read_map(folder, known) is None


@pytest.mark.parametrize("positions", [(0,) * (NUM - 1), (0.5,) * NUM], ids=str)
def test_a_map_with_wrong_positions_is_refused(tmp_path: Path, positions: tuple) -> None:
    folder = keep_samples(tmp_path, toy())
    values = {"made_of": sha256_of(folder.collection), "pca_trustworthiness": {}}
    write_sealed(folder.map_layout, {**values, "tsne": {"embedding": {"x": positions, "y": positions}}})
    with pytest.raises(RunError, match=r"map\.json"):
        read_map(folder, toy())
