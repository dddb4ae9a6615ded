"""What may change when a run is continued, and what may not."""

import hashlib
import json
import shlex
from collections.abc import Mapping
from typing import Any

from counterpoint.core.errors import UsageError
from counterpoint.core.rundir import RunFolder
from counterpoint.core.settings import TrainSettings
from counterpoint.core.validation import build, leaf_fields, merge, read_yaml_mapping

# None of these changes a weight.
HARMLESS = frozenset(
    {
        "engine.workers",
        "engine.checkpoint_every",
        "engine.checkpoint_steps",
        "engine.checkpoint_at",
        "engine.keep",
        "engine.knn_every",
        "engine.tensorboard",
        "engine.wandb",
        "source.max_bad",
    }
)

# Where a run lies, and the name of settings that are recorded one by one: no value by itself.
NAMES = ("out", "recipe")

# Settings that earlier versions did not have, at the values that stand for what they did: their runs keep their hash.
LATER: Mapping[str, tuple[Any, ...]] = {
    "init": (None,),
    "pretrained_weights": (None,),
    "optim.layer_decay": (1.0,),
    "source.label_share": (1.0,),
    "stem": ("auto", "small"),
    "source.classes": ("all", "all"),
    "engine.encode_views": ("auto", "together"),
    "views.fill": ("auto", "black"),
    "initial": ("uniform",),
    "projector.output_norm": ("auto", "none", "batch-plain"),  # which SimSiam has
    "optim.decay_all": (False,),
    "optim.peak_epochs": (0.0,),
    "optim.cosine_epochs": ("none",),
}
# What stands for a setting in a run that it has no effect in, where earlier versions recorded it.
WITHOUT_EFFECT: Mapping[str, str] = {"engine.strategy": "ddp"}
# What 0.1.0 had and is gone, as it recorded it by default: hashes keep it.
FORMER: Mapping[str, str] = {"engine.backend": "fabric", "engine.average": "none"}


def continued_settings(
    folder: RunFolder, recorded_before: TrainSettings, asked: TrainSettings, *, allow_changed: bool
) -> TrainSettings:
    """Settings with which a run goes on: its own, and of those asked for the harmless ones if they are allowed.

    Args:
        folder: the run.
        recorded_before: its own.
        asked: what the user gave this time.
        allow_changed: take over harmless differences.

    Raises:
        UsageError: settings differ; all of them are named.
    """
    recorded = recorded_before.model_dump()
    differing = differing_settings(recorded, merge(recorded, asked.model_dump(exclude_unset=True)))
    if not differing:
        return recorded_before
    named = ", ".join(f"{path} {new!r} (the run has {old!r})" for path, (old, new) in differing.items())
    if differing.keys() == {"epochs"}:
        remedy = f"counterpoint resume {shlex.quote(str(folder.path))} --epochs {asked.epochs}"
        raise UsageError(f"cannot resume {folder.path} with {named}; another number of epochs takes: {remedy}")
    if not differing.keys() <= HARMLESS:
        raise UsageError(f"cannot resume {folder.path} with {named}; start a new run with another --out")
    if not allow_changed:
        raise UsageError(
            f"cannot resume {folder.path} with {named}; no weight depends on that: allow it with --allow-changed"
        )
    changes: dict[str, Any] = {}
    for path, (_, new) in differing.items():
        section, leaf = path.split(".")
        changes.setdefault(section, {})[leaf] = new
    # Not all that was asked for: what is equal or auto stays as the run has it.
    return build(TrainSettings, merge(recorded, changes), "settings")


def settings_hash(settings: TrainSettings, former: Mapping[str, str] = FORMER) -> str:
    """Short hash of every setting that a weight depends on.

    Args:
        settings: with every ``auto`` filled in.
        former: settings that are gone, by path, and what they were.
    """
    values = settings.model_dump(mode="json")
    known = {path: _at(values, path) for path, _ in leaf_fields(TrainSettings) if path not in HARMLESS}
    # What earlier versions did not know is left out at the values of what they did: the same text, the same hash.
    relevant = {path: value for path, value in known.items() if path not in NAMES and value not in LATER.get(path, ())}
    relevant.update({path: value for path, value in WITHOUT_EFFECT.items() if relevant[path] == "auto"})
    relevant.update(former)
    # Sorted: the order of fields may change.
    return hashlib.sha256(json.dumps(relevant, sort_keys=True).encode()).hexdigest()[:16]


def former_settings(folder: RunFolder) -> dict[str, str]:
    """What a run recorded of settings that are gone, by path."""
    try:
        # Read as plain YAML: the settings of this version refuse the key.
        engine = read_yaml_mapping(folder.resolved).get("engine")
    except UsageError:  # missing or damaged: see `runs.recover_run`
        return dict(FORMER)
    backend = engine.get("backend") if isinstance(engine, dict) else None
    return {**FORMER, **({"engine.backend": backend} if isinstance(backend, str) else {})}


def differing_settings(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Both values of each setting that differs, by path."""
    # Another "out" is a folder that was moved; a recipe is what its values are; "auto" asks for nothing.
    return {
        path: (_at(before, path), _at(after, path))
        for path, _ in leaf_fields(TrainSettings)
        if path not in NAMES and _at(after, path) not in ("auto", _at(before, path))
    }


def _at(values: Mapping[str, Any], path: str) -> Any:
    """Value at a dotted path."""
    for step in path.split("."):
        values = values[step]
    return values
