"""Settings: one sentence per mistake, nesting and merging, and a round trip through YAML."""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from pydantic import Field, ValidationError

from counterpoint.core.errors import UsageError
from counterpoint.core.settings import Auto, Pair, Settings, TrainSettings
from counterpoint.core.validation import build, dump_yaml, leaf_fields, merge, nest, parse_yaml, read_yaml_mapping
from refusals import refused

SIGNS = (("exclusiveMinimum", ">"), ("minimum", ">="), ("exclusiveMaximum", "<"), ("maximum", "<="))
KINDS = {"integer": "a whole number", "number": "a number", "string": "text", "boolean": "true or false"}


class Tuning(Settings):
    """A section of the toy settings."""

    name: Literal["adamw", "sgd"] = Field(default="adamw", description="-")
    learning_rate: Annotated[float, Field(gt=0)] | Auto = Field(
        default="auto", description="-", json_schema_extra={"hint": "common values are 1e-3"}
    )
    momentum: Annotated[float, Field(ge=0, lt=1)] = Field(default=0.9, description="-")


class Toy(Settings):
    """Toy settings with one field of each kind."""

    data: str | None = Field(default=None, description="-")
    epochs: Annotated[int, Field(ge=1)] | Auto = Field(default="auto", description="-")
    share: Annotated[float, Field(gt=0, le=0.5)] = Field(default=0.5, description="-")
    seed: Annotated[int, Field(ge=0, lt=2**63)] = Field(default=0, description="-")
    verbose: bool = Field(default=False, description="-")
    crop_scale: Pair | Auto = Field(default="auto", description="-")
    top: Annotated[int, Field(ge=1)] | Literal["auto", "all"] = Field(default="auto", description="-")
    tuning: Tuning = Tuning()


def leaf_schemas(model: type[Settings]) -> dict[str, dict[str, Any]]:
    """JSON schema of every setting by dotted path: an account of the models that does not pass through our code."""
    whole = model.model_json_schema()

    def walk(schema: dict[str, Any], prefix: str) -> Iterator[tuple[str, dict[str, Any]]]:
        for name, entry in schema["properties"].items():
            if "$ref" in entry:
                yield from walk(whole["$defs"][entry["$ref"].rsplit("/", 1)[1]], f"{prefix}{name}.")
            else:
                yield prefix + name, entry

    return dict(walk(whole, ""))


SCHEMAS = leaf_schemas(TrainSettings)


def oracle_words(schema: dict[str, Any]) -> str:
    """Words for what a field takes, from its JSON schema."""
    phrases = []
    for option in schema.get("anyOf", [schema]):
        if option.get("type") == "null":
            continue
        if "const" in option or "enum" in option:
            phrases.append(" | ".join(option.get("enum", [option.get("const")])))
        elif option["type"] == "array" and "prefixItems" not in option:
            phrases.append("a list such as [500, 50, 5]")
        elif option["type"] == "array":
            phrases.append("a pair such as [0.2, 1.0]")
        elif option["type"] == "object":
            phrases.append("a mapping such as {margin: 0.5}")
        else:
            bounds = [f"{sign} {bound_text(option[key])}" for key, sign in SIGNS if key in option]
            phrases.append(" ".join([KINDS[option["type"]], *([" and ".join(bounds)] if bounds else [])]))
    return ", or ".join(phrases)


def bound_text(bound: float) -> str:
    return "2**63" if bound == 2**63 else str(int(bound)) if bound == int(bound) else str(bound)


def nested(path: str, value: Any) -> dict[str, Any]:
    """``{"a": {"b": value}}`` for the path ``a.b``."""
    for name in reversed(path.split(".")):
        value = {name: value}
    return value


def refusal(values: dict[str, Any], model: type[Settings] = TrainSettings) -> str:
    """The sentence with which ``values`` are refused, without its origin."""
    message = refused(UsageError, build, model, values, "here")
    assert message.startswith("here: ")
    return message.removeprefix("here: ")


# --- one sentence per mistake


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        # unknown key: nearest name at the top, in a section, by its last word; or no guess
        ({"epohcs": 3}, "unknown setting 'epohcs'; did you mean 'epochs'?"),
        ({"tuning": {"momentom": 0}}, "unknown setting 'tuning.momentom'; did you mean 'tuning.momentum'?"),
        ({"momentum": 0.5}, "unknown setting 'momentum'; did you mean 'tuning.momentum'?"),
        ({"learning-rate": 1}, "unknown setting 'learning-rate'; did you mean 'tuning.learning_rate'?"),
        ({"tuning": {"zzz": 1}}, "unknown setting 'tuning.zzz' (known: name, learning_rate, momentum)"),
        ({"zzz": 1}, "unknown setting 'zzz'"),
        # wrong type
        ({"epochs": "ten"}, "epochs must be a whole number >= 1, or auto, got 'ten'"),
        ({"epochs": True}, "epochs must be a whole number >= 1, or auto, got True"),
        ({"share": "0.1"}, "share must be a number > 0 and <= 0.5, got '0.1'"),
        ({"data": 5}, "data must be text, got 5"),
        ({"verbose": "yes"}, "verbose must be true or false, got 'yes'"),
        # range
        ({"epochs": 0}, "epochs must be a whole number >= 1, or auto, got 0"),
        ({"share": 0.6}, "share must be a number > 0 and <= 0.5, got 0.6"),
        ({"share": math.nan}, "share must be a number > 0 and <= 0.5, got nan"),
        ({"tuning": {"momentum": 1}}, "tuning.momentum must be a number >= 0 and < 1, got 1"),
        ({"seed": 2**63}, "seed must be a whole number >= 0 and < 2**63, got 9223372036854775808"),
        (
            {"tuning": {"learning_rate": -0.1}},
            "tuning.learning_rate must be a number > 0, or auto, got -0.1; common values are 1e-3",
        ),
        # literal
        ({"tuning": {"name": "adam"}}, "tuning.name must be adamw | sgd, got 'adam'"),
        ({"top": "some"}, "top must be a whole number >= 1, or auto | all, got 'some'"),
        # pair
        ({"crop_scale": [0.2]}, "crop_scale must be a pair such as [0.2, 1.0], or auto, got [0.2]"),
        ({"crop_scale": [0.2, "1"]}, "crop_scale must be a pair such as [0.2, 1.0], or auto, got [0.2, '1']"),
        ({"crop_scale": "0.2,1"}, "crop_scale must be a pair such as [0.2, 1.0], or auto, got '0.2,1'"),
        # a section given something else
        ({"tuning": "sgd"}, "tuning is a section with its own settings, got 'sgd'"),
        # a setting given a section
        ({"epochs": {"first": 3}}, "epochs must be a whole number >= 1, or auto, got {'first': 3}"),
    ],
    ids=str,
)
def test_the_sentence_of_a_mistake(values: dict[str, Any], sentence: str) -> None:
    assert refusal(values, Toy) == sentence


@pytest.mark.parametrize("path", SCHEMAS)
def test_every_setting_refuses_what_it_cannot_use(path: str) -> None:
    schema = SCHEMAS[path]
    hint = f"; {schema['hint']}" if "hint" in schema else ""
    assert refusal(nested(path, ["?"])) == f"{path} must be {oracle_words(schema)}, got ['?']{hint}"


# --- the models


def test_leaf_fields_are_all_settings_in_order() -> None:
    assert [path for path, _ in leaf_fields(TrainSettings)] == list(SCHEMAS)


def test_every_setting_says_what_it_is() -> None:
    bare = [path for path, schema in SCHEMAS.items() if not schema.get("description", "").strip()]
    assert not bare


def test_settings_are_frozen() -> None:
    settings = Toy()
    with pytest.raises(ValidationError):
        settings.epochs = 3  # pyright: ignore[reportAttributeAccessIssue]
    with pytest.raises(ValidationError):
        settings.tuning.name = "sgd"  # pyright: ignore[reportAttributeAccessIssue]


# --- nest and merge


@pytest.mark.parametrize("flat", [{"a": 1, "a.b": 2}, {"a.b": 2, "a": 1}, {"a.b.c": 2, "a.b": 1}], ids=str)
def test_a_value_and_a_section_of_one_name_exclude_each_other(flat: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=r"to be a section, but it was given the value 1"):
        nest(flat)


@pytest.mark.parametrize(
    ("below", "above", "expected"),
    [
        ({}, {}, {}),
        ({"a": 1}, {"a": 2}, {"a": 2}),
        ({"a": 1}, {"b": 2}, {"a": 1, "b": 2}),
        ({"a": {"b": 1, "c": 2}}, {"a": {"c": 3}}, {"a": {"b": 1, "c": 3}}),
        ({"a": {"b": 1}}, {"a": 7}, {"a": 7}),
        ({"a": 7}, {"a": {"b": 1}}, {"a": {"b": 1}}),
        ({"a": 7}, {"a": None}, {"a": None}),
        ({"a": {"b": 1}}, {"a": {}}, {"a": {"b": 1}}),
    ],
    ids=str,
)
def test_merge(below: Any, above: Any, expected: Any) -> None:
    assert merge(below, above) == expected


# --- files


def write(folder: Path, content: bytes) -> Path:
    path = folder / "config.yaml"
    path.write_bytes(content)
    return path


def test_a_config_file_is_nested(tmp_path: Path) -> None:
    path = write(tmp_path, b"epochs: 3\ntuning.name: sgd\ntuning:\n  learning_rate: 1e-3\n")
    expected = {"epochs": 3, "tuning": {"name": "sgd", "learning_rate": 0.001}}
    assert read_yaml_mapping(path) == expected


def test_an_unusable_config_file_is_named(tmp_path: Path) -> None:
    path = write(tmp_path, b"- 1\n- 2\n")
    assert refused(UsageError, read_yaml_mapping, path) == f"{path} must hold `name: value` lines, got list"
    none = tmp_path / "none.yaml"
    assert refused(UsageError, read_yaml_mapping, none) == f"config file {none} does not exist"
    assert refused(UsageError, read_yaml_mapping, tmp_path).startswith(f"config file {tmp_path} cannot be read: ")


@pytest.mark.parametrize(
    ("content", "key"), [(b"tuning:\n  1: 2\n", "tuning.1"), (b"tuning: {true: 3}\n", "tuning.True"), (b"7: 2\n", "7")]
)
def test_a_key_that_is_not_text_is_an_unknown_setting(tmp_path: Path, content: bytes, key: str) -> None:
    sentence = refusal(read_yaml_mapping(write(tmp_path, content)), Toy)
    assert sentence.startswith(f"unknown setting '{key}'")


# --- YAML round trip


def read_back(text: str) -> TrainSettings:
    return build(TrainSettings, parse_yaml(text, "yaml") or {}, "yaml")


def test_default_settings_survive_yaml() -> None:
    assert read_back(dump_yaml(TrainSettings().model_dump(mode="json"))) == TrainSettings()
    assert read_back("") == TrainSettings()
