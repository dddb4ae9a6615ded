"""Do features change along the order of the rows?"""

# N samples, D features, B blocks

import math
from collections.abc import Callable

import torch
from torch import Tensor

from counterpoint.core.metric import unshown_metric
from counterpoint.core.numerics import rowwise, unit_rows
from counterpoint.core.stored_rows import row_slices

NUM_BLOCKS = 10
FEWEST_SAMPLES = 100
ERRORS = 8.0  # standard errors of rows in random order
MOST_LOOKED_AT = 2048  # samples that measure the scatter of chance


def order_share(z_ND: Tensor, labels_N: Tensor | None = None) -> float:
    r"""Share of the variance that tells ten blocks of consecutive rows apart, beyond chance; 0 within chance.

    .. math:: \frac{\sum_b n_b |m_b - m|^2 - (B - 1) \mathrm{tr}\,S}{(N - 1)\, \mathrm{tr}\,S}

    In random order the first sum is :math:`(B - 1) \mathrm{tr}\,S` with variance :math:`2 (B - 1) \mathrm{tr}\,S^2`;
    up to eight standard errors count as chance. The larger of two shares: of the features at unit length, and of the
    logarithms of their lengths.

    Args:
        z_ND: features in their order; NaN of fewer than 100.
        labels_N: class numbers, whose means are taken away first, so that rows in the order of their classes show none.

    >>> z = torch.randn(1000, 8, generator=torch.Generator().manual_seed(0))
    >>> order_share(z), order_share(z + torch.linspace(-1, 1, 1000)[:, None]) > 0.1
    (0.0, True)
    """
    if len(z_ND) < FEWEST_SAMPLES:
        return math.nan
    length_N1 = rowwise(lambda rows: torch.linalg.vector_norm(rows.double(), dim=1, keepdim=True), z_ND)
    log_N1 = length_N1.clamp(min=1e-12 * float(length_N1.max()) + 1e-300).log()
    return max(_block_share(log_N1, labels_N), _block_share(z_ND, labels_N, unit_rows))


def _block_share(z_ND: Tensor, labels_N: Tensor | None, scaled: Callable[[Tensor], Tensor] = torch.clone) -> float:
    """Share of the scatter of scaled rows that lies between blocks; rows are taken in parts, as all may be large."""
    class_N = torch.zeros(len(z_ND), dtype=torch.int64) if labels_N is None else labels_N.unique(return_inverse=True)[1]
    sums = torch.zeros(int(class_N.max()) + 1, z_ND.shape[1], dtype=torch.float64)
    for part in row_slices(len(z_ND), MOST_LOOKED_AT):
        sums.index_add_(0, class_N[part], scaled(z_ND[part].double()))
    means = sums / torch.bincount(class_N)[:, None]

    def centred(rows: Tensor) -> Tensor:
        return scaled(z_ND[rows].double()) - means[class_N[rows]]

    total = between = 0.0
    for rows in torch.arange(len(z_ND)).tensor_split(NUM_BLOCKS):
        block = centred(rows)
        total += float(block.square().sum())
        between += len(block) * float(block.mean(dim=0).square().sum())
    free = len(z_ND) - 1
    trace = total / free
    # The scatter of chance from some of the rows, which is all that it needs.
    some_ND = centred(torch.linspace(0, free, min(len(z_ND), MOST_LOOKED_AT)).long()).float()
    gram = some_ND.T @ some_ND if some_ND.shape[1] < len(some_ND) else some_ND @ some_ND.T
    square_trace = float(gram.square().sum()) / len(some_ND) ** 2
    excess = between - (NUM_BLOCKS - 1) * trace
    is_chance = excess <= ERRORS * math.sqrt(2 * (NUM_BLOCKS - 1) * square_trace)
    # Lengths that differ by rounding alone are in no order.
    return 0.0 if is_chance or trace < 1e-12 else excess / total


METRICS = (
    unshown_metric(name="row_order", of=order_share, at="z_ND", source="welch1947", unit="share"),
    unshown_metric(name="row_order_within", of=order_share, at="z_ND labels_N", source="welch1947", unit="share"),
)
