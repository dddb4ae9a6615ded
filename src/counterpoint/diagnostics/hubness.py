"""Hubness: whether a few samples are among the nearest neighbours of very many, and others of none."""

# N samples, D features, B rows of a block

import torch
from torch import Tensor

from counterpoint.core.checks import check_features
from counterpoint.core.metric import Metric
from counterpoint.core.numerics import unit_rows
from counterpoint.core.thread_parts import side_by_side

MOST_COMPARED = 2048  # samples of which all pairs are looked at
NUM_NEIGHBOURS = 10
ROWS = 256  # of a block, which a thread takes whole
TIED = 1e-9  # cosines that differ by less are equal


def neighbour_counts(z_ND: Tensor, k: int = NUM_NEIGHBOURS) -> Tensor:
    r"""How often each sample is among the k nearest of another, by cosine.

    .. math:: N_k(j) = \sum_{i \ne j} \big[ j \in \mathrm{kNN}(i) \big]

    Neighbours that are equally near share the places that are left, so that counts need not be whole and do not depend
    on the order of samples. Their mean is k.

    Source: radovanovic2010, section 2.

    Args:
        z_ND: features; at most ``MOST_COMPARED`` samples, evenly spaced, are compared at unit length.
        k: neighbours of each; at most N - 1 are there.

    Returns:
        Counts (N,), float64.

    >>> neighbour_counts(torch.tensor([[1.0, 0.0], [1.0, 0.1], [1.0, 0.3]]), k=1)
    tensor([1., 2., 0.], dtype=torch.float64)
    """
    check_features(z_ND, "z")
    if k < 1:
        raise ValueError(f"k must be >= 1, got {k}; radovanovic2010 uses 10")
    some = torch.linspace(0, len(z_ND) - 1, min(len(z_ND), MOST_COMPARED)).long()
    unit_ND = unit_rows(z_ND[some].double())
    k = min(k, len(unit_ND) - 1)

    def counted(rows: Tensor) -> Tensor:
        cosine_BN = unit_ND[rows] @ unit_ND.T
        cosine_BN[torch.arange(len(rows)), rows] = -torch.inf
        least_B1 = cosine_BN.topk(k, dim=1).values[:, -1:]
        is_nearer_BN, is_tied_BN = cosine_BN > least_B1 + TIED, (cosine_BN - least_B1).abs() <= TIED
        left_B1 = k - is_nearer_BN.sum(1, keepdim=True)
        shared_BN = is_tied_BN * (left_B1 / is_tied_BN.sum(1, keepdim=True).double())
        return (is_nearer_BN + shared_BN).sum(0)

    return torch.stack(side_by_side(counted, torch.arange(len(unit_ND)).split(ROWS))).sum(0)


def hubness(count_N: Tensor) -> float:
    r"""Skewness of how often samples are neighbours; 0 if all are so equally often.

    .. math:: S_{N_k} = \frac{\mathrm{E}(N_k - \mu)^3}{\sigma^3}

    At most (N - 2) / sqrt(N - 1), where one sample is the only neighbour of all others.

    Source: radovanovic2010, section 2.

    Args:
        count_N: from ``neighbour_counts``.

    >>> hubness(neighbour_counts(torch.eye(5)))
    0.0
    """
    deviation_N = count_N - count_N.mean()
    variance = float(deviation_N.square().mean())
    # Counts that differ by rounding alone have no skewness.
    return float((deviation_N**3).mean()) / variance**1.5 if variance > TIED else 0.0


def antihub_share(count_N: Tensor) -> float:
    """Share of samples that are among the k nearest of no other.

    Source: radovanovic2010.

    Args:
        count_N: from ``neighbour_counts``.

    >>> antihub_share(torch.tensor([2.0, 1.0, 0.0, 1.0]))
    0.25
    """
    return float((count_N <= TIED).double().mean())


METRICS = (
    Metric(
        name="hubness",
        title="Hubness",
        short="hubness (skewness)",
        definition="Skewness of how often a sample is among the 10 nearest of others. Near 0 no sample is in every "
        "neighbourhood; above about 1 few samples are in many, which misleads a vote of the nearest.",
        source="radovanovic2010",
        measure=lambda subject: hubness(subject.neighbours_N),
        is_higher_better=False,
        is_shown=False,
    ),
    Metric(
        name="antihubs",
        title="Antihubs",
        short="samples near to no other",
        definition="Share of samples that are among the 10 nearest of no other sample.",
        source="radovanovic2010",
        measure=lambda subject: antihub_share(subject.neighbours_N),
        low=0.0,
        high=1.0,
        unit="share",
        is_higher_better=False,
        is_shown=False,
    ),
)
