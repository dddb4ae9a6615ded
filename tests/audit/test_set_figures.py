"""The figures of an audit against oracles: sample sizes by simulation."""

import numpy as np
import pytest
import torch

from counterpoint.audit.audited_data import AuditedData, Share
from counterpoint.audit.auditing import DISAGREEMENT, half_width, precision_of, smallest_difference
from counterpoint.audit.vector_checks import vector_evidence
from counterpoint.core.paired_shares import Z_95


def test_the_half_width_is_that_of_the_score_interval() -> None:
    # Wilson's interval solves (p - 1/2)^2 = z^2 p (1 - p) / n.
    for number in (10, 123, 4000):
        p = 0.5 + half_width(number)
        assert (p - 0.5) ** 2 == pytest.approx(Z_95**2 * p * (1 - p) / number, rel=1e-9)


def test_the_smallest_difference_is_found_in_eight_of_ten_cases(rng: np.random.Generator) -> None:
    number, trials = 1000, 4000
    difference = smallest_difference(number)
    shares = ((DISAGREEMENT + difference) / 2, (DISAGREEMENT - difference) / 2, 1 - DISAGREEMENT)
    only_first, only_second, _ = rng.multinomial(number, shares, trials).T
    statistic = np.abs(only_first - only_second) / np.sqrt(np.maximum(only_first + only_second, 1))
    power = float((statistic > Z_95).mean())
    assert power == pytest.approx(0.8, abs=0.03)


def precision_with(train: list[int], test: list[int]) -> tuple[float | None, float | None] | None:
    """Queries, and those of the smallest class, of vectors in two parts with these classes."""
    parts = (("train", train), ("test", test))
    shares = tuple(Share(name, torch.rand(len(part), 2), tuple(map(str, part))) for name, part in parts)
    collection = AuditedData("vectors", shares, np.array([*train, *test], int), ("a", "b"))
    found = precision_of(vector_evidence(collection))
    return None if found is None else (found.num_queries, found.smallest_class)


def test_precision_takes_the_test_part_where_there_is_one() -> None:
    labels = [0] * 50 + [1] * 100 + [-1] * 30
    assert precision_with(labels, []) == (30, 10)
    assert precision_with(labels[:40] + labels[90:], labels[40:90]) == (50, 10)
    assert precision_with(labels, [-1]) == (0, None)
    assert precision_with([-1], []) is None
