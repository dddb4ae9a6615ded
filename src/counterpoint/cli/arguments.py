"""From settings models to flags and back: one validation for YAML, Python and the command line. Loads without torch."""

import argparse
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from counterpoint.core.errors import UsageError, nearest
from counterpoint.core.own_parts import from_flag
from counterpoint.core.rundir import open_run
from counterpoint.core.settings import TrainSettings
from counterpoint.core.user_files import is_file_or_shards
from counterpoint.core.validation import build, expectation, leaf_fields, merge, nest, parse_yaml, read_yaml_mapping
from counterpoint.runs.recipes import with_recipe

# What of the data a verb looks at.
CHOOSING = tuple(f"source.{name}" for name in ("split", "classes", "root", "image_size", "max_bad", "altered"))
TEXT_ONLY = (str, str | None)
SECTION_TITLES = {
    "source": "source: what is read from the data",
    "views": "views: how two views of a sample are drawn",
    "projector": "projector: the head between representation and loss",
    "target": "target: momentum encoder, queue and predictor",
    "output": "output: from projector output to what the loss compares",
    "loss": "loss",
    "optim": "optim: optimiser and schedule",
    "engine": "engine: where and how it is computed",
}


def add_settings(parser: argparse.ArgumentParser, sections: Sequence[str] | None = None) -> None:
    """Add a flag for every setting (of some top-level names or paths only, if given)."""
    groups: dict[str, Any] = {}
    for path, field in leaf_fields(TrainSettings):
        top = path.split(".", 1)[0]
        if sections is not None and not {top, path} & set(sections):
            continue
        title = SECTION_TITLES[top] if "." in path else "main settings"
        group = groups.setdefault(title, parser.add_argument_group(title))
        # Text, and None where it was not given: values are read and checked as those of the YAML file are.
        group.add_argument(f"--{path.replace('_', '-')}", dest=path, metavar="X", default=None, help=_help(field))


def settings_from(namespace: argparse.Namespace, config: str | None) -> dict[str, Any]:
    """Lay the flags that were given over the YAML file, and check both, with the recipe that they name.

    Raises:
        UsageError: a mistake in the file, in a flag or in the name of a recipe.
    """
    from_file: dict[str, Any] = {}
    if config is not None:
        from_file = read_yaml_mapping(Path(config))
        build(TrainSettings, from_file, config)
    asked = merge(from_file, _given(namespace, [path for path, _ in leaf_fields(TrainSettings)]))
    asked = merge(asked, nest(dict(_assigned(text) for text in getattr(namespace, "set", None) or ())))
    build(TrainSettings, with_recipe(asked), "command line")
    return asked


def _assigned(text: str) -> tuple[str, Any]:
    """Path and value of ``--set path=value``.

    Raises:
        UsageError: no such form, or no such setting.
    """
    path, sign, value = text.partition("=")
    fields = dict(leaf_fields(TrainSettings))
    path = path.strip().replace("-", "_")
    if not sign:
        raise UsageError(f"--set takes NAME=VALUE, such as --set optim.name=sgd, got {text!r}")
    if path not in fields:
        raise UsageError(f"command line: unknown setting {path!r}{nearest(path, fields)}")
    return path, _value(path, fields[path], value)


def add_fields(parser: argparse.ArgumentParser, model: type[BaseModel]) -> None:
    """Add a flag for every field of a verb's own settings."""
    for name, field in model.model_fields.items():
        parser.add_argument(f"--{name.replace('_', '-')}", dest=name, metavar="X", default=None, help=_help(field))


def fields_from(namespace: argparse.Namespace, model: type[BaseModel]) -> dict[str, Any]:
    """Those of the flags above that were given, checked.

    Raises:
        UsageError: a mistake in a flag.
    """
    given = {name: getattr(namespace, name) for name in model.model_fields}
    known = {name: _value(name, model.model_fields[name], text) for name, text in given.items() if text is not None}
    build(model, known, "command line")
    return known


def add_looking(parser: argparse.ArgumentParser, checkpoint: str) -> None:
    """Add how a verb looks at samples: weights and preparation of an encoder from elsewhere, checkpoint and device.

    Args:
        parser: of the verb.
        checkpoint: help of ``--checkpoint``.
    """
    parser.add_argument("--weights", metavar="FILE", help="with --encoder: .safetensors, .pth, .ckpt, .pt or .bin")
    parser.add_argument("--mean", metavar="X,Y,Z", help="with --encoder: mean of its input in [0, 1], by channel")
    parser.add_argument("--std", metavar="X,Y,Z", help="with --encoder: standard deviation of its input, likewise")
    parser.add_argument("--checkpoint", metavar="STEP", help=checkpoint)
    parser.add_argument("--device", default="auto", help="auto (the GPU if there is one), cpu or cuda")
    parser.add_argument("--no-cache", action="store_true", help="neither keep features nor take kept ones")
    add_settings(parser, CHOOSING)


def subject_from(namespace: argparse.Namespace) -> str:
    """The run, file of features or encoder that a verb was given.

    Raises:
        UsageError: none, two of them, or a path that is neither.
    """
    if (namespace.subject is None) == (namespace.encoder is None):
        raise UsageError("give RUN (a run folder), a file of features, or --encoder NAME, and one of them only")
    if namespace.encoder is not None:
        return from_flag(namespace.encoder)
    if not is_file_or_shards(namespace.subject):
        open_run(Path(namespace.subject))  # before torch is loaded
    return namespace.subject


def look_from(namespace: argparse.Namespace) -> dict[str, Any]:
    """What ``add_looking`` was given.

    Raises:
        UsageError: a mistake in a flag.
    """
    known: dict[str, Any] = {"weights": namespace.weights, "checkpoint": namespace.checkpoint}
    for name in ("mean", "std"):
        text = getattr(namespace, name)
        known[name] = None if text is None else parse_yaml(f"[{text}]", f"command line: {name}")
    return {**part_from(namespace), **known, "device": namespace.device, "cache": not namespace.no_cache}


def part_from(namespace: argparse.Namespace) -> dict[str, Any]:
    """What of the data a verb is to look at: those settings of ``source`` that were given.

    Raises:
        UsageError: a mistake in a flag.
    """
    asked = _given(namespace, CHOOSING)
    build(TrainSettings, asked, "command line")
    return asked.get("source", {})


def _given(namespace: argparse.Namespace, paths: Collection[str]) -> dict[str, Any]:
    """The settings of some paths whose flags were given, nested."""
    return nest(
        {
            path: _value(path, field, text)
            for path, field in leaf_fields(TrainSettings)
            if path in paths and (text := getattr(namespace, path, None)) is not None
        }
    )


def _value(path: str, field: FieldInfo, text: str) -> Any:
    """Read a flag's text as YAML would be read, unless the setting is text anyway; it may name code."""
    if field.annotation in TEXT_ONLY:
        return from_flag(text)
    # --views.crop-scale 0.2,1 without brackets, which a shell would treat as a pattern.
    if "pair" in expectation(field) and "," in text and not text.startswith("["):
        text = f"[{text}]"
    return from_flag(parse_yaml(text, f"command line: {path}"))


def _help(field: FieldInfo) -> str:
    """Description, range and default."""
    default = "" if field.default in (None, "auto") else f"; default {field.default}"
    allowed = "" if field.annotation in TEXT_ONLY else f" ({expectation(field)}{default})"
    allowed = allowed or (f" ({default.removeprefix('; ')})" if default else "")
    # argparse formats help texts with %.
    return f"{field.description}{allowed}".replace("%", "%%")
