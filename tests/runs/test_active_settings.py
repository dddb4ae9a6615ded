"""A setting either changes the run or is refused: over every method, and before any data are read."""

import copy
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import counterpoint as cp
from counterpoint.core.errors import UsageError
from counterpoint.core.files import sealed_text, with_run
from counterpoint.core.settings import TrainSettings
from counterpoint.core.validation import build, dump_yaml, leaf_fields, nest, parse_yaml
from counterpoint.data.formats.labels import number_labels
from counterpoint.data.source import memory_source
from counterpoint.data.stores import MemoryStore
from counterpoint.engine.checkpoint import list_checkpoints, load_checkpoint, save_checkpoint
from counterpoint.engine.placement import Placement
from counterpoint.methods.catalogue import CATALOGUE as METHODS
from counterpoint.runs import active_settings
from counterpoint.runs.active_settings import (
    IMAGE_RULES,
    RULES,
    VECTOR_RULES,
    check_choices,
    idle_settings,
    refuse_idle,
)
from counterpoint.runs.assembly import assemble
from counterpoint.runs.resolve import Resolution, resolve_holdout
from counterpoint.runs.user_inputs import UserInputs

CPU = Placement("cpu", "fp32", {"engine.device": "", "engine.precision": ""})
NUM_SAMPLES, NUM_FEATURES = 64, 6
# Another value than any method has by itself.
CHANGED: dict[str, Any] = {
    "temperature": 0.7,
    "loss.epsilon": 0.5,
    "loss.negatives": "same-view",
    "target.momentum": 0.5,
    "target.queue_size": 16,
    "target.predictor_hidden": 7,
    "projector.layers": 4,
    "projector.hidden": 9,
    "projector.norm": None,  # the other one
    "projector.output_norm": None,
    "projector.features": 5,
    "projector.rank": 2,
    "projector.active": 3,
}
OF_OTHER_PARTS = {
    "optim.momentum": 0.5,
    "optim.trust": 0.1,
    "optim.trust_clip": True,
    "optim.final_share": 0.1,
    "optim.peak_epochs": 1.0,
    "optim.cosine_epochs": 3.0,
    "optim.decay_all": True,
    "engine.chunk_norm": True,
    "engine.strategy": "fsdp",
    "source.imbalance_ratio": 5.0,
    "source.root": "elsewhere",
    "source.image_column": "image",
    "source.label_column": "label",
    "source.drop_columns": "id",
    "source.columns": "runs/other",
    "source.max_bad": 0.5,
    "source.altered": "reindex",
    "views.local_crops": 2,
    "stem": "large",
    "initial": "normal",
}
PARTS = {
    **{f"optim.{name}": {"optim.schedule": "constant"} for name in ("final_share", "peak_epochs", "cosine_epochs")},
    "optim.decay_all": {"optim.weight_decay": 0.0},
}


def settings_of(method: str, **changes: Any) -> TrainSettings:
    asked = {"data": "digits", "method": method, "encoder": "mlp", "batch_size": 16, "source.holdout": 0.0, **changes}
    return build(TrainSettings, nest(asked), "test")


def made_of(method: str, **changes: Any) -> tuple[dict[str, Any], Resolution]:
    """All that a setting of loss, projector or target could change: shapes of weights, losses, momenta."""
    generator = torch.Generator().manual_seed(0)
    samples = torch.randn(NUM_SAMPLES, NUM_FEATURES, generator=generator)
    pairs = {"second": MemoryStore(samples), "second_shape": (NUM_FEATURES,)} if "modal" in method else {}
    source = memory_source("test", samples, number_labels(torch.arange(NUM_SAMPLES) % 2, NUM_SAMPLES), **pairs)
    resolution = resolve_holdout(settings_of(method, **changes), source)
    assembled = assemble(resolution, source, CPU, UserInputs())
    loss = copy.deepcopy(assembled.loss)
    own: dict[str, Any] = {name: tuple(value.shape) for name, value in assembled.method.state_dict().items()}
    z0, z1 = torch.rand(2, 16, assembled.encoder.embedding_dims, generator=generator)
    values = [loss(z0, z1, torch.arange(16) % 2 if loss.uses_labels else None).detach() for _ in range(2)]
    return {**own, "values": torch.stack(values), "momentum": getattr(assembled.method, "momentum", None)}, resolution


def differ(first: dict[str, Any], second: dict[str, Any]) -> bool:
    one, other = first.pop("values"), second.pop("values")
    return first != second or not torch.allclose(one, other, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.sampled(5)
def test_what_is_refused_changes_nothing_and_all_else_does(method: str) -> None:
    plain, _ = made_of(method)
    idle = idle_settings(settings_of(method))
    for path, value in CHANGED.items():
        known = METHODS[method].projector_norm if path == "projector.norm" else METHODS[method].projector_output_norm
        given = value or ("none" if known != "none" else "batch")
        changed, resolution = made_of(method, **{path: given})
        assert differ(dict(plain), changed) != (path in idle), path
        if path in idle:
            with pytest.raises(UsageError, match=rf"^{path} has no effect with method {method}: .+; leave it out$"):
                check_choices(settings_of(method, **{path: given}))
        else:
            check_choices(settings_of(method, **{path: given}))
        assert path not in resolution.reasons


def test_every_rule_is_tried() -> None:
    by_method = {"engine.encode_views"}  # tests/runs/test_resolve.py
    assert {*CHANGED, *OF_OTHER_PARTS, *by_method} == set(RULES)
    known = {path for path, _ in leaf_fields(TrainSettings)}
    assert {*RULES, *VECTOR_RULES, *IMAGE_RULES} <= known


@pytest.mark.parametrize("path", OF_OTHER_PARTS)
def test_a_setting_of_a_part_that_the_run_lacks(path: str) -> None:
    changes = {**PARTS.get(path, {}), path: OF_OTHER_PARTS[path]}
    with pytest.raises(UsageError, match=f"^{path} has no effect with method simclr: "):
        check_choices(settings_of("simclr", **changes))


def test_a_setting_of_several_ranks_has_an_effect_with_several(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = settings_of("simclr", **{"engine.strategy": "fsdp"})
    monkeypatch.setattr(active_settings, "world_size", lambda: 2)
    check_choices(asked)


def test_columns_and_roots_are_for_the_data_that_have_them(tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    (tmp_path / "table.parquet").touch()
    folder, table = str(tmp_path / "photos"), str(tmp_path / "table.parquet")
    with pytest.raises(UsageError, match=r"^source.image_column .*an image folder; it is for a table"):
        check_choices(settings_of("simclr", **{"data": folder, "source.image_column": "image"}))
    with pytest.raises(UsageError, match=r"^source.label_column .*an image folder"):
        check_choices(settings_of("simclr", **{"data": folder, "source.label_column": "label"}))
    check_choices(settings_of("simclr", **{"data": table, "source.image_column": "file", "source.label_column": "l"}))
    check_choices(settings_of("simclr", **{"data": "cifar10", "source.root": "sets"}))
    (tmp_path / "photos" / "a.tar").touch()
    check_choices(settings_of("simclr", **{"data": folder, "source.label_column": "cls"}))


@pytest.mark.parametrize(
    ("shape", "asked", "path"),
    [
        ((1, 8, 8), {"views.noise": 0.1}, "views.noise"),
        ((1, 8, 8), {"views.grayscale": 0.2}, "views.grayscale"),
        ((3, 8, 8), {"views.preset": "none", "views.rotate": 15.0}, "views.rotate"),
        ((3, 8, 8), {"views.jitter": 0.0, "views.jitter_strength": 0.5}, "views.jitter_strength"),
        ((6,), {"views.flip": 0.5}, "views.flip"),
    ],
)
def test_a_change_that_these_views_never_make(shape: tuple[int, ...], asked: dict[str, Any], path: str) -> None:
    settings = settings_of("simclr", **{"views.preset": "vectors" if len(shape) == 1 else "small-images", **asked})
    with pytest.raises(UsageError, match=f"^{path} has no effect"):
        refuse_idle(settings, idle_settings(settings, shape))


def test_the_temperature_of_a_rule_is_an_option_of_the_loss(tmp_path: Path) -> None:
    """Under alpha-cl the temperature was recorded and never read: the weights of 0.5 and of 0.05 were the same."""
    with pytest.raises(UsageError, match=r"its rule may take more, as in --loss.options '\{temperature: 0.1\}'"):
        check_choices(settings_of("alpha-cl", temperature=0.05))
    sharp, resolution = made_of("alpha-cl", **{"loss.options": {"temperature": 0.05}})
    assert differ(made_of("alpha-cl")[0], sharp)
    assert resolution.settings.temperature == "auto"


def test_what_has_no_effect_is_not_recorded_and_a_run_that_recorded_it_goes_on(
    tmp_path: Path, rng: np.random.Generator
) -> None:
    images = rng.integers(0, 256, (40, 8, 8), dtype=np.uint8)
    small: dict[str, Any] = {"epochs": 1, "batch_size": 8, "method": "alpha-cl", "encoder": "convnet", "quiet": True}
    run = cp.train(images, out=tmp_path / "run", **small)
    recorded = parse_yaml(run.folder.resolved.read_text(), "resolved")
    assert "temperature" not in recorded
    assert "temperature" not in recorded["reasons"]
    assert "momentum" not in recorded["optim"]
    assert recorded["target"] == {}
    # As version 0.1.0 recorded it.
    old = {**recorded, "temperature": 0.5, "target": {"momentum": "auto", "queue_size": "auto"}}
    run.folder.resolved.write_text(sealed_text(with_run(dump_yaml(old), run.folder.run_id)))
    saved = load_checkpoint(list_checkpoints(run.folder.checkpoints)[0])
    del saved.facts["resolved"]
    shutil.rmtree(run.folder.checkpoints)
    save_checkpoint(run.folder.checkpoints, saved, keep=1)
    run.folder.update_status(status="interrupted")
    assert cp.resume(cp.Run(run.path, data=images), quiet=True).folder.read_status().status == "finished"
    assert parse_yaml(run.folder.resolved.read_text(), "resolved")["temperature"] == 0.5
