"""The two ways to read a tile: along its rows, and along its columns where the keys are anchors too."""

# N anchors, M keys, H tile rows, W tile columns, O own anchors of a reading, K keys of a reading

from dataclasses import dataclass

import torch
from torch import Tensor

from counterpoint.kernels.contract import PairFunction, PairScores, ScoreTerms
from counterpoint.kernels.cpu.tiles import Tile

LEAST_EXPONENT = -60.0
LEAST_WEIGHT = 1e-26  # above e^-60


@dataclass(frozen=True)
class Reading:
    """One direction.

    Attributes:
        is_column: the anchors are the columns of the tile.
        statistic: which statistic it belongs to: 0 rows, 1 columns.
        own_name: field of ``ScoreTerms`` that holds what each anchor adds.
        other_name: field of ``ScoreTerms`` that holds what each key adds.
    """

    is_column: bool
    statistic: int
    own_name: str = "row_own_N"
    other_name: str = "row_other_M"

    def own(self, tile: Tile) -> slice:
        """Anchors of the tile in this reading."""
        return tile.columns if self.is_column else tile.rows

    def other(self, tile: Tile) -> slice:
        """Keys of the tile in this reading."""
        return tile.rows if self.is_column else tile.columns

    def orient(self, tile_HW: Tensor) -> Tensor:
        """View a tile with its anchors as rows, (o, k)."""
        return tile_HW.mT if self.is_column else tile_HW

    def add_biases(self, oriented_OK: Tensor, terms: ScoreTerms, tile: Tile) -> Tensor:
        """Add what anchors and keys add, in place."""
        own_O, other_K = getattr(terms, self.own_name), getattr(terms, self.other_name)
        if own_O is not None:
            oriented_OK.add_(own_O[self.own(tile), None])
        if other_K is not None:
            oriented_OK.add_(other_K[None, self.other(tile)])
        return oriented_OK


ROWS = Reading(is_column=False, statistic=0)
MIRRORED = Reading(is_column=True, statistic=0)  # the anchors are the keys: below the diagonal
COLUMNS = Reading(is_column=True, statistic=1, own_name="column_own_M", other_name="column_other_N")


def readings(scores: PairScores) -> tuple[Reading, ...]:
    """Directions in which a tile off the diagonal is read."""
    if scores.is_self:
        return (ROWS, MIRRORED)
    return (ROWS, COLUMNS) if scores.is_two_way else (ROWS,)


def counted_readings(scores: PairScores, tile: Tile) -> tuple[Reading, ...]:
    """The same, with each pair of a tile on the diagonal counted once."""
    return (ROWS,) if tile.is_on_diagonal else readings(scores)


def prepare(tile: Tile, psi: PairFunction) -> None:
    """Make the pairs that do not count harmless, in place: weightless for exp, finite for any other psi."""
    tile.mask.fill(tile.product_HW, float("-inf") if psi.in_log_domain else 0.0)


def exp_(v: Tensor) -> Tensor:
    """Exponential in place, of numbers relative to the largest of a row, or to the logarithm of its sum.

    Below 1e-26, which no sum with a 1 in it shows, it is zero: computed as such, exponentials that are subnormal or
    zero take forty and ten times as long.
    """
    return torch.threshold_(v.clamp_(min=LEAST_EXPONENT).exp_(), LEAST_WEIGHT, 0.0)


class LogSums:
    """Running log-sum-exp per anchor: the largest score so far, and the sum of exp relative to it."""

    def __init__(self, num_anchors: int, like: Tensor) -> None:
        self.top_N = like.new_full((num_anchors,), float("-inf"))
        self.sum_N = like.new_zeros(num_anchors)

    def add(self, own: slice, u_OK: Tensor) -> None:
        """Take in a tile, which is overwritten."""
        old_O = self.top_N[own]
        new_O = torch.maximum(old_O, u_OK.amax(1))
        shift_O = torch.where(new_O == float("-inf"), 0.0, new_O)  # an anchor without any key so far
        self.sum_N[own] = self.sum_N[own] * torch.exp(old_O - shift_O) + exp_(u_OK.sub_(shift_O[:, None])).sum(1)
        self.top_N[own] = new_O

    def result(self) -> Tensor:
        """The log-sum-exp; minus infinity for an anchor without keys."""
        return torch.where(self.top_N == float("-inf"), self.top_N, self.top_N + torch.log(self.sum_N))


class PlainSums:
    """Running sum per anchor."""

    def __init__(self, num_anchors: int, like: Tensor) -> None:
        self.sum_N = like.new_zeros(num_anchors)

    def add(self, own: slice, values_OK: Tensor) -> None:
        """Take in a tile."""
        self.sum_N[own] += values_OK.sum(1)

    def result(self) -> Tensor:
        """The sums."""
        return self.sum_N
