"""SEPIN: what each dimension of a code tells about the sample that the other dimensions do not, without any labels."""

# N samples, S draws, M negatives, D dimensions

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from counterpoint.core.checks import check_features, check_positive
from counterpoint.core.counter_random import PURPOSE_NEGATIVES, PURPOSE_NOISE, normal
from counterpoint.core.errors import DataError
from counterpoint.core.metric import Metric
from counterpoint.core.numerics import unit_rows
from counterpoint.core.paired_shares import Z_95
from counterpoint.core.thread_parts import one_thread, side_by_side
from counterpoint.data.order import random_order
from counterpoint.evaluation.scoring import Estimate, Labelled, Score

MOST_PAIRS = 1 << 17  # of a block, which one thread takes: 1 MiB


@dataclass(frozen=True)
class Separability:
    """SEPIN of each dimension, in nats.

    Attributes:
        information_D: I(x; z_i | z without i), or an estimate of it, float64.
        standard_error_D: of each by the draws, or over the samples; 0 for a closed form.
        found_ND: of each draw or sample, of which the information is the mean; None for a closed form.
    """

    information_D: Tensor
    standard_error_D: Tensor
    found_ND: Tensor | None = None

    def at(self, k: int) -> float:
        """SEPIN@k: mean of the k largest.

        Differs from do2020, who order dimensions by I(x; z_i): ncl2024 (appendix G.3) orders them by SEPIN itself.

        Raises:
            ValueError: k out of range.
        """
        if not 1 <= k <= len(self.information_D):
            raise ValueError(f"k must be between 1 and the number of dimensions, {len(self.information_D)}, got {k}")
        return float(self.information_D.topk(k).values.mean())

    def estimate(self, k: int) -> Estimate:
        """SEPIN@k with its 95 % normal interval over the draws or samples, for the dimensions that are the largest."""
        value = self.at(k)
        if self.found_ND is None:
            return Estimate(value, value, value)
        found_N = self.found_ND[:, self.information_D.topk(k).indices].mean(dim=1)
        spread = Z_95 * float(found_N.std()) / len(found_N) ** 0.5
        return Estimate(value, value - spread, value + spread)


def gaussian_sepin(codes_ND: Tensor, *, noise: float) -> Separability:
    r"""SEPIN in closed form for codes that are normally distributed and read with noise.

    .. math:: I(x; z_i \mid z_{\ne i}) = \tfrac12 \log \frac{1}{s^2 [\Sigma^{-1}]_{ii}}, \qquad
        \Sigma = \mathrm{Cov}(f(x)) + s^2 I

    since z_i given the others has variance :math:`1 / [\Sigma^{-1}]_{ii}`, and given x the variance s^2.

    Source: do2020, for z = f(x) + s e with standard normal e.

    Args:
        codes_ND: f(x); only their covariance (N - 1) matters.
        noise: s > 0, in the unit of the codes. Without noise a code of real numbers tells everything.

    >>> codes = torch.tensor([[1.0, 0.0], [-1.0, 0.0], [0.0, 0.0]])  # variances 1 and 0
    >>> gaussian_sepin(codes, noise=1.0).information_D  # half of log 2, and nothing
    tensor([0.3466, 0.0000], dtype=torch.float64)
    """
    check_features(codes_ND, "codes")
    check_positive(noise, "noise")
    with one_thread():
        covariance_DD = codes_ND.double().T.cov().reshape(codes_ND.shape[1], -1)
        precision_DD = (covariance_DD / noise**2 + torch.eye(len(covariance_DD), dtype=torch.float64)).inverse()
    return Separability(
        precision_DD.diagonal().reciprocal().log() / 2, torch.zeros(len(precision_DD), dtype=torch.float64)
    )


def noisy_sepin(codes_ND: Tensor, *, noise: float, num_draws: int = 1000, seed: int = 0) -> Separability:
    r"""SEPIN of a code that is read with Gaussian noise, by draws from it; x is one of the samples.

    .. math:: I(x; z_i \mid z_{\ne i}) = E \log \frac{q(z_{\ne i})}{q(z)}\, p(z_i \mid x)
        = E \log \sum_n w_n \exp \frac{(z_i - f_i(x_n))^2 - (z_i - f_i(x))^2}{2 s^2}, \qquad
        w_n \propto \exp \frac{-|z - f(x_n)|^2}{2 s^2}

    with z = f(x) + s e. It lies between 0 and log n, since n samples carry no more. Where it should speak of the
    population, n has to be so large that noise reaches from a sample to others.

    Source: do2020 (there the encoder gives a variance for each sample; here it gives none, and s is stated).

    Args:
        codes_ND: f(x).
        noise: s > 0, in the unit of the codes.
        num_draws: of pairs of sample and noise; the samples are taken in turn.
        seed: of the noise.

    >>> codes = torch.randn(400, 2, generator=torch.Generator().manual_seed(0))
    >>> found, exact = noisy_sepin(codes, noise=0.7), gaussian_sepin(codes, noise=0.7)
    >>> ((found.information_D - exact.information_D).abs() < 5 * found.standard_error_D).all()
    tensor(True)
    """
    check_features(codes_ND, "codes")
    check_positive(noise, "noise")
    if num_draws < 2:
        raise ValueError(f"num_draws must be >= 2, got {num_draws}; 1000 is usual")
    # In units of the noise, so that s = 1.
    codes_ND = codes_ND.double() / noise
    halves_N = codes_ND.square().sum(dim=1) / 2

    def block(rows: slice) -> Tensor:
        draws_S = torch.arange(num_draws)[rows]
        e_SD = normal(seed, 0, draws_S, PURPOSE_NOISE, codes_ND.shape[1]).double()
        z_SD = codes_ND[draws_S % len(codes_ND)] + e_SD
        log_w_SN = (z_SD @ codes_ND.T - halves_N).log_softmax(dim=1)
        found_DS = []
        for z_S, e_S, code_N in zip(z_SD.T, e_SD.T, codes_ND.T, strict=True):
            gap_SN = ((z_S[:, None] - code_N) ** 2 - e_S[:, None] ** 2) / 2
            found_DS.append((log_w_SN + gap_SN).logsumexp(dim=1))
        return torch.stack(found_DS, dim=1)

    return _mean(block, num_draws, len(codes_ND))


def contrastive_sepin(
    z0_ND: Tensor,
    z1_ND: Tensor,
    *,
    temperature: float = 1.0,
    num_negatives: int | None = None,
    renormalize: bool = False,
    seed: int = 0,
) -> Separability:
    r"""SEPIN from two views: what a dimension adds to the InfoNCE estimate of the information about the sample.

    .. math:: \mathrm{SEPIN}_i = I(f) - I(f_{\ne i}), \qquad
        I(f) = E \log \frac{e^{f(x)^\top f(x^+) / \tau}}
        {e^{f(x)^\top f(x^+) / \tau} + \frac1M \sum_j e^{f(x)^\top f(x_j^-) / \tau}}

    for rows of unit length. An estimate up to a constant, which the difference does not have; no bound, and not
    comparable with ``noisy_sepin``.

    Differs from ncl2024, Eq. 16 and 17, whose minus sign would make informative dimensions negative. What the paper
    leaves open is an argument; negatives are second views of other samples.

    Source: ncl2024, appendix G.3.

    Args:
        z0_ND: features of the first views.
        z1_ND: of the second views, row by row of the same samples.
        temperature: tau > 0; the paper's formula has none.
        num_negatives: M samples drawn once, of which each anchor leaves itself out; None for all. The time is
            N x M x D.
        renormalize: scale the other dimensions to unit length again where one is left out.
        seed: of the negatives.

    Raises:
        ValueError: shapes that differ, or an argument out of range.

    >>> z = torch.tensor([[1.0, 0.0, 2.0], [0.0, 1.0, 2.0]])  # the last dimension is the same for all
    >>> contrastive_sepin(z, z).information_D
    tensor([0.0475, 0.0475, 0.0000], dtype=torch.float64)
    """
    check_features(z0_ND, "z0")
    check_features(z1_ND, "z1")
    check_positive(temperature, "temperature", hint="1 is the paper's")
    if z0_ND.shape != z1_ND.shape:
        raise ValueError(f"z0 and z1 must have the same shape, got {tuple(z0_ND.shape)} and {tuple(z1_ND.shape)}")
    num_samples = len(z0_ND)
    num_negatives = num_samples if num_negatives is None else num_negatives
    if not 2 <= num_negatives <= num_samples:
        raise ValueError(f"num_negatives must be between 2 and the samples, {num_samples}, got {num_negatives}")
    all_ND, positives_ND = unit_rows(z0_ND.double()), unit_rows(z1_ND.double())
    drawn_M = random_order(seed, 0, num_samples, purpose=PURPOSE_NEGATIVES)[:num_negatives]
    negatives_MD = positives_ND[drawn_M]

    def block(rows: slice) -> Tensor:
        a_ND, p_ND, is_own_NM = all_ND[rows], positives_ND[rows], torch.arange(num_samples)[rows, None] == drawn_M
        log_num_N = (num_negatives - is_own_NM.sum(dim=1)).double().log()

        def information(positive_N1: Tensor, negative_NM: Tensor) -> Tensor:
            gap_NM = ((negative_NM - positive_N1) / temperature).masked_fill_(is_own_NM, -torch.inf)
            mean_N = gap_NM.logsumexp(dim=1) - log_num_N
            return -torch.logaddexp(mean_N, torch.zeros_like(mean_N))  # softplus would round it where it is large

        def without(score: Tensor, a: Tensor, b: Tensor) -> Tensor:
            rest, square = score - a * b, (1 - a**2) * (1 - b**2)
            return torch.where(square > 0, rest / square.sqrt(), 0.0) if renormalize else rest

        positive_N1, negative_NM = (a_ND * p_ND).sum(dim=1, keepdim=True), a_ND @ negatives_MD.T
        whole_N, found_DN = information(positive_N1, negative_NM), []
        for a_N, p_N, b_M in zip(a_ND.T, p_ND.T, negatives_MD.T, strict=True):
            a_N1 = a_N[:, None]
            rest = without(positive_N1, a_N1, p_N[:, None]), without(negative_NM, a_N1, b_M)
            found_DN.append(whole_N - information(*rest))
        return torch.stack(found_DN, dim=1)

    return _mean(block, num_samples, num_negatives)


def _mean(block: Callable[[slice], Tensor], num_rows: int, num_columns: int) -> Separability:
    """Mean over rows, and its standard error, of what is found for each dimension, block by block."""
    size = max(1, MOST_PAIRS // num_columns)
    blocks = [slice(start, min(start + size, num_rows)) for start in range(0, num_rows, size)]
    found_ND = torch.cat(side_by_side(block, blocks))
    return Separability(found_ND.mean(dim=0), found_ND.std(dim=0) / num_rows**0.5, found_ND)


def _score(known: Labelled, k: int | None) -> Score:
    """SEPIN@k of two views of the queries; None for all dimensions."""
    assert known.views is not None
    num_dims = known.queries_QD.shape[1]
    if k is not None and k > num_dims:
        raise DataError(f"SEPIN@{k} is a mean over {k} dimensions, and there are only {num_dims}; ask for sepin")
    views = known.views
    found: Separability = known.once("sepin", lambda: contrastive_sepin(*views))
    settings = {"k": num_dims if k is None else k, "samples": len(views[0]), "temperature": 1.0}
    return Score(found.estimate(settings["k"]), settings)


METRICS = (
    Metric(
        name="sepin",
        title="SEPIN of all dimensions",
        short="SEPIN",
        definition="Mean over the dimensions of what each tells about the sample that the others do not, in nats: the "
        "loss in InfoNCE's estimate of information where it is left out.",
        source="ncl2024",
        measure=lambda known: _score(known, None),
        interval="95 % normal interval over the samples",
        is_higher_better=True,
        wording="mean over all[ {k}] dimensions, from two views of[ {samples}] queries",
        on_request=True,
        needs="views",
    ),
    Metric(
        name="sepin@1",
        title="SEPIN@1",
        short="SEPIN@1",
        definition="What the dimension that tells most by itself tells about the sample that the others do not, in "
        "nats.",
        source="ncl2024",
        measure=lambda known: _score(known, 1),
        interval="95 % normal interval over the samples",
        is_higher_better=True,
        wording="the largest of all dimensions, from two views of[ {samples}] queries",
        on_request=True,
        needs="views",
    ),
    Metric(
        name="sepin@10",
        title="SEPIN@10",
        short="SEPIN@10",
        definition="Mean over the 10 dimensions that tell most by themselves of what each tells about the sample that "
        "the others do not, in nats.",
        source="ncl2024",
        measure=lambda known: _score(known, 10),
        interval="95 % normal interval over the samples",
        is_higher_better=True,
        wording="mean over the[ {k}] largest dimensions, from two views of[ {samples}] queries",
        on_request=True,
        needs="views",
    ),
    Metric(
        name="sepin@100",
        title="SEPIN@100",
        short="SEPIN@100",
        definition="Mean over the 100 dimensions that tell most by themselves of what each tells about the sample that "
        "the others do not, in nats.",
        source="ncl2024",
        measure=lambda known: _score(known, 100),
        interval="95 % normal interval over the samples",
        is_higher_better=True,
        wording="mean over the[ {k}] largest dimensions, from two views of[ {samples}] queries",
        on_request=True,
        needs="views",
    ),
)
