r"""Records of what a loss asks of whole classes, from which ``theory`` makes a class-level risk.

Let all vectors of a class be one unit vector, and let an anchor of class i meet k negatives of classes j_1 ... j_k,
drawn independently. What is left of a loss is a function of the cosines a_ij between classes, of one of two kinds. A
loss hands out its record by ``Loss.class_level()``, whose docstring proves the lower bound: Lemma 1 of imbalanced2026
for that loss.
"""

from dataclasses import dataclass

from counterpoint.core.errors import UsageError
from counterpoint.kernels.contract import PairFunction

COVERED = (
    "InfoNCE, DCL, MINE, NPlusOneTuplet, SoftTriplet, Triplet, LinearTriplet, PairLoss (with a logarithm of a sum of "
    "exponentials, or a sum of convex increasing functions), HardNegatives, GeneralizedContrastive, SupCon, "
    "CrossModal, MIOv1, MIOv2, MIOv3, SigmoidPair, SpectralContrastive and CrossModalSpectral"
)


@dataclass(frozen=True)
class LogOfSum:
    r"""Logarithm of a sum of exponentials over the negatives of an anchor.

    .. math:: f\,\log\Big(\epsilon + w \sum_{t=1}^k e^{u_t}\Big), \qquad u_t = s (a_{i j_t} - 1) + m

    with w = 1/k for a mean and 1 for a sum. With a hardness beta > 0 the sum gives way to k times the mean under
    weights that favour hard negatives, :math:`k \sum_t e^{(1+\beta) u_t} / \sum_t e^{\beta u_t}`.

    The function is convex in the cosines (Lemma 5 of imbalanced2026) and increasing, unless beta > 0: then it is at
    least that of beta = 0, by Chebyshev's sum inequality, which is.

    Attributes:
        name: name of the loss.
        epsilon: weight of the positive pair, >= 0.
        factor: factor of the logarithm, f > 0.
        scale: scale of the cosines, s > 0, 1 / temperature.
        margin: margin m, added to what is scaled.
        is_mean: True for a mean over the negatives, False for their sum.
        hardness: concentration on hard negatives, beta >= 0.
        num_negatives: number of negatives k that the loss itself sets; None if it is that of the batch.
        supervised: whether negatives are of other classes only.
    """

    name: str
    epsilon: float = 1.0
    factor: float = 1.0
    scale: float = 1.0
    margin: float = 0.0
    is_mean: bool = False
    hardness: float = 0.0
    num_negatives: int | None = None
    supervised: bool = False


@dataclass(frozen=True)
class Separable:
    r"""A sum of convex functions of single pairs.

    .. math:: p + w \sum_{t=1}^k q(s\,(a_{i j_t} - g) + m)

    with w = factor / k for a mean and factor for a sum, g = 1 where q depends on the gap to the positive and 0 where on
    the negative alone; p is what a positive of cosine 1 costs.

    Attributes:
        name: name of the loss.
        repel: q, convex; increasing where it depends on the gap.
        scale: scale of the cosine or gap, s > 0.
        margin: margin m, added to what is scaled.
        factor: factor of q, > 0.
        attract: p, the cost of a positive of cosine 1.
        attract_slope: derivative of p for the cosine of the positive, at 1; <= 0.
        is_gap: whether q depends on the gap to the positive (g = 1) or on the negative alone (g = 0).
        is_mean: True for a mean over the negatives, False for their sum.
        is_strictly_convex: whether q is strictly convex; the optimal geometry is then unique.
        is_smooth: whether q has a continuous derivative.
    """

    name: str
    repel: PairFunction
    scale: float = 1.0
    margin: float = 0.0
    factor: float = 1.0
    attract: float = 0.0
    attract_slope: float = 0.0
    is_gap: bool = False
    is_mean: bool = False
    is_strictly_convex: bool = True
    is_smooth: bool = True
    # Constants, by which theory reads both kinds of record alike.
    num_negatives: None = None
    supervised: bool = False


ClassLevel = LogOfSum | Separable


def not_covered(name: str, reason: str) -> UsageError:
    """The error of a loss that has no class-level risk.

    >>> print(str(not_covered("VICReg", "it has no negatives")).split("; ")[0])
    VICReg has no class-level risk: it has no negatives
    """
    return UsageError(f"{name} has no class-level risk: {reason}; covered are {COVERED}")
