"""Exact nearest neighbours by cosine similarity, block by block, with ties that are defined."""

# N bank samples, Q queries, D features, K neighbours, M candidates

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from counterpoint.core.checks import check_features
from counterpoint.core.numerics import unit_rows
from counterpoint.core.thread_parts import side_by_side

MOST_QUERIES = 256  # of a block, which one thread takes
MOST_COSINES = 1 << 24  # of a block: 64 MiB in float32
SPARE = 6  # candidates beyond k, so that few near ties take no second look


def nearest(queries_QD: Tensor, bank_ND: Tensor | None = None, *, k: int) -> Tensor:
    """Positions of the k bank samples with the largest cosine to each query, in falling order.

    The order is that of cosines in float64. Of equal ones the smaller position comes first, and equal rows of the bank
    have equal cosines. A zero vector has cosine 0 with all. Beside the inputs and a float32 copy of the bank each
    thread takes 64 MiB; four times that, and a float64 copy, where near ties make float64 products necessary.

    Args:
        queries_QD: what is asked about.
        bank_ND: where neighbours are looked for; None for the queries themselves, each without itself. (In a copy of
            the queries given as bank each query finds itself first.)
        k: neighbours, 1 <= k <= n; without a bank one less.

    Returns:
        Positions (q, k), int64, the same for any number of threads.

    Raises:
        ValueError: k out of range, widths that differ, or a row that is not finite.

    >>> nearest(torch.tensor([[1.0, 1.0]]), torch.tensor([[0.0, 1.0], [1.0, 0.0], [3.0, 4.0]]), k=3)
    tensor([[2, 0, 1]])
    """
    check_features(queries_QD, "queries", min_rows=1)
    is_own = bank_ND is None
    bank_ND = queries_QD if bank_ND is None else bank_ND
    check_features(bank_ND, "bank", min_rows=1)
    if queries_QD.shape[1] != bank_ND.shape[1]:
        raise ValueError(
            f"queries must have as many features as the bank, {bank_ND.shape[1]}, got {queries_QD.shape[1]}"
        )
    num_others = len(bank_ND) - is_own
    if not 1 <= k <= num_others:
        raise ValueError(f"k must be between 1 and the number of samples to choose from, {num_others}, got {k}")
    bank = _Bank(bank_ND, unit_rows(bank_ND.float()), k)
    # Blocks follow from the sizes alone, not from the number of threads: all numbers of threads give the same bits.
    size = min(MOST_QUERIES, max(1, MOST_COSINES // len(bank_ND)))

    def block(start: int) -> Tensor:
        own_Q = torch.arange(start, min(start + size, len(queries_QD)))
        return bank.nearest_to(queries_QD[own_Q], own_Q if is_own else None)

    return torch.cat(side_by_side(block, range(0, len(queries_QD), size)))


@dataclass(frozen=True)
class _Bank:
    """What all blocks of queries share; ``unit_ND`` has the rows at unit length in float32."""

    raw_ND: Tensor
    unit_ND: Tensor
    k: int

    def nearest_to(self, queries_QD: Tensor, own_Q: Tensor | None) -> Tensor:
        """Neighbours of a block of queries, of which none finds the sample at its own position, where it has one."""
        cosine_QN = unit_rows(queries_QD.float()) @ self.unit_ND.T
        _leave_out(cosine_QN, own_Q)
        num_candidates = min(self.k + SPARE, len(self.unit_ND))
        cosine_QM, place_QM = cosine_QN.topk(num_candidates, dim=1)
        exact_QD, exact_QMD = unit_rows(queries_QD.double()), _units(self.raw_ND, place_QM)
        # One sum for each pair, not a matrix product, in which the order of the terms may depend on the position.
        exact_QM = (exact_QMD * exact_QD[:, None]).sum(dim=2)
        exact_QM[cosine_QM.isneginf()] = -torch.inf
        nearest_QK = _first(exact_QM, place_QM, self.k)
        if num_candidates < len(self.unit_ND):
            # No other sample has a larger float32 cosine than the last candidate.
            is_unclear_Q = cosine_QM[:, -1] >= cosine_QM[:, self.k - 1] - self._blur
            own_U = None if own_Q is None else own_Q[is_unclear_Q]
            nearest_QK[is_unclear_Q] = self._among_all(exact_QD[is_unclear_Q], own_U)
        return nearest_QK

    @property
    def _blur(self) -> float:
        """By how much two float32 cosines can differ where the exact ones are equal.

        The products of unit vectors add up to at most 1, so that each sum errs by at most D roundings; scaling both
        vectors to unit length adds some.
        """
        return 2 * (self.raw_ND.shape[1] + 8) * 2.0**-24

    @cached_property
    def _exact(self) -> tuple[Tensor, Tensor | None]:
        """Unit rows in float64, and for each row the first that is equal to it; None where all differ."""
        unit_ND = unit_rows(self.raw_ND.double()) + 0.0  # no -0.0, whose bits differ from those of 0.0
        rows_N = unit_ND.numpy().view(np.dtype((np.void, unit_ND.shape[1] * unit_ND.itemsize)))[:, 0]
        _, first, group_N = np.unique(rows_N, return_index=True, return_inverse=True)
        return unit_ND, None if len(first) == len(rows_N) else torch.from_numpy(first[group_N])

    def _among_all(self, exact_UD: Tensor, own_U: Tensor | None) -> Tensor:
        """Neighbours where there are many near ties, from all cosines in float64."""
        unit_ND, first_N = self._exact
        cosine_UN = exact_UD @ unit_ND.T
        if first_N is not None:
            cosine_UN = cosine_UN[:, first_N]
        _leave_out(cosine_UN, own_U)
        least_U1 = cosine_UN.topk(self.k, dim=1).values[:, -1:]
        place_UK = torch.empty(len(cosine_UN), self.k, dtype=torch.int64)
        for query, (is_above_N, is_equal_N) in enumerate(zip(cosine_UN > least_U1, cosine_UN == least_U1, strict=True)):
            above, equal = is_above_N.nonzero()[:, 0], is_equal_N.nonzero()[:, 0]
            place_UK[query] = torch.cat([above, equal[: self.k - len(above)]])
        return _first(cosine_UN.gather(1, place_UK), place_UK, self.k)


def _units(raw_ND: Tensor, place_QM: Tensor) -> Tensor:
    """Some rows at unit length in float64, (q, m, d)."""
    return unit_rows(raw_ND[place_QM.flatten()].double()).view(*place_QM.shape, raw_ND.shape[1])


def _leave_out(cosine_QN: Tensor, own_Q: Tensor | None) -> None:
    """Let no query find itself."""
    if own_Q is not None:
        cosine_QN[torch.arange(len(own_Q)), own_Q] = -torch.inf


def _first(cosine_QM: Tensor, place_QM: Tensor, k: int) -> Tensor:
    """The places of the k largest cosines, the smaller place first among equals."""
    place_QM, order_QM = place_QM.sort(dim=1)
    by_cosine_QM = cosine_QM.gather(1, order_QM).argsort(dim=1, descending=True, stable=True)
    return place_QM.gather(1, by_cosine_QM[:, :k])
