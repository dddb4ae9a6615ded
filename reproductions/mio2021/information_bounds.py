r"""What MIO's three losses say about mutual information, exactly, on discrete pairs.

With p(x, y) the law of positive pairs, p(x) p(y) that of negative ones, r their ratio and s the scores C / tau:

==== ======================================= ==================================== =============================
loss per pair                                least scores                         least value
==== ======================================= ==================================== =============================
v1   E+ log(1 + e^-s) + E- log(1 + e^s)      log r                                2 log 2 - 2 JS, in [0, 2 log 2]
v2   -E+ s + E- log(1 + e^s)                 log(r / (1 - r)), infinite if r >= 1 -infinity, unless s is bounded
v3   -E+ s + E- e^s                          log r                                1 - I
==== ======================================= ==================================== =============================

so that 1 - v3 is a lower bound of the mutual information I (that of nguyen2010), and log 2 - v1 / 2 one of the
Jensen-Shannon divergence.
"""

# X values of the first view, Y of the second, M = 2N vectors of a batch, P negative pairs

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from counterpoint.core.checks import check_positive
from counterpoint.core.errors import UsageError
from counterpoint.kernels.contract import softplus


@dataclass(frozen=True)
class MioTerms:
    r"""The parts of which MIO's losses are sums.

    Attributes:
        attraction: :math:`-E_+ s`.
        own_repulsion: :math:`E_+ \ln(1 + e^s)`, by which v1 pushes positives apart.
        softplus: :math:`E_- \ln(1 + e^s)`.
        exponential: :math:`E_- e^s`.
    """

    attraction: float
    own_repulsion: float
    softplus: float
    exponential: float

    @property
    def v1(self) -> float:
        """Binary cross-entropy: mio2021, Eq. 11, which equals Eq. 2, as ln(1 + e^-s) = -s + ln(1 + e^s)."""
        return self.attraction + self.own_repulsion + self.softplus

    @property
    def v2(self) -> float:
        """Without the positives' repulsion: mio2021, Eq. 12 and 13. At most v1."""
        return self.attraction + self.softplus

    @property
    def v3(self) -> float:
        """With exponentials: mio2021, Eq. 17 and 18. More than v2, as ln(1 + x) < x."""
        return self.attraction + self.exponential


@dataclass(frozen=True)
class PairCounts:
    """Pairs in a batch: 2N positives and 2N (2N - 2) negatives."""

    positives: int
    negatives: int


def population_terms(scores_XY: Tensor, joint_XY: Tensor) -> MioTerms:
    r"""Exact parts of MIO's losses for scores on a discrete joint distribution.

    .. math:: E_+ g(s) = \sum_{xy} p(x, y)\, g(s_{xy}), \qquad E_- g(s) = \sum_{xy} p(x) p(y)\, g(s_{xy})

    Source: mio2021, Eq. 2, 11, 13 and 17. Positives have the joint law, negatives the product of its margins.

    Args:
        scores_XY: s = C / tau, finite.
        joint_XY: probabilities, summing to 1.

    Raises:
        UsageError: not a joint distribution, or scores of another shape.

    >>> terms = population_terms(torch.zeros(2, 2), torch.eye(2) / 2)
    >>> terms.v3, round(terms.v1, 6), round(terms.v2, 6)
    (1.0, 1.386294, 0.693147)
    """
    laws = pair_laws(joint_XY)
    check_scores(scores_XY, laws.joint_XY.shape)
    s_XY = scores_XY.detach().double()
    return MioTerms(
        # softplus(s) = ln(1 + e^s), without overflow for large s
        attraction=-float((laws.joint_XY * s_XY).sum()),
        own_repulsion=float((laws.joint_XY * softplus(s_XY)).sum()),
        softplus=float((laws.product_XY * softplus(s_XY)).sum()),
        exponential=float((laws.product_XY * s_XY.exp()).sum()),
    )


def batch_terms(similarity_MM: Tensor, *, temperature: float) -> MioTerms:
    r"""Parts of MIO's losses in a batch, from the similarities of all its 2N vectors, first views before second.

    .. math:: E_+ g = \frac1N \sum_{n=1}^{N} g(C_{nn'}/\tau), \qquad
        E_- g = \frac{1}{T_N} \sum_{n=1}^{2N} \sum_{m \ne n, n'} g(C_{nm}/\tau)

    Source: mio2021, Eq. 4, 11, 12 and 18, with n' = (n + N) mod 2N. Differs from Eq. 3 as printed, whose first exponent
        lacks its minus sign; with it Eq. 2, 3, 4 and 11 are one.

    Args:
        similarity_MM: C, symmetric, (2n, 2n), n >= 2.
        temperature: tau > 0.

    Raises:
        UsageError: another shape.

    >>> terms = batch_terms(torch.eye(2).repeat(2, 2), temperature=1.0)
    >>> terms.attraction, terms.v3
    (-1.0, 0.0)
    """
    check_positive(temperature, "temperature", hint="mio2021 uses 0.2")
    size = len(similarity_MM)
    if similarity_MM.shape != (size, size) or size < 4 or size % 2:
        raise UsageError(f"similarities must be (2n, 2n) with n >= 2, got {tuple(similarity_MM.shape)}")
    s_MM = similarity_MM.detach().double() / temperature
    place_M = torch.arange(size)
    # Self pairs m = n, and positives m = n'.
    is_own_MM = place_M[:, None] % (size // 2) == place_M % (size // 2)
    # C is symmetric: N of the 2N positives have the mean of all (Eq. 4).
    positive_N = s_MM.diagonal(size // 2)
    negative_P = s_MM[~is_own_MM]  # T_N = 2N (2N - 2)
    return MioTerms(
        attraction=-float(positive_N.mean()),
        own_repulsion=float(softplus(positive_N).mean()),
        softplus=float(softplus(negative_P).mean()),
        exponential=float(negative_P.exp().mean()),
    )


def pair_counts(num_samples: int) -> PairCounts:
    r"""Positive and negative pairs of N samples in two views, :math:`T_N = 4N^2 - 4N = 2N(2N - 2) = T_P^2 - 2 T_P`.

    Source: mio2021, section 2.1.

    >>> pair_counts(128)
    PairCounts(positives=256, negatives=65024)
    """
    if num_samples < 2:
        raise UsageError(f"num_samples must be >= 2, got {num_samples}; a single sample has no negatives")
    return PairCounts(2 * num_samples, 4 * num_samples**2 - 4 * num_samples)


@dataclass(frozen=True)
class PairLaws:
    """Probabilities of positive pairs, the joint distribution, and of negative ones, the product of its margins."""

    joint_XY: Tensor
    product_XY: Tensor


def pair_laws(joint_XY: Tensor) -> PairLaws:
    """Laws of positive and of negative pairs, checked, in float64.

    Raises:
        UsageError: not a joint distribution.

    >>> pair_laws(torch.eye(2) / 2).product_XY
    tensor([[0.2500, 0.2500],
            [0.2500, 0.2500]], dtype=torch.float64)
    """
    joint_XY = joint_XY.detach().double()
    if joint_XY.ndim != 2 or not bool(torch.isfinite(joint_XY).all()) or bool((joint_XY < 0).any()):
        raise UsageError(f"joint must be a matrix of probabilities, got shape {tuple(joint_XY.shape)}")
    total = float(joint_XY.sum())
    if abs(total - 1) > 1e-6:
        raise UsageError(f"joint must sum to 1, got {total:.6g}; divide by the sum")
    # What the tolerance lets pass is divided out: divergences below are of laws that sum to 1.
    joint_XY = joint_XY / total
    return PairLaws(joint_XY, joint_XY.sum(dim=1)[:, None] * joint_XY.sum(dim=0))


def check_scores(scores_XY: Tensor, shape: torch.Size) -> None:
    """Require finite scores, one per pair.

    Raises:
        UsageError: otherwise.
    """
    if scores_XY.shape != shape or not bool(torch.isfinite(scores_XY).all()):
        raise UsageError(f"scores must be finite and of shape {tuple(shape)}, got {tuple(scores_XY.shape)}")


@dataclass(frozen=True)
class Information:
    r"""What two views tell of each other, in nats.

    Attributes:
        mutual: I = KL(joint || product).
        lautum: KL(product || joint); infinite where a pair of possible values never occurs.
        jensen_shannon: half of the divergences of both from their mean; at most log 2.
    """

    mutual: float
    lautum: float
    jensen_shannon: float

    @property
    def printed_bound(self) -> float:
        r"""Right-hand side of mio2021, Eq. 10, corrected: :math:`-I - \mathrm{KL}(\mathrm{product} \| \mathrm{joint})`.

        Differs from Eq. 10, whose second term is called a mutual information of negative pairs: E- log r is minus a
        divergence, never positive. The bound is never attained, as v1 > 0 and this is <= 0.
        """
        return -self.mutual - self.lautum

    @property
    def least_v1(self) -> float:
        """The least v1 of any scores, 2 log 2 - 2 JS: the exact value that Eq. 10 bounds."""
        return 2 * math.log(2) - 2 * self.jensen_shannon

    @property
    def least_v3(self) -> float:
        """The least v3 of any scores, 1 - I."""
        return 1 - self.mutual


def information(joint_XY: Tensor) -> Information:
    r"""Mutual information of a joint distribution and the divergences that MIO's losses measure.

    .. math:: I = \sum p \log r, \qquad \mathrm{KL}(\mathrm{product} \| \mathrm{joint}) = -\sum p_x p_y \log r, \qquad
        r = \frac{p(x, y)}{p(x) p(y)}

    Source: mio2021, Eq. 10; the second is palomar2008's lautum information.

    Args:
        joint_XY: probabilities, summing to 1; ``cooccurrence(model).joint_XY`` is one.

    Raises:
        UsageError: not a joint distribution.

    >>> information(torch.full((2, 2), 0.25)).mutual
    0.0
    >>> round(information(torch.eye(2) / 2).mutual / math.log(2), 12)
    1.0
    """
    laws = pair_laws(joint_XY)
    joint_XY, product_XY = laws.joint_XY, laws.product_XY
    middle_XY = (joint_XY + product_XY) / 2
    jensen_shannon = (_divergence(joint_XY, middle_XY) + _divergence(product_XY, middle_XY)) / 2
    return Information(_divergence(joint_XY, product_XY), _divergence(product_XY, joint_XY), jensen_shannon)


def best_scores(joint_XY: Tensor, *, version: int, largest: float = math.inf) -> Tensor:
    r"""Scores that minimise a loss over all |s| <= largest.

    .. math:: s_1 = s_3 = \log r, \qquad s_2 = \log \frac{r}{1 - r} \text{ where } r < 1, \text{ else } \infty,

    each clipped: a loss is a sum over pairs of convex functions of one score. Cosines over tau are bounded by 1 / tau,
    which alone keeps v2 from falling without end; what they cut off log r is lost to v1 and v3, too.

    Source: mio2021, Eq. 9 (without a temperature), for v1; the other two from their derivatives.

    Args:
        joint_XY: probabilities, summing to 1.
        version: 1, 2 or 3.
        largest: bound of the scores, > 0; infinite scores stand where no finite ones are best.

    Raises:
        UsageError: not a joint distribution, another version, or a bound <= 0.

    >>> best_scores(torch.tensor([[0.4, 0.1], [0.1, 0.4]]), version=1).exp()
    tensor([[1.6000, 0.4000],
            [0.4000, 1.6000]], dtype=torch.float64)
    """
    if version not in (1, 2, 3):
        raise UsageError(f"version must be 1, 2 or 3, got {version}")
    if not largest > 0:
        raise UsageError(f"largest must be > 0, got {largest}; unit vectors have 1 / temperature")
    laws = pair_laws(joint_XY)
    # Where a value never occurs no loss depends on the score: 0 for v1 and v3, the largest for v2.
    ratio_XY = torch.where(laws.product_XY > 0, laws.joint_XY / laws.product_XY, 1.0)
    # The slope by s is 0 where sigmoid(s) = r for v2, and where e^s = r for v1 and v3.
    if version == 2:
        # logit(r) = log(r / (1 - r)), infinite from r = 1 on, where v2 falls with s without end.
        return torch.logit(ratio_XY.clamp(max=1.0)).clamp(-largest, largest)
    return ratio_XY.log().clamp(-largest, largest)


def least_surrogate_gap(temperature: float) -> float:
    r"""Least v3 - v2 that unit vectors can have, :math:`e^{-1/\tau} - \ln(1 + e^{-1/\tau})`: positive.

    A majorise-minimise surrogate must touch the loss where it is built. v3 does not depend on such a point, and could
    touch v2 only where e^{C/tau} = 0: never. ``tangent_surrogate`` is one that does.

    Source: mio2021, Eq. 14 to 16, of which the second half of Eq. 14 is false.

    >>> 0 < least_surrogate_gap(0.2) < 1e-4 < least_surrogate_gap(1.0)
    True
    """
    check_positive(temperature, "temperature", hint="mio2021 uses 0.2")
    # x - ln(1 + x) rises with x: the least cosine, -1, has the least gap.
    x = math.exp(-1 / temperature)
    return x - math.log1p(x)  # log1p: x is 4.5e-5 at tau = 0.1


def tangent_surrogate(scores_XY: Tensor, joint_XY: Tensor, *, at_XY: Tensor) -> float:
    r"""An upper bound of v2 that touches it at given scores: what majorise-minimise asks for and v3 is not.

    .. math:: -E_+ s + E_- \Big[ \ln(1 + e^{t}) + \frac{e^{s} - e^{t}}{1 + e^{t}} \Big]

    The logarithm is concave in e^s, so it lies below its tangent at e^t. Minimising this over s lowers v2; up to
    constants it is v3 with each negative weighed by 1 / (1 + e^t).

    Source: corrects mio2021, section 2.4.2.

    Args:
        scores_XY: s.
        joint_XY: probabilities, summing to 1.
        at_XY: t, where the bound touches.

    Raises:
        UsageError: not a joint distribution, or scores of another shape.

    >>> from reproductions.mio2021.information_bounds import population_terms
    >>> scores, joint = torch.tensor([[2.0, -1.0], [0.0, 1.0]]), torch.eye(2) / 2
    >>> touching = tangent_surrogate(scores, joint, at_XY=scores)
    >>> abs(touching - population_terms(scores, joint).v2) < 1e-12
    True
    """
    laws = pair_laws(joint_XY)
    check_scores(scores_XY, laws.joint_XY.shape)
    check_scores(at_XY, laws.joint_XY.shape)
    s_XY, t_XY = scores_XY.double(), at_XY.double()
    # (e^s - e^t) / (1 + e^t) without large numbers where both are large
    rise_XY = torch.sigmoid(t_XY) * torch.expm1(s_XY - t_XY)
    return float((laws.product_XY * (softplus(t_XY) + rise_XY)).sum() - (laws.joint_XY * s_XY).sum())


def _divergence(p_XY: Tensor, q_XY: Tensor) -> float:
    """KL(p || q); infinite where p has what q lacks."""
    terms_XY = torch.special.xlogy(p_XY, p_XY) - torch.special.xlogy(p_XY, q_XY)
    return max(0.0, float(terms_XY.sum()))  # rounding may leave a sum just below 0
