"""Encoders ranked without labels: common views, faults last, differences in pairs, and what is refused."""

import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from sklearn.linear_model import Ridge

import counterpoint as cp
from counterpoint.core.errors import CounterpointError, RunError, UsageError
from counterpoint.engine.progress import Reporter
from counterpoint.runs.selection import IDENTIFIED, LABELLED, PARTICIPATION

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
    assert all(found.likely_best(each) == ("usual",) for each in found.rankers)
    assert "usual" in found.verdict


def test_all_see_the_same_views(runs: dict[str, cp.Run]) -> None:
    """With its own views, which change nothing, an encoder would identify every sample."""
    found = cp.select([runs["usual"], runs["same-views"]], quiet=True)
    gaps = {each.name: each.figures[IDENTIFIED.name] for each in found.candidates}
    assert 0 < gaps["same-views"].value < 0.9
    assert min(gap.behind for gap in gaps.values()) == 0
    first, second = sorted(gaps.values(), key=lambda gap: gap.behind)
    assert second.behind == pytest.approx(first.value - second.value)
    assert second.low <= second.behind <= second.high


def test_figures_are_those_of_the_representation(runs: dict[str, cp.Run]) -> None:
    """By a classifier and an eigendecomposition of their own."""
    from counterpoint.evaluation.features import extract, view_pairs
    from counterpoint.evaluation.load_subject import LookSettings, Samples, open_subject

    found = cp.select([runs["usual"], runs["same-views"]], quiet=True)
    subject = open_subject(runs["usual"], Samples(), LookSettings(), Reporter(quiet=True))
    z = extract(subject.encoder, subject.source).representation.double().numpy()
    usual = replace(subject, settings=None, own_views=None)
    views = view_pairs(usual, subject.encoder, ["representation"], torch.arange(len(z)))["representation"]
    scaled = (z - z.mean(0)) / np.sqrt(((z - z.mean(0)) ** 2).mean() * z.shape[1])
    classifier = Ridge(alpha=0.01, fit_intercept=False).fit(scaled, np.eye(len(z)))
    hits = [
        classifier.predict((view.double().numpy() - z.mean(0)) / np.sqrt(((z - z.mean(0)) ** 2).mean() * z.shape[1]))
        for view in views
    ]
    share = np.mean([each.argmax(1) == np.arange(len(z)) for each in hits])
    (own,) = [each.figures for each in found.candidates if each.name == "usual"]
    assert own[IDENTIFIED.name].value == pytest.approx(share, abs=1e-3)
    rows = z / np.linalg.norm(z, axis=1, keepdims=True)
    values = np.linalg.eigvalsh(np.cov(rows.T))
    assert own[PARTICIPATION.name].value == pytest.approx(values.sum() ** 2 / (values**2).sum(), rel=1e-4)


def test_copies_are_not_told_apart(runs: dict[str, cp.Run], tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    subprocess.run(["cp", "-r", str(runs["usual"].path), str(copy)], check=True)
    found = cp.select([runs["usual"], cp.Run(copy, data=runs["usual"].data)], quiet=True)
    assert all(len(found.likely_best(each)) == 2 for each in found.rankers)
    assert "cannot tell" in found.verdict


@pytest.mark.thorough
def test_order_of_the_runs_does_not_matter(runs: dict[str, cp.Run]) -> None:
    both = [runs["usual"], runs["same-views"]]
    assert cp.select(both, quiet=True).to_dict() == cp.select(both[::-1], quiet=True).to_dict()


def test_labels_decide_where_they_are_given(runs: dict[str, cp.Run], pictures: np.ndarray) -> None:
    """Those that the data bring are not looked at; of some samples they are, and of the others they are missing."""
    both, digits = [runs["usual"].path, runs["same-views"].path], load_digits(return_X_y=True)[1][:200]
    some = np.where(np.arange(200) < 120, digits, -1)
    plain, labelled = (cp.select(both, data=pictures, labels=each, quiet=True) for each in (None, some))
    assert (plain.num_labelled, labelled.num_labelled) == (0, 120)
    assert LABELLED in labelled.rankers
    assert LABELLED not in plain.rankers
    unlabelled = {each.name: dict(each.figures) for each in plain.candidates}
    for each in labelled.candidates:
        known = dict(each.figures)
        place = known.pop(LABELLED.name)
        assert known == unlabelled[each.name]
        assert -np.log(10) < place.value < 0
    assert labelled.candidates[0].figures[LABELLED.name].behind == 0
    shuffled = cp.select(both, data=pictures, labels=np.random.default_rng(0).permutation(some), quiet=True)
    best = [found.candidates[0].figures[LABELLED.name].value for found in (labelled, shuffled)]
    assert best[0] > best[1] + 0.3


@pytest.mark.thorough
def test_checkpoints_of_one_run_are_ranked(runs: dict[str, cp.Run]) -> None:
    found = cp.select([runs["usual"]], checkpoint="all", quiet=True)
    names = sorted(each.name for each in found.candidates)
    assert len(names) == 5  # before the first step, and after each epoch
    assert all(name.startswith("usual@") for name in names)
    chosen = [f"{runs['usual'].path}@{name.partition('@')[2]}" for name in names[:2]]
    two = cp.select(chosen, data=runs["usual"].data, quiet=True)
    known, again = (
        {each.name: [gap.value for gap in each.figures.values()] for each in selection.candidates}
        for selection in (found, two)
    )
    assert all(values == known[name] for name, values in again.items())


def test_each_figure_has_its_correlation(runs: dict[str, cp.Run]) -> None:
    found = cp.select([runs["usual"], runs["same-views"]], quiet=True)
    text = " ".join(str(found).split())
    for each in found.rankers:
        value, low, high = each.correlation
        assert -1 <= low <= value <= high <= 1
        assert str(each) in text


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
        ([usual, runs["same-views"]], {"labels": [0, 1] * 10 + [-1] * 180}, UsageError, "at least 40"),
        ([usual, runs["same-views"]], {"labels": [1] * 200}, UsageError, "two classes"),
        ([usual, runs["same-views"]], {"labels": [0, 1]}, CounterpointError, "labels"),
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
    assert '"likely_best"' in capsys.readouterr().out
    np.save(tmp_path / "some.npy", np.where(np.arange(200) < 60, load_digits(return_X_y=True)[1][:200], -1))
    assert main([*words, "--json", "--labels", str(tmp_path / "some.npy")]) in (0, None)
    assert '"num_labelled": 60' in capsys.readouterr().out
    assert main(["select", str(runs["usual"].path), "--data", str(tmp_path / "x.npy"), "-q"]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1
