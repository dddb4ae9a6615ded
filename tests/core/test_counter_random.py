"""Threefry: known answers, an oracle in Python integers, independence of the batch."""

import math
from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from counterpoint.core import counter_random as cr
from tolerances import RELATIVE, assert_close

# Random123's published known answers for threefry4x32, 20 rounds: (counter, key, output).
KNOWN_ANSWERS = [
    (
        "00000000 00000000 00000000 00000000",
        "00000000 00000000 00000000 00000000",
        "9c6ca96a e17eae66 fc10ecd4 5256a7d8",
    ),
    (
        "ffffffff ffffffff ffffffff ffffffff",
        "ffffffff ffffffff ffffffff ffffffff",
        "2a881696 57012287 f6c7446e a16a6732",
    ),
    (
        "243f6a88 85a308d3 13198a2e 03707344",
        "a4093822 299f31d0 082efa98 ec4e6c89",
        "59cd1dbb b8879579 86b5d00c ac8b6d84",
    ),
]
WORD = st.integers(0, 2**32 - 1)
DRAWS = {"words": cr.words, "uniform": cr.uniform, "normal": cr.normal}


def oracle_threefry(counter: list[int], key: list[int]) -> list[int]:
    """Threefry-4x32-20 as Skein writes it: mix neighbours, permute words by (0, 3, 2, 1), a subkey every 4 rounds."""
    rotations = [(10, 26), (11, 21), (13, 27), (23, 5), (6, 20), (17, 11), (25, 10), (18, 20)]
    parity = 0x1BD11BDA
    for word in key:
        parity ^= word
    subkeys = [*key, parity]
    state = [(counter[i] + subkeys[i]) % 2**32 for i in range(4)]
    for d in range(20):
        for pair in (0, 1):
            x, y = state[2 * pair], state[2 * pair + 1]
            x = (x + y) % 2**32
            turned = (y * 2 ** rotations[d % 8][pair]) % (2**32 - 1) if y != 2**32 - 1 else y  # rotation as a product
            state[2 * pair : 2 * pair + 2] = [x, turned ^ x]
        state = [state[i] for i in (0, 3, 2, 1)]
        if (d + 1) % 4 == 0:
            s = (d + 1) // 4
            state = [(state[i] + subkeys[(s + i) % 5] + (s if i == 3 else 0)) % 2**32 for i in range(4)]
    return state


def oracle_words(seed: int, epoch: int, sample: int, purpose: int, num_draws: int) -> list[int]:
    """Counter (id low, id high, block, 0) under key (seed low, seed high, epoch, purpose)."""
    key = [seed % 2**32, seed // 2**32, epoch, purpose]
    drawn: list[int] = []
    for block in range(math.ceil(num_draws / 4)):
        drawn += oracle_threefry([sample % 2**32, sample // 2**32, block, 0], key)
    return drawn[:num_draws]


def parse_words(text: str) -> list[int]:
    return [int(word, 16) for word in text.split()]


@pytest.mark.parametrize(("counter", "key", "expected"), KNOWN_ANSWERS)
def test_known_answers_of_random123(counter: str, key: str, expected: str) -> None:
    output = cr.threefry(tuple(torch.tensor(parse_words(counter))), tuple(parse_words(key)))
    assert [int(word) for word in output] == parse_words(expected)


@given(st.lists(st.tuples(WORD, WORD, WORD, WORD), min_size=1, max_size=9), st.tuples(WORD, WORD, WORD, WORD))
def test_threefry_equals_the_oracle(counters: list[tuple[int, ...]], key: tuple[int, ...]) -> None:
    output = cr.threefry(torch.tensor(counters).unbind(1), key)
    assert torch.stack(output, dim=1).tolist() == [oracle_threefry(list(counter), list(key)) for counter in counters]


@given(
    seed=st.integers(0, 2**64 - 1),
    epoch=WORD,
    ids=st.lists(st.integers(0, 2**63 - 1), max_size=5),
    purpose=st.integers(0, 2**20),
    num_draws=st.integers(0, 13),
)
def test_words_equal_the_oracle(seed: int, epoch: int, ids: list[int], purpose: int, num_draws: int) -> None:
    drawn = cr.words(seed, epoch, torch.tensor(ids, dtype=torch.int64), purpose, num_draws)
    assert drawn.shape == (len(ids), num_draws)
    assert drawn.dtype == torch.int64
    assert drawn.tolist() == [oracle_words(seed, epoch, sample, purpose, num_draws) for sample in ids]


@pytest.mark.parametrize("draw", DRAWS)
@pytest.mark.parametrize("num_draws", [1, 2, 3, 7, 16, 33])
@pytest.mark.sampled(8)
def test_a_sample_draws_the_same_bits_in_any_batch(draw: str, num_draws: int) -> None:
    ids = torch.randperm(131, generator=torch.Generator().manual_seed(0))
    together = DRAWS[draw](11, 4, ids, 1, num_draws)
    alone = torch.cat([DRAWS[draw](11, 4, one, 1, num_draws) for one in ids.split(1)])
    in_sevens = torch.cat([DRAWS[draw](11, 4, seven, 1, num_draws) for seven in ids.split(7)])
    reversed_batch = DRAWS[draw](11, 4, ids.flip(0), 1, num_draws).flip(0)
    strided = DRAWS[draw](11, 4, ids.repeat_interleave(2)[::2], 1, num_draws)
    for other in (alone, in_sevens, reversed_batch, strided):
        assert torch.equal(together, other)


def test_purposes_leave_room_for_views_and_do_not_overlap() -> None:
    starts = sorted(value for name, value in vars(cr).items() if name.startswith("PURPOSE_"))
    assert len(starts) >= 3
    assert max(starts) < 2**32 - 2**16
    assert min(after - before for before, after in pairwise(starts)) >= 2**16


def test_uniform_is_the_top_24_bits() -> None:
    ids = torch.arange(50)
    drawn = cr.uniform(3, 1, ids, 0, 9)
    assert drawn.dtype == torch.float32
    assert (drawn.double() * 2**24).tolist() == (cr.words(3, 1, ids, 0, 9) // 2**8).double().tolist()
    assert float(drawn.min()) >= 0.0
    assert float(drawn.max()) < 1.0


def test_normal_is_box_and_mullers_transform() -> None:
    ids = torch.arange(400)
    uniforms = cr.uniform(2, 6, ids, 1, 8).double()
    radius, angle = torch.sqrt(-2 * torch.log(1 - uniforms[:, :4])), 2 * math.pi * uniforms[:, 4:]
    expected = torch.cat([radius * torch.cos(angle), radius * torch.sin(angle)], dim=1)
    drawn = cr.normal(2, 6, ids, 1, 8)
    assert drawn.dtype == torch.float32
    assert_close(drawn, expected)
    assert_close(cr.normal(2, 6, ids, 1, 7), expected[:, :7])


def test_normal_is_finite_at_the_ends_of_the_uniforms(monkeypatch: pytest.MonkeyPatch) -> None:
    ends = torch.tensor([[0.0, 1 - 2.0**-24, 0.0, 1 - 2.0**-24]])
    monkeypatch.setattr(cr, "uniform", lambda *_: ends)
    drawn = cr.normal(0, 0, torch.tensor([0]), 0, 4)
    largest = math.sqrt(2 * 24 * math.log(2))
    assert torch.isfinite(drawn).all()
    assert float(drawn.abs().max()) <= largest * (1 + RELATIVE[torch.float32])


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_the_gpu_draws_the_same_bits() -> None:
    ids = torch.arange(1000) * 2**33 + 5
    for draw in (cr.words, cr.uniform):
        assert torch.equal(draw(2**40 + 1, 3, ids.cuda(), 1, 19).cpu(), draw(2**40 + 1, 3, ids, 1, 19))
    assert_close(cr.normal(4, 3, ids.cuda(), 1, 19).cpu(), cr.normal(4, 3, ids, 1, 19))
