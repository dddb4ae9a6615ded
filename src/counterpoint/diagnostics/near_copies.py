"""Samples that lie far nearer to a few others than to all the rest: near-copies, at any share of the samples."""

# N samples, D features, Q samples that are asked about, K neighbours

import hashlib
import math
from dataclasses import dataclass

import torch
from torch import Tensor

from counterpoint.core.metric import unshown_metric
from counterpoint.core.thread_parts import side_by_side

MOST_ASKED, MOST_BANK = 512, 16384
NUM_NEIGHBOURS = 16
NUM_OF_HUB = 10
LARGEST_GROUP = 10  # neighbours that are near-copies: larger groups are clumps
NEAR = 0.1  # of the distance to the next neighbour
FEWEST_SAMPLES = 40
TIMES, FEW = 3.0, 4  # what a smooth manifold of as many dimensions shows, and samples on top
ROWS = 128  # of a block, which a thread takes whole


@dataclass(frozen=True)
class NearCopies:
    """How many samples have near-copies.

    Attributes:
        share: share of the distinct samples that are ten times as near to a few others as to the next one; 0 where that
            is no more than a smooth manifold has.
        distinct: share of the samples that is left where of each group one is kept.
        rows_R: positions of some samples that have one, the nearest first.
        hub: share of the samples asked about that have one and the same other among their 10 nearest by distance.
        hub_row: its position; -1 where this was not measured.
    """

    share: float
    distinct: float
    rows_R: Tensor
    hub: float = 0.0
    hub_row: int = -1


def distinct_rows(z_ND: Tensor) -> Tensor:
    """Positions of the first of equal rows, ascending.

    >>> distinct_rows(torch.tensor([[1.0], [2.0], [1.0], [-0.0], [0.0]]))
    tensor([0, 1, 3])
    """
    first: dict[bytes, int] = {}
    for place, row in enumerate(z_ND.numpy()):
        first.setdefault(hashlib.sha256(row + 0.0).digest(), place)  # adding 0 makes -0 one of 0
    return torch.tensor(list(first.values()), dtype=torch.int64)


def near_copies(z_ND: Tensor, first_N: Tensor | None = None) -> NearCopies:
    r"""Look for samples whose j nearest others are ten times as near as the next one, for any j up to 10.

    .. math:: d_j / d_{j+1} < 0.1

    Distances are of the features as they are: at unit length sparse samples coincide that differ in size. Where
    samples fill a manifold of m dimensions a share of
    :math:`0.1^m / (1 - 0.1^m)` has such a gap by chance; m is
    taken from the neighbours further out, and up to three times that share, and four samples, counts as none.

    Args:
        z_ND: features; at most 512 samples are asked about, among at most 16,384, evenly spaced.
        first_N: positions of distinct rows, from ``distinct_rows``; exact copies are a matter of their own.

    >>> z = torch.randn(200, 16, generator=torch.Generator().manual_seed(0))
    >>> near_copies(z).share, near_copies(torch.cat([z, z + 1e-3])).share
    (0.0, 1.0)
    """
    first_N = distinct_rows(z_ND) if first_N is None else first_N
    if len(first_N) < FEWEST_SAMPLES:
        return NearCopies(0.0, 1.0, first_N[:0])
    bank_N = first_N[torch.linspace(0, len(first_N) - 1, min(len(first_N), MOST_BANK), dtype=torch.float64).long()]
    centred_ND = z_ND[bank_N].double()
    centred_ND = centred_ND - centred_ND.mean(dim=0)
    asked_Q = torch.linspace(0, len(bank_N) - 1, min(len(bank_N), MOST_ASKED), dtype=torch.float64).long()
    near_QK, distance_QK = _nearest(centred_ND, asked_Q)
    count_N = torch.bincount(near_QK[:, :NUM_OF_HUB].flatten(), minlength=len(bank_N))
    hub, hub_row = float(count_N.max()) / len(asked_Q), int(bank_N[count_N.argmax()])
    log_QK = distance_QK.clamp(min=1e-300).log()  # squares of distinct rows may vanish
    groups = max(min(len(bank_N) // 20, LARGEST_GROUP), 1)
    is_gap_QJ = log_QK[:, :groups] < log_QK[:, 1 : groups + 1] + math.log(NEAR)
    group_Q = 1 + (is_gap_QJ * torch.arange(1, groups + 1)).amax(dim=1)
    share = float((group_Q > 1).double().mean())
    # Of a smooth manifold, whose distance to the 2a-th neighbour over that to the a-th is 2^(1/m) in the median; groups
    # end before one.
    growths = [float((log_QK[:, 2 * a - 1] - log_QK[:, a - 1]).median()) for a in (4, 8)]
    rare = NEAR ** (math.log(2) / max(min(growths), 1e-6))
    if share <= TIMES * (rare / (1 - rare) if rare < 1 else 1.0) + FEW / len(group_Q):
        return NearCopies(0.0, 1.0, first_N[:0], hub, hub_row)
    near_Q = (group_Q > 1).nonzero()[:, 0]
    order = distance_QK[near_Q, 0].argsort(stable=True)
    return NearCopies(share, float((1 / group_Q).mean()), bank_N[asked_Q[near_Q[order]]], hub, hub_row)


def _nearest(z_ND: Tensor, asked_Q: Tensor) -> tuple[Tensor, Tensor]:
    """The nearest others (Q, K) and their distances, ascending: found in float32, measured in float64."""
    rough_ND = z_ND.float()
    square_N = rough_ND.square().sum(dim=1)

    def measured(rows: Tensor) -> tuple[Tensor, Tensor]:
        score_BN = 2 * rough_ND[rows] @ rough_ND.T - square_N
        score_BN[torch.arange(len(rows)), rows] = -torch.inf
        near_BK = score_BN.topk(NUM_NEIGHBOURS, dim=1).indices
        distance_BK, order_BK = torch.linalg.vector_norm(z_ND[near_BK] - z_ND[rows][:, None], dim=2).sort(dim=1)
        return near_BK.gather(1, order_BK), distance_BK

    near, distances = zip(*side_by_side(measured, asked_Q.split(ROWS)), strict=True)
    return torch.cat(near), torch.cat(distances)


METRICS = (
    unshown_metric(name="near_copies", of=NearCopies, at="near.share", source="wang2020", unit="share"),
    unshown_metric(name="distance_hub", of=NearCopies, at="near.hub", source="radovanovic2010", unit="share"),
)
