"""Encoders ranked without labels: common views, faults last, differences in pairs, and what is refused."""

import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_digits

import counterpoint as cp
from counterpoint.core.errors import CounterpointError, RunError, UsageError
from counterpoint.runs.selection import FIGURES, RANKERS

QUICK = {"encoder": "convnet", "method": "simclr", "batch_size": 32, "quiet": True}


@pytest.fixture(scope="module")
def pictures() -> np.ndarray:
    """Digits of 16 pixels a side."""
    return np.kron(load_digits(return_X_y=True)[0][:200].reshape(-1, 8, 8), np.ones((2, 2))).astype(np.uint8) * 15


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory, pictures: np.ndarray) -> dict[str, cp.Run]:
    """A usual training, one that hardly moved, and one of views that change nothing."""
    folder = tmp_path_factory.mktemp("selection")
    asked: dict[str, dict[str, Any]] = {
        "usual": {"engine": {"keep": 5, "checkpoint_every": 1}, "epochs": 4},
        "untrained": {"optim": {"learning_rate": 1e-9}, "epochs": 1},
        "same-views": {"views": {"preset": "none"}, "epochs": 4},
    }
    return {name: cp.train(pictures, out=str(folder / name), **QUICK, **own) for name, own in asked.items()}


def test_faults_stand_last(runs: dict[str, cp.Run]) -> None:
    found = cp.select([runs["untrained"], runs["usual"]], quiet=True)
    assert [each.name for each in found.candidates] == ["usual", "untrained"]
    assert "hardly changed" in found.candidates[1].faults[0]
    assert found.undecided == ()
    assert "usual" in found.verdict


def test_all_see_the_same_views(runs: dict[str, cp.Run]) -> None:
    """With its own views, which change nothing, an encoder would have an overlap of 1."""
    found = cp.select([runs["usual"], runs["same-views"]], quiet=True)
    overlaps = {each.name: each.figures["overlap of representation"] for each in found.candidates}
    assert overlaps["same-views"] < 1
    first, second = found.candidates
    assert first.behind == 0
    key = "score of representation"
    assert second.behind == pytest.approx(first.figures[key] - second.figures[key])
    assert second.low <= second.behind <= second.high


def test_copies_are_not_told_apart(runs: dict[str, cp.Run], tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    subprocess.run(["cp", "-r", str(runs["usual"].path), str(copy)], check=True)
    found = cp.select([runs["usual"], cp.Run(copy, data=runs["usual"].data)], quiet=True)
    assert found.undecided == (found.candidates[1].name,)
    assert "Cannot tell" in found.verdict


def test_order_of_the_runs_does_not_matter(runs: dict[str, cp.Run]) -> None:
    both = [runs["usual"], runs["same-views"]]
    assert cp.select(both, quiet=True).to_dict() == cp.select(both[::-1], quiet=True).to_dict()


def test_labels_change_nothing(runs: dict[str, cp.Run], pictures: np.ndarray) -> None:
    both, labels = [runs["usual"].path, runs["same-views"].path], np.arange(200) % 4
    plain, labelled = (cp.select(both, data=pictures, labels=each, quiet=True) for each in (None, labels))
    assert plain.candidates == labelled.candidates


def test_checkpoints_of_one_run_are_ranked(runs: dict[str, cp.Run]) -> None:
    found = cp.select([runs["usual"]], checkpoint="all", quiet=True)
    names = sorted(each.name for each in found.candidates)
    assert len(names) == 5  # before the first step, and after each epoch
    assert all(name.startswith("usual@") for name in names)
    chosen = [f"{runs['usual'].path}@{name.partition('@')[2]}" for name in names[:2]]
    two = cp.select(chosen, data=runs["usual"].data, quiet=True)
    known = {each.name: each.figures for each in found.candidates}
    assert all(each.figures == known[each.name] for each in two.candidates)


def test_each_figure_has_its_correlation(runs: dict[str, cp.Run]) -> None:
    found = cp.select([runs["usual"], runs["same-views"]], quiet=True)
    assert {each.name for each in RANKERS} == set(FIGURES)
    assert set(found.candidates[0].figures) == {each.key for each in RANKERS}
    for value, low, high in (ends for each in RANKERS for ends in (each.probe, each.knn)):
        assert -1 <= low <= value <= high <= 1
    assert "overlap of representation" in " ".join(str(found).split())


def test_refusals(runs: dict[str, cp.Run], pictures: np.ndarray, tmp_path: Path) -> None:
    usual = runs["usual"]
    table = cp.train(np.random.default_rng(0).normal(size=(200, 8)), out=str(tmp_path / "t"), epochs=1, quiet=True)
    other = cp.train(pictures[::-1].copy(), out=str(tmp_path / "other"), epochs=1, **QUICK)
    np.save(tmp_path / "z.npy", np.ones((30, 3)))
    bad: list[tuple[list[Any], dict[str, Any], type[CounterpointError], str]] = [
        ([usual], {}, UsageError, "at least two"),
        ([usual, usual], {}, UsageError, "twice"),
        ([usual, table], {}, UsageError, "different samples"),
        ([usual, other], {}, UsageError, "different samples"),
        ([usual, str(tmp_path / "z.npy")], {}, UsageError, "features"),
        ([usual, tmp_path / "none"], {}, RunError, "none"),
        ([usual, runs["same-views"]], {"checkpoint": "99999"}, UsageError, "not kept"),
        ([f"{usual.path}@99999", usual], {"data": pictures}, UsageError, "not kept"),
    ]
    for given, settings, error, words in bad:
        with pytest.raises(error, match=words):
            cp.select(given, quiet=True, **settings)
    few = [usual.path, runs["same-views"].path]
    with pytest.raises(UsageError, match="at least 20"):
        cp.select(few, data=pictures[:8], quiet=True)


def test_verb_prints_json_and_refuses_in_one_line(
    runs: dict[str, cp.Run], pictures: np.ndarray, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from counterpoint.cli.main import main

    np.save(tmp_path / "x.npy", pictures)
    words = ["select", str(runs["usual"].path), str(runs["same-views"].path), "--data", str(tmp_path / "x.npy"), "-q"]
    assert main(words) in (0, None)
    assert "same-views" in capsys.readouterr().out
    assert main([*words, "--json"]) in (0, None)
    assert '"undecided"' in capsys.readouterr().out
    assert main(["select", str(runs["usual"].path), "--data", str(tmp_path / "x.npy"), "-q"]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1
