"""Votes of a diagnosis: pictures are asked with and without their colours, which may be what tells the classes."""

from pathlib import Path

import numpy as np
import pytest

import counterpoint as cp
from counterpoint.core.settings import LookSettings
from counterpoint.diagnostics.concepts import SPARSITY_THRESHOLD
from counterpoint.diagnostics.evidence import GREY_INPUT, RAW_INPUT, Evidence
from counterpoint.engine.progress import Reporter
from counterpoint.evaluation.load_subject import Samples, open_subject
from counterpoint.runs.run_evidence import gather_evidence

# One grey level, 100, in three colours.
TINTS = np.array([[180, 60, 60], [60, 180, 60], [60, 60, 180]])


def evidence_of(pictures: np.ndarray, labels: np.ndarray, folder: Path) -> Evidence:
    settings = {"epochs": 1, "batch_size": 30, "encoder": "convnet", "source": {"holdout": 0.4}}
    run = cp.train(pictures, labels=labels, out=str(folder), quiet=True, **settings)
    judged = open_subject(run, Samples(), LookSettings(), Reporter(quiet=True))
    return gather_evidence(judged, SPARSITY_THRESHOLD, cache=False).evidence


@pytest.mark.parametrize("is_tinted", [True, False], ids=["classes by colour", "classes by pattern"])
def test_colours_tell_the_classes_where_grey_pictures_do_not(is_tinted: bool, tmp_path: Path) -> None:
    draws, labels = np.random.default_rng(0), np.arange(150) % 3
    patterns = draws.integers(60, 180, (3, 8, 8, 1)).repeat(3, axis=3)
    base = TINTS[labels][:, None, None, :] if is_tinted else patterns[labels]
    noise = draws.integers(-30, 31, (150, 8, 8, 1))  # the same in all channels
    pictures = (base + noise).astype(np.uint8)
    known = evidence_of(pictures, labels, tmp_path / "run")
    raw, grey = known.vote_of(RAW_INPUT), known.vote_of(GREY_INPUT)
    assert raw is not None
    assert grey is not None
    assert raw.accuracy == 1.0
    assert (grey.accuracy == 1.0) != is_tinted
    assert known.is_in_colour == is_tinted


def test_grey_pictures_have_no_colours_to_leave_out(tmp_path: Path) -> None:
    draws, labels = np.random.default_rng(0), np.arange(90) % 3
    known = evidence_of(draws.integers(0, 256, (90, 8, 8), dtype=np.uint8), labels, tmp_path / "run")
    assert known.vote_of(RAW_INPUT) is not None
    assert known.vote_of(GREY_INPUT) is None


def test_an_evaluation_of_samples_that_have_changed_since_has_no_vote(tmp_path: Path) -> None:
    data, file = np.random.default_rng(0).normal(size=(80, 4)).astype("float32"), tmp_path / "samples.npz"
    labels = np.arange(80) % 2
    np.savez(file, x=data, labels=labels)
    run = cp.train(str(file), out=tmp_path / "run", epochs=1, batch_size=16, quiet=True)
    cp.evaluate(run, quiet=True)
    np.savez(file, x=data[::-1] + 5 * labels[:, None], labels=labels)
    stale = cp.diagnose(run, quiet=True)
    (tmp_path / "run" / "evaluation.json").unlink()
    assert [each.title for each in stale.findings] == [each.title for each in cp.diagnose(run, quiet=True).findings]
