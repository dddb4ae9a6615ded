"""What every member of the loss catalogue owes: documentation with a source, and the questions a curve is read with."""

import inspect
import math
import re
from typing import get_args

import pytest
import torch
from torch import nn

from counterpoint.losses import CATALOGUE
from counterpoint.losses.family import NEGATIVES, Negatives

each_loss = pytest.mark.parametrize("name", CATALOGUE)


@each_loss
def test_it_is_documented_with_equation_and_source(name: str) -> None:
    text = inspect.getdoc(CATALOGUE[name]) or ""
    assert ".. math::" in text
    assert re.search(r"Source: [a-z]+\d{4}, .*(Eq|section|Theorem)", text)
    assert "Args:" in text
    assert "Raises:" in text
    assert ">>>" in text


@each_loss
def test_every_argument_is_documented(name: str) -> None:
    text = inspect.getdoc(CATALOGUE[name]) or ""
    undocumented = [word for word in inspect.signature(CATALOGUE[name]).parameters if f"    {word}: " not in text]
    assert undocumented == []


@each_loss
def test_it_answers_what_a_curve_is_read_with(name: str, generator: torch.Generator) -> None:
    loss = CATALOGUE[name]()
    z0, z1 = torch.randn(2, 6, 4, generator=generator, dtype=torch.float64)
    value = loss(z0, z1)
    assert isinstance(loss, nn.Module)
    assert value.shape == ()
    assert loss.floor(6) < float(value) < math.inf
    assert loss.floor(6) < loss.floor(6, nonnegative=True) < loss.chance(6)
    assert float(loss(z0, z0)) < loss.chance(6) < float(loss(z0, -z0))
    assert loss.importance(z0, z1).shape == (12, 12)


@each_loss
def test_it_holds_no_parameters_and_no_state(name: str) -> None:
    loss = CATALOGUE[name]()
    assert list(loss.parameters()) == []
    assert loss.state_dict() == {}


def test_the_kinds_of_negatives_are_those_of_the_type() -> None:
    assert tuple(NEGATIVES) == get_args(Negatives)
