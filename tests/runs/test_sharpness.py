"""Curvature against the learning rate of a run: which state counts, and where nothing is known."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import counterpoint as cp
from counterpoint.core.errors import RunError
from counterpoint.core.files import read_sealed, write_sealed
from counterpoint.evaluation.trained_run import read_resolved
from counterpoint.runs.curvature_record import HessianSpectrum, run_sharpness, sharpest

DATA = np.random.default_rng(0).normal(size=(60, 5)).astype(np.float32)


def train(out: Path, **settings: Any) -> cp.Run:
    asked = {"epochs": 3, "batch_size": 16, "projector": {"features": 3}, "engine": {"keep": 5}, **settings}
    return cp.train(DATA, out=str(out), quiet=True, **asked)


def spectrum(run: cp.Run, **settings: Any) -> HessianSpectrum:
    return cp.hessian_spectrum(run, quiet=True, batch_size=20, **{"steps": 30, **settings})


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> cp.Run:
    made = train(tmp_path_factory.mktemp("sharp") / "run", optim={"name": "sgd", "learning_rate": 0.5})
    spectrum(made, checkpoint="all")
    return made


def test_it_is_the_largest_product_over_the_states(run: cp.Run) -> None:
    found = run_sharpness(run.folder, read_resolved(run.folder))
    assert found is not None
    written = read_sealed(run.folder.spectrum)
    rates = {record["step"]: record["learning_rate"] for record in run.metrics}
    first = min(rates)
    products = {
        state["step"]: (state["largest"][0]["value"] - state["noise"]) * rates.get(state["step"], rates[first])
        for state in written["states"]
    }
    assert len(products) >= 3
    assert found.product == pytest.approx(max(products.values()))
    assert products[found.step] == pytest.approx(found.product)
    assert (found.momentum, found.limit, found.peak) == (0.9, 3.8, 0.5)


@pytest.mark.thorough
def test_the_spectrum_is_read_as_it_was_written(run: cp.Run) -> None:
    again = HessianSpectrum.from_dict(read_sealed(run.folder.spectrum), "spectrum.json")
    assert again.to_dict() == {**spectrum(run, checkpoint="all").to_dict()}


def test_diagnose_says_it_and_asks_for_a_rate_below_the_limit(tmp_path: Path) -> None:
    hot = train(tmp_path / "hot", optim={"name": "sgd", "learning_rate": 0.5})
    spectrum(hot)
    written = read_sealed(hot.folder.spectrum)
    written.pop("sha256", None)
    written["states"][-1]["largest"][0]["value"] = 1e6
    write_sealed(hot.folder.spectrum, written)
    findings = cp.diagnose(cp.Run(hot.path, data=DATA), quiet=True).findings
    (found,) = [each for each in findings if each.name == "sharpness"]
    assert found.level == "warning"
    assert found.changes["optim.learning_rate"] < 0.5


@pytest.mark.parametrize("optim", [{"name": "adamw"}, {"name": "lars"}], ids=str)
def test_other_optimisers_have_no_known_limit(optim: dict[str, Any], tmp_path: Path) -> None:
    other = train(tmp_path / "run", optim=optim)
    spectrum(other, steps=3)
    assert run_sharpness(other.folder, read_resolved(other.folder)) is None


@pytest.mark.thorough
def test_without_a_spectrum_nothing_is_known(run: cp.Run, tmp_path: Path) -> None:
    plain = train(tmp_path / "run", optim={"name": "sgd"})
    assert run_sharpness(plain.folder, read_resolved(plain.folder)) is None
    assert sharpest(spectrum(run, checkpoint="all"), [], momentum=0.9, peak=0.1) is None


def test_a_record_of_another_kind_is_an_error_with_its_remedy() -> None:
    with pytest.raises(RunError, match=r"spectrum\.json: .*counterpoint spectrum.* writes it again"):
        HessianSpectrum.from_dict({"name": "x", "states": []}, "spectrum.json")
