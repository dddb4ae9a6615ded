"""A sparse code of features: units that are not silent, a run like any other, figures, and refusals."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.sparse import load_npz

import counterpoint as cp
from counterpoint.cli.main import main
from counterpoint.data.order import Split
from counterpoint.nn.heads import SparseCode
from counterpoint.runs.code_figures import code_figures, sparse_rows
from counterpoint.runs.sparse_training import own_classes

NUM, WIDTH, CLASSES = 600, 12, 30


def features(num: int = NUM, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Clusters of two levels, with an offset: classes, and groups within them."""
    draws = np.random.default_rng(seed)
    labels = np.arange(num) % CLASSES
    centres = 2 * draws.standard_normal((CLASSES, WIDTH))
    groups = centres[:, None] + 0.5 * draws.standard_normal((CLASSES, 2, WIDTH))
    x = groups[labels, draws.integers(0, 2, num)] + 0.3 * draws.standard_normal((num, WIDTH)) + 2
    return x.astype(np.float32), labels


def sparsified(out: Path, x: Any = None, **more: Any) -> Any:
    """A small code."""
    given, labels = features()
    asked = {"k": [1, 2, 4], "dims": 64, "epochs": 20, "labels": labels, "out": str(out), "quiet": True} | more
    return cp.sparsify(given if x is None else x, **asked)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """One code for all who only read it."""
    return sparsified(tmp_path_factory.mktemp("sparse") / "code", codes=None)


def test_few_units_are_silent_and_each_sample_has_at_most_k(made: Any) -> None:
    own = {each.k: each for each in made.figures if each.code == "sparse code"}
    assert own[2].silent <= 0.05
    assert own[1].silent <= 0.05
    assert made.codes.shape == (NUM, 64)
    assert made.codes.min() >= 0
    assert max(np.diff(made.codes.indptr)) <= 4


def test_the_code_beats_other_codes_of_its_bytes_where_clusters_are_all_there_is(made: Any) -> None:
    by = {(each.code, each.k): each for each in made.figures}
    assert by["sparse code", 2].num_bytes == by["PCA", 2].num_bytes == by["truncation", 2].num_bytes == 16
    assert by["sparse code", 1].accuracy > max(by["truncation", 1].accuracy, by["PCA", 1].accuracy)
    assert by["dense", None].accuracy >= 0.95
    assert 0.3 < by["sparse code", 4].explained <= 1
    assert by["k-means", 1].silent is not None
    assert by["k-means", 1].behind is not None


def test_the_folder_is_a_run_whose_embedding_is_the_code(made: Any) -> None:
    x, _ = features()
    encoder = cp.load(made.run.path)
    told = torch.from_numpy(encoder.embed(x))
    rows = torch.nn.functional.normalize(torch.from_numpy(made.codes.toarray()))
    torch.testing.assert_close(told, rows, rtol=1e-4, atol=1e-6)
    table = cp.embed(made.run, layer="embedding", quiet=True)
    np.testing.assert_allclose(table.vectors, told, atol=1e-6)
    knn = cp.evaluate(made.run, quiet=True).row("embedding", "knn").figure
    assert knn is not None
    assert knn > 0.8
    assert not any("near-copies" in each.title for each in cp.diagnose(made.run, quiet=True).findings)
    answer = cp.search(made.run, 0, k=3, quiet=True).to_dict()
    assert len(answer["queries"][0]["hits"]) == 3


def test_diagnose_says_silent_units_and_reconstruction(made: Any) -> None:
    found = {each.name: each for each in cp.diagnose(made.run, quiet=True).findings}["sparse-code"]
    assert found.level == "good"
    assert found.measured == pytest.approx(1 - len(np.unique(made.codes.indices)) / 64)
    own = next(each for each in made.figures if (each.code, each.k) == ("sparse code", 4))
    share = int(re.findall(r"gives back (\d+)%", found.title)[0]) / 100  # of all samples, not of held-out ones
    assert share == pytest.approx(own.explained, abs=0.05)
    mean, low, high = (int(each) for each in re.findall(r"to (\d+)% .* (\d+)% to (\d+)%", found.text)[0])
    assert low < mean < high
    active, (_, labels) = made.codes.toarray() > 0, features()
    shares = [np.bincount(labels[unit]).max() / unit.sum() for unit in active.T if unit.any()]
    assert mean == round(100 * float(np.mean(shares)))


@pytest.mark.thorough
def test_classes_in_small_directions_are_kept_beside_a_large_one(tmp_path: Path) -> None:
    x, _ = features()
    large = 30 * np.random.default_rng(1).standard_normal((NUM, 1))
    made = sparsified(tmp_path / "code", x=np.hstack([x, large]).astype(np.float32), k=4, epochs=40)
    dense, own = (next(each for each in made.figures if each.code == code) for code in ("dense", "sparse code"))
    assert own.accuracy >= dense.accuracy - 0.05


def test_codes_in_parquet_read_back(tmp_path: Path) -> None:
    arrow = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed")
    written = sparsified(tmp_path / "code", epochs=1, codes=str(tmp_path / "codes.parquet")).codes
    table = arrow.read_table(tmp_path / "codes.parquet").to_pydict()
    assert table["name"] == [str(row) for row in range(NUM)]
    rebuilt = np.zeros((NUM, 64), np.float32)
    for row, (units, values) in enumerate(zip(table["indices"], table["values"], strict=True)):
        rebuilt[row, units] = values
    np.testing.assert_array_equal(rebuilt, written.toarray())


def test_copies_of_samples_are_still_named_in_a_sparse_code(tmp_path: Path) -> None:
    x = np.repeat(features(NUM // 2)[0], 2, axis=0)
    x += 1e-4 * np.random.default_rng(0).standard_normal(x.shape, dtype=np.float32)
    made = sparsified(tmp_path / "code", x=x, labels=None, epochs=5)
    assert any("near-copies" in each.title for each in cp.diagnose(made.run, quiet=True).findings)


@pytest.mark.thorough
def test_a_seed_gives_the_same_bits_and_another_seed_others(made: Any, tmp_path: Path) -> None:
    again, other = sparsified(tmp_path / "again"), sparsified(tmp_path / "other", seed=1)
    assert (again.codes != made.codes).nnz == 0
    assert (other.codes != made.codes).nnz > 0


def test_a_smaller_k_keeps_the_largest_values_of_a_larger(made: Any) -> None:
    x = torch.from_numpy(features()[0])
    code = SparseCode(WIDTH, 64, active=4)
    code.begin_at(x[:64], x.mean(dim=0))
    wide, narrow = sparse_rows(code, x, 4).toarray(), sparse_rows(code, x, 2).toarray()
    assert ((narrow > 0) <= (wide > 0)).all()
    np.testing.assert_array_equal(narrow.max(axis=1), wide.max(axis=1))


def test_silent_units_are_counted_over_training_and_held_out_samples() -> None:
    x = torch.eye(4)
    code = SparseCode(4, 4, active=1)
    code.begin_at(x, torch.zeros(4))
    split = Split(torch.tensor([0, 1]), torch.tensor([2]))
    own = code_figures(code, x[:3], split, None, sizes=(1,), seed=0)[1]
    assert own.silent == 0.25
    assert own.accuracy is None


def test_a_sample_without_a_label_is_a_class_of_its_own(tmp_path: Path) -> None:
    assert own_classes(torch.tensor([1, -1, 0, -1])).tolist() == [1, 2, 0, 3]
    _, labels = features()
    partly = np.where(np.arange(NUM) % 3 == 0, -1, labels)
    made = sparsified(tmp_path / "partly", labels=partly, supervised=True, epochs=2)
    assert made.paired == "samples of one class"
    assert made.figures[0].accuracy is not None


def test_a_run_on_pictures_has_pairs_of_two_views(tmp_path: Path) -> None:
    images = np.random.default_rng(0).integers(0, 256, (80, 8, 8, 3), dtype=np.uint8)
    run = cp.train(images, encoder="convnet", epochs=1, out=str(tmp_path / "run"), quiet=True)
    made = cp.sparsify(run, k=2, dims=256, epochs=1, out=str(tmp_path / "code"), quiet=True)
    assert made.paired == "two views of a picture"
    np.testing.assert_allclose(cp.load(made.run.path).represent(images), cp.load(run.path).represent(images), atol=1e-6)
    assert "not known" in made.verdict  # 80 samples of two units for 256


X = features()[0]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"k": 65}, "at most dims"),
        ({"k": 0}, ">= 1"),
        ({"k": []}, ">= 1"),
        ({"k": 2.5}, "whole numbers >= 1, got 2.5"),
        ({"k": None}, "got None"),
        ({"dims": "16"}, "a whole number, '16'"),
        ({"dims": None}, "a whole number, None"),
        ({"dims": 8}, "width of the features"),
        ({"x": np.zeros((NUM, WIDTH), np.float32)}, "same features"),
        ({"x": np.full((NUM, WIDTH), 7.5, np.float32)}, "same features"),
        ({"x": X[:5], "labels": None}, "at least"),
        ({"x": np.where(np.arange(NUM)[:, None] == 3, np.nan, X)}, "NaN"),
        ({"labels": None, "supervised": True}, "no labels"),
        ({"labels": np.arange(5)}, "labels"),
        ({"data": X}, "only features"),
    ],
)
def test_what_cannot_be_is_refused_and_nothing_is_written(change: dict[str, Any], words: str, tmp_path: Path) -> None:
    with pytest.raises(cp.CounterpointError, match=words):
        sparsified(tmp_path / "code", **change)
    assert not (tmp_path / "code").exists()


def test_negative_features_and_few_samples_get_a_verdict(tmp_path: Path) -> None:
    negative = sparsified(tmp_path / "negative", x=-np.abs(X), epochs=2)
    assert negative.codes.nnz > 0
    few = sparsified(tmp_path / "few", x=X[:60], labels=None, k=1, dims=256, epochs=1)
    assert "not known" in few.verdict
    copies = sparsified(tmp_path / "copies", x=np.repeat(X[:6], NUM // 6 + 1, axis=0)[:NUM], k=1, epochs=1)
    assert "6 different samples" in copies.verdict
    with_outliers = np.where(np.arange(NUM)[:, None] < 3, 1e6 * X, X)
    assert "outliers" in sparsified(tmp_path / "outliers", x=with_outliers, k=1, epochs=1).verdict


def test_the_command_prints_figures_and_keeps_codes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    x, labels = features()
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "y.npy", labels)
    words = ["sparsify", str(tmp_path / "x.npy"), "--labels", str(tmp_path / "y.npy"), "-k", "1,2", "--dims", "32"]
    words += ["--epochs", "2", "--out", str(tmp_path / "code"), "--codes", str(tmp_path / "codes.npz"), "-q"]
    assert main([*words, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["figures"][0]["code"] == "dense"
    assert load_npz(tmp_path / "codes.npz").shape == (NUM, 32)
    assert main(words) == 2  # both are there
    assert main(["evaluate", str(tmp_path / "code"), "-q"]) == 0
