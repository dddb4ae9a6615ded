"""Opening a run with its own data, or with other data."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import counterpoint as cp
from counterpoint.core.errors import RunError, UsageError
from counterpoint.engine.progress import Reporter
from counterpoint.evaluation.subject import Subject, untrained_backbone, view_drawer
from counterpoint.evaluation.trained_run import open_trained, read_resolved
from counterpoint.nn.encoders import build_encoder

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
    with pytest.raises(RunError, match="does not exist"):
        opened(tmp_path / "nowhere")
    with pytest.raises(RunError, match="is not a run folder"):
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
