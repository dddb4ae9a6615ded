"""Whatever holds features or an encoder opens as the same samples; what does not fit is told in one line."""

# N samples, D features

import hashlib
import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import counterpoint as cp
from counterpoint.core.errors import CounterpointError
from counterpoint.core.user_objects import FlagText
from counterpoint.core.validation import build
from counterpoint.data.stores import MemoryStore
from counterpoint.engine.progress import Reporter
from counterpoint.evaluation.evaluation_result import Evaluation
from counterpoint.evaluation.evaluation_settings import EvaluationSettings
from counterpoint.evaluation.load_subject import Samples, open_subject
from counterpoint.evaluation.subject import Subject
from counterpoint.evaluation.vector_table import WRITERS, Table

NAMES = ("cat", "dog", "owl")
NUM_ROWS, WIDTH = 60, 4


def draw(n: int = NUM_ROWS, d: int = WIDTH, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    labels = np.arange(n) % 3
    return (rng.normal(size=(n, d)) + 3 * np.eye(3, d)[labels]).astype(np.float32), labels


def as_file(suffix: str, folder: Path, *, labelled: bool) -> Path:
    """The features in a file of some kind, with class names where it has room for them."""
    vectors, labels = draw()
    path = folder / f"features{suffix}"
    if suffix == ".npy":
        np.save(path, vectors)
        return path
    names = tuple(NAMES[label] for label in labels) if labelled else None
    WRITERS[suffix](Table(tuple(f"{i}.png" for i in range(len(vectors))), vectors, names), path)
    return path


def opened(subject: Any, samples: Samples | None = None, **settings: Any) -> Subject:
    return open_subject(
        subject, samples or Samples(), build(EvaluationSettings, settings, "evaluate"), Reporter(quiet=True)
    )


def evaluated(subject: Any, **known: Any) -> Evaluation:
    return cp.evaluate(subject, quiet=True, **known)


def refusal(subject: Any, **known: Any) -> str:
    with pytest.raises((CounterpointError, ValueError, TypeError)) as caught:
        evaluated(subject, **known)
    assert isinstance(caught.value, CounterpointError), repr(caught.value)
    assert "\n" not in str(caught.value)
    assert not Path("evaluations").exists()
    return str(caught.value)


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


# --- features


@pytest.mark.parametrize("suffix", [".npy", ".npz", ".csv", ".parquet"])
@pytest.mark.parametrize("labelled", [True, False])
def test_features_of_a_file_are_its_rows(suffix: str, labelled: bool, tmp_path: Path) -> None:
    vectors, labels = draw()
    path = as_file(suffix, tmp_path, labelled=labelled)
    has_labels = labelled and suffix != ".npy"
    found = opened(str(path))
    assert found.is_features
    assert found.name == path.name
    store = found.source.store
    assert isinstance(store, MemoryStore)
    assert np.array_equal(store.samples.numpy(), vectors)
    assert found.source.sample_names[:2] == (("0", "1") if suffix == ".npy" else ("0.png", "1.png"))
    if has_labels:
        assert found.source.class_names == NAMES
        assert found.source.labels is not None
        assert found.source.labels.tolist() == labels.tolist()
    else:
        assert found.source.labels is None
    # Labels that are given count more than those of the file.
    given = opened(path, Samples(labels=(labels + 1).tolist())).source
    assert given.class_names == ("1", "2", "3")


FORMS: dict[str, Callable[[np.ndarray], Any]] = {
    "array": lambda vectors: vectors,
    "float64": lambda vectors: vectors.astype(np.float64),
    "tensor": torch.from_numpy,
    "lists": lambda vectors: vectors.tolist(),
    "table": lambda vectors: Table(tuple(map(str, range(len(vectors)))), vectors, None),
}


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_every_form_gives_the_figures_of_the_file(form: Callable[[np.ndarray], Any], tmp_path: Path) -> None:
    vectors, labels = draw()
    expected = evaluated(as_file(".npy", tmp_path, labelled=False), labels=labels, k=5)
    found = evaluated(form(vectors), labels=labels, k=5)
    assert found.rows == expected.rows
    assert {row.features for row in found.rows} == {"features"}


def test_features_in_memory_are_known_by_their_content() -> None:
    """Python's own hash of bytes is another one in each process."""
    vectors, labels = draw()
    digest = hashlib.sha256(vectors.tobytes()).hexdigest()[:16]
    assert opened(vectors, Samples(labels=labels)).source.fingerprint == digest


def test_queries_of_their_own(tmp_path: Path) -> None:
    bank, queries = draw(), draw(20, seed=1)
    found = evaluated(
        as_file(".npy", tmp_path, labelled=False), labels=bank[1], test_data=queries[0], test_labels=queries[1], k=1
    )
    (row,) = [row for row in found.rows if row.protocol == "knn"]
    unit = [each / np.linalg.norm(each, axis=1, keepdims=True) for each in (bank[0], queries[0])]
    nearest = bank[1][(unit[1] @ unit[0].T).argmax(axis=1)]
    assert row.figure == pytest.approx((nearest == queries[1]).mean())
    assert (found.split.num_bank, found.split.num_queries) == (60, 20)


def test_some_classes(tmp_path: Path) -> None:
    found = opened(as_file(".npz", tmp_path, labelled=True), classes="owl, cat").source
    assert isinstance(found.store, MemoryStore)
    vectors, labels = draw()
    assert np.array_equal(found.store.samples.numpy(), vectors[labels != 1])
    assert found.class_names == ("cat", "owl")


def with_value(value: float) -> np.ndarray:
    vectors = draw()[0].astype(np.float64)
    vectors[7, 2] = value
    return vectors


BAD: dict[str, tuple[Any, Mapping[str, Any], list[str]]] = {
    "no labels": (
        draw()[0],
        {},
        ["features has no labels, and accuracy needs them; give --labels"],
    ),
    "nan": (with_value(np.nan), {"labels": draw()[1]}, ["sample 7"]),
    "beyond float32": (with_value(1e300), {"labels": draw()[1]}, ["sample 7"]),
    "one axis": (np.ones(5), {"labels": [0] * 5}, ["features must hold samples: (n, d)", "(5,)"]),
    "text": (np.array([["a"]]), {"labels": [0]}, ["features"]),
    "too few labels": (draw()[0], {"labels": [0, 1]}, ["60 samples", "(2,)"]),
    "one class": (draw()[0], {"labels": [3] * 60}, ["of 1 classes", "at least 2 classes and 10 queries are needed"]),
    "too few": (draw(9)[0], {"labels": draw(9)[1]}, ["at least 2 classes and 10 queries are needed"]),
    "an unknown class": (draw()[0], {"labels": draw()[1], "classes": "0,9"}, ["no class '9'"]),
    "classes without labels": (draw()[0], {"classes": "0"}, ["picks samples by their labels"]),
    "data": (draw()[0], {"data": "digits"}, ["data goes with an encoder"]),
    "checkpoint": (draw()[0], {"checkpoint": "3"}, ["checkpoint goes with an encoder"]),
    "image size": (draw()[0], {"image_size": 32}, ["image_size goes with an encoder"]),
    "split": (draw()[0], {"split": "test"}, ["split goes with an encoder"]),
    "weights": (draw()[0], {"weights": "x.pth"}, ["weights goes with an encoder from elsewhere"]),
    "a width of its own": (
        draw()[0],
        {"labels": draw()[1], "test_data": draw(20, 5)[0], "test_labels": draw(20, 5)[1]},
        ["test_data has 5 features and data 4"],
    ),
    "queries without labels": (draw()[0], {"labels": draw()[1], "test_data": draw(20)[0]}, ["labels"]),
}


@pytest.mark.parametrize(("features", "known", "complaints"), BAD.values(), ids=BAD)
def test_features_that_cannot_be_used(features: Any, known: Mapping[str, Any], complaints: list[str]) -> None:
    said = refusal(features, **known)
    for complaint in complaints:
        assert complaint in said


def test_a_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.md").write_text("hello")
    assert "notes.md is neither a run folder nor a file of features (.npy, .npz, .csv, .parquet)" in refusal("notes.md")


# --- encoders from elsewhere


class Doubled(nn.Module):
    """Twice its input, which is what it was given."""

    def forward(self, x: Tensor) -> Tensor:
        return 2 * x


def test_a_module_is_judged_by_what_it_gives() -> None:
    vectors, labels = draw()
    settings = {"labels": labels, "k": 5, "metrics": ("knn",)}
    found = evaluated(Doubled(), data=vectors, mean=(1.0, 0.0, 0.0, 0.0), std=(1.0, 1.0, 1.0, 4.0), **settings)
    features = 2 * (vectors - [1, 0, 0, 0]) / [1, 1, 1, 4]
    expected = evaluated(features.astype(np.float32), **settings)
    rows = {row.features: row.figure for row in found.rows}
    assert rows["representation"] == expected.rows[0].figure
    assert "untrained encoder" not in rows  # nobody can build a user's module anew
    assert "embedding" not in rows
    assert found.rows[0].features == "representation"


def test_a_module_by_the_name_of_what_makes_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = "from torch import nn\n\ndef make():\n    return nn.Sequential(nn.Flatten(), nn.ReLU())\n"
    (tmp_path / "own_module_for_opening.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    vectors, labels = draw()
    settings = {"data": vectors, "labels": labels, "k": 5, "metrics": ("knn",)}
    try:
        found = evaluated(FlagText("own_module_for_opening:make"), **settings)
    finally:
        sys.modules.pop("own_module_for_opening", None)
    expected = evaluated(np.maximum(vectors, 0), labels=labels, k=5, metrics=("knn",))
    assert found.rows[0].figure == expected.rows[0].figure


def test_a_name_of_ours_has_its_untrained_self_beside_it() -> None:
    vectors, labels = draw()
    found = evaluated("mlp", data=vectors, labels=labels, k=5, metrics=("knn",))
    assert [row.features for row in found.rows] == ["representation", "untrained encoder", "input (PCA)"]
    assert found.path is None
    assert not Path("evaluations").exists()  # nobody named a file


@pytest.mark.parametrize(
    ("encoder", "known", "complaint"),
    [
        ("mlp", {}, "an encoder from elsewhere comes without samples; give --data"),
        ("mlp", {"mean": (0.0, 1.0)}, "mean must be 4 numbers, got 2"),
        ("mlp", {"std": (1.0,)}, "std must be 4 numbers > 0, got 1"),
        ("mlp", {"std": (1.0, 1.0, 0.0, 1.0)}, "std must be 4 numbers > 0"),
        ("mlp", {"checkpoint": "4"}, "checkpoint goes with a run"),
        ("mlp", {"weights": "gone.pth"}, "gone.pth"),
        ("convnet", {}, "convnet"),
        ("timm:resnt18", {}, "resnt18"),
    ],
)
def test_an_encoder_that_cannot_be_used(encoder: str, known: dict[str, Any], complaint: str) -> None:
    data = {} if "give --data" in complaint else {"data": draw()[0], "labels": draw()[1]}
    assert complaint in refusal(encoder, **data, **known)


@pytest.mark.parametrize("name", ["weights", "mean", "std", "image_size"])
def test_what_belongs_to_encoders_from_elsewhere_is_refused_with_a_run(name: str, run: cp.Run) -> None:
    value: dict[str, Any] = {"weights": "x.pth", "mean": (0.0,), "std": (1.0,), "image_size": 32}
    assert name in refusal(run, **{name: value[name]}).replace(".", " ")


# --- records of one place


def test_a_record_keeps_no_row_of_another_encoder(tmp_path: Path, run: cp.Run, clusters: Any) -> None:
    """Each writes to one file; what stays there from before must be of the same weights."""
    out, known = str(tmp_path / "one.json"), {"data": clusters.data, "labels": clusters.labels, "quiet": True}

    def protocols(subject: Any, metric: str) -> set[str]:
        cp.evaluate(subject, **known, out=out, metrics=(metric,))
        return {row["protocol"] for row in json.loads(Path(out).read_text(encoding="utf-8"))["rows"]}

    assert protocols("mlp", "knn") == {"knn"}
    assert protocols("mlp", "mAP@10") == {"knn", "mAP@10"}  # the same name, the same random weights
    first, second = (nn.Linear(clusters.data.shape[1], 4) for _ in range(2))
    assert protocols(first, "knn") == {"knn"}
    assert protocols(second, "mAP@10") == {"mAP@10"}
    assert protocols(run, "knn") == {"knn"}
    assert protocols("mlp", "mAP@10") == {"mAP@10"}


def test_a_record_keeps_no_row_of_other_features(tmp_path: Path) -> None:
    """Names and classes of samples are alike, as they are for features of two encoders; values are not."""
    vectors, labels = draw()
    out = tmp_path / "one.json"
    for values, metric in ((vectors, "knn"), (-(vectors**2), "mAP@10")):
        table = Table(tuple(f"{place}.png" for place in range(len(values))), values, tuple(map(str, labels)))
        cp.evaluate(table, out=str(out), metrics=(metric,), quiet=True)
    assert {row["protocol"] for row in json.loads(out.read_text(encoding="utf-8"))["rows"]} == {"mAP@10"}
