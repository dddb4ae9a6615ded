"""The error under corruptions: a plain mean, and an interval that holds the truth as often as it says."""

import numpy as np
import torch

from counterpoint.evaluation.class_accuracy import corruption_error
from counterpoint.evaluation.metric_types import Score, accuracy


def scores(is_right_QK: np.ndarray) -> list[Score]:
    return [accuracy(torch.from_numpy(each.astype(int)), torch.ones(len(each)).long(), {}) for each in is_right_QK.T]


def test_the_error_is_a_mean_within_its_interval() -> None:
    is_right = np.random.default_rng(0).random((200, 6)) < [0.9, 0.8, 0.7, 0.6, 0.5, 0.4]
    found = corruption_error(scores(is_right))
    assert abs(found.value - (1 - is_right.mean())) < 1e-12
    assert found.low is not None
    assert found.high is not None
    # Conditions are independent here, so that the error's deviation is that of a mean over queries.
    half = 1.96 * is_right.mean(axis=1).std() / 200**0.5
    assert abs((found.high - found.low) / 2 - half) < 0.1 * half
    assert corruption_error(scores(is_right)) == found


def test_no_error_and_only_errors_have_no_width() -> None:
    for value in (0.0, 1.0):
        found = corruption_error(scores(np.full((20, 3), value == 0.0)))
        assert (found.value, found.low, found.high) == (value, value, value)
