"""Measures of samples that coincide (all, in a few places, as exact or near copies), and of a few near to very many."""

# N samples, D features, B rows of a block, Q samples that are asked about, K neighbours

import hashlib
import math
from dataclasses import dataclass

import numpy as np
import torch
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from torch import Tensor

from counterpoint.core.checks import check_features
from counterpoint.core.metric import unshown_metric
from counterpoint.core.thread_parts import side_by_side
from counterpoint.diagnostics.alignment import compared, unit_subset

NEAR = 0.1  # of the median distance between two samples: nearer ones belong to one clump
APART = 0.3  # of it: no other sample is as near as that to a clump
LARGE = 0.01  # of the samples, that a clump has at least
NUM_NEIGHBOURS = 10
HUB = 0.1  # of the samples, of which a sample is a neighbour
ROWS = 256  # of a block, which a thread takes whole
TIED = 1e-9  # cosines that differ by less are equal
# Limits of near-copies:
MOST_ASKED, MOST_BANK = 512, 16384
NUM_NEAREST = 16
LARGEST_GROUP = 10  # neighbours that are near-copies: larger groups are clumps
GAP = 0.1  # of the distance to the next neighbour
FEWEST_SAMPLES = 40
TIMES, FEW = 3.0, 4  # what a smooth manifold of as many dimensions shows, and samples on top
ROWS_ASKED = 128  # of a block, which a thread takes whole


def spread(spectrum_D: Tensor, num_samples: int) -> float:
    r"""Root mean square distance of unit-length samples from their mean, in [0, 1]; 0 if all point the same way.

    .. math:: \sqrt{\frac1N \sum_i |\hat z_i - m|^2}, \qquad m = \frac1N \sum_i \hat z_i

    1 of features without a common part. 0.01 means that samples point the same way to within 0.6 degrees.

    Args:
        spectrum_D: eigenvalues of the covariance of the unit-length features, from ``spectra.covariance_spectrum``.
        num_samples: number of samples that the covariance was estimated from.

    >>> from counterpoint.diagnostics.spectra import covariance_spectrum
    >>> z = torch.tensor([[3.0, 0.0], [-1.0, 0.0], [0.0, 2.0], [0.0, -1.0]])
    >>> spread(covariance_spectrum(z, normalize=True), 4)
    1.0
    """
    return math.sqrt(float(spectrum_D.sum()) * (num_samples - 1) / num_samples)


def duplicate_share(first_N: Tensor, num_rows: int) -> float:
    """Share of samples that are an exact copy of an earlier one.

    Args:
        first_N: positions of the first of equal rows, from ``distinct_rows``.
        num_rows: number of all rows.

    >>> duplicate_share(torch.tensor([0, 1]), 4)
    0.5
    """
    return 1 - len(first_N) / num_rows


def clump_share(z_ND: Tensor) -> float:
    """Share of samples in clumps: groups far smaller than the distances between them.

    Samples belong to one clump where a chain of others leads from one to the other, each nearer to the next than a
    tenth of the median distance between two samples, and no sample outside is within three tenths of one inside.
    Clumps of less than a hundredth of the samples do not count, nor does one that holds them all: a line or a plane
    full of samples hangs together. Copies count once, and at most
    ``MAX_PAIR_SAMPLES`` samples, evenly spaced, are compared, at unit length.

    >>> corners = torch.eye(3).repeat_interleave(50, dim=0)
    >>> clump_share(corners + 0.01 * torch.randn(150, 3, generator=torch.Generator().manual_seed(0)))
    1.0
    """
    check_features(z_ND, "z")
    unit_ND = unit_subset(z_ND).unique(dim=0)
    if len(unit_ND) < 3:
        return 0.0
    distance_NN = torch.cdist(unit_ND, unit_ND)
    typical = float(distance_NN[*torch.triu_indices(len(unit_ND), len(unit_ND), offset=1)].median())
    sizes = []  # of the group that a chain of near ones joins to each sample, itself included
    for share in (NEAR, APART):
        rows, columns = (distance_NN < share * typical).nonzero().T.numpy()
        graph = coo_array((np.ones(len(rows), bool), (rows, columns)), shape=distance_NN.shape)
        group_N = torch.from_numpy(connected_components(graph, directed=False)[1]).long()
        sizes.append(torch.bincount(group_N)[group_N])
    tight_N, loose_N = sizes
    is_clumped_N = (tight_N == loose_N) & (tight_N >= max(2, LARGE * len(unit_ND))) & (tight_N < len(unit_ND))
    return float(is_clumped_N.double().mean())


def neighbour_counts(z_ND: Tensor, k: int = NUM_NEIGHBOURS) -> Tensor:
    r"""Number of times that each sample is among the k nearest of another, by cosine.

    .. math:: N_k(j) = \sum_{i \ne j} \big[ j \in \mathrm{kNN}(i) \big]

    Neighbours that are equally near share the places that are left, so that counts need not be whole and do not depend
    on the order of samples. Their mean is k.

    Source: radovanovic2010, section 2.

    Args:
        z_ND: features; at most ``MAX_PAIR_SAMPLES`` samples, evenly spaced, are compared at unit length.
        k: number of neighbours of each sample, >= 1; at most N - 1 are taken.

    Returns:
        Counts, float64, one for each compared sample.

    >>> neighbour_counts(torch.tensor([[1.0, 0.0], [1.0, 0.1], [1.0, 0.3]]), k=1)
    tensor([1., 2., 0.], dtype=torch.float64)
    """
    check_features(z_ND, "z")
    if k < 1:
        raise ValueError(f"k must be >= 1, got {k}; radovanovic2010 uses 10")
    unit_ND = unit_subset(z_ND)
    k = min(k, len(unit_ND) - 1)

    def counted(rows: Tensor) -> Tensor:
        cosine_BN = unit_ND[rows] @ unit_ND.T
        cosine_BN[torch.arange(len(rows)), rows] = -torch.inf
        least_B1 = cosine_BN.topk(k, dim=1).values[:, -1:]
        is_nearer_BN, is_tied_BN = cosine_BN > least_B1 + TIED, (cosine_BN - least_B1).abs() <= TIED
        free_places_B1 = k - is_nearer_BN.sum(1, keepdim=True)
        shared_BN = is_tied_BN * (free_places_B1 / is_tied_BN.sum(1, keepdim=True).double())
        return (is_nearer_BN + shared_BN).sum(0)

    return torch.stack(side_by_side(counted, torch.arange(len(unit_ND)).split(ROWS))).sum(0)


def largest_hub(count_N: Tensor) -> float:
    """Share of the other samples that have one sample among their nearest, of the sample with most.

    >>> largest_hub(neighbour_counts(torch.tensor([[1.0, 0.0], [1.0, 0.1], [1.0, 0.3]]), k=1))
    1.0
    """
    return float(count_N.max()) / max(len(count_N) - 1, 1)


def hub_rows(z_ND: Tensor, count_N: Tensor) -> Tensor:
    """Positions of the samples that are neighbours of at least a tenth of the others, the largest hub first."""
    order = count_N.argsort(descending=True, stable=True)
    return compared(z_ND)[order[count_N[order] >= HUB * len(count_N)]]


@dataclass(frozen=True)
class NearCopies:
    """Samples that have near-copies: their shares and positions.

    Attributes:
        share: share of the distinct samples that are ten times as near to a few others as to the next one; 0 where that
            is no more than a smooth manifold has.
        distinct: share of the distinct samples that remains if only one of each group of near-copies is kept.
        rows_R: positions of some samples that have near-copies, the nearest first.
        hub: share of the samples asked about that have the most frequent neighbour among their 10 nearest by distance.
        hub_row: position of that neighbour; -1 if it was not measured.
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
    query_Q = torch.linspace(0, len(bank_N) - 1, min(len(bank_N), MOST_ASKED), dtype=torch.float64).long()
    near_QK, distance_QK = _nearest_others(centred_ND, query_Q)
    count_N = torch.bincount(near_QK[:, :NUM_NEIGHBOURS].flatten(), minlength=len(bank_N))
    hub, hub_row = float(count_N.max()) / len(query_Q), int(bank_N[count_N.argmax()])
    log_QK = distance_QK.clamp(min=1e-300).log()  # squares of distinct rows may vanish
    groups = max(min(len(bank_N) // 20, LARGEST_GROUP), 1)
    is_gap_QJ = log_QK[:, :groups] < log_QK[:, 1 : groups + 1] + math.log(GAP)
    group_Q = 1 + (is_gap_QJ * torch.arange(1, groups + 1)).amax(dim=1)
    share = float((group_Q > 1).double().mean())
    # On a smooth manifold the distance to the 2a-th neighbour over that to the a-th is 2^(1/m) in the median; groups
    # end before one.
    growths = [float((log_QK[:, 2 * a - 1] - log_QK[:, a - 1]).median()) for a in (4, 8)]
    rare = GAP ** (math.log(2) / max(min(growths), 1e-6))
    if share <= TIMES * (rare / (1 - rare) if rare < 1 else 1.0) + FEW / len(group_Q):
        return NearCopies(0.0, 1.0, first_N[:0], hub, hub_row)
    near_Q = (group_Q > 1).nonzero()[:, 0]
    order = distance_QK[near_Q, 0].argsort(stable=True)
    return NearCopies(share, float((1 / group_Q).mean()), bank_N[query_Q[near_Q[order]]], hub, hub_row)


def _nearest_others(z_ND: Tensor, query_Q: Tensor) -> tuple[Tensor, Tensor]:
    """Return positions (Q, K) and distances of the nearest others, ascending: found in float32, measured in float64."""
    rough_ND = z_ND.float()
    square_N = rough_ND.square().sum(dim=1)

    def measured(rows: Tensor) -> tuple[Tensor, Tensor]:
        score_BN = 2 * rough_ND[rows] @ rough_ND.T - square_N
        score_BN[torch.arange(len(rows)), rows] = -torch.inf
        near_BK = score_BN.topk(NUM_NEAREST, dim=1).indices
        distance_BK, order_BK = torch.linalg.vector_norm(z_ND[near_BK] - z_ND[rows][:, None], dim=2).sort(dim=1)
        return near_BK.gather(1, order_BK), distance_BK

    near, distances = zip(*side_by_side(measured, query_Q.split(ROWS_ASKED)), strict=True)
    return torch.cat(near), torch.cat(distances)


METRICS = (
    unshown_metric(name="spread", of=spread, at="spectrum_D num_rows", source="wang2020"),
    unshown_metric(name="duplicates", of=duplicate_share, at="first_N num_rows", source="wang2020", unit="share"),
    unshown_metric(name="clumps", of=clump_share, at="z_ND", source="caron2018", unit="share"),
    unshown_metric(name="largest_hub", of=largest_hub, at="neighbours_N", source="radovanovic2010", unit="share"),
    unshown_metric(name="near_copies", of=NearCopies, at="near.share", source="wang2020", unit="share"),
    unshown_metric(name="distance_hub", of=NearCopies, at="near.hub", source="radovanovic2010", unit="share"),
)
