"""Learning rates by layer: which layers an encoder has, what each takes of the rate, and where that has no effect."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import counterpoint as cp
from counterpoint.core.errors import UsageError
from counterpoint.core.settings import OptimSettings
from counterpoint.engine.optimisers import build_optimizer, set_learning_rate
from counterpoint.evaluation.trained_run import read_resolved
from counterpoint.nn.encoders import build_encoder, initial_encoder, parameter_layers


class Wired(nn.Module):
    """A backbone with a head behind it."""

    def __init__(self, backbone: nn.Module) -> None:
        super().__init__()
        self.backbone = backbone
        self.head = nn.Linear(4, 2)


def names_by_layer(module: nn.Module) -> list[list[str]]:
    names = {id(parameter): name for name, parameter in module.named_parameters()}
    return [[names[id(parameter)] for parameter in layer] for layer in parameter_layers(module)]


def rates_of(module: nn.Module, *, name: str = "sgd", decay: float, rate: float = 1.0) -> dict[str, float]:
    settings: Any = {"name": name, "learning_rate": 0.1, "weight_decay": 0.3, "layer_decay": decay}
    optimizer = build_optimizer(module, OptimSettings(**settings))
    set_learning_rate(optimizer, rate)
    names = {id(parameter): key for key, parameter in module.named_parameters()}
    return {names[id(p)]: group["lr"] for group in optimizer.param_groups for p in group["params"]}


@pytest.mark.parametrize(
    ("name", "shape", "num_layers"),
    [("mlp", (5,), 2), ("convnet", (3, 16, 16), 4), ("resnet9", (3, 16, 16), 5), ("resnet18", (3, 16, 16), 9)],
)
def test_layers_of_our_encoders_are_in_order_and_complete(name: str, shape: tuple[int, ...], num_layers: int) -> None:
    encoder = build_encoder(name, shape)
    layers = names_by_layer(encoder)
    assert len(layers) == num_layers
    assert [each for layer in layers for each in layer] == [each for each, _ in encoder.named_parameters()]


@pytest.mark.thorough
def test_layers_of_timm_are_its_own() -> None:
    pytest.importorskip("timm", reason="timm is not installed (extra `vision`)")
    layers = names_by_layer(build_encoder("timm:vit_tiny_patch16_224", (3, 32, 32)))
    assert len(layers) == 13
    assert {"cls_token", "pos_embed", "patch_embed.proj.weight"} <= set(layers[0])
    assert all(name.startswith(("blocks.11.", "norm.")) for name in layers[-1])


def test_a_weight_that_two_layers_share_belongs_to_the_first() -> None:
    first, last = nn.Linear(4, 4), nn.Linear(4, 4)
    last.weight = first.weight
    assert names_by_layer(nn.Sequential(first, last)) == [["0.weight", "0.bias"], ["1.bias"]]


@pytest.mark.parametrize("name", ["adamw", "adam", "sgd", "lars"])
def test_each_layer_takes_its_share_and_heads_the_whole_rate(name: str) -> None:
    module = Wired(nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 4)))
    rates = rates_of(module, name=name, decay=0.5, rate=0.8)
    assert rates == {
        "backbone.0.weight": 0.2, "backbone.0.bias": 0.2, "backbone.1.weight": 0.2, "backbone.1.bias": 0.2,
        "backbone.2.weight": 0.4, "backbone.2.bias": 0.4, "head.weight": 0.8, "head.bias": 0.8,
    }  # fmt: skip


def test_decay_of_weights_is_as_without_it() -> None:
    module = Wired(nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 4)))
    by_decay = []
    for decay in (1.0, 0.5):
        settings = OptimSettings(name="adamw", learning_rate=0.1, weight_decay=0.3, layer_decay=decay)
        groups = build_optimizer(module, settings).param_groups
        by_decay.append({id(p): group["weight_decay"] for group in groups for p in group["params"]})
    assert by_decay[0] == by_decay[1]


def test_a_frozen_encoder_refuses_it() -> None:
    module = Wired(nn.Linear(3, 4).requires_grad_(False))
    with pytest.raises(UsageError, match=r"optim.layer_decay 0.5 has no effect: the encoder has no trainable"):
        rates_of(module, decay=0.5)


def test_a_run_with_it_steps_less_near_the_input_and_replays_bit_for_bit(tmp_path: Path) -> None:
    vectors = np.random.default_rng(0).normal(size=(48, 5)).astype(np.float32)
    asked: dict[str, Any] = {"epochs": 2, "batch_size": 16, "quiet": True, "optim.layer_decay": 1e-6}
    run = cp.train(vectors, out=str(tmp_path / "run"), **asked)
    assert "layer_decay: 1.0e-06" in run.folder.resolved.read_text()
    first = cp.load(run).backbone[0].weight  # pyright: ignore[reportIndexIssue]
    untrained = build_untrained(run)
    assert torch.allclose(first, untrained[0].weight, atol=1e-7)
    assert not torch.allclose(cp.load(run).projector[0].weight, torch.zeros(1))  # pyright: ignore[reportIndexIssue]
    checks = {check.what: check.result for check in cp.verify(run, quiet=True).checks}
    assert [result for name, result in checks.items() if name.startswith("replayed step")] == ["ok"]


def build_untrained(run: cp.Run) -> Any:
    settings, card = read_resolved(run.folder), cp.load(run).card
    return initial_encoder(card.architecture, card.in_shape, settings.seed, card.stem)
