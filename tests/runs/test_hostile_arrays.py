"""Whatever tensor a verb of Python is given as samples, labels or proportions: a result, or one sentence of ours."""

import traceback
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import counterpoint as cp
from campaign.tensors import FAIR, MAKERS
from counterpoint.core.array_layout import to_samples
from counterpoint.data.formats.labels import number_labels
from counterpoint.theory import class_risk, optimal_geometry, phase_diagram

ROWS, FEATURES = 24, 5
VECTORS = np.random.default_rng(0).normal(size=(ROWS, FEATURES)).astype(np.float32)
TAKERS: dict[str, Callable[[Callable[[int, int], Tensor]], Any]] = {
    "features": lambda make: cp.diagnose(make(ROWS, FEATURES), quiet=True),
    "views": lambda make: cp.diagnose(VECTORS, views=make(ROWS, FEATURES), quiet=True),
    "samples": lambda make: to_samples(make(ROWS, FEATURES)),
    "labels": lambda make: number_labels(make(ROWS, 1), ROWS),
    "threshold": lambda make: cp.diagnose(VECTORS, threshold=make(1, 1), quiet=True),  # pyright: ignore[reportArgumentType]
    "proportions": lambda make: optimal_geometry(make(3, 1)),
    "gram": lambda make: class_risk([0.5, 0.25, 0.25]).value(make(3, 3)),
    "shares": lambda make: phase_diagram(make(3, 1), [1.0], [1.0], num_classes=3),
}


@pytest.mark.parametrize("kind", MAKERS)
@pytest.mark.parametrize("taker", TAKERS)
@pytest.mark.sampled(20)
def test_a_tensor_is_taken_or_refused_in_one_sentence(taker: str, kind: str) -> None:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        try:
            TAKERS[taker](MAKERS[kind])
        except (TypeError, ValueError) as error:
            assert "counterpoint" in traceback.extract_tb(error.__traceback__)[-1].filename, error
            assert "\n" not in str(error)
            assert kind not in FAIR or taker not in ("features", "views", "samples"), error


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        (np.array([[1.0, 1.0], [0.0, -1e300]]), "sample 1 holds -1e+300; scale the values down"),
        (torch.tensor([[1.0], [1e-300]], dtype=torch.float64), "sample 1 holds 1e-300; scale the values up"),
        (np.array([[1.0, 2.0], [1.0, np.inf]]), "sample 1 holds NaN or infinity in torch.float32"),
        (np.full((3, 2), np.nan), "every sample holds NaN or infinity in torch.float32"),
        (
            np.array([[1.0, np.inf], [2.0, np.nan]]),
            "every sample holds NaN or infinity in torch.float32; columns (from 0) without a finite number: 1; leave",
        ),
    ],
    ids=str,
)
def test_what_is_said_of_a_number_is_true(values: Any, sentence: str) -> None:
    with pytest.raises(cp.DataError) as caught:
        to_samples(values, "vectors")
    assert sentence in str(caught.value)


def test_small_numbers_beside_ordinary_ones_and_zeros_are_taken() -> None:
    values = np.array([[1.0, 1e-320, -0.0], [0.0, 0.0, -0.0]])
    assert to_samples(values).tolist() == [[1.0, 0.0, 0.0], [0.0, 0.0, 0.0]]


def test_labels_too_large_to_be_whole_numbers_are_not_taken_for_one_class() -> None:
    with pytest.raises(cp.DataError, match="labels must be whole numbers or text"):
        number_labels(np.array([1e300, 2e300]), 2)
