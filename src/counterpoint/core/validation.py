"""Turn YAML and plain mappings into settings, with one sentence per mistake: name, value, allowed range, remedy.

YAML means what it says, as version 1.2 does: 1e-3 is a number, and yes, on, 010, 1:30 and 2026-11-24 are text;
duplicate keys, aliases and NaN are refused.
"""

import copy
import functools
import math
import re
import types
from collections import Counter
from collections.abc import Hashable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, TypeVar, Union, get_args, get_origin

import annotated_types as at
import yaml
from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from counterpoint.core.errors import UsageError, gone, nearest
from counterpoint.core.user_files import read_text

MAX_YAML_BYTES = 1 << 20  # a file with every setting has 10 kB
Model = TypeVar("Model", bound=BaseModel)
BOUND_WORDS = ((at.Gt, ">", "gt"), (at.Ge, ">=", "ge"), (at.Lt, "<", "lt"), (at.Le, "<=", "le"))
TYPE_WORDS = {int: "a whole number", float: "a number", str: "text", bool: "true or false", type(None): "null"}
TAG = "tag:yaml.org,2002:"
TEXT, INT, FLOAT = f"{TAG}str", f"{TAG}int", f"{TAG}float"
# Plain scalars of YAML 1.2 (core schema). A number that begins with 0 is left out: 010 is 8 in YAML 1.1, 10 in 1.2.
CORE = {
    f"{TAG}null": re.compile(r"(?:~|null|Null|NULL|)$"),
    f"{TAG}bool": re.compile(r"(?:true|True|TRUE|false|False|FALSE)$"),
    INT: re.compile(r"(?:[-+]?(?:0|[1-9][0-9]*)|0x[0-9a-fA-F]+)$"),
    FLOAT: re.compile(
        r"(?:[-+]?(?:(?:\.[0-9]+|[0-9]+\.[0-9]*|[0-9]+(?=[eE]))(?:[eE][-+]?[0-9]+)?|\.(?:inf|Inf|INF))"
        r"|\.(?:nan|NaN|NAN))$"
    ),
}


class _StrictLoader(yaml.SafeLoader):
    """SafeLoader with the scalars of YAML 1.2, and without aliases and silent duplicate keys."""

    yaml_implicit_resolvers: ClassVar[Any] = {}  # filled below

    def compose_node(self, parent: Any, index: Any) -> Any:
        """Refuse aliases: they let a few bytes expand without bound."""
        if self.check_event(yaml.AliasEvent):
            raise UsageError("YAML aliases (*name) are not supported; write the value out")
        return super().compose_node(parent, index)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]  # pyright: ignore[reportUnknownMemberType]
        # Keys that cannot be counted, such as lists, are refused below.
        counts = Counter(key for key in keys if isinstance(key, Hashable))
        doubled = sorted(str(key) for key, count in counts.items() if count > 1)
        if doubled:
            raise UsageError(f"YAML key {doubled[0]!r} occurs twice; keep one")
        return super().construct_mapping(node, deep=deep)


class _StrictDumper(yaml.SafeDumper):
    """SafeDumper whose output the loader reads back: no aliases, and text that looks like a number is quoted."""

    def ignore_aliases(self, data: Any) -> bool:
        return True

    def represent_str(self, data: str) -> yaml.ScalarNode:
        """Escape line ends of Unicode, which PyYAML folds into blanks outside double quotes."""
        style = '"' if set(data) & {"\x85", "\u2028", "\u2029"} else None
        return self.represent_scalar(TEXT, data, style=style)


for tag, pattern in CORE.items():
    # Tried on every plain scalar; the first one that fits counts.
    _StrictLoader.add_implicit_resolver(tag, pattern, None)

_StrictDumper.add_representer(str, _StrictDumper.represent_str)  # overrides alone are not called: PyYAML looks types up

# In YAML 1.1 1e-3 is text, which would be left bare. The list: first characters, by which PyYAML finds the pattern.
_StrictDumper.add_implicit_resolver(FLOAT, CORE[FLOAT], list("-+0123456789."))


def leaf_fields(model: type[BaseModel], prefix: str = "") -> Iterator[tuple[str, FieldInfo]]:
    """Yield ``(dotted path, field)`` for every setting below a model, in order."""
    for name, field in model.model_fields.items():
        nested = section_of(field)
        if nested is None:
            yield prefix + name, field
        else:
            yield from leaf_fields(nested, f"{prefix}{name}.")


def section_of(field: FieldInfo) -> type[BaseModel] | None:
    """Return the nested model of a field that is a section, else None."""
    kind = field.annotation
    return kind if isinstance(kind, type) and issubclass(kind, BaseModel) else None


def expectation(field: FieldInfo) -> str:
    """Say in words what a field takes.

    >>> from counterpoint.core.settings import TrainSettings
    >>> expectation(TrainSettings.model_fields["batch_size"])
    'a whole number >= 2, or auto'
    """
    annotation: Any = field.annotation
    # pydantic takes the bounds of `Annotated[int, Ge(2)]` off the type; in a union they stay with their member.
    if field.metadata:
        annotation = Annotated[annotation, *field.metadata]
    options = get_args(annotation) if get_origin(annotation) in (Union, types.UnionType) else (annotation,)
    phrases = [_option_words(option) for option in options]
    return ", or ".join(dict.fromkeys(phrase for phrase in phrases if phrase != "null"))  # each phrase once, in order


def build(model: type[Model], values: Mapping[str, Any], origin: str) -> Model:
    """Validate a nested mapping; ``origin`` (a file, ``command line``...) opens the error.

    Raises:
        UsageError: the first mistake, in one sentence.
    """
    for name, leaf in leaves(values):
        if isinstance(leaf, str) and "\0" in leaf:  # it would end a path early
            raise UsageError(f"{origin}: {name} has a NUL character, which no name of a file or a part can have")
    try:
        return model.model_validate(dict(values))
    except ValidationError as error:
        first = next(iter(error.errors()[0]["loc"]), "")
        raise UsageError(gone(f"{origin} --{first}") or f"{origin}: {_first_sentence(model, error)}") from None


def nest(flat: Mapping[str, Any]) -> dict[str, Any]:
    """Turn ``{"optim.name": x}`` into ``{"optim": {"name": x}}``; nested mappings pass through.

    >>> nest({"seed": 1, "optim.name": "sgd", "optim": {"momentum": 0.5}})
    {'seed': 1, 'optim': {'name': 'sgd', 'momentum': 0.5}}
    """
    nested: dict[str, Any] = {}
    for path, value in flat.items():
        *parents, leaf = str(path).split(".")  # YAML keys may be numbers
        place = nested
        for parent in parents:
            place = place.setdefault(parent, {})
            if not isinstance(place, dict):
                raise UsageError(f"{path} needs {parent} to be a section, but it was given the value {place!r}")
        # optim.name: sgd beside optim: 3.
        if isinstance(place.get(leaf), dict) and place[leaf] and not isinstance(value, Mapping):
            raise UsageError(
                f"{path}.{next(iter(place[leaf]))} needs {path} to be a section, but it was given the value {value!r}"
            )
        place[leaf] = merge(place.get(leaf, {}), nest(value)) if isinstance(value, Mapping) else value
    return nested


def flat(model: type[BaseModel], nested: Mapping[str, Any]) -> dict[str, Any]:
    """Collect the settings below a model from a nested mapping, which may be anything else, by dotted path.

    >>> from counterpoint.core.settings import TrainSettings
    >>> flat(TrainSettings, {"optim": {"name": "sgd"}, "seed": 1, "loss": 3})
    {'seed': 1, 'optim.name': 'sgd'}
    """
    settings = {}
    for path, _ in leaf_fields(model):
        section, _, leaf = path.rpartition(".")  # sections hold no sections
        place = nested.get(section) if section else nested
        if isinstance(place, Mapping) and leaf in place:
            settings[path] = place[leaf]
    return settings


def merge(below: Any, above: Any) -> Any:
    """Lay one nested mapping over another; values above win."""
    if not (isinstance(below, Mapping) and isinstance(above, Mapping)):
        return above
    return {**below, **{key: merge(below.get(key), value) for key, value in above.items()}}


def read_yaml_mapping(path: Path) -> dict[str, Any]:
    """Read a YAML file that holds settings.

    Raises:
        UsageError: missing, unreadable, not YAML, or not a mapping.
    """
    try:
        text = read_text(path, MAX_YAML_BYTES)
    except FileNotFoundError:
        raise UsageError(f"config file {path} does not exist") from None
    except (OSError, ValueError) as error:
        raise UsageError(f"config file {path} cannot be read: {error}") from None
    value = parse_yaml(text, str(path))
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise UsageError(f"{path} must hold `name: value` lines, got {type(value).__name__}")
    return nest({str(key): child for key, child in value.items()})


# Settings that are no more, with the value that changes nothing: 0.2.0 wrote some of them for every run.
REMOVED = {
    "engine": {"average": "none", "accumulate": 1, "sync_norm": True},
    "optim": {"layer_decay": 1.0},
}


def without_removed(config: dict[str, Any]) -> dict[str, Any]:
    """A config without removed settings that changed nothing; one with another value stays, and is refused later.

    >>> without_removed({"epochs": 3, "engine": {"sync_norm": True, "accumulate": 2}})
    {'epochs': 3, 'engine': {'accumulate': 2}}
    """
    return {
        name: {key: setting for key, setting in value.items() if REMOVED[name].get(key, ...) != setting}
        if name in REMOVED and isinstance(value, dict)
        else value
        for name, value in config.items()
    }


def parse_yaml(text: str, origin: str) -> Any:
    """Parse YAML text; ``origin`` names it in errors.

    Raises:
        UsageError: not YAML, an alias, a duplicate key, or a number that is not finite.

    >>> parse_yaml("rate: 1e-3", "example")
    {'rate': 0.001}
    """
    try:
        value = copy.deepcopy(_loaded(text))
    except UsageError as error:
        raise UsageError(f"{origin}: {error}") from None
    # PyYAML lets other errors escape when a value does not fit its explicit tag (!!bool maybe, !!int "").
    except (yaml.YAMLError, RecursionError, ValueError, LookupError, AttributeError, TypeError) as error:
        mark = getattr(error, "problem_mark", None)
        where = f" (line {mark.line + 1}, column {mark.column + 1})" if mark else ""
        problem = getattr(error, "problem", None) or str(error).splitlines()[0]
        raise UsageError(f"{origin} is not valid YAML{where}: {problem}") from None
    for _, leaf in leaves(value):
        if isinstance(leaf, float) and not math.isfinite(leaf):
            raise UsageError(f"{origin}: {leaf} is not a usable number")
    return value


@functools.lru_cache(maxsize=8)
def _loaded(text: str) -> Any:
    """The values of a YAML text; kept, since verbs read the settings of one run again and again (15 ms each)."""
    return yaml.load(text, Loader=_StrictLoader)


def dump_yaml(value: Any) -> str:
    """Write plain data as YAML in the order given."""
    return yaml.dump(value, Dumper=_StrictDumper, sort_keys=False, allow_unicode=True, width=120)


def _option_words(option: Any) -> str:
    if get_origin(option) is Literal:
        return " | ".join(str(value) for value in get_args(option))
    if get_origin(option) is Annotated:
        base, *metadata = get_args(option)
        constraints = [each for item in metadata for each in (item.metadata if isinstance(item, FieldInfo) else [item])]
        bounds = [
            f"{sign} {'2**63' if (bound := getattr(each, attribute)) == 2**63 else f'{bound:g}'}"
            for kind, sign, attribute in BOUND_WORDS
            for each in constraints
            if isinstance(each, kind)
        ]
        return " ".join([_option_words(base), *([" and ".join(bounds)] if bounds else [])])
    if get_origin(option) is tuple:
        if get_args(option)[:1] == (str,):
            return "a list of names, such as ['knn']"
        return "a pair such as [0.2, 1.0]"
    if get_origin(option) is list:
        return "a list such as [500, 50, 5]"
    if get_origin(option) is dict:
        return "a mapping such as {margin: 0.5}"
    return TYPE_WORDS.get(option, getattr(option, "__name__", str(option)))


def _first_sentence(model: type[BaseModel], error: ValidationError) -> str:
    """Describe the first error by walking its location down the models."""
    first = error.errors()[0]
    place, path, field = model, [], None
    for step in first["loc"]:
        if field is not None and section_of(field) is None:
            break  # the rest of the location names members of a union
        if str(step) not in place.model_fields:
            return _unknown_key(place, path, str(step))
        field = place.model_fields[str(step)]
        path.append(str(step))
        place = section_of(field) or place
    assert field is not None
    if section_of(field) is not None:
        return f"{'.'.join(path)} is a section with its own settings, got {first['input']!r}"
    # The refused value itself: for a pair, pydantic may name only one of its ends.
    inputs = (each["input"] for each in error.errors() if list(each["loc"][:-1]) == path or list(each["loc"]) == path)
    value = next(inputs, first["input"])
    extra = field.json_schema_extra
    hint = f"; {extra['hint']}" if isinstance(extra, dict) and "hint" in extra else ""
    removal = gone(f"{'.'.join(path)} {value}")
    words = expectation(field).replace("'knn'", repr(value) if isinstance(value, str) and "," not in value else "'knn'")
    return removal or f"{'.'.join(path)} must be {words}, got {value!r}{hint}"


def _unknown_key(place: type[BaseModel], path: list[str], key: str) -> str:
    """Name the closest setting: in the same section, or anywhere by its last word."""
    dotted = ".".join([*path, key])
    if gone(dotted):
        return gone(dotted)
    # As a whole path, which can be copied: 'optim.momentum', not 'momentum'. By its last word a setting is found in
    # whatever section it lies.
    prefix = "".join(f"{step}." for step in path)
    by_word = {name.rsplit(".", 1)[-1]: name for name, _ in leaf_fields(place, prefix)}
    by_word |= {name: f"{prefix}{name}" for name in place.model_fields}
    guess = nearest(key, by_word)
    if not guess:
        return f"unknown setting '{dotted}'" + (f" (known: {', '.join(place.model_fields)})" if path else "")
    word = guess.split("'")[1]
    return f"unknown setting '{dotted}'{guess.replace(word, by_word[word])}"


def leaves(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the values of plain data, however deep, each with the dotted name of its setting."""
    if not isinstance(value, Mapping | list):
        yield name, value
        return
    children = value.items() if isinstance(value, Mapping) else ((name, child) for child in value)
    for key, child in children:
        yield from leaves(child, f"{name}.{key}" if name and isinstance(value, Mapping) else str(key))
