"""Layers of an encoder in one pass: which one loses directions, at every checkpoint, and what cannot be read."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import counterpoint as cp
from counterpoint.core.errors import DataError, UsageError
from counterpoint.diagnostics.layer_record import LayersRecord
from counterpoint.runs import layer_reading
from oracles import feature_measures as oracle

DIMS = 128


def draw(n: int, d: int = DIMS, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(n, d)).astype(np.float32)


def linear(rank: int, seed: int) -> nn.Linear:
    """A layer of orthogonal weights, of which some directions are left."""
    layer = nn.Linear(DIMS, DIMS)
    left, right = (torch.linalg.qr(torch.from_numpy(draw(DIMS, DIMS, seed=seed + k)).double()).Q for k in (0, 50))
    with torch.no_grad():
        layer.weight.copy_((left[:, :rank] @ right[:, :rank].T).float())
    return layer


def stack(*ranks: int) -> nn.Sequential:
    return nn.Sequential(*(linear(rank, seed) for seed, rank in enumerate(ranks)))


def layers_of(encoder: nn.Module, data: np.ndarray, **look: Any) -> LayersRecord:
    found = cp.diagnose(encoder, data=data, layers=True, quiet=True, **look).layers
    assert found is not None
    return found


@pytest.mark.parametrize("rank", [98, 64, 40])
@pytest.mark.sampled(3)
def test_the_hidden_layer_that_loses_directions_is_named(rank: int) -> None:
    record = layers_of(stack(128, rank, 128), draw(1000))
    assert [layer.name for layer in record.layers] == ["input", "0", "1", "representation", "embedding"]
    (loss,) = record.losses
    assert (loss.layer, loss.arriving) == ("layer 1 (Linear)", 128)
    assert abs(loss.alive - rank) <= 1
    assert f"first lost in layer 1 (Linear): of 128 that reach it {loss.alive} are alive" in record.words
    alive = [layer.alive for layer in record.layers]
    assert alive[:2] == [128, 128]
    assert all(abs(count - rank) <= 1 for count in alive[2:])


def test_the_figures_are_those_of_the_covariance() -> None:
    data = draw(300)
    encoder = stack(128, 40)
    record = layers_of(encoder, data)
    with torch.no_grad():
        hidden = encoder[0](torch.from_numpy(data)).double().numpy()
    values = oracle.covariance_singular_values(hidden)
    layer = record.layers[1]
    assert (layer.num_dims, record.num_samples) == (DIMS, 300)
    assert layer.largest == pytest.approx(values[0], rel=1e-5)
    assert layer.effective_rank == pytest.approx(oracle.effective_rank([max(0.0, v) for v in values]), rel=1e-5)
    assert layer.null_rank == pytest.approx(layer.effective_rank, rel=0.02)
    assert layer.floor is not None
    assert layer.floor < 1e-12 * values[0]
    assert (record.layers[2].least or 0.0) > 1e-3


def test_fewer_samples_than_dimensions_say_what_they_can() -> None:
    record = layers_of(stack(128, 20, 128), draw(60))
    assert record.layers[1].vanished == 0
    assert record.layers[1].resolved < 60
    assert abs(record.layers[2].alive - 20) <= 1
    assert record.losses[0].layer == "layer 1 (Linear)"


def test_widening_is_no_loss() -> None:
    torch.manual_seed(0)
    record = layers_of(nn.Sequential(nn.Linear(8, 64), nn.Linear(64, 64)), draw(500, 8))
    assert [layer.alive for layer in record.layers[:-1]] == [8] * 3
    # The bias shifts the subspace away from the origin, and unit length turns the shift into a direction.
    assert record.layers[-1].alive == 9
    assert record.layers[1].vanished == 56
    assert record.losses == ()
    assert record.words.startswith("No layer loses directions that reach it.")


class Overflow(nn.Module):
    """Gives infinity for some samples."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.where(x[:, :1] > 2.5, torch.inf, x)


class Clamp(nn.Module):
    """Takes infinity away again, so that the representation is finite."""

    def forward(self, x: Tensor) -> Tensor:
        return x.clamp(-9, 9)


def test_a_layer_that_is_not_finite_is_named_with_its_samples() -> None:
    data = draw(100)
    first = int((data[:, 0] > 2.5).argmax())
    data[7, 0] = 3.0
    encoder = nn.Sequential(nn.Identity(), Overflow(), Clamp())
    with pytest.raises(DataError, match=rf"the 1 of {min(first, 7) if data[first, 0] > 2.5 else 7}\b.*NaN or infinity"):
        layers_of(encoder, data)


def test_layers_too_wide_are_left_out_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layer_reading, "WIDEST", 100)
    record = layers_of(nn.Sequential(linear(128, 1), nn.Linear(DIMS, 16)), draw(200))
    assert [layer.name for layer in record.layers] == ["representation", "embedding"]
    assert record.remarks[0] == "Left out, as wider than 100 dimensions: 0 (128)."


def test_features_have_no_layers() -> None:
    with pytest.raises(UsageError, match="layers= goes with a run"):
        cp.diagnose(draw(40), layers=True)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> cp.Run:
    """Three epochs on vectors, each kept."""
    return cp.train(
        data=draw(300, 16),
        epochs=3,
        batch_size=64,
        projector={"kind": "mlp", "features": 8},
        engine={"keep": 3, "checkpoint_every": 1},
        quiet=True,
        out=str(tmp_path_factory.mktemp("layers") / "run"),
    )


def test_a_run_keeps_its_layers_beside_its_findings(run: cp.Run) -> None:
    plain = cp.diagnose(run, data=draw(300, 16), quiet=True)
    assert plain.layers is None
    assert "layers" not in plain.to_dict()
    found = cp.diagnose(run, data=draw(300, 16), layers=True, quiet=True)
    assert found.places == plain.places
    record = found.layers
    assert record is not None
    written = json.loads(run.folder.findings.read_text())["layers"]
    assert written == json.loads(json.dumps(record.written()))
    with np.load(run.folder.arrays) as arrays:
        for place, layer in enumerate(record.layers):
            assert arrays[f"layer/{place}"].shape == (layer.num_dims,)
            assert arrays[f"layer/{place}"][0] == layer.largest
            assert arrays[f"band/{place}"].shape == (2, min(299, layer.num_dims))
    embedding = record.layers[-1]
    assert (embedding.vanished, embedding.resolved) == (
        found.places["embedding"].vanished,
        found.places["embedding"].resolved,
    )


@pytest.mark.thorough
def test_one_checkpoint_is_looked_at_alone(run: cp.Run) -> None:
    cp.diagnose(run, data=draw(300, 16), quiet=True)
    before = run.folder.findings.read_bytes()
    found = cp.diagnose(run, data=draw(300, 16), layers=True, checkpoint="4", quiet=True).layers
    assert found is not None
    assert run.folder.findings.read_bytes() == before
    with pytest.raises(UsageError, match="checkpoint must be one here"):
        cp.diagnose(run, data=draw(300, 16), checkpoint="all", quiet=True)


@pytest.mark.thorough
def test_the_table_fits_a_terminal_and_other_encoders_have_it_too(run: cp.Run, tmp_path: Path) -> None:
    found = cp.diagnose(run, data=draw(300, 16), layers=True, quiet=True)
    text = str(found)
    table = text[text.index("Layers (300 samples)") :]
    assert max(map(len, table.splitlines())) <= 100
    for word in ("vanished", "projector.0 (Linear)", "embedding (output map)", "floor"):
        assert word in table
    images = np.random.default_rng(0).integers(0, 255, (40, 16, 16, 3), dtype=np.uint8)
    other = cp.diagnose("convnet", data=images, layers=True, quiet=True).layers
    assert other is not None
    assert other.layers[0].is_pooled
    assert "averaged over their positions" in str(other)
