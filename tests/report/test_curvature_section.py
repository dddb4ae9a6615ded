"""The section on curvature: words, both charts, brackets in the numbers; absent where nobody took a spectrum."""

from pathlib import Path
from typing import Any

import pytest
from run_folders import sparse_embedding, toy_samples, write_run

from counterpoint.core.errors import RunError
from counterpoint.core.files import write_sealed
from counterpoint.report.page import render
from counterpoint.report.run_reading import read_run
from counterpoint.report.sections.curvature_section import curvature_words


def mass(low: int, high: int, at_least: int) -> dict[str, Any]:
    return {"share": {"low": 0.0, "high": 1.0}, "count": [low, high], "at_least": at_least}


def state(step: int, least: float, largest: float, *, symmetry: float = 1e-12) -> dict[str, Any]:
    masses = {"below": mass(3, 40, 2), "within": mass(900, 990, 0), "above": mass(5, 5, 5)}
    certificates = [
        {"name": "symmetry", "defect": symmetry, "limit": 1e-10, "words": "u'Hv = v'Hu"},
        {"name": "scale", "defect": None, "limit": 1e-10, "words": "no"},
    ]
    return {
        "step": step, "value": 2.5, "gradient_norm": 0.25, "masses": masses, "signs": masses,
        "largest": [{"value": largest, "error": 0.1}], "smallest": [{"value": least, "error": 0.2}],
        "trace": {"value": 12.0, "error": 1.0},
        "ritz_values": [[least, 0.0, largest]], "ritz_weights": [[0.01, 0.98, 0.01]], "noise": 1e-9,
        "orthogonality": 1e-15, "is_exhausted": False, "certificates": certificates,
    }  # fmt: skip


def spectrum(*states: dict[str, Any]) -> dict[str, Any]:
    settings = {"threshold": 1.0, "probes": 1, "batch_size": 20, "weights": "weights of the last update"}
    return {
        "name": "run", "num_parameters": 1000, "loss": "InfoNCE", "floor": None, "settings": settings,
        "remarks": [], "states": list(states),
    }  # fmt: skip


def folder(path: Path, *states: dict[str, Any]) -> Path:
    samples = toy_samples()
    made = write_run(path, samples, sparse_embedding(samples))
    if states:
        write_sealed(made / "spectrum.json", spectrum(*states))
    return made


def words_of(path: Path) -> str:
    return curvature_words(read_run(path, name="run", order=0))


def test_the_words_say_what_curves_which_way_with_brackets(tmp_path: Path) -> None:
    words = words_of(folder(tmp_path / "run", state(10, -3.0, 50.0)))
    assert "Of 1,000 directions" in words
    assert "3 to 40 curve down by more than 1, 900 to 990 are flat within 1, 5 curve up" in words
    assert "certain: 2 down, 5 up" in words
    assert "no local minimum" in words
    assert "1 certificate" in words


def test_without_negative_curvature_nothing_is_claimed(tmp_path: Path) -> None:
    words = words_of(folder(tmp_path / "run", state(10, 0.0, 50.0)))
    assert "does not prove that there is none" in words
    assert "local minimum" not in words


def test_a_failed_certificate_is_said(tmp_path: Path) -> None:
    words = words_of(folder(tmp_path / "run", state(10, -3.0, 50.0, symmetry=1e-3)))
    assert "Certificates failed (symmetry): do not trust" in words


def test_the_page_has_the_section_or_not_at_all(tmp_path: Path) -> None:
    with_it = folder(tmp_path / "with", state(0, -9.0, 20.0), state(50, -3.0, 50.0))
    page = render([read_run(with_it, name="with", order=0)])
    assert 'id="curvature"' in page
    assert 'href="#curvature"' in page
    assert "Ends of the spectrum of with" in page
    assert "900 to 990" in page
    assert "50 ± 0.1" in page
    without = folder(tmp_path / "without")
    bare = render([read_run(without, name="without", order=0)])
    assert "curvature" not in bare
    both = render([read_run(with_it, name="with", order=0), read_run(without, name="without", order=1)])
    assert "Ends of the spectrum of with" in both


def test_a_damaged_record_is_told_with_its_remedy(tmp_path: Path) -> None:
    broken = folder(tmp_path / "run")
    write_sealed(broken / "spectrum.json", {"name": "run", "states": [{"step": 3}]})
    with pytest.raises(RunError, match=r"spectrum\.json"):
        read_run(broken, name="run", order=0)
