"""From settings records to flags and back: one validation for YAML, Python and command line. Loads without torch."""

import argparse
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

from pydantic import BaseModel, Field, InstanceOf, Strict
from pydantic.fields import FieldInfo

from counterpoint.cli.parsers import Parser, load_verb
from counterpoint.core.errors import UsageError, gone, nearest
from counterpoint.core.ranks import HERE, PieceEngine
from counterpoint.core.rundir import open_run
from counterpoint.core.settings import PartSettings, Settings, TrainSettings, option
from counterpoint.core.user_files import is_file_or_shards
from counterpoint.core.user_objects import from_flag
from counterpoint.core.validation import (
    build,
    expectation,
    leaf_fields,
    merge,
    nest,
    parse_yaml,
    read_yaml_mapping,
    without_removed,
)
from counterpoint.runs.recipes import with_recipe

# Settings of the data: READ for verbs that look at data, CHOOSING for verbs that encode samples.
READ = tuple(f"source.{name}" for name in ("labels", "split", "root", "image_column", "label_column", "drop_columns"))
CHOOSING = tuple(f"source.{name}" for name in PartSettings.model_fields)
Names = Annotated[tuple[str, ...], Strict(False)]  # a list is taken, too
PROCESS = "process"  # the engine that is this process alone


class VerbFlags(Settings):
    """Settings of every verb."""

    quiet: bool = option("show no progress", False, flag="-q --quiet")


class JsonFlags(VerbFlags):
    """Settings of a verb that prints a record."""

    as_json: bool = option("print JSON for scripts", False, flag="--json")


class RunFlags(JsonFlags):
    """Settings of a verb for one run, which the command opens before torch is loaded."""

    run: str = option("run folder", ..., place="RUN")


class SubjectFlags(VerbFlags):
    """Settings of a verb for a run, features in a file or an encoder from elsewhere."""

    subject: str | None = option(
        "run folder; or features (n, d) in a .npy, .npz, .csv or .parquet, as embed writes them",
        place="RUN|FILE",
    )
    encoder: InstanceOf[str] | None = option(
        "instead of a run: timm:NAME, torchvision:NAME, one of ours, or package.module:name",
    )


class EngineFlags(VerbFlags):
    """Settings of a verb whose pieces may be done by workers on a cluster."""

    engine: Literal["process", "ray"] = option(
        "who does the pieces: this process, or workers of Ray, whose settings --set takes", PROCESS
    )
    address: str | None = option("of a cluster: HOST:PORT, or auto for that of this machine", rare=True)
    workers: Annotated[int, Field(ge=1)] | None = option("by default one per GPU or processor", rare=True)


class EncodingFlags(EngineFlags):
    """Settings of a verb whose pieces pass an encoder."""

    gpus_per_worker: Annotated[float, Field(ge=0)] | None = option("by default 1 where there are GPUs", rare=True)


class GeometryFlags(JsonFlags):
    """Settings of ``geometry``: the classes, the loss, and the questions about them."""

    shares: Names = option("share of each class: 0.25 or 1/4; with --normalize also counts", (), place="SHARE")
    run: str | None = option(
        "instead of shares: a labelled run, whose classes are compared with the optimum of its loss, "
        "temperature, negatives and class counts",
    )
    normalize: bool = option("divide the shares by their sum", False)
    negatives: str | None = option("of each anchor, a number or inf (default: the loss's own number, else inf)")
    supervised: bool = option("negatives are of other classes only", False)
    loss: str | None = option("of `counterpoint list losses` (default: the paper's)")
    temperature: float | None = option("of the loss (default: the loss's own)")
    loss_options: dict[str, bool | int | float | str | None] = option(
        "further arguments of the loss, such as {margin: 0.5} for triplet",
        {},
    )
    dimension: int | None = option("of the embedding; below classes - 1 nothing can be certified")
    nonnegative: bool = option("the embedding has no negative entries", False)
    tolerance: float = option("relative duality gap to stop at", 1e-8)
    threshold: bool = option("also the share of one majority class above which the others, all equal, merge", False)
    rebalance: bool = option("also how to sample the classes, or weigh their anchors, to get the simplex back", False)
    deviation: float | None = option(
        "with --rebalance: distance of a cosine from the simplex's that it may leave (0.05)",
    )
    phase_diagram: bool = option("also from which share on minorities merge, by negatives and temperature", False)


def engine_from(flags: EngineFlags) -> PieceEngine:
    """Choose what does the pieces of a verb: this process, or workers of Ray.

    Raises:
        UsageError: settings of Ray without ``--engine ray``, or Ray is not installed.
    """
    options = chosen(flags, EncodingFlags, but=(*VerbFlags.model_fields, "engine"))
    if flags.engine == PROCESS:
        if options:
            raise UsageError(f"--{next(iter(options)).replace('_', '-')} goes with --engine ray")
        return HERE
    from counterpoint.integrations.ray_jobs import RayEngine, require_ray  # deferred: for --engine ray only

    require_ray()
    # Pieces that pass no encoder take no GPU.
    return RayEngine(**options) if isinstance(flags, EncodingFlags) else RayEngine(**options, gpus_per_worker=0.0)


def build_parser(name: str) -> Parser:
    """Build the parser of one verb."""
    verb = load_verb(name)
    parser = Parser(prog=f"counterpoint {name}", description=verb.__doc__)
    flags: type[BaseModel] = get_type_hints(verb.run)["flags"]
    add_fields(parser, flags)
    if sections := CHOOSING if issubclass(flags, PartSettings) else getattr(verb, "SETTINGS", ()):
        fields = {name: field for name, field in flags.model_fields.items() if "rare" in _extra(field)}
        rare = {name: f"{name} ({field.description}; {expectation(field)})" for name, field in fields.items()}
        _add_settings(parser, sections, getattr(verb, "OFTEN", ()), rare)
    places = [_extra(field)["place"] for field in flags.model_fields.values() if "place" in _extra(field)]
    parser.usage = " ".join([f"counterpoint {name}", *places, "[flags]"])  # all of them would fill the screen
    return parser


def read_words(name: str, words: Sequence[str]) -> list[Any]:
    """Read words into what ``run`` of a verb takes: its settings, and settings of training if it has some.

    Raises:
        UsageError: a mistake in a value, in the file of ``--config`` or in the name of a recipe.
    """
    parser, model = build_parser(name), get_type_hints(load_verb(name).run)["flags"]
    namespace = parser.parse_strictly(words)
    # Settings of --set stand in the place of those that have a flag.
    for text in getattr(namespace, "set", None) or ():
        path, sign, value = text.partition("=")
        path = path.strip().replace("-", "_")
        if not sign:
            raise UsageError(f"--set takes NAME=VALUE, such as --set optim.name=sgd, got {text!r}")
        if path not in parser.settable:
            raise UsageError(gone(path) or f"command line: unknown setting {path!r}{nearest(path, parser.settable)}")
        setattr(namespace, path, value)
    texts = {name: getattr(namespace, name, None) for name in model.model_fields}
    values = {
        name: _value(name, model.model_fields[name], text) for name, text in texts.items() if text not in (None, [])
    }
    flags = build(model, values, "command line")
    settings = _read_settings(namespace, parser.settable) if parser.settable else {}
    if issubclass(model, PartSettings):  # the choice of data is part of its record
        return [flags.model_copy(update=settings.get("source", {}))]
    return [flags, settings] if parser.settable else [flags]


def add_fields(parser: argparse.ArgumentParser, model: type[BaseModel]) -> None:
    """Add an argument for each field of a verb's settings that has a description."""
    for name, field in model.model_fields.items():
        extra, is_list = _extra(field), _takes_names(field)
        how: dict[str, Any] = {"default": None, "help": _help(field)}
        if not field.description or "rare" in extra:
            continue
        if "place" in extra:
            how["nargs"] = ("+" if is_list else None) if field.is_required() else ("*" if is_list else "?")
            parser.add_argument(name, metavar=extra["place"], **how)
            continue
        dashed = name.replace("_", "-")
        how |= {"dest": name, "required": field.is_required()}
        if field.annotation is bool:
            how |= {
                "action": "store_const",
                "const": not field.default,
                "help": f"do not {field.description}" if field.default else field.description,
            }
            dashed = f"no-{dashed}" if field.default else dashed
        elif is_list:
            how |= {"metavar": "NAMES", "action": "append"}
        else:
            how |= {"metavar": "X", **({"nargs": "?", "const": extra["alone"]} if "alone" in extra else {})}
        parser.add_argument(*extra.get("flag", f"--{dashed}").split(), **how)


def chosen(flags: BaseModel, model: type[BaseModel], but: Collection[str] = ()) -> dict[str, Any]:
    """Fields of a model that were given on the command line, with their values."""
    names = (flags.model_fields_set & set(model.model_fields)) - set(but)
    return {name: getattr(flags, name) for name in names}


def subject_from(subject: str | None, encoder: str | None) -> str:
    """Check that a verb was given one run, file of features or encoder, and return it.

    Raises:
        UsageError: none, two of them, or a path that is neither.
    """
    if (subject is None) == (encoder is None):
        raise UsageError("give RUN (a run folder), a file of features, or --encoder NAME, and one of them only")
    if subject is not None and not is_file_or_shards(subject):
        open_run(Path(subject))  # before torch is loaded
    return subject or encoder or ""


def array_or_name(text: str | None) -> Any:
    """Read a ``.npy`` file; return any other text as it is."""
    if text is None or Path(text).suffix != ".npy":
        return text
    from counterpoint.data.formats.npz_files import read_npy  # deferred: loads torch

    return read_npy(Path(text))


def _add_settings(parser: Parser, sections: Sequence[str], often: Collection[str], rare: Mapping[str, str]) -> None:
    """Add settings of training, of these top-level names or paths; those at the top and frequent ones get a flag."""
    fields = dict(leaf_fields(TrainSettings))
    paths = [path for path in fields if {path.split(".", 1)[0], path} & set(sections)]
    parser.settable = [*rare, *paths]
    group = parser.add_argument_group("settings of training")
    for path in paths:
        if "." not in path or path in often:
            # A text, or None if it was not given: values are read and checked like those of the YAML file.
            group.add_argument(f"--{path.replace('_', '-')}", dest=path, metavar="X", help=_help(fields[path]))
    several = len(paths) > len(CHOOSING)
    which = "any other setting of `counterpoint list settings`" if several else ", ".join([*rare.values(), *paths])
    example = "optim.momentum=0.95" if "optim.momentum" in paths else "source.split=test"
    group.add_argument(
        "--set",
        action="append",
        metavar="NAME=VALUE",
        help=f"{which}, such as --set {example}, or for short --{example.replace('=', ' ')}; may be repeated",
    )


def _read_settings(namespace: argparse.Namespace, paths: Collection[str]) -> dict[str, Any]:
    """Nest the settings of training that were given: flags win over the file."""
    fields, config = dict(leaf_fields(TrainSettings)), getattr(namespace, "config", None)
    from_file = {} if config is None else without_removed(read_yaml_mapping(Path(config)))
    if config is not None:
        build(TrainSettings, from_file, config)
    texts = {path: getattr(namespace, path, None) for path in paths if path in fields}
    flags = {path: _value(path, fields[path], text) for path, text in texts.items() if text is not None}
    settings = merge(from_file, nest(flags))
    build(TrainSettings, with_recipe(settings), "command line")
    return settings


def _value(path: str, field: FieldInfo, text: Any) -> Any:
    """Read the text of a flag as YAML, unless the setting is a text; the value may name code."""
    if isinstance(text, bool) or expectation(field) == "text":
        return from_flag(text)
    if _takes_names(field):
        is_whole = {"whole", "place"} & _extra(field).keys()
        parts = text if is_whole else ",".join(text).split(",")
        return tuple(from_flag(part.strip()) for part in parts if part.strip())
    # --views.crop-scale 0.2,1 and --mean 0.5 without brackets, which a shell would treat as a pattern.
    is_bare = "," in text or text[:1].isdecimal()
    text = f"[{text}]" if "pair" in expectation(field) and is_bare and not text.startswith("[") else text
    return from_flag(parse_yaml(text, f"command line: {path}"))


def _takes_names(field: FieldInfo) -> bool:
    return get_origin(field.annotation) is tuple and get_args(field.annotation)[0] is not float


def _extra(field: FieldInfo) -> dict[str, Any]:
    """Properties of the flag of a field beside its type."""
    return field.json_schema_extra if isinstance(field.json_schema_extra, dict) else {}


def _help(field: FieldInfo) -> str:
    """Write the words of a setting for argparse, which formats help texts with %."""
    return words_of(field).replace("%", "%%")


def words_of(field: FieldInfo) -> str:
    """Description, range and default of a setting."""
    is_plain = expectation(field) == "text" or _takes_names(field)
    is_silent = field.default in (None, "auto", (), {}, False) or field.is_required()
    allowed = [] if is_plain else [expectation(field)]
    default = [] if is_silent else [f"default {field.default}"]
    said = "; ".join([*allowed, *default])
    return f"{field.description} ({said})" if said else f"{field.description}"
