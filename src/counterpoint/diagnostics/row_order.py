"""Do features change along the order of the rows, and does a dimension take few values, or pile up at an end?"""

# N samples, D features, B blocks

import math

import torch
from torch import Tensor

from counterpoint.core.metric import Metric
from counterpoint.core.numerics import unit_rows

NUM_BLOCKS = 10
FEWEST_SAMPLES = 100
ERRORS = 8.0  # standard errors of rows in random order
MOST_LOOKED_AT = 2048  # samples whose values are counted
AT_END = 1e-3  # of the interquartile range, from the largest or least value
MANY_VALUES = 32


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
    length_N1 = torch.linalg.vector_norm(z_ND.double(), dim=1, keepdim=True)
    log_N1 = length_N1.clamp(min=1e-12 * float(length_N1.max()) + 1e-300).log()
    return max(_block_share(part, labels_N) for part in (unit_rows(z_ND.double()), log_N1))


def _block_share(z_ND: Tensor, labels_N: Tensor | None) -> float:
    z_ND = z_ND - z_ND.mean(dim=0)
    if labels_N is not None:
        class_N = labels_N.unique(return_inverse=True)[1]
        sums = torch.zeros(int(class_N.max()) + 1, z_ND.shape[1], dtype=z_ND.dtype).index_add_(0, class_N, z_ND)
        z_ND = z_ND - (sums / torch.bincount(class_N)[:, None])[class_N]
    total = float(z_ND.square().sum())
    blocks = z_ND.tensor_split(NUM_BLOCKS)
    between = sum(len(block) * float(block.mean(dim=0).square().sum()) for block in blocks)
    free = len(z_ND) - 1
    trace = total / free
    # The scatter of chance from some of the rows, which is all that it needs.
    some_ND = _evenly_spaced(z_ND).float()
    gram = some_ND.T @ some_ND if some_ND.shape[1] < len(some_ND) else some_ND @ some_ND.T
    square_trace = float(gram.square().sum()) / len(some_ND) ** 2
    excess = between - (NUM_BLOCKS - 1) * trace
    is_chance = excess <= ERRORS * math.sqrt(2 * (NUM_BLOCKS - 1) * square_trace)
    # Lengths that differ by rounding alone are in no order.
    return 0.0 if is_chance or trace < 1e-12 else excess / total


def distinct_values(z_ND: Tensor) -> float:
    """Distinct values of a dimension over at most 2,048 samples, in the median dimension that may be continuous.

    Left out are dimensions of counts (whole numbers from 0 on, as in tables and pictures) and constant ones; one that
    is nearly always 0 and differs otherwise counts as one that never repeats a value. NaN where none is left.

    >>> distinct_values(torch.randn(100, 3).sign()), distinct_values(torch.ones(100, 3))
    (2.0, nan)
    """
    some_ND = _evenly_spaced(z_ND)
    some_ND = some_ND[:, ((some_ND < 0) | (some_ND != some_ND.round())).any(dim=0)]
    num_D, commonest_D = _num_values(some_ND), some_ND.mode(dim=0).values
    is_sparse_D = 2 * (num_D - 1) > (some_ND != commonest_D).sum(dim=0)
    num_D = torch.where(is_sparse_D, len(some_ND), num_D)[num_D > 1]
    return float(num_D.median()) if len(num_D) else math.nan


def saturated_share(z_ND: Tensor) -> float:
    """Share of entries at the largest or the least value of their dimension, to a thousandth of its quartiles' gap.

    Of dimensions with more than 32 distinct values; the lower end of one that has no value below 0 does not count.
    NaN without such dimensions.

    >>> z = torch.randn(2000, 4, generator=torch.Generator().manual_seed(0))
    >>> round(saturated_share(z), 2), round(saturated_share(z.clamp(-1, 1)), 2)
    (0.0, 0.32)
    """
    some_ND = _evenly_spaced(z_ND).double()
    some_ND = some_ND[:, _num_values(some_ND) > MANY_VALUES]
    if some_ND.shape[1] == 0:
        return math.nan
    ordered_ND = some_ND.sort(dim=0).values
    num = len(ordered_ND)
    near_D = AT_END * (ordered_ND[3 * num // 4] - ordered_ND[num // 4])
    low_D, high_D = ordered_ND[0], ordered_ND[-1]
    is_low_ND = (some_ND <= low_D + near_D) & (low_D < 0)
    is_high_ND = (some_ND >= high_D - near_D) & (near_D > 0)
    return max(float((is_low_ND | is_high_ND).double().mean()) - 2 / num, 0.0)


def _evenly_spaced(z_ND: Tensor) -> Tensor:
    return z_ND[torch.linspace(0, len(z_ND) - 1, min(len(z_ND), MOST_LOOKED_AT)).long()]


def _num_values(z_ND: Tensor) -> Tensor:
    ordered_ND = z_ND.sort(dim=0).values
    return 1 + (ordered_ND[1:] != ordered_ND[:-1]).sum(dim=0)


METRICS = (
    Metric(
        name="row_order",
        title="Order of rows",
        short="order of rows",
        definition="Share of the variance that tells ten blocks of consecutive rows apart, beyond chance.",
        source="welch1947",
        measure=lambda subject: order_share(subject.z_ND),
        low=0.0,
        high=1.0,
        unit="share",
        is_shown=False,
    ),
    Metric(
        name="row_order_within",
        title="Order of rows within classes",
        short="order of rows within classes",
        definition="The same after the means of the classes were taken away.",
        source="welch1947",
        measure=lambda subject: math.nan if subject.labels_N is None else order_share(subject.z_ND, subject.labels_N),
        low=0.0,
        high=1.0,
        unit="share",
        is_shown=False,
    ),
    Metric(
        name="distinct_values",
        title="Distinct values",
        short="distinct values",
        definition="Number of distinct values of the median dimension; null of whole numbers from 0 on.",
        source="ncl2024",
        measure=lambda subject: distinct_values(subject.z_ND),
        low=1.0,
        is_shown=False,
    ),
    Metric(
        name="saturated",
        title="Values at an end",
        short="values at an end",
        definition="Share of entries at the largest or the least value of their dimension.",
        source="ncl2024",
        measure=lambda subject: saturated_share(subject.z_ND),
        low=0.0,
        high=1.0,
        unit="share",
        is_shown=False,
    ),
)
