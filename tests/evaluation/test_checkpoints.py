"""The encoder of a run at a checkpoint has that checkpoint's weights."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

import counterpoint as cp
from counterpoint.core.errors import RunError, UsageError
from counterpoint.core.rundir import RunFolder
from counterpoint.evaluation.trained_run import encoder_at, steps_asked
from counterpoint.nn.trained import load_encoder

STEPS = [0, 4, 8, 12]


@pytest.fixture(scope="module")
def kept_run(clusters: Any, tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """Three epochs of four steps, each kept."""
    engine = {"keep": 9, "checkpoint_every": 1}
    path = tmp_path_factory.mktemp("kept") / "run"
    shape = {"epochs": 3, "batch_size": 15, "projector": {"features": 8}, "source": {"holdout": 0.2}}
    known = {"data": clusters.data, "labels": clusters.labels, "quiet": True}
    return cp.train(**known, **shape, engine=engine, out=str(path)).folder


def test_all_steps_or_one(kept_run: RunFolder) -> None:
    steps = list(steps_asked(kept_run, "all"))
    assert steps == sorted(steps)
    assert steps == STEPS
    assert list(steps_asked(kept_run, "4")) == [4]
    assert list(steps_asked(kept_run, "04")) == [4]


@pytest.mark.parametrize("asked", ["5", "-4", "4.0", "last", "", "٤"])
def test_other_steps_are_refused_and_those_that_are_kept_named(kept_run: RunFolder, asked: str) -> None:
    with pytest.raises(UsageError, match=r"is not kept in .*; steps that are: 0, 4, 8, 12 \(train with --engine.keep"):
        steps_asked(kept_run, asked)


def test_of_a_run_without_checkpoints_none_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="steps that are: none"):
        steps_asked(RunFolder(tmp_path), "all")


def test_weights_are_those_of_the_step_and_the_given_encoder_stays(kept_run: RunFolder) -> None:
    last = load_encoder(kept_run)
    before = {name: value.clone() for name, value in last.state_dict().items()}
    states, names = {}, list[str]()
    for step in STEPS:
        found = encoder_at(kept_run, last, step).state_dict()
        path = kept_run.checkpoints / f"step-{step:08d}"
        expected = load_file(path / "model.safetensors")
        names = [name for name in found if name.startswith(("backbone.", "projector."))]
        assert names
        assert all(torch.equal(found[name], expected[name]) for name in names)
        states[step] = torch.cat([found[name].flatten().double() for name in names])
    assert all(torch.equal(value, before[name]) for name, value in last.state_dict().items())
    # What was saved as the result is the last checkpoint's.
    assert torch.equal(states[12], torch.cat([before[name].flatten().double() for name in names]))
    assert not torch.equal(states[8], states[12])


def test_each_checkpoint_is_evaluated_and_the_run_keeps_its_record(kept_run: RunFolder, clusters: Any) -> None:
    known = {"data": clusters.data, "labels": clusters.labels, "quiet": True, "k": 5}
    found = cp.evaluate(kept_run.path, checkpoint="all", layers=("representation",), metrics=("knn",), **known)
    names = [row.features for row in found.rows]
    assert names[:4] == [f"representation at step {step}" for step in STEPS]
    assert not kept_run.evaluation.exists()


@pytest.mark.parametrize("ask", [cp.diagnose, lambda run, **known: cp.embed(run, out="t.csv", **known)])
def test_where_one_is_meant_all_are_refused(
    ask: Callable[..., Any], kept_run: RunFolder, clusters: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match="checkpoint must be one here; steps that are kept: 0, 4, 8, 12"):
        ask(kept_run.path, data=clusters.data, checkpoint="all", quiet=True)
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_checkpoint_is_refused(kept_run: RunFolder) -> None:
    path = kept_run.checkpoints / "step-00000004" / "model.safetensors"
    content = path.read_bytes()
    path.write_bytes(content[:-1])
    try:
        with pytest.raises(RunError, match=r"step-00000004 is damaged: model\.safetensors"):
            encoder_at(kept_run, load_encoder(kept_run), 4)
    finally:
        path.write_bytes(content)
