"""Nested state goes to JSON and back exactly, types and bits included."""

import json
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from small_snapshots import assert_same
from torch import Tensor

from counterpoint.engine.checkpoint_format import pack, unpack

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=4) | st.sampled_from(
    ["$tensor", "$tuple", "a.b", "#"]
)
LEAVES = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXT
LEAVES |= st.lists(st.floats(width=32, allow_nan=False), max_size=3).map(torch.tensor)
KEYS = TEXT | st.integers(-3, 3)


def nested(child: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    several = st.lists(child, max_size=3)
    return several | several.map(tuple) | st.dictionaries(KEYS, child, max_size=3)


@given(st.recursive(LEAVES, nested, max_leaves=12))
def test_a_round_trip_through_json_changes_nothing(value: Any) -> None:
    tensors: dict[str, Tensor] = {}
    text = json.dumps(pack(value, tensors), allow_nan=False)
    assert_same(unpack(json.loads(text), tensors), value)


def test_paths_that_read_alike_do_not_share_a_tensor() -> None:
    tensors: dict[str, Tensor] = {}
    value = {"a.b": torch.zeros(1), "a": {"b": torch.ones(1)}}
    assert_same(unpack(pack(value, tensors), tensors), value)


@pytest.mark.parametrize(
    ("value", "complaint"),
    [
        ({"a": [1, {2}]}, r"a\.1 is of type set"),
        (print, "the state is of type builtin_function_or_method"),
        ({"a": {(1, 2): 3}}, "a has a key of type tuple"),
        ({"a": np.float64(1)}, "a is of type float64"),
    ],
)
def test_what_json_cannot_hold_is_refused_by_its_path(value: Any, complaint: str) -> None:
    with pytest.raises(TypeError, match=complaint):
        pack(value, {})
