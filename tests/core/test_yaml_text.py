"""YAML: numbers with exponents, refusals in one sentence, and a round trip of every plain value."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from counterpoint.core.errors import UsageError
from counterpoint.core.validation import dump_yaml, parse_yaml
from refusals import refused

# Text a YAML 1.1 emitter leaves bare, although this parser reads it as a number, is among the samples.
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=30) | st.sampled_from(
    [
        "1e3",
        "1e-3",
        "+2E5",
        "1.e3",
        ".5e1",
        "1.5",
        "null",
        "~",
        "yes",
        "010",
        "1:30",
        "-.5",
        "0x1F",
        "2024-01-01",
        "<<",
        "=",
        "*a",
        "&a",
    ]
)
SCALAR = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT
VALUE = st.recursive(
    SCALAR, lambda child: st.lists(child, max_size=4) | st.dictionaries(TEXT, child, max_size=4), max_leaves=12
)


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("1e-3", 0.001),
        ("1E-3", 0.001),
        ("1e3", 1000.0),
        ("-2.5e+2", -250.0),
        ("+.5e1", 5.0),
        ("3.e2", 300.0),
        ("0.1", 0.1),
        ("6.02e23", 6.02e23),
    ],
)
def test_a_number_with_an_exponent_is_a_float(text: str, number: float) -> None:
    value = parse_yaml(f"x: {text}", "f")["x"]
    assert isinstance(value, float)
    assert value == number


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("3", 3),
        ("-3", -3),
        ("1e", "1e"),
        ("e3", "e3"),
        ("1e-3x", "1e-3x"),
        ("'1e-3'", "1e-3"),
        ('"7"', "7"),
        ("1e3.5", "1e3.5"),
        ("runs/1e3", "runs/1e3"),
        ("auto", "auto"),
        ("true", True),
        ("null", None),
        ("0x1F", 31),
        ("-.5", -0.5),
        *((text, text) for text in ("08", "010", "1:30", "1_000", "0b11", "yes", "No", "2026-11-24")),
        ("!!float 3", 3.0),
        ("!!str 010", "010"),
        ("", None),
    ],
)
def test_other_scalars_keep_their_kind(text: str, expected: Any) -> None:
    value = parse_yaml(f"x: {text}", "f")["x"]
    assert value == expected
    assert type(value) is type(expected)


@pytest.mark.parametrize(
    ("text", "key"),
    [("a: 1\na: 1", "a"), ("a: {b: 1, c: 2, b: 3}", "b"), ("- {x: 1, x: 2}", "x"), ("a: 1\n'a': 2", "a")],
)
def test_a_duplicate_key_is_named(text: str, key: str) -> None:
    assert refused(UsageError, parse_yaml, text, "f") == f"f: YAML key '{key}' occurs twice; keep one"


@pytest.mark.parametrize("text", ["a: &x 1\nb: *x", "a: &x [1]\nb: [*x, *x]", "&k a: 1\n*k : 2", "a: *nowhere"])
def test_an_alias_is_refused(text: str) -> None:
    message = refused(UsageError, parse_yaml, text, "f")
    assert message == "f: YAML aliases (*name) are not supported; write the value out"


@pytest.mark.parametrize("text", [".nan", "-.inf", "1e999"])
@pytest.mark.parametrize("place", ["{}", "x: [{{y: [{}]}}]"])
def test_a_number_that_is_not_finite_is_refused_wherever_it_stands(text: str, place: str) -> None:
    message = refused(UsageError, parse_yaml, place.format(text), "f")
    assert message.startswith("f: ")
    assert message.endswith(" is not a usable number")


@pytest.mark.parametrize("opening", ["[", "{a: ", "- ", "? "])
@pytest.mark.sampled(2)
def test_nesting_without_bound_is_refused(opening: str) -> None:
    with pytest.raises(UsageError, match=r"^deep\.yaml is not valid YAML"):
        parse_yaml(opening * 50_000, "deep.yaml")


@pytest.mark.parametrize(
    ("text", "line", "column"), [("a: [1", 1, 6), ("a: 1\nb: 'x", 2, 6), ("a: 1\n\tb: 2", 2, 1), ("a: b: c", 1, 5)]
)
def test_a_syntax_error_names_its_place(text: str, line: int, column: int) -> None:
    message = refused(UsageError, parse_yaml, text, "f")
    assert message.startswith(f"f is not valid YAML (line {line}, column {column}): ")


MALFORMED = [
    "a: !!python/object/apply:os.system [x]",
    "a: !!timestamp soon",
    "a: !!bool maybe",
    "a: !!int ''",
    "a: !!int x",
    "a: !!float ''",
    "a: !unknown 1",
    "a: !!map x",
    "!!map [1]",
    "? [a]\n: 1",
    "a: \x00",
    "a: 1\n---\nb: 2",
    "a: " + "9" * 5000,
]


@pytest.mark.parametrize("text", MALFORMED, ids=range(len(MALFORMED)))
def test_malformed_yaml_is_a_usage_error_of_one_line(text: str) -> None:
    assert refused(UsageError, parse_yaml, text, "f").startswith("f is not valid YAML")


@given(st.text(st.sampled_from("ab01.-+e:{}[],&*!|>'\"#%@? \n\t<=~_"), max_size=25))
def test_any_text_is_read_or_refused_in_one_sentence(text: str) -> None:
    try:
        parse_yaml(text, "f")
    except UsageError as error:
        message = str(error)
    else:
        message = "f"
    assert message.startswith("f")
    assert "\n" not in message


@given(VALUE)
def test_what_is_written_is_read_back(value: Any) -> None:
    back = parse_yaml(dump_yaml(value), "f")
    assert back == value
    assert repr(back) == repr(value)  # 1 == 1.0 == True: the kinds must agree too
