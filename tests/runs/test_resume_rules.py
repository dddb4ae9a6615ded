"""Going on with a run under other settings: refused by name, or allowed where no weight depends on them."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import counterpoint as cp
from counterpoint.core.errors import RunError, UsageError
from counterpoint.core.files import write_text
from counterpoint.core.rundir import RunFolder
from counterpoint.core.settings import TrainSettings
from counterpoint.core.validation import build, dump_yaml, leaf_fields, nest, read_yaml_mapping
from counterpoint.engine.progress import Reporter
from counterpoint.evaluation.trained_run import read_resolved, settings_of
from counterpoint.runs import resuming
from counterpoint.runs.resuming import HARMLESS, check_inputs, continued_settings, settings_hash
from counterpoint.runs.training import train_from
from counterpoint.runs.user_inputs import UserInputs


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    folder = tmp_path_factory.mktemp("run")
    np.save(folder / "data.npy", np.random.default_rng(0).normal(size=(16, 4)).astype(np.float32))
    settings: dict[str, Any] = {"epochs": 2, "batch_size": 8, "engine": {"keep": 3}}
    return cp.train(folder / "data.npy", out=folder / "run", quiet=True, **settings).folder


def asked(**flat: Any) -> TrainSettings:
    return build(TrainSettings, nest(flat), "test")


def test_the_same_settings_go_on(run: RunFolder) -> None:
    rate = read_resolved(run).optim.learning_rate
    other_words = {"temperature": 0.2, "optim.learning_rate": rate, "views.noise": "auto"}
    for words in ({}, other_words):
        same = asked(epochs=2, batch_size="auto", **{"engine.keep": 3, **words})
        assert continued_settings(run, same) == read_resolved(run)


def test_every_differing_key_is_named(run: RunFolder) -> None:
    with pytest.raises(UsageError) as caught:
        continued_settings(run, asked(epochs=9, temperature=0.7, **{"engine.workers": 2}))
    said = str(caught.value)
    assert "epochs 9 (the run has 2)" in said
    assert "temperature 0.7 (the run has 0.2)" in said
    assert "engine.workers 2 (the run has 0)" in said
    assert "--out" in said


def test_harmless_changes_are_taken(run: RunFolder) -> None:
    change = asked(**{"engine.workers": 1, "engine.keep": 5})
    taken = continued_settings(run, change)
    assert (taken.engine.workers, taken.engine.keep, taken.epochs) == (1, 5, 2)


def test_harmless_settings_exist_and_touch_no_weight(run: RunFolder) -> None:
    assert {path for path, _ in leaf_fields(TrainSettings)} >= HARMLESS
    settings = read_resolved(run)
    engine = settings.engine.model_copy(update={"workers": 7, "keep": 1, "knn_every": 3})
    assert settings_hash(settings.model_copy(update={"engine": engine, "out": "elsewhere"})) == settings_hash(settings)
    assert settings_hash(settings.model_copy(update={"seed": 1})) != settings_hash(settings)


def test_a_harmless_change_is_recorded_and_named_and_the_weights_are_those_of_the_first_run(
    run: RunFolder, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given: dict[str, Any] = {"data": str(run.path.parent / "data.npy"), "epochs": 2, "batch_size": 8}
    out = RunFolder(tmp_path / "run")
    first = {**given, "out": str(out.path), "engine": {"keep": 3}}
    train_from(first, UserInputs(), reporter=Reporter(quiet=True))
    out.weights.unlink()  # as if the run had been cut off at the very end
    change = {**first, "engine": {"keep": 1}}
    train_from(change, UserInputs(), reporter=Reporter(), resume=True)
    assert "continues with engine.keep 1 (the newest checkpoint has 3)" in capsys.readouterr().err
    assert read_resolved(out).engine.keep == 1
    assert out.weights.read_bytes() == run.weights.read_bytes()


def test_a_run_of_the_first_release_keeps_its_ways(run: RunFolder, tmp_path: Path) -> None:
    """Its settings know no stem, no way to encode views and no fill: a small stem, views together, black."""
    values = read_yaml_mapping(run.resolved)
    values["encoder"], values["stem"] = "resnet9", "small"
    now = build(TrainSettings, {key: value for key, value in values.items() if key != "reasons"}, "test")
    del values["stem"], values["engine"]["encode_views"]
    old = RunFolder(tmp_path)
    write_text(old.resolved, dump_yaml(values))
    assert read_resolved(old) == now


def test_a_setting_that_the_newest_checkpoint_has_not_is_named(run: RunFolder) -> None:
    settings, data = read_resolved(run), str(run.read_status().data_fingerprint)
    assert check_inputs(run, settings, data) == ""
    assert check_inputs(run, settings.model_copy(update={"temperature": "auto"}), data) == ""  # asks for nothing
    engine = settings.engine.model_copy(update={"workers": 7})
    assert check_inputs(run, settings.model_copy(update={"engine": engine}), data).startswith("engine.workers 7")
    with pytest.raises(RunError, match=r"seed 1 \(the newest checkpoint has"):
        check_inputs(run, settings.model_copy(update={"seed": 1}), data)


@pytest.mark.parametrize("path", ["engine.average", "engine.accumulate", "optim.layer_decay"])
def test_a_run_with_a_setting_that_is_no_more_is_not_gone_on_with(
    run: RunFolder, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    settings = read_resolved(run)
    then, (section, name) = settings.model_dump(mode="json"), path.split(".")
    then[section][name] = {"average": "ema", "accumulate": 2, "layer_decay": 0.8}[name]
    monkeypatch.setattr(resuming, "_checkpoint_facts", lambda _: {"resolved": then})
    with pytest.raises(UsageError, match=path):
        check_inputs(run, settings, str(run.read_status().data_fingerprint))


def test_the_loss_of_a_run_with_sub_batches_saw_one_of_them(run: RunFolder) -> None:
    then = read_resolved(run).model_dump(mode="json")
    then["engine"] |= {"accumulate": 2, "sync_norm": True}
    then["optim"]["layer_decay"] = 0.8
    assert then["batch_size"] == 8
    assert settings_of(then, "test").batch_size == 4
