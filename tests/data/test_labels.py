"""Labels of whatever form: which samples have none, and that classes keep their numbers and names."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import counterpoint as cp
from counterpoint.core.settings import SourceSettings
from counterpoint.data.formats.labels import labels_as_asked, number_labels, own_labels
from counterpoint.data.sources import open_source
from counterpoint.data.stores import Located
from data.opened_data import silent

NAN = float("nan")
WITH_MISSING = {
    "a list with None": [None, "0", "1", "0"],
    "numbers with None": [None, 0, 1, 0],
    "numbers with -1": [-1, 0, 1, 0],
    "empty text": ["", "0", "1", "0"],
    "text -1": ["-1", "0", "1", "0"],
    "NaN in a list": [NAN, 0, 1, 0],
    "NaN beside text": [NAN, "0", "1", "0"],
    "an array of floats": np.array([NAN, 0.0, 1.0, 0.0]),
    "floats with -1": np.array([-1.0, 0.0, 1.0, 0.0]),
    "an array of objects": np.array([None, "0", "1", "0"], object),
    "bytes": np.array([b"", b"0", b"1", b"0"]),
    "a tensor": torch.tensor([-1, 0, 1, 0]),
    "a tensor of floats": torch.tensor([NAN, 0.0, 1.0, 0.0]),
}


@pytest.mark.parametrize("values", WITH_MISSING.values(), ids=WITH_MISSING)
def test_a_sample_without_label_has_none_in_whatever_form_labels_come(values: Any) -> None:
    found = number_labels(values, 4)
    assert found is not None
    assert found.numbers.tolist() == [-1, 0, 1, 0]
    assert found.class_names == ("0", "1")


@pytest.mark.parametrize(
    ("values", "numbers", "names"),
    [
        ([3, 10, 2], [1, 2, 0], ("2", "3", "10")),
        (["b", "a", "b"], [1, 0, 1], ("a", "b")),
        ([1, "a"], [0, 1], ("1", "a")),
        ([True, False, True], [1, 0, 1], ("False", "True")),
        ([-5, -1, 3], [0, -1, 1], ("-5", "3")),
        ([-1, 1, 1], [0, 1, 1], ("-1", "1")),
        ([-1.0, 1.0], [0, 1], ("-1", "1")),
        (["none", "None"], [1, 0], ("None", "none")),
        ([None, 9, 10], [-1, 0, 1], ("9", "10")),
        (np.array([3, 10, 2], object), [2, 0, 1], ("10", "2", "3")),
    ],
    ids=str,
)
def test_classes_keep_numbers_and_names(values: Any, numbers: list[int], names: tuple[str, ...]) -> None:
    found = number_labels(values, len(values))
    assert found is not None
    assert (found.numbers.tolist(), found.class_names) == (numbers, names)


def _npy(folder: Path) -> Any:
    np.save(folder / "labels.npy", np.array([-1, 0, 1, 0]))
    return labels_as_asked(str(folder / "labels.npy"), list("abcd"), lambda: None)


def _csv(folder: Path) -> Any:
    (folder / "labels.csv").write_text("file,label\na,\nb,0\nc,1\nd,0\n")
    return labels_as_asked(str(folder / "labels.csv"), list("abcd"), lambda: None)


def _brought(_: Path) -> Any:
    return own_labels([Located("x", Path(), label=label) for label in ("-1", "0", "1", "0")])


@pytest.mark.parametrize("read", [_npy, _csv, _brought])
def test_files_of_labels_leave_samples_without_one(read: Callable[[Path], Any], tmp_path: Path) -> None:
    found = read(tmp_path)
    assert (found.numbers.tolist(), found.class_names) == ([-1, 0, 1, 0], ("0", "1"))


@pytest.mark.parametrize("values", [[None] * 4, [-1] * 4, [""] * 4, [NAN] * 4], ids=str)
def test_labels_that_are_all_missing_are_as_none_given(values: list[Any]) -> None:
    assert number_labels(values, 4) is None
    vectors = np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32)
    assert open_source(vectors, SourceSettings(), labels=values, progress=silent).labels is None


def test_diagnosis_and_table_agree_about_who_has_no_label(tmp_path: Path) -> None:
    drawn = np.random.default_rng(0)
    classes = drawn.integers(0, 2, 120)
    vectors = (drawn.normal(size=(120, 8)) + 3 * classes[:, None]).astype(np.float32)
    labels: list[str | None] = [None if row % 4 == 0 else str(label) for row, label in enumerate(classes)]
    np.savez(tmp_path / "z.npz", vectors=vectors, labels=np.where(np.arange(120) % 4 == 0, -1, classes))
    given = [cp.diagnose(vectors, labels=labels, quiet=True), cp.diagnose(tmp_path / "z.npz", quiet=True)]
    for found in given:
        assert found.classes is not None
        assert [row.name for row in found.classes.rows] == ["0", "1"]
        assert found.classes.num_unlabelled == 30


@pytest.mark.parametrize("values", [[0, 1, 0], [[0], [1], [0], [1]], [0.5, 1.5, None, 2.0], 1], ids=str)
def test_labels_that_cannot_be_any_are_refused_in_one_line(values: Any) -> None:
    with pytest.raises(cp.DataError, match="labels must be") as caught:
        number_labels(values, 4)
    assert "\n" not in str(caught.value)
