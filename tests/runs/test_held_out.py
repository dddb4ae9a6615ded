"""Held-out samples beside training samples: copies in both parts are counted, fresh data has none."""

from pathlib import Path

import numpy as np
import pytest

import counterpoint as cp
from counterpoint.diagnostics.findings import Findings


def diagnosed(x: np.ndarray, folder: Path, **asked: object) -> Findings:
    settings = {"source": {"holdout": 0.2}, **asked}
    run = cp.train(x, epochs=1, batch_size=32, out=str(folder / "run"), quiet=True, **settings)
    return cp.diagnose(run, quiet=True)


def draw(n: int) -> np.ndarray:
    return np.random.default_rng(0).normal(size=(n, 8)).astype(np.float32)


def test_copies_of_training_samples_among_the_held_out_are_found(tmp_path: Path) -> None:
    found = diagnosed(np.tile(draw(150), (2, 1)), tmp_path)
    record = found.held_out
    assert record is not None
    assert record.num_held_out == 60
    assert record.num_copies is not None
    # A held-out sample's twin is held out, too, in about a fifth of the cases.
    assert 35 <= record.num_copies <= 60
    (leak,) = (finding for finding in found.findings if finding.name == "leakage")
    assert leak.level == "warning"
    assert leak.measured is not None
    assert leak.low is not None
    assert leak.high is not None
    assert leak.low < leak.measured < leak.high


@pytest.mark.thorough
def test_fresh_samples_have_no_copies_and_one_table_of_equal_sizes(tmp_path: Path) -> None:
    found = diagnosed(draw(300), tmp_path)
    record = found.held_out
    assert record is not None
    assert (record.num_copies, record.num_same_features) == (0, 0)
    assert {part.num_samples for part in record.parts.values()} == {60}
    assert record.gap is not None
    assert record.low is not None
    assert record.high is not None
    assert record.low < record.gap < record.high
    assert not {"leakage", "held-out"} & {finding.name for finding in found.findings}


@pytest.mark.thorough
def test_where_nothing_was_held_out_there_is_nothing_to_set_apart(tmp_path: Path) -> None:
    assert diagnosed(draw(100), tmp_path, source={"holdout": 0.0}).held_out is None


def test_features_from_anywhere_have_no_parts() -> None:
    assert cp.diagnose(draw(100)).held_out is None
