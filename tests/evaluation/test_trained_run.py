"""Opening a run with its own data or with other data, and its encoder at a checkpoint."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

import counterpoint as cp
from counterpoint.core.errors import RunError, UsageError
from counterpoint.core.rundir import RunFolder
from counterpoint.engine.progress import Reporter
from counterpoint.evaluation.subject import Subject, untrained_backbone, view_drawer
from counterpoint.evaluation.trained_run import encoder_at, open_trained, read_resolved, steps_asked
from counterpoint.nn.encoders import build_encoder
from counterpoint.nn.trained import load_encoder

QUIET = Reporter(quiet=True)


def opened(run: Any, **others: Any) -> Subject:
    return open_trained(run, reporter=QUIET, **others)


def weights(module: nn.Module) -> Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in module.parameters()])


def test_the_settings_are_those_of_the_run_with_nothing_left_to_choose(run: cp.Run) -> None:
    settings = read_resolved(run.folder)
    assert (settings.epochs, settings.batch_size, settings.source.holdout) == (2, 16, 0.4)
    assert (settings.method, settings.encoder, settings.projector.features) == ("simclr", "mlp", 8)
    assert "auto" not in (settings.temperature, settings.loss.negatives, settings.views.noise, settings.encoder)


def test_other_data_are_opened_with_their_own_labels(run: cp.Run, other_clusters: Any) -> None:
    trained = opened(run, data=other_clusters.data, labels=other_clusters.labels)
    assert not trained.is_own_data
    assert trained.source.labels is not None
    assert trained.source.labels.tolist() == other_clusters.labels.tolist()
    assert opened(run, data=other_clusters.data).source.labels is None  # the run's labels belong to the run's data


def test_a_folder_alone_does_not_know_an_array(run: cp.Run, clusters: Any) -> None:
    for folder in (run.path, str(run.path)):
        with pytest.raises(UsageError, match=r"was trained on an array in memory; pass it as data="):
            opened(folder)
        assert len(opened(folder, data=clusters.data).source) == 75


def test_what_is_not_a_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="nowhere"):
        opened(tmp_path / "nowhere")
    with pytest.raises(RunError, match=tmp_path.name):
        opened(tmp_path)


def test_the_untrained_encoder_is_the_one_that_training_began_with(run: cp.Run) -> None:
    trained, state = opened(run), torch.get_rng_state()
    assert trained.settings is not None
    untrained = untrained_backbone(trained)
    assert torch.equal(torch.get_rng_state(), state)
    assert untrained is not None
    with torch.random.fork_rng():
        torch.manual_seed(trained.settings.seed)
        assert torch.equal(weights(untrained), weights(build_encoder("mlp", (6,))))
    assert not torch.equal(weights(untrained), weights(trained.encoder.backbone))


def test_the_views_are_the_runs_own_and_repeat(run: cp.Run) -> None:
    drawer, ids = opened(run).views(), torch.arange(5)
    samples = opened(run).source.store.fetch(ids.tolist())
    first, again = drawer.two_views(samples, ids, 7), opened(run).views().two_views(samples, ids, 7)
    assert torch.equal(first[0], again[0])
    assert torch.equal(first[1], again[1])
    assert not torch.equal(first[0], first[1])
    assert not torch.equal(first[0], drawer.two_views(samples, ids, 8)[0])
    settings = opened(run).settings
    assert settings is not None
    in_training = view_drawer(settings, opened(run).encoder.card)
    assert torch.equal(first[0], in_training.two_views(samples, ids, 7)[0])


def test_a_users_own_module_has_no_untrained_twin(clusters: Any, tmp_path: Path) -> None:
    module = nn.Sequential(nn.Linear(6, 5), nn.ReLU())
    out = str(tmp_path / "own")
    run = cp.train(
        data=clusters.data, labels=clusters.labels, encoder=module, epochs=1, batch_size=32, quiet=True, out=out
    )
    trained = opened(run)
    assert untrained_backbone(trained) is None
    rows = cp.evaluate(run, quiet=True).rows
    assert {row.features for row in rows} == {"representation", "embedding", "input (PCA)"}


# --- checkpoints


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
        with pytest.raises(RunError, match=r"step-00000004 .*model\.safetensors"):
            encoder_at(kept_run, load_encoder(kept_run), 4)
    finally:
        path.write_bytes(content)
