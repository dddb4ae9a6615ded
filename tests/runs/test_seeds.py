"""Several seeds in one folder: the runs that each seed alone would give, held, gone on with and replaced together."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from test_resuming import stop_after
from torch import nn

import counterpoint as cp
from counterpoint.core.errors import CounterpointError, InterruptedRunError, RunError, UsageError
from counterpoint.core.run_lock import lock_run
from counterpoint.core.rundir import RunFolder, seed_folders
from counterpoint.runs import user_inputs as given_module
from counterpoint.runs.training import resume_seeds

NUM_SAMPLES = 60
SMALL: dict[str, Any] = {
    "epochs": 1,
    "batch_size": 24,
    "views": {"preset": "none"},
    "projector": {"hidden": 8, "features": 8},
    "quiet": True,
}
STEPS = 2  # of a run


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(16, 6))


def images() -> np.ndarray:
    return np.random.default_rng(20240607).integers(0, 256, (NUM_SAMPLES, 4, 4), dtype=np.uint8)


def train(out: Path, **settings: Any) -> Any:
    return cp.train(images(), labels=np.arange(NUM_SAMPLES) % 2, encoder=network(), out=out, **{**SMALL, **settings})


def contents(path: Path) -> dict[str, bytes]:
    return {str(file.relative_to(path)): file.read_bytes() for file in path.rglob("*") if file.is_file()}


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train(tmp_path_factory.mktemp("template") / "runs", seeds=2, seed=3).path


@pytest.fixture
def folder(tmp_path: Path, template: Path) -> Path:
    """Seeds 3 and 4, finished."""
    return Path(shutil.copytree(template, tmp_path / "runs"))


@pytest.fixture
def stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Seeds 3, 4 and 5, stopped within 4."""
    with monkeypatch.context() as patch:
        stop_after(patch, STEPS + 1)
        with pytest.raises(InterruptedRunError, match=r"step 1 of 2.*all seeds: counterpoint res"):
            train(tmp_path / "stopped", seeds=3, seed=3)
    return tmp_path / "stopped"


def test_each_seed_gives_the_run_that_it_gives_alone_on_the_same_split(folder: Path, tmp_path: Path) -> None:
    alone = train(tmp_path / "alone", seed=4)
    run = RunFolder(folder / "seed-4")
    assert run.weights.read_bytes() == alone.folder.weights.read_bytes()
    records = [RunFolder(folder / f"seed-{seed}").read_status() for seed in (3, 4)]
    assert [record.seed for record in records] == [3, 4]
    assert len({record.split_fingerprint for record in records}) == 1
    assert seed_folders(folder) == [folder / "seed-3", folder / "seed-4"]


def test_what_comes_back_can_be_used_at_once(tmp_path: Path) -> None:
    found = train(tmp_path / "runs", seeds=1)
    assert isinstance(found, cp.SeedRuns)
    assert [run.path for run in found.runs] == [tmp_path / "runs" / "seed-0"]
    assert found.runs[0].data is not None


@pytest.mark.thorough
def test_the_data_are_opened_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[int] = []
    original = given_module.open_source

    def counting(*given: Any, **known: Any) -> Any:
        opened.append(1)
        return original(*given, **known)

    monkeypatch.setattr(given_module, "open_source", counting)
    train(tmp_path / "runs", seeds=2)
    assert opened == [1]


@pytest.mark.thorough
def test_going_on_takes_the_seed_that_was_stopped_and_those_that_had_not_begun(stopped: Path, tmp_path: Path) -> None:
    finished = contents(stopped / "seed-3")
    train(stopped, seeds=3, seed=3, resume=True)
    whole = train(tmp_path / "whole", seeds=3, seed=3)
    for run in whole.runs:
        assert (stopped / run.path.name / "encoder.safetensors").read_bytes() == run.folder.weights.read_bytes()
    assert contents(stopped / "seed-3") == finished


@pytest.mark.thorough
def test_a_seed_that_had_not_begun_takes_the_settings_of_the_others(stopped: Path) -> None:
    train(stopped, seeds=3, resume=True, epochs=1, seed=3, batch_size="auto")
    assert {RunFolder(path).read_metrics()[-1]["step"] for path in seed_folders(stopped)} == {STEPS}


@pytest.mark.thorough
def test_more_seeds_may_follow_and_none_can_be_left_out(folder: Path) -> None:
    before = contents(folder / "seed-4")
    with pytest.raises(UsageError, match=r"with seeds 3 \(it has 3 to 4\)"):
        train(folder, seeds=1, resume=True)
    train(folder, seeds=3, resume=True)
    assert [path.name for path in seed_folders(folder)] == ["seed-3", "seed-4", "seed-5"]
    assert contents(folder / "seed-4") == before


@pytest.mark.parametrize("change", [{"epochs": 2}, {"temperature": 0.3}, {"method": "ncl"}], ids=str)
def test_other_settings_are_refused_before_any_seed_goes_on(folder: Path, change: dict[str, Any]) -> None:
    before = contents(folder)
    with pytest.raises(UsageError, match="cannot resume"):
        train(folder, seeds=3, seed=3, resume=True, **change)
    assert contents(folder) == before


def test_other_data_are_refused(folder: Path) -> None:
    before = contents(folder)
    with pytest.raises(RunError, match="data"):
        cp.train(images()[:-1], encoder=network(), out=folder, seeds=3, resume=True, quiet=True)
    assert contents(folder) == before


def test_nothing_is_replaced_unasked_or_by_a_run_of_another_kind(folder: Path) -> None:
    before = contents(folder)
    for asked, words in (
        ({"seeds": 2}, "exists; continue it with"),
        ({}, "holds the runs of several seeds"),
        ({"overwrite": True}, "holds the runs of several seeds"),
        ({"resume": True}, "holds the runs of several seeds"),
        ({"seeds": 2, "overwrite": True}, "exists; continue it with"),
        ({"seeds": 2, "overwrite": True, "resume": True}, "exclude each other"),
    ):
        with pytest.raises(CounterpointError, match=words):
            train(folder, **asked)
        assert contents(folder) == before
    with pytest.raises(RunError, match="does not hold runs of several seeds"):
        train(folder / "seed-3", seeds=2, overwrite=True)
    assert contents(folder) == before


def test_a_folder_of_the_users_is_not_touched(tmp_path: Path) -> None:
    (tmp_path / "runs" / "seed-1").mkdir(parents=True)
    (tmp_path / "runs" / "seed-1" / "mine.txt").write_text("mine")
    with pytest.raises(RunError, match="will not be touched"):
        train(tmp_path / "runs", seeds=2, overwrite=True)
    assert list(contents(tmp_path / "runs")) == ["seed-1/mine.txt"]


def test_the_folder_is_held_while_its_runs_are_trained(folder: Path) -> None:
    with lock_run(folder), pytest.raises(RunError, match="is in use"):
        train(folder, seeds=2, seed=3, resume=True)


def test_a_start_that_was_killed_before_its_first_run_may_be_started_again(folder: Path) -> None:
    for path in seed_folders(folder):
        shutil.rmtree(path)
    assert len(train(folder, seeds=1).runs) == 1
    assert not (folder / "seed-4").exists()


@pytest.mark.parametrize("text", ["{", "{}", '{"seeds": [0]}'])
def test_a_damaged_record_is_named(folder: Path, text: str) -> None:
    (folder / "seeds.json").write_text(text)
    with pytest.raises(RunError, match=r"seeds.json is damaged.*one by one"):
        train(folder, seeds=2, seed=3, resume=True)
    assert cp.load(cp.Run(folder / "seed-3", encoder=network()))


@pytest.mark.parametrize("number", [0, -1, 1001, 2.0, True, "5"])
def test_no_number_of_seeds(tmp_path: Path, number: Any) -> None:
    with pytest.raises(UsageError, match="seeds must be a whole number from 1 to 1000"):
        train(tmp_path / "runs", seeds=number)
    with pytest.raises(UsageError, match="seed"):
        train(tmp_path / "runs", seeds=2, seed=2**63 - 1)
    assert not (tmp_path / "runs").exists()


def test_other_verbs_say_what_to_name(folder: Path) -> None:
    for verb in (cp.evaluate, cp.diagnose, cp.embed, cp.report, cp.verify, cp.resume, cp.load):
        with pytest.raises(RunError, match=r"several seeds and is not a run; name one of them, such as \S+seed-3"):
            verb(folder)


# --- as `counterpoint resume` does


@pytest.fixture
def named(tmp_path: Path) -> Path:
    """Two seeds of one epoch on data that have a name."""
    settings = {"epochs": 1, "batch_size": 256, "source": {"classes": "0,1,2"}, "engine": {"checkpoint_every": 9}}
    return cp.train("digits", out=tmp_path / "named", seeds=2, quiet=True, **settings).path


@pytest.mark.thorough
def test_all_go_on_by_their_record_alone(named: Path) -> None:
    shutil.rmtree(named / "seed-1")  # killed before it had begun
    (named / "seed-0" / "encoder.safetensors").unlink()
    resume_seeds(RunFolder(named), quiet=True)
    assert [RunFolder(path).read_status().status for path in seed_folders(named)] == ["finished"] * 2
