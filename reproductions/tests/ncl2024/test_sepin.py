"""SEPIN: loops, and codes whose answer is known."""

# N samples, D dimensions

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from draws import draw
from oracles import sepin_oracle as oracle
from oracles.number_checks import assert_numbers
from reproductions.ncl2024 import sepin as module
from reproductions.ncl2024.sepin import Separability, contrastive_sepin


@given(
    n=st.integers(3, 9),
    width=st.integers(1, 4),
    seed=st.integers(0, 99),
    temperature=st.sampled_from([0.2, 1.0, 3.0]),
)
@settings(max_examples=20)
def test_the_contrastive_estimate_is_its_loop(n: int, width: int, seed: int, temperature: float) -> None:
    z0, z1 = draw(n, width, seed).round(decimals=0), draw(n, width, seed + 1)
    separability = contrastive_sepin(z0, z1, temperature=temperature)
    loops = oracle.contrastive(z0.tolist(), z1.tolist(), temperature, range(n))
    assert_numbers([1.0, *separability.information_D.tolist()], [1.0, *loops])


def test_dimensions_that_tell_samples_apart_count_and_others_do_not() -> None:
    """The sign that ncl2024 drops: its Eq. 16 makes the first three negative."""
    labels = torch.arange(30) % 3
    code = torch.cat([torch.eye(3, dtype=torch.float64)[labels], torch.ones(30, 1), torch.zeros(30, 1)], dim=1)
    information_D = contrastive_sepin(code, code).information_D
    assert (information_D[:3] > 0.04).all()
    assert_numbers([1.0, *information_D[3:].tolist()], [1.0, 0.0, 0.0])
    constant = contrastive_sepin(torch.ones(12, 4), torch.ones(12, 4))
    assert_numbers([1.0, *constant.information_D.tolist()], [1.0] + 4 * [0.0])


def test_blocks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    codes = draw(60, 4)
    at_once = contrastive_sepin(codes, codes.roll(1)).information_D
    monkeypatch.setattr(module, "MOST_PAIRS", 700)
    assert_numbers(contrastive_sepin(codes, codes.roll(1)).information_D, at_once)


def test_the_best_dimensions_are_averaged() -> None:
    separability = Separability(torch.tensor([0.2, 0.8, 0.5]))
    assert_numbers([separability.at(k) for k in (1, 2, 3)], [0.8, 0.65, 0.5], dtype=torch.float32)
    for k in (0, 4):
        with pytest.raises(ValueError, match=f"k must be between 1 and the number of dimensions, 3, got {k}"):
            separability.at(k)


Z = draw(6, 2)
BAD: list[tuple[dict[str, Any], str]] = [
    ({"z1_ND": Z[:5]}, r"z0 and z1 .*\(6, 2\) and \(5, 2\)"),
    ({"temperature": 0.0}, r"temperature .*; 1 is"),
    ({"num_negatives": 1}, "num_negatives must be between 2 and the samples, 6, got 1"),
    ({"num_negatives": 7}, "num_negatives must be between 2 and the samples, 6, got 7"),
]


@pytest.mark.parametrize(("wrong", "sentence"), BAD, ids=[case[1][:40] for case in BAD])
def test_bad_input_is_named(wrong: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        contrastive_sepin(**{"z0_ND": Z, "z1_ND": Z, **wrong})
