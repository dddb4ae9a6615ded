"""Figures over seeds: the mean, deviation and interval of what each run's own evaluation says."""

import json
import shutil
import statistics
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats
from test_seeds import NUM_SAMPLES, images, train

import counterpoint as cp
from counterpoint.core.errors import RunError, UsageError

QUICK: dict[str, Any] = {"metrics": ["knn"], "k": 3, "quiet": True}
NAME = "evaluation.json"


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> cp.SeedRuns:
    return train(tmp_path_factory.mktemp("template") / "runs", seeds=3, epochs=2)


@pytest.fixture
def seeds(tmp_path: Path, trained: cp.SeedRuns) -> cp.SeedRuns:
    """Three seeds, finished and not evaluated."""
    folder = Path(shutil.copytree(trained.path, tmp_path / "runs"))
    runs = [cp.Run(folder / run.path.name, run.data, run.labels, run.encoder) for run in trained.runs]
    return cp.SeedRuns(folder, tuple(runs))


def read(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text())


def rows_of(path: Path) -> dict[tuple[str, str], dict[str, Any]]:
    return {(row["features"], row["protocol"]): row for row in read(path)["rows"]}


def test_mean_deviation_and_interval_are_those_of_the_runs_figures(seeds: cp.SeedRuns) -> None:
    found = cp.evaluate_seeds(seeds, **QUICK)
    own = [rows_of(run.path / NAME)["embedding", "knn"]["accuracy"] for run in seeds.runs]
    row = next(row for row in found.rows if row.features == "embedding")
    assert len(set(own)) > 1
    assert row.values == tuple(own)
    assert row.mean == pytest.approx(statistics.mean(own))
    assert row.deviation == pytest.approx(np.std(own, ddof=1))
    ends = stats.t.interval(0.95, len(own) - 1, loc=np.mean(own), scale=stats.sem(own))
    assert (row.low, row.high) == pytest.approx(ends)
    assert found.seeds == (0, 1, 2)
    kept = read(seeds.path / NAME)
    assert {name: kept[name] for name in found.to_dict()} == json.loads(json.dumps(found.to_dict()))


def test_what_no_training_made_has_no_interval_over_seeds(seeds: cp.SeedRuns) -> None:
    found = cp.evaluate_seeds(seeds, **QUICK)
    row = next(row for row in found.rows if row.features == "pixels (PCA)")
    assert (row.deviation, row.low, row.high) == (0.0, None, None)
    assert row.written[1:] == ("0.0%", "")
    assert "runs, seeds 0, 1, 2, on array: 12 queries" in str(found)


@pytest.mark.thorough
def test_options_pass_and_figures_of_before_stay_in_the_file(seeds: cp.SeedRuns) -> None:
    cp.evaluate_seeds(seeds, **QUICK)
    found = cp.evaluate_seeds(seeds, metrics=["precision@10"], quiet=True)
    assert {row.protocol for row in found.rows} == {"precision@10"}
    assert {name for _, name in rows_of(seeds.path / NAME)} == {"knn", "precision@10"}


@pytest.mark.thorough
def test_other_samples_go_to_a_file_of_their_own(seeds: cp.SeedRuns) -> None:
    own = cp.evaluate_seeds(seeds, **QUICK)
    other = {"data": 255 - images(), "labels": np.arange(NUM_SAMPLES) % 3}
    found = cp.evaluate_seeds(seeds, **other, **QUICK)
    assert read(seeds.path / NAME)["split"] == json.loads(json.dumps(own.split.written()))
    names = [path.name for path in (seeds.path / "evaluations").iterdir()]
    assert names == [path.name for path in (seeds.runs[0].path / "evaluations").iterdir()]
    assert read(seeds.path / "evaluations" / names[0])["split"] == json.loads(json.dumps(found.split.written()))


@pytest.mark.thorough
def test_folders_of_seeds_are_compared_over_their_seeds(seeds: cp.SeedRuns, tmp_path: Path) -> None:
    other = train(tmp_path / "ncl", seeds=3, epochs=2, method="ncl")
    for each in (seeds, other):
        cp.evaluate_seeds(each, **QUICK)
    by_record, by_path = cp.compare([seeds, other]), cp.compare([seeds.path, other.path])
    assert by_record == by_path
    assert [side.seeds for side in by_record.sides] == [(0, 1, 2)] * 2
    assert any(row.over_seeds for row in by_record.rows)


def test_one_run_is_asked_for_one_run(seeds: cp.SeedRuns) -> None:
    with pytest.raises(UsageError, match=r"those of several seeds; take one of .runs"):
        cp.evaluate(seeds)  # pyright: ignore[reportArgumentType]
    with pytest.raises(RunError, match="seed-0"):
        cp.evaluate_seeds(seeds.runs[0].path)


def test_a_seed_that_is_not_finished_is_named(seeds: cp.SeedRuns) -> None:
    seeds.runs[1].folder.update_status(status="interrupted")
    shutil.rmtree(seeds.runs[2].path)
    with pytest.raises(RunError, match="seed 1 interrupted, seed 2 not begun"):
        cp.evaluate_seeds(seeds, **QUICK)
    assert not list(seeds.path.rglob(NAME))


@pytest.mark.thorough
def test_runs_that_differ_in_more_than_the_seed_have_no_mean(seeds: cp.SeedRuns) -> None:
    longer = train(seeds.path.parent / "longer", seeds=2, epochs=3).runs[1]
    shutil.rmtree(seeds.runs[1].path)
    shutil.copytree(longer.path, seeds.runs[1].path)
    with pytest.raises(RunError, match=r"seed-0 and \S+seed-1 differ in epochs"):
        cp.evaluate_seeds(seeds, **QUICK)


@pytest.mark.thorough
def test_runs_that_were_asked_about_other_queries_have_no_mean(seeds: cp.SeedRuns) -> None:
    other = replace(seeds.runs[0], labels=np.arange(NUM_SAMPLES) % 3)
    with pytest.raises(UsageError, match="queries"):
        cp.evaluate_seeds(cp.SeedRuns(seeds.path, (other, *seeds.runs[1:])), **QUICK)
    assert not (seeds.path / NAME).exists()
