"""The estimator is ``cp.train`` with scikit-learn's manners: what it learns, gives, keeps and leaves behind."""

import pickle
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.validation import check_is_fitted
from torch import nn

import counterpoint as cp
from counterpoint.core.errors import InterruptedRunError
from counterpoint.estimator import contrastive_encoder

Vectors = tuple[np.ndarray, np.ndarray]


def run_of(encoder: cp.ContrastiveEncoder) -> cp.Run:
    """The run that is kept in a folder."""
    assert encoder.run_ is not None
    return encoder.run_


@pytest.fixture
def vectors(rng: np.random.Generator) -> Vectors:
    """Three clusters of 12 vectors, with their labels."""
    labels = np.arange(36) % 3
    return rng.normal(size=(36, 5)) + 4 * np.eye(5)[labels], labels


@pytest.fixture
def images(rng: np.random.Generator) -> np.ndarray:
    return rng.integers(0, 256, (12, 8, 8, 3), dtype=np.uint8)


def quick(**parameters: Any) -> cp.ContrastiveEncoder:
    return cp.ContrastiveEncoder(**{"epochs": 1, "random_state": 0, **parameters})


def equal_weights(one: nn.Module, other: nn.Module) -> bool:
    a, b = one.state_dict(), other.state_dict()
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


# --- what it learns


def test_fit_trains_what_train_does(vectors: Vectors, tmp_path: Path) -> None:
    X, _ = vectors
    given: dict[str, Any] = {"method": "ncl", "epochs": 2, "temperature": 0.4, "batch_size": 12}
    encoder = cp.ContrastiveEncoder(**given, random_state=5, learning_rate=0.01, settings={"optim": {"name": "sgd"}})
    optim = {"name": "sgd", "learning_rate": 0.01}
    run = cp.train(X, seed=5, optim=optim, out=str(tmp_path / "run"), quiet=True, **given)
    assert equal_weights(encoder.fit(X).encoder_, cp.load(run))
    assert [record["loss"] for record in encoder.history_] == [record["loss"] for record in run.metrics]


def test_random_state_decides(vectors: Vectors) -> None:
    X, _ = vectors
    assert np.array_equal(quick().fit_transform(X), quick().fit_transform(X))
    assert not np.array_equal(quick().fit_transform(X), quick(random_state=1).fit_transform(X))
    states = [np.random.RandomState(3) for _ in range(2)]
    one, other = (quick(random_state=state).fit(X) for state in states)
    assert one.seed_ == other.seed_
    assert one.seed_ != quick(random_state=states[0]).fit(X).seed_  # a generator goes on


def test_the_callers_random_numbers_go_on(vectors: Vectors) -> None:
    def draws() -> tuple[float, float]:
        return float(torch.rand(())), float(np.random.random())

    torch.manual_seed(1)
    np.random.seed(1)
    expected = draws()
    torch.manual_seed(1)
    np.random.seed(1)
    quick().fit(vectors[0])
    assert draws() == expected


def test_methods_that_learn_from_labels_use_y_and_all_samples(vectors: Vectors, tmp_path: Path) -> None:
    X, y = vectors
    names = np.array(["ant", "bee", "cat"])[y]
    one = quick(method="supervised", out=tmp_path / "run").fit(X, names)
    assert not equal_weights(one.encoder_, quick(method="supervised").fit(X, names[::-1]).encoder_)
    assert run_of(one).folder.read_status().num_train == len(X)
    assert set(one.encoder_.classify(X)) <= set(names.tolist())
    held = quick(method="supervised", out=tmp_path / "held", settings={"source": {"holdout": 0.5}}).fit(X, names)
    assert run_of(held).folder.read_status().num_train == len(X) // 2


def test_other_methods_do_not_look_at_y(vectors: Vectors) -> None:
    X, labels = vectors
    expected, figures = quick().fit_transform(X), np.linspace(0, 1, len(X))
    for y in (labels, np.array(["a", "b", "c"])[labels], np.c_[figures, figures], np.full(len(X), np.nan)):
        assert np.array_equal(quick().fit(X, y).transform(X), expected)


@pytest.mark.parametrize("shape", [(4, 1), (10, 2), (7, 3)])
def test_very_few_samples_and_constant_columns_train(rng: np.random.Generator, shape: tuple[int, int]) -> None:
    X = np.c_[rng.normal(size=shape), np.full(shape[0], 3.0)]
    given = quick(epochs="auto", settings={"optim": {"warmup_epochs": 0.0}}) if shape[0] == 10 else quick()
    found = given.set_params(epochs=2).fit_transform(X)
    assert found.shape == (shape[0], 256)
    assert np.isfinite(found).all()


def test_images_are_learned_from(images: np.ndarray) -> None:
    encoder = quick().fit(images)
    found = encoder.transform(images)
    assert encoder.encoder_.card.architecture == "convnet"
    assert encoder.sample_shape_ == (8, 8, 3)
    assert np.allclose(encoder.transform(images[3:4]), found[3:4], atol=1e-6)
    assert quick().fit_transform(images[..., 0]).shape == (12, 256)  # grey


def test_fits_in_several_threads_take_turns(vectors: Vectors) -> None:
    X, _ = vectors
    alone = quick().fit_transform(X)
    with ThreadPoolExecutor(3) as threads:
        found = list(threads.map(lambda _: quick().fit_transform(X), range(3)))
    assert all(np.array_equal(each, alone) for each in found)


# --- what it gives


def test_a_row_has_the_same_bits_alone_and_in_any_batch(rng: np.random.Generator) -> None:
    X = rng.normal(size=(530, 7))  # more than pass the encoder at once
    for layer in ("representation", "embedding"):
        encoder = quick(layer=layer).fit(X[:40])
        whole = encoder.transform(X)
        assert whole.dtype == np.float32
        for rows in (slice(0, 1), slice(525, 530), slice(511, 514), slice(529, None), slice(None, None, -1)):
            assert np.array_equal(encoder.transform(X[rows]), whole[rows]), rows


def test_layers_are_representation_and_embedding(vectors: Vectors) -> None:
    X, _ = vectors
    encoder = quick().fit(X)
    assert np.allclose(encoder.transform(X), encoder.encoder_.represent(X.astype(np.float32)), atol=1e-6)
    encoder.set_params(layer="embedding")
    found = encoder.transform(X)
    assert np.allclose(np.linalg.norm(found, axis=1), 1, atol=1e-6)
    names = encoder.get_feature_names_out()
    assert [names[0], len(names)] == ["contrastiveencoder0", found.shape[1]]


def test_it_works_in_a_pipeline(vectors: Vectors) -> None:
    X, y = vectors
    steps = [("scale", StandardScaler()), ("encode", quick(epochs=2)), ("classify", LogisticRegression())]
    pipeline = Pipeline(steps).fit(X, y)
    assert pipeline.score(X, y) > 0.9  # chance is 1 in 3
    names: Any = pipeline[:-1].get_feature_names_out()
    assert len(names) == 256


def test_a_grid_is_searched(vectors: Vectors) -> None:
    pipeline = make_pipeline(quick(), LogisticRegression())
    grid = {"contrastiveencoder__temperature": np.array([0.1, 0.5]), "contrastiveencoder__batch_size": np.array([6])}
    raised: Any = "raise"  # typed as a number there
    found = GridSearchCV(pipeline, grid, cv=2, error_score=raised).fit(*vectors)
    assert found.best_params_["contrastiveencoder__temperature"] in (0.1, 0.5)
    assert found.best_score_ > 0.5


def test_data_frames_give_and_get_names(vectors: Vectors) -> None:
    pandas = pytest.importorskip("pandas", reason="pandas (extra `dev`) is not installed")
    X, _ = vectors
    frame = pandas.DataFrame(X, columns=list("abcde"), index=np.arange(len(X)) + 100)
    encoder = quick().set_output(transform="pandas").fit(frame)
    assert encoder.feature_names_in_.tolist() == list("abcde")
    found = encoder.transform(frame)
    assert found.columns[1] == "contrastiveencoder1"
    assert found.index.tolist() == frame.index.tolist()
    assert np.array_equal(found.to_numpy(), quick().fit_transform(X))
    with pytest.raises(ValueError, match="feature names"):
        encoder.transform(frame[list("edcba")])


# --- what it keeps


def plain_values(value: Any) -> bool:
    if isinstance(value, dict):
        return all(map(plain_values, value.values()))
    if isinstance(value, list | tuple):
        return all(map(plain_values, value))
    return value is None or isinstance(value, bool | int | float | str | bytes)


@pytest.mark.parametrize("kind", ["vectors", "images", "labels"])
def test_a_pickle_gives_the_same_bits_and_holds_no_module(kind: str, vectors: Vectors, images: np.ndarray) -> None:
    X, y = (images, None) if kind == "images" else vectors
    encoder = quick(method="supervised" if kind == "labels" else "ncl").fit(X, y)
    assert plain_values(encoder.__getstate__())
    again = pickle.loads(pickle.dumps(encoder))
    assert np.array_equal(again.transform(X), encoder.transform(X))
    assert equal_weights(again.encoder_, encoder.encoder_)
    assert again.history_ == encoder.history_
    if kind == "labels":
        assert again.encoder_.classify(X) == encoder.encoder_.classify(X)
    assert np.array_equal(encoder.transform(X), again.fit(X, y).transform(X))  # it goes on as an estimator


def test_what_is_not_fitted_is_pickled() -> None:
    parameters = quick(views={"noise": 0.1}, settings={"optim": {"name": "sgd"}})
    again = pickle.loads(pickle.dumps(parameters))
    assert again.get_params() == parameters.get_params()
    with pytest.raises(NotFittedError):
        check_is_fitted(again)


def test_no_folder_stays_without_out(vectors: Vectors, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    encoder = quick().fit(vectors[0])
    assert encoder.run_ is None
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ValueError, match="batch_size"):
        quick(batch_size=64).fit(vectors[0])
    assert list(tmp_path.iterdir()) == []


def test_out_keeps_the_run(vectors: Vectors, tmp_path: Path) -> None:
    encoder = quick(out=str(tmp_path / "run")).fit(vectors[0])
    assert encoder.run_ == cp.Run(tmp_path / "run")
    assert run_of(encoder).data is None  # samples do not travel with an estimator
    assert equal_weights(encoder.encoder_, cp.load(run_of(encoder)))
    with pytest.raises(cp.RunError, match="--overwrite"):
        encoder.fit(vectors[0])


def test_it_is_silent_unless_asked(vectors: Vectors, capfd: pytest.CaptureFixture[str]) -> None:
    quick().fit_transform(vectors[0])
    assert capfd.readouterr() == ("", "")
    quick(verbose=1).fit(vectors[0])
    assert "epoch 1/1" in capfd.readouterr().err


def test_an_interrupt_is_pythons_own_unless_the_run_is_kept(
    vectors: Vectors, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stopped(*_: Any, **__: Any) -> None:
        raise InterruptedRunError("stopped; resume it", exit_code=130)

    monkeypatch.setattr(contrastive_encoder, "train", stopped)
    # Not an Exception: a search over parameters would note it as one more failed fit, and go on.
    with pytest.raises(KeyboardInterrupt):
        quick().fit(vectors[0])
    with pytest.raises(InterruptedRunError, match="resume it"):
        quick(out=tmp_path / "run").fit(vectors[0])
