r"""The terms of which MIO's three losses are sums: exactly on discrete pairs, and in a batch."""

# X values of the first view, Y of the second, M = 2N vectors of a batch, P negative pairs

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from counterpoint.core.checks import check_positive
from counterpoint.core.errors import UsageError


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
        attraction=-float((laws.joint_XY * s_XY).sum()),
        own_repulsion=float((laws.joint_XY * F.softplus(s_XY)).sum()),
        softplus=float((laws.product_XY * F.softplus(s_XY)).sum()),
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
    is_own_MM = place_M[:, None] % (size // 2) == place_M % (size // 2)
    positive_N = s_MM.diagonal(size // 2)
    negative_P = s_MM[~is_own_MM]
    return MioTerms(
        attraction=-float(positive_N.mean()),
        own_repulsion=float(F.softplus(positive_N).mean()),
        softplus=float(F.softplus(negative_P).mean()),
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
    joint_XY = joint_XY / total
    return PairLaws(joint_XY, joint_XY.sum(dim=1)[:, None] * joint_XY.sum(dim=0))


def check_scores(scores_XY: Tensor, shape: torch.Size) -> None:
    """Require finite scores, one per pair.

    Raises:
        UsageError: otherwise.
    """
    if scores_XY.shape != shape or not bool(torch.isfinite(scores_XY).all()):
        raise UsageError(f"scores must be finite and of shape {tuple(shape)}, got {tuple(scores_XY.shape)}")
