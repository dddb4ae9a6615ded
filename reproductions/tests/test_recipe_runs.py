"""Every recipe takes steps at its own hyper-parameters, and each of its settings changes what it trains."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from recipe_steps import CLASSES, SIDES, job_of, pictures_file, settings_of, take_two_steps, trace_of

from counterpoint.core.errors import UsageError
from counterpoint.runs.recipes import Recipe, all_recipes, recipe_named

# Settings that steer what is written, or what another setting beside them says; none of them has a say in the weights.
OUTPUT_ONLY = {
    "engine.checkpoint_at": "says when checkpoints are written: tests/runs/test_recipes.py",
    "method": "its loss, projector, output map and target stand beside it in the recipe, each one tried",
    "source.split": "a part of a named set: tests/data/test_published.py",
    "source.image_size": "the size of photographs in folders: tests/data/test_image_folders.py",
}
# A batch, an encoder and a queue that two steps take no time with; sizes that belong to them.
SMALL: dict[str, Any] = {
    "encoder": "resnet9-narrow",
    "batch_size": 16,
    "target.queue_size": 16,
    "source.class_counts": [12, 12, 24],
    "output.d0": 64,
    "projector.rank": 64,
    "projector.hidden": 32,
    "projector.features": 24,
}
OTHER: dict[str, Any] = {
    "encoder": "resnet9",
    "batch_size": 8,
    "target.queue_size": 24,
    "source.class_counts": [12, 12, 20],
    "source.classes": "airplane,automobile,cat",
    "source.holdout": 0.3,
    "source.sampling": "natural",
    "initial": "uniform",
    "views.preset": "digits",
    "views.crop_scale": [0.5, 1.0],
    "projector.kind": "linear",
    "projector.norm": "none",
    "output.nonnegative": "softplus",
    "output.d0": 16,
    "loss.negatives": "same-view",
    "optim.name": "adamw",
    "optim.weight_decay": 0.1,
    "optim.trust": 1e-5,  # where it is clipped a larger one changes nothing in the first steps of a warm-up
    "optim.schedule": "constant",
    "optim.final_share": 0.3,
    "engine.precision": "bf16",
    "engine.encode_views": "together",
}
OPTIONS = {
    "rule": {"rule": "entropy", "temperature": 0.3},
    "form": {"form": "squared"},
    "loss": {"loss": "infonce", "weight": 0.01, "normalize": False},
    "normalize": {"normalize": "sphere"},
    "epsilon": {"epsilon": 0.5},
    "mu": {"mu": 0.01},
}


# What is of the old value only, at its default.
RESET: dict[str, dict[str, Any]] = {
    "optim.name": {"optim.trust": 0.001, "optim.trust_clip": False},
    "optim.schedule": {"optim.final_share": 0.0, "optim.peak_epochs": 0.0, "optim.cosine_epochs": "none"},
    "projector.norm": {"projector.output_norm": "auto"},
    "loss.name": {"loss.options": {}, "loss.epsilon": 1.0, "loss.negatives": "auto", "temperature": "auto"},
}
ONE_LOSS = ("byol", "supervised", "nonnegative-supervised")  # methods that take no other
OF_METHOD = ("temperature", "loss", "projector", "target", "output")  # what a method may read in a way of its own


def tried() -> list[tuple[str, str]]:
    """Each setting once per paper, those of a method once per method, loss and projector: in the first such recipe."""
    seen: dict[tuple[Any, ...], tuple[str, str]] = {}
    for name, recipe in all_recipes().items():
        settings = recipe.settings
        for path, value in settings.items():
            kind = (settings["method"], settings.get("loss.name"), settings.get("projector.kind"))
            kind = kind if path.startswith(OF_METHOD) else (recipe.paper,)
            is_fixed = path == "loss.name" and settings["method"] in ONE_LOSS
            if value != "auto" and path not in OUTPUT_ONLY and not is_fixed:
                rule = str(value) if path == "loss.options" else ""
                seen.setdefault((*kind, path, rule), (name, path))
    return list(seen.values())


def changed(recipe: Recipe, path: str) -> list[dict[str, Any]]:
    """Other values of a setting: one, or one for each option of the loss."""
    value = recipe.settings[path]
    if path == "loss.options":
        # Another rule has other options.
        return [
            {path: _other_option(key, old) if key == "rule" else {**value, **_other_option(key, old)}}
            for key, old in value.items()
        ]
    if path == "projector.kind":  # what else it says is of that kind only
        rest = {other: "auto" for other in recipe.settings if other.startswith("projector.") and other != path}
        return [{path: "linear" if value != "linear" else "none", **rest}]
    return [{path: _other(path, value), **RESET.get(path, {})}]


def _other(path: str, value: Any) -> Any:
    if path == "stem":
        return "small" if value != "small" else "large"
    if path == "loss.name":
        return "dcl" if value == "infonce" else "vicreg"
    if isinstance(value, bool):
        return not value
    if path in ("optim.warmup_epochs", "optim.peak_epochs"):
        return value + 1.0
    if value in ("adam", "constant"):
        return {"adam": "sgd", "constant": "cosine"}[value]
    if path in OTHER and OTHER[path] != value:
        return OTHER[path]
    if path in ("projector.norm", "projector.output_norm"):
        return "batch" if value != "batch" else "batch-plain"
    if path == "projector.layers":
        return value + 1
    known = SMALL.get(path, value)
    return known + 1 if isinstance(known, int) else known * 0.7 + 0.023


def _other_option(key: str, old: Any) -> dict[str, Any]:
    if key in OPTIONS and not isinstance(old, bool):
        return OPTIONS[key]
    return {key: not old if isinstance(old, bool) else old + 1 if isinstance(old, int) else old * 1.5}


def small(recipe: Recipe) -> dict[str, Any]:
    """A recipe's sizes made small."""
    return {path: value for path, value in SMALL.items() if type(recipe.settings.get(path)) is type(value)}


@pytest.mark.slow
@pytest.mark.parametrize(("name", "path"), tried())
def test_each_setting_of_a_recipe_is_in_effect(name: str, path: str, tmp_path: Path) -> None:
    recipe = recipe_named(name)
    data = pictures_file(tmp_path, number=160, side=16)
    before = trace_of(job_of(settings_of(name, data, small(recipe)), tmp_path))
    assert trace_of(job_of(settings_of(name, data, small(recipe)), tmp_path)) == before
    for change in changed(recipe, path):
        assert trace_of(job_of(settings_of(name, data, {**small(recipe), **change}), tmp_path)) != before, change


@pytest.mark.slow
@pytest.mark.parametrize("name", all_recipes())
def test_a_recipe_takes_two_steps_at_its_own_hyper_parameters(name: str, tmp_path: Path) -> None:
    """With its own batch, in chunks where it does not fit 16 GiB; photographs at a seventh of their side on a CPU."""
    settings = recipe_named(name).settings
    side = SIDES[name.split("-")[1]]
    side = side if side < 200 or torch.cuda.is_available() else side // 7
    counts = settings.get("source.class_counts", ())
    queue = settings.get("target.queue_size", 0) if settings["method"] == "moco" else 0
    kept = 1 - settings.get("source.holdout", 0.0)
    number = max(math.ceil((2 * settings["batch_size"] + len(CLASSES)) / kept), queue)
    data = pictures_file(tmp_path, number=number, side=side, counts=tuple(counts))
    most = 256 if settings["encoder"] == "resnet50" else 512  # 22 MB of activations for a picture of 32 px
    caching = {"engine.chunk_size": 256, "engine.chunk_norm": True} if settings["batch_size"] > most else {}
    losses = take_two_steps(job_of(settings_of(name, data, caching), tmp_path))
    assert len(losses) == 2
    assert all(math.isfinite(loss) for loss in losses)


def test_a_supervised_recipe_needs_labels(tmp_path: Path) -> None:
    data = pictures_file(tmp_path, number=16, side=8)
    with pytest.raises(UsageError, match="method supervised learns from labels, and the data have none"):
        job_of(
            settings_of(
                "ncl-imagenet100-resnet18-supervised",
                data,
                {"source.labels": "none", "encoder": "resnet9-narrow", "batch_size": 8},
            ),
            tmp_path,
        )
