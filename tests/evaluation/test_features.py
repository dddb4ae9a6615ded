"""Features extracted once, and the features of both baselines."""

# N samples, D features

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import counterpoint as cp
from counterpoint.core.settings import SourceSettings
from counterpoint.core.stored_rows import load
from counterpoint.core.user_objects import CUSTOM
from counterpoint.data.source import Source
from counterpoint.data.sources import open_source
from counterpoint.engine.progress import Reporter
from counterpoint.evaluation import feature_sets
from counterpoint.evaluation import features as module
from counterpoint.evaluation.feature_sets import input_components
from counterpoint.evaluation.features import blank_encoder, calibrate_norms, extract, raw_chunks, with_norms_of
from counterpoint.evaluation.subject import untrained_backbone
from counterpoint.evaluation.trained_run import open_trained
from counterpoint.nn.trained import Encoder
from oracles.number_checks import assert_numbers

QUIET = Reporter(quiet=True)


def source_of(array: np.ndarray) -> Source:
    return open_source(array, SourceSettings(), progress=QUIET.bar)


def draw(n: int, d: int, seed: int = 0) -> np.ndarray:
    return (np.random.default_rng(seed).normal(size=(n, d)) * np.linspace(1, 3, d)).astype(np.float32)


def gram(z: Tensor) -> Tensor:
    return z.double() @ z.double().T


def components(source: Source, train: Tensor) -> tuple[Tensor, int]:
    found = input_components([source], train, cache=False)
    (scores,), about = found.parts, found.about
    return load(scores), about["components"]


def test_chunks_hold_every_sample_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CHUNK", 3)
    array = draw(8, 2)
    chunks = list(raw_chunks(source_of(array)))
    assert [len(chunk) for chunk in chunks] == [3, 3, 2]
    assert np.array_equal(torch.cat(chunks).numpy(), array)
    chosen = torch.tensor([5, 1, 7, 0])
    assert np.array_equal(torch.cat(list(raw_chunks(source_of(array), chosen))).numpy(), array[[5, 1, 7, 0]])


def test_extraction_is_the_encoder_applied_to_every_sample(
    run: cp.Run, clusters: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained = open_trained(run, reporter=QUIET)
    monkeypatch.setattr(module, "CHUNK", 10)
    features = extract(trained.encoder, trained.source)
    assert_numbers(features.representation, trained.encoder.represent(clusters.data).tolist(), dtype=torch.float32)
    assert_numbers(features.embedding, trained.encoder.embed(clusters.data).tolist(), dtype=torch.float32)
    assert_numbers(features.embedding.norm(dim=1), [1.0] * 75, dtype=torch.float32)
    assert features.representation.shape == (75, 256)


def test_norms_are_set_to_the_average_over_the_chunks() -> None:
    norm = nn.BatchNorm1d(2)
    assert norm.running_mean is not None
    assert norm.running_var is not None
    norm.running_mean.fill_(99.0)
    chunks = [torch.tensor([[1.0, 10.0], [3.0, 30.0]]), torch.tensor([[5.0, 0.0], [7.0, 8.0]]), torch.ones(1, 2)]
    state = torch.get_rng_state()
    calibrated = calibrate_norms(norm, chunks)  # a chunk of one sample has no deviation and is left out
    assert not calibrated.training
    assert norm.running_mean.tolist() == [4.0, 12.0]
    assert norm.running_var.tolist() == [2.0, 116.0]  # variances 2 and 2, 200 and 32
    assert torch.equal(torch.get_rng_state(), state)


def test_the_untrained_baseline_sees_training_samples_only_and_leaves_its_backbone_alone(run: cp.Run) -> None:
    trained = open_trained(run, reporter=QUIET)
    backbone = untrained_backbone(trained)
    assert backbone is not None
    before = {name: value.clone() for name, value in backbone.state_dict().items()}
    train = trained.split.train
    samples = trained.source.store.fetch(range(75))
    baseline = with_norms_of(blank_encoder(backbone, trained.encoder), trained.source, train)
    assert all(torch.equal(value, before[name]) for name, value in backbone.state_dict().items())
    by_queries = with_norms_of(blank_encoder(backbone, trained.encoder), trained.source, trained.split.held_out)
    calibrated = calibrate_norms(backbone, [trained.encoder.prepare(samples[train])])
    with torch.no_grad():
        expected = calibrated(trained.encoder.prepare(samples))
    assert_numbers(baseline.represent(samples), expected, dtype=torch.float32)
    assert not torch.allclose(by_queries.represent(samples), expected)


def test_components_are_the_projections_onto_the_training_samples_axes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Signs of axes are free, so inner products of scores are compared."""
    array, train = draw(20, 5), torch.arange(12)
    monkeypatch.setattr(feature_sets, "PCA_DIMS", 3)
    scores, num_components = components(source_of(array), train)
    centred = array.astype(np.float64) - array[:12].astype(np.float64).mean(axis=0)
    axes = np.linalg.svd(centred[:12], full_matrices=False)[2][:3]
    assert num_components == 3
    assert_numbers(gram(scores), (centred @ axes.T @ axes @ centred.T).tolist(), dtype=torch.float32)


def test_pixels_are_taken_as_shares() -> None:
    images = np.random.default_rng(3).integers(0, 256, size=(9, 8, 8), dtype=np.uint8)
    scores, num_components = components(source_of(images), torch.arange(9))
    flat = images.reshape(9, -1) / 255.0
    centred = flat - flat.mean(axis=0)
    assert num_components == 8
    assert_numbers(gram(scores), (centred @ centred.T).tolist(), dtype=torch.float32)


class Negative(nn.Module):
    """A user's own layer."""

    def forward(self, x: Tensor) -> Tensor:
        return -x


def with_hook() -> nn.Module:
    layer = nn.ReLU()
    layer.register_forward_hook(lambda *_: None)
    return layer


def with_other_forward() -> nn.Module:
    layer = nn.ReLU()
    layer.forward = lambda input: -input  # as some users change a layer
    return layer


@pytest.mark.parametrize(
    ("make", "is_shared"), [(nn.ReLU, True), (Negative, False), (with_hook, False), (with_other_forward, False)]
)
def test_only_layers_of_torch_are_called_by_several_threads(
    make: Callable[[], nn.Module], is_shared: bool, run: cp.Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Own code may keep something of a pass, and is not asked to stand two at a time."""
    trained, own = open_trained(run, reporter=QUIET), make()
    card = replace(trained.encoder.card, architecture=CUSTOM)
    encoder = Encoder(card, nn.Sequential(nn.Flatten(), own), nn.Identity())
    calls: list[list[int]] = []
    monkeypatch.setattr(module, "side_by_side", lambda work, pieces: calls.append(list(pieces)) or [])
    module.with_encoder(encoder, lambda piece: piece, [1, 2])
    assert calls == ([[1, 2]] if is_shared else [])
