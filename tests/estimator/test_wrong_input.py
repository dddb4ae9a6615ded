"""What cannot be used is refused in one sentence, in our words for parameters and in scikit-learn's for data."""

from typing import Any

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array
from sklearn.exceptions import NotFittedError

from counterpoint import ContrastiveEncoder
from counterpoint.core.errors import CounterpointError
from counterpoint.estimator.contrastive_encoder import train_arguments

PARAMETERS: list[tuple[dict[str, Any], str]] = [
    ({"method": "simcrl"}, "'simclr'"),
    ({"method": "cross-modal"}, "cross-modal"),
    ({"encoder": "mlpp"}, "'mlp'"),
    ({"encoder": 3}, "encoder must be a name, got int"),
    ({"layer": "embeding"}, "'embedding'"),
    ({"epochs": 0}, "epochs"),
    ({"batch_size": 64}, "batch_size"),
    ({"temperature": np.array([1.0, 2.0])}, "temperature"),
    ({"learning_rate": "fast"}, "optim.learning_rate"),
    ({"views": "vectrs"}, "'vectors'"),
    ({"views": {"nois": 1}}, "'views.noise'"),
    ({"device": "tpu"}, "engine.device"),
    ({"random_state": -1}, "random_state"),
    ({"verbose": -1}, "verbose"),
    ({"out": 3}, "out must be the path of a folder"),
    ({"settings": [1]}, "settings must be a mapping"),
    ({"settings": {"optimm": {}}}, "'optim'"),
    ({"settings": {"recipe": "ncl"}}, "settings cannot hold recipe, which belongs to cp.train"),
    ({"settings": {"optim.learning_rate": 1.0}}, "which is the parameter learning_rate"),
    ({"settings": {"optim": {"momentum": 0.5}}}, "momentum"),
    ({"settings": {"loss": {"name": "supcon"}}}, "supcon"),
    ({"method": "supervised"}, "requires y to be passed"),
]
DATA: dict[str, tuple[Any, str]] = {
    "sparse": (csr_array(np.eye(5)), "Sparse data was passed"),
    "nan": (np.full((5, 2), np.nan), "Input X contains NaN"),
    "text": (np.array([["a", "b"]] * 5), "could not convert string to float"),
    "few": (np.zeros((3, 2)), "3 sample(s) (shape=(3, 2)) while a minimum of 4 is required"),
    "one axis": (np.zeros(5), "Expected 2D array, got 1D array"),
    "ragged": ([[1.0, 2.0], [3.0]], "inhomogeneous"),
    "no image": (np.zeros((5, 8, 8, 7)), "1 or 3 channels"),
    "one image": (np.zeros((8, 8, 3)), "one picture"),
    "range": (np.full((5, 8, 8), 2.0), "[0, 1]"),
    "sparse tensor": (torch.eye(5).to_sparse(), "dense"),
    "tensor on meta": (torch.eye(5, device="meta"), "meta"),
    "complex tensor": (torch.ones(5, 2, dtype=torch.complex64).conj(), "Complex data not supported"),
}


LABELS: dict[str, tuple[np.ndarray, str]] = {
    "continuous": (np.linspace(0, 1, 20), "Unknown label type: continuous"),
    "short": (np.zeros(5, int), "inconsistent numbers of samples"),
    "one class": (np.zeros(20, int), "num_classes"),
}


def refusal(samples: Any, labels: Any = None, **parameters: Any) -> str:
    """What ``fit`` says; nothing is fitted."""
    encoder = ContrastiveEncoder(**{"epochs": 1, **parameters})
    with pytest.raises((ValueError, TypeError)) as found:
        encoder.fit(samples, labels)
    assert not hasattr(encoder, "encoder_")
    return str(found.value)


@pytest.mark.parametrize(("parameters", "words"), PARAMETERS, ids=lambda value: str(value)[:50])
def test_parameters(parameters: dict[str, Any], words: str, rng: np.random.Generator) -> None:
    message = refusal(rng.normal(size=(20, 3)), **parameters)
    assert words in message
    assert "\n" not in message


@pytest.mark.parametrize("name", DATA)
def test_data(name: str) -> None:
    samples, words = DATA[name]
    assert words in refusal(samples)


@pytest.mark.parametrize("name", LABELS)
def test_labels(name: str, rng: np.random.Generator) -> None:
    labels, words = LABELS[name]
    assert words in refusal(rng.normal(size=(20, 3)), labels, method="supervised")


def test_images_without_labels_are_refused_where_they_are_needed() -> None:
    assert "learns from labels; give them as y" in refusal(np.zeros((20, 8, 8)), method="supervised")


def test_transform_takes_what_fit_was_given(rng: np.random.Generator) -> None:
    X, images = rng.normal(size=(20, 3)), rng.random((8, 8, 8, 3))
    encoder = ContrastiveEncoder(epochs=1)
    with pytest.raises(NotFittedError, match="not fitted yet"):
        encoder.transform(X)
    encoder.fit(X)
    with pytest.raises(ValueError, match="X has 2 features, but ContrastiveEncoder is expecting 3"):
        encoder.transform(X[:, :2])
    with pytest.raises(ValueError, match="dim 4"):
        encoder.transform(images)
    with pytest.raises(ValueError, match="unknown layer"):
        encoder.set_params(layer="projector").transform(X)
    encoder.set_params(layer="embedding").fit(images)
    for other in (X, images[:, :4], images[..., 0]):
        with pytest.raises(ValueError, match=r"but ContrastiveEncoder was fitted with \(8, 8, 3\)"):
            encoder.transform(other)


@pytest.mark.parametrize("shape", [(20, 3), (8, 8, 8)], ids=["vectors", "images"])
def test_tensors_are_the_arrays_that_they_hold(shape: tuple[int, ...]) -> None:
    X = torch.rand(shape, generator=torch.Generator().manual_seed(0))
    expected = ContrastiveEncoder(epochs=1, random_state=0).fit_transform(X.numpy())
    tracked = X.clone().requires_grad_()
    for given in (tracked, list(tracked)):
        found = ContrastiveEncoder(epochs=1, random_state=0).fit(given).transform(given)
        np.testing.assert_array_equal(found, expected)
    assert ContrastiveEncoder(epochs=1, random_state=0).fit_transform(X.bfloat16()).shape == expected.shape


def test_several_ranks_are_sent_to_train(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    launcher = {"RANK": 0, "LOCAL_RANK": 0, "WORLD_SIZE": 2, "MASTER_ADDR": "localhost", "MASTER_PORT": 29500}
    for name, value in {**launcher, "LOCAL_WORLD_SIZE": 2}.items():
        monkeypatch.setenv(name, str(value))
    with pytest.raises(CounterpointError, match=r"several ranks train with cp\.train"):
        ContrastiveEncoder(epochs=1).fit(rng.normal(size=(20, 3)))


def test_numbers_of_numpy_are_numbers() -> None:
    given = {
        "temperature": np.float32(0.5),
        "epochs": np.int64(3),
        "settings": {"optim": {"momentum": np.float64(0.5)}},
    }
    found = train_arguments(given, 0)
    assert found == {"optim": {"momentum": 0.5}, "epochs": 3, "temperature": 0.5, "seed": 0}
    assert [type(found[name]) for name in ("epochs", "temperature")] == [int, float]
