"""Random numbers as a pure function of (seed, epoch, sample id, view): Threefry-4x32 in tensor operations.

A counter-based generator has no state, so a batch draws every sample's own stream at once, and neither the
number of workers, ranks or devices nor the batch a sample happens to sit in can change a bit of it.

Source: salmon2011 (Parallel random numbers: as easy as 1, 2, 3), section 5; 20 rounds, the authors' default.

It draws the directions along which features become one-dimensional slices, and a slice is compared with a standard
normal: by Cramér and Wold's theorem features are standard normal exactly where all their slices are.
"""

# N samples, D features, M slices

import functools
import math

import torch
from torch import Tensor

from counterpoint.core.numerics import unit_rows

WORDS = 4
MASK = 0xFFFFFFFF
PARITY = 0x1BD11BDA  # skein's key-schedule constant
NUM_ROUNDS = 20
ROTATIONS = ((10, 26), (11, 21), (13, 27), (23, 5), (6, 20), (17, 11), (25, 10), (18, 20))

# The key is (seed low, seed high, epoch, purpose + view); purposes keep draws for different uses apart.
PURPOSE_VIEW = 0
PURPOSE_ORDER = 1 << 16
PURPOSE_SPLIT = 2 << 16
PURPOSE_NOISE = 3 << 16
PURPOSE_DROPOUT = 4 << 16
PURPOSE_NEGATIVES = 5 << 16
PURPOSE_CORRUPTION = 6 << 16
PURPOSE_SLICES = 7 << 16
PURPOSE_TARGET = 8 << 16

# Knots of the trapezoid rule on [-5, 5]. Real slices have symmetric integrands, and at 0 the integrand vanishes: of 17
# knots these 8 remain, with twice their weight.
LIMIT, NUM_KNOTS = 5.0, 17
HALF = NUM_KNOTS // 2
STEP = LIMIT / HALF


def threefry(counter: tuple[Tensor, ...], key: tuple[Tensor | int, ...]) -> tuple[Tensor, ...]:
    """Encrypt four 32-bit counter words with four 32-bit key words.

    Args:
        counter: four int64 tensors that broadcast against each other, values in [0, 2**32).
        key: four ints or int64 tensors that broadcast against the counter, values in [0, 2**32).

    Returns:
        Four int64 tensors, uniform in [0, 2**32).

    >>> zero = torch.zeros((), dtype=torch.int64)
    >>> [hex(int(word)) for word in threefry((zero,) * 4, (0, 0, 0, 0))]
    ['0x9c6ca96a', '0xe17eae66', '0xfc10ecd4', '0x5256a7d8']
    """
    words = [word if isinstance(word, Tensor) else torch.tensor(word, device=counter[0].device) for word in key]
    # The fifth word of the key schedule: a key of zeros still changes the counter.
    words.append(words[0] ^ words[1] ^ words[2] ^ words[3] ^ PARITY)
    # Words 0 and 2 as one tensor, 1 and 3 as another, so that a round's two mixes are one. Bits above the 32nd of
    # ``first`` are left to gather: they never come down.
    counter = torch.broadcast_tensors(*counter)
    first, second = (torch.stack(counter[place::2]) for place in (0, 1))
    _add_key(first, second, words, 0)
    for round_number in range(NUM_ROUNDS):
        first += second
        # Rotation within 32 bits: what leaves at the top comes in at the bottom, and the mask drops the rest.
        second <<= _rotations(round_number % 8, second.ndim, second.device)
        second |= second >> 32
        second = second.bitwise_xor_(first).bitwise_and_(MASK).flip(0)  # words 1 and 3 change places
        # After every fourth round the next four of the five words are added.
        if round_number % 4 == 3:
            _add_key(first, second, words, round_number // 4 + 1)
    first &= MASK
    return first[0], second[0], first[1], second[1]


def words(seed: int, epoch: int, ids_N: Tensor, purpose: Tensor | int, num_draws: int) -> Tensor:
    """Draw 32-bit words for each sample.

    Args:
        seed: any non-negative int below 2**64.
        epoch: non-negative int below 2**32.
        ids_N: int64 sample ids, shape (n,).
        purpose: one of the ``PURPOSE_`` constants plus a view number; an int or a tensor of shape (n,).
        num_draws: words per sample.

    Returns:
        int64 tensor (n, num_draws), uniform in [0, 2**32).
    """
    # One block is one encryption: four draws.
    num_blocks = -(-num_draws // WORDS)
    ids_N1 = ids_N.to(torch.int64)[:, None]
    block_1B = torch.arange(num_blocks, device=ids_N.device)[None]
    purpose_key = purpose[:, None] if isinstance(purpose, Tensor) else purpose
    key = (seed & MASK, (seed >> 32) & MASK, epoch & MASK, purpose_key)
    # Counter: id low, id high, block, 0. A block in place of a state: any draw can be made alone.
    output = threefry((ids_N1 & MASK, (ids_N1 >> 32) & MASK, block_1B, torch.zeros_like(block_1B)), key)
    return torch.stack(output, dim=2).reshape(len(ids_N), num_blocks * WORDS)[:, :num_draws]


def uniform(seed: int, epoch: int, ids_N: Tensor, purpose: Tensor | int, num_draws: int) -> Tensor:
    """Draw float32 numbers in [0, 1), shape (n, num_draws); arguments as for ``words``."""
    # 24 bits: the most a float32 holds exactly, so CPU and GPU agree to the last bit.
    return (words(seed, epoch, ids_N, purpose, num_draws) >> 8).to(torch.float32) * 2.0**-24


def normal(seed: int, epoch: int, ids_N: Tensor, purpose: Tensor | int, num_draws: int) -> Tensor:
    """Draw standard normal float32 numbers, shape (n, num_draws), by Box and Muller's transform."""
    num_pairs = -(-num_draws // 2)
    uniforms = uniform(seed, epoch, ids_N, purpose, 2 * num_pairs)
    # Uniforms are in [0, 1): log1p(-u) = log(1 - u) is finite, log(u) is not at 0.
    radius = torch.sqrt(-2.0 * torch.log1p(-uniforms[:, :num_pairs]))
    angle = 2.0 * math.pi * uniforms[:, num_pairs:]
    return torch.cat([radius * torch.cos(angle), radius * torch.sin(angle)], dim=1)[:, :num_draws]


def slice_directions(num_slices: int, like_ND: Tensor, *, seed: int, step: int) -> Tensor:
    """Unit vectors, uniform on the sphere: a pure function of seed, step and the number of features.

    Args:
        num_slices: number of slices, M >= 1.
        like_ND: features (n, d), whose width, dtype and device the directions have.
        seed: non-negative int below 2**64.
        step: non-negative int below 2**32; each step has its own directions.

    Returns:
        Columns of length 1, shape (d, m).

    >>> a = slice_directions(3, torch.zeros(2, 4), seed=0, step=0)
    >>> a.shape, bool(torch.allclose(a.norm(dim=0), torch.ones(3)))
    (torch.Size([4, 3]), True)
    """
    ids_M = torch.arange(num_slices, device=like_ND.device)
    drawn_MD = normal(seed, step, ids_M, PURPOSE_SLICES, like_ND.shape[1])
    return unit_rows(drawn_MD.to(like_ND.dtype)).mT


def knots() -> list[tuple[float, float, float]]:
    """Positive knots t of the trapezoid rule, with the normal's characteristic function there and the knot's weight."""
    positive_knots = []
    for number in range(1, HALF + 1):
        t = number * STEP
        normal_at_t = math.exp(-t * t / 2)
        # Twice for the knot at -t; the ends of the interval have half the weight.
        positive_knots.append((t, normal_at_t, (1 if number == HALF else 2) * STEP * normal_at_t))
    return positive_knots


def epps_pulley(p_NM: Tensor) -> Tensor:
    r"""Epps and Pulley's statistic of each column: distance of its characteristic function from the normal's.

    .. math::
        T_m = n \int_{-5}^{5} \Big| \frac{1}{n} \sum_i e^{\mathrm{i} t p_{im}} - e^{-t^2 / 2} \Big|^2
        e^{-t^2 / 2} \, dt

    by the trapezoid rule on 17 knots. Differentiable to any order.

    Source: epps1983; balestriero2025 (the knots).

    Args:
        p_NM: projections of n samples, whose mean and deviation count.

    Returns:
        The statistic of each column, shape (m,), >= 0.

    >>> [round(float(value), 2) for value in epps_pulley(torch.tensor([[-1.0, 5.0], [1.0, 5.0]]))]
    [0.22, 7.88]
    """
    total_M = torch.zeros_like(p_NM[0])
    for t, normal_at_t, weight in knots():
        angle_NM = t * p_NM
        real_M, imaginary_M = angle_NM.cos().mean(dim=0), angle_NM.sin().mean(dim=0)
        total_M = total_M + weight * ((real_M - normal_at_t).square() + imaginary_M.square())
    return len(p_NM) * total_M


def _add_key(first: Tensor, second: Tensor, words: list[Tensor], turn: int) -> None:
    """Add the key's words in their turn, and the turn itself to the last word; in place."""
    for place, state in ((0, first), (1, second)):
        state[0] += words[(turn + place) % 5]
        state[1] += words[(turn + place + 2) % 5]
    second[1] += turn
    second &= MASK


@functools.cache
def _rotations(round_number: int, ndim: int, device: torch.device) -> Tensor:
    """Bits by which each of a round's two mixes rotates, shaped for tensors of this many axes."""
    return torch.tensor(ROTATIONS[round_number], device=device).reshape(2, *[1] * (ndim - 1))
