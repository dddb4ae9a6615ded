"""From settings models to flags and back: one validation for YAML, Python and the command line. Loads without torch."""

import argparse
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from counterpoint.cli.parsers import Parser
from counterpoint.core.errors import UsageError, gone, nearest
from counterpoint.core.rundir import open_run
from counterpoint.core.settings import TrainSettings
from counterpoint.core.user_files import is_file_or_shards
from counterpoint.core.user_objects import from_flag
from counterpoint.core.validation import build, expectation, leaf_fields, merge, nest, parse_yaml, read_yaml_mapping
from counterpoint.runs.recipes import with_recipe

# What of the data a verb looks at.
CHOOSING = tuple(f"source.{name}" for name in ("split", "classes", "root", "image_size", "max_bad", "altered"))
# Settings of sections that are given often, and stand in the help.
OFTEN = (
    "source.labels", "source.image_size", "source.holdout", "views.preset", "projector.kind", "projector.features",
    "loss.name", "optim.name", "optim.learning_rate", "engine.device", "engine.precision", "engine.workers",
)  # fmt: skip
TEXT_ONLY = (str, str | None)


def add_settings(parser: Parser, sections: Sequence[str] | None = None) -> None:
    """Add the settings of training (of some top-level names or paths only, if given).

    Those at the top and those that are given often have a flag; every one can be given by ``--set``.
    """
    paths = {
        path: field
        for path, field in leaf_fields(TrainSettings)
        if sections is None or {path.split(".", 1)[0], path} & set(sections)
    }
    main, often = parser.add_argument_group("main settings"), parser.add_argument_group("often set")
    for path, field in paths.items():
        if "." not in path or path in OFTEN:
            group = often if "." in path else main
            # Text, and None where it was not given: values are read and checked as those of the YAML file are.
            group.add_argument(f"--{path.replace('_', '-')}", dest=path, metavar="X", default=None, help=_help(field))
    add_set(
        parser,
        paths,
        "any other setting of `counterpoint list settings`, such as --set optim.momentum=0.95, or for short "
        "--optim.momentum 0.95; wins over everything, and may be given several times",
    )


def add_set(parser: Parser, paths: Collection[str], text: str) -> None:
    """Add ``--set``, and what it takes."""
    parser.settable = tuple(paths)
    parser.set_defaults(settable=parser.settable)
    parser.add_argument("--set", action="append", metavar="NAME=VALUE", help=text)


def described_settings() -> dict[str, str]:
    """Each setting of training with its description, range and default."""
    return {path: _words(field) for path, field in leaf_fields(TrainSettings)}


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
    build(TrainSettings, with_recipe(asked), "command line")
    return asked


def _assigned(text: str, known: Collection[str]) -> tuple[str, Any]:
    """Path and value of ``--set path=value``.

    Raises:
        UsageError: no such form, or no such setting.
    """
    path, sign, value = text.partition("=")
    path = path.strip().replace("-", "_")
    if not sign:
        raise UsageError(f"--set takes NAME=VALUE, such as --set optim.name=sgd, got {text!r}")
    if path not in known:
        raise UsageError(gone(path) or f"command line: unknown setting {path!r}{nearest(path, known)}")
    return path, _value(path, dict(leaf_fields(TrainSettings))[path], value)


def add_fields(parser: argparse.ArgumentParser, model: type[BaseModel], but: Collection[str] = ()) -> None:
    """Add a flag for every field of a verb's own settings, but for some; one that takes names may be repeated."""
    for name, field in model.model_fields.items():
        if name not in but:
            flag = _extra(field).get("flag", f"--{name.replace('_', '-')}")
            how: Any = {"metavar": "NAMES", "action": "append"} if _takes_names(field) else {"metavar": "X"}
            parser.add_argument(flag, dest=name, default=None, help=_help(field), **how)


def fields_from(namespace: argparse.Namespace, model: type[BaseModel], but: Collection[str] = ()) -> dict[str, Any]:
    """Those of the flags above that were given, checked.

    Raises:
        UsageError: a mistake in a flag.
    """
    given = {name: getattr(namespace, name) for name in model.model_fields if name not in but}
    known = {name: _value(name, model.model_fields[name], text) for name, text in given.items() if text is not None}
    build(model, known, "command line")
    return known


def _takes_names(field: FieldInfo) -> bool:
    """Whether a field is a list of names."""
    return get_origin(field.annotation) is tuple and get_args(field.annotation)[0] is not float


def _extra(field: FieldInfo) -> dict[str, Any]:
    """What a field says of its flag beside its type."""
    return field.json_schema_extra if isinstance(field.json_schema_extra, dict) else {}


def add_looking(parser: Parser, checkpoint: str) -> None:
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
    add_set(parser, CHOOSING, f"what of the data is looked at, such as --set source.split=test: {', '.join(CHOOSING)}")


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
    """The settings of some paths that were given, nested: by their flags, and over these by ``--set``."""
    fields = dict(leaf_fields(TrainSettings))
    texts = {path: getattr(namespace, path, None) for path in fields if path in paths}
    by_flag = {path: _value(path, fields[path], text) for path, text in texts.items() if text is not None}
    return nest({**by_flag, **dict(_assigned(text, namespace.settable) for text in namespace.set or ())})


def _value(path: str, field: FieldInfo, text: Any) -> Any:
    """Read a flag's text as YAML would be read, unless the setting is text anyway; it may name code."""
    if field.annotation in TEXT_ONLY:
        return from_flag(text)
    if _takes_names(field):
        parts = text if _extra(field).get("whole") else ",".join(text).split(",")
        return tuple(from_flag([part.strip() for part in parts if part.strip()]))
    if field.annotation == dict[str, str]:
        pairs = [pair.partition("=") for pair in filter(None, text.split(","))]
        if wrong := ["".join(pair) for pair in pairs if not all(map(str.strip, pair))]:
            raise UsageError(f"{path} must be pairs such as car=automobile, got {wrong[0]!r}")
        return {theirs.strip(): ours.strip() for theirs, _, ours in pairs}
    # --views.crop-scale 0.2,1 without brackets, which a shell would treat as a pattern.
    if "pair" in expectation(field) and "," in text and not text.startswith("["):
        text = f"[{text}]"
    return from_flag(parse_yaml(text, f"command line: {path}"))


def _help(field: FieldInfo) -> str:
    """The same for argparse, which formats help texts with %."""
    return _words(field).replace("%", "%%")


def _words(field: FieldInfo) -> str:
    """Description, range and default."""
    is_said = field.default in (None, "auto", ()) or field.default_factory is not None
    default = "" if is_said else f"; default {field.default}"
    is_plain = field.annotation in TEXT_ONLY or _takes_names(field) or field.annotation == dict[str, str]
    allowed = "" if is_plain else f" ({expectation(field)}{default})"
    allowed = allowed or (f" ({default.removeprefix('; ')})" if default else "")
    return f"{field.description}{allowed}"
