r"""phi and psi: what a pairwise loss does to each pair and to each anchor's sum; and which vectors make a pair.

Of a user's functions nothing but their values is known: who wants a class-level risk of them says what ``theory`` asks
for in a ``Psi`` or ``Phi``.

For unit vectors the gap :math:`d_i^2 - d_{ij}^2` is :math:`\cos_{ij} - \cos_{ii'}`. For vectors as they are it is
:math:`\langle z_i, z_j\rangle - |z_j|^2/2 + |z_i'|^2/2 - \langle z_i, z_i'\rangle`; distances do not change when all
vectors move together, so their mean is taken off first, which keeps the products small, and scores are float64.
"""

# N samples, A anchors, M keys, D features

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from numbers import Integral
from typing import Literal

import torch
from torch import Tensor

from counterpoint.core.checks import check_choice
from counterpoint.core.numerics import row_dots
from counterpoint.kernels.contract import (
    EXPONENTIAL,
    Elementwise,
    PairFunction,
    PairMask,
    PairScores,
    ScoreTerms,
    identity,
    softplus,
)
from counterpoint.losses.loss import Loss, Part


@dataclass(frozen=True)
class Psi:
    r"""The function of each pair: psi(scale * gap + margin), the gap being :math:`d_i^2 - d_{ij}^2`.

    Attributes:
        function: the elementwise function and its derivatives.
        formula: psi as a formula in x, the gap.
        scale: factor of the gap, e.g. 1 / temperature.
        margin: number that is added to the scaled gap.
        is_convex: whether the function is convex, which allows the tighter bound of ``floor``.
        is_increasing: whether the function nowhere falls; known for those in ``pair_loss.INCREASING``. With
            ``is_convex`` it allows a class-level risk.
    """

    function: PairFunction
    formula: str
    scale: float = 1.0
    margin: float = 0.0
    is_convex: bool = True
    is_increasing: bool = False


@dataclass(frozen=True)
class LogPlus:
    """The function phi(x) = factor * log(epsilon + x), in the log domain."""

    epsilon: float
    factor: float = 1.0

    def of_sum(self, xi: Tensor) -> Tensor:
        """Value of phi as a function of the sum."""
        return self.factor * torch.log(self.epsilon + xi)

    def of_log_sum(self, log_xi: Tensor) -> Tensor:
        """Value of phi as a function of the logarithm of the sum."""
        if self.epsilon == 0:
            return log_xi if self.factor == 1 else self.factor * log_xi
        offset = math.log(self.epsilon)
        # log(epsilon + x) = log epsilon + softplus(log x - log epsilon): x itself, which may overflow, is never formed.
        plus = softplus(log_xi) if offset == 0 else offset + softplus(log_xi - offset)
        return plus if self.factor == 1 else self.factor * plus

    def slope_of_log_sum(self, log_xi: Tensor) -> Tensor:
        """Derivative with respect to the logarithm."""
        if self.epsilon == 0:
            return torch.full_like(log_xi, self.factor)
        offset = math.log(self.epsilon)
        share = torch.sigmoid(log_xi if offset == 0 else log_xi - offset)
        return share if self.factor == 1 else self.factor * share


@dataclass(frozen=True)
class Phi:
    r"""The function of each anchor's sum xi.

    Attributes:
        of_sum: phi as a function of xi.
        formula: phi as a formula in x, the sum.
        of_log_sum: phi as a function of log xi, for exponential psi; None takes ``of_sum`` after exp.
        slope_of_log_sum: derivative of ``of_log_sum``, for the shortcut of small batches; None leaves the shortcut out.
        is_linear: whether phi(x) = factor * x: loss and gradient then take one pass over the pairs.
        is_convex: phi(c psi(x)) is convex in x for every c > 0 where psi is: allows the tighter bound of ``floor``.
        logarithm: epsilon and factor of phi if it is factor * log(epsilon + x); else None.
        domain: the sums that phi is defined for, in words; empty where it cannot be left.
    """

    of_sum: Elementwise
    formula: str
    of_log_sum: Elementwise | None = None
    slope_of_log_sum: Elementwise | None = None
    is_linear: bool = False
    is_convex: bool = True
    logarithm: LogPlus | None = None
    domain: str = ""


def log_plus(epsilon: float, factor: float = 1.0) -> Phi:
    """Return phi(x) = factor * log(epsilon + x), computed in the log domain where psi is exp."""
    formula = f"log({epsilon:g} + x)" if epsilon else "log(x)"
    phi, formula = LogPlus(epsilon, factor), formula if factor == 1 else f"{factor:g} {formula}"
    return Phi(phi.of_sum, formula, phi.of_log_sum, phi.slope_of_log_sum, logarithm=phi)


LINEAR = Phi(identity, "x", is_linear=True)

# Functions of torch that are a phi of the family, kept in the log domain with an exponential psi.
# is_convex=False: the logarithm of a sum of a user's convex psi need not be convex.
LOG_PHI: dict[Elementwise, Phi] = {
    torch.log: replace(log_plus(0.0), of_sum=torch.log, is_convex=False, domain="x > 0"),
    torch.log1p: replace(log_plus(1.0), of_sum=torch.log1p, is_convex=False, domain="x > -1"),
}


def user_psi(psi: Elementwise | Psi | PairFunction) -> Psi:
    """A user's psi: a function of a tensor, with derivatives given (``PairFunction``) or taken by autograd.

    ``torch.exp`` is recognised and computed in the log domain.

    Raises:
        TypeError: not callable.
        ValueError: not elementwise (the shape changes).
    """
    if isinstance(psi, Psi):
        return psi
    if psi is torch.exp:
        psi = EXPONENTIAL
    if isinstance(psi, PairFunction):
        # Only the exponential works in the log domain, and it is convex; of another function nothing is known.
        return Psi(psi, psi.name, is_convex=psi.in_log_domain)
    # The probe wants no gradient: a result that does comes from a tensor that psi holds.
    if _check_elementwise(psi, "psi").requires_grad:
        raise ValueError("psi must hold no learnable tensor: kernels do not differentiate for it; scale the vectors")
    slope = derivative(psi)
    function = PairFunction(_name(psi), psi, slope, derivative(slope))
    return Psi(function, function.name, is_convex=False)


def user_phi(phi: Elementwise | Phi) -> Phi:
    """A user's phi.

    Raises:
        TypeError: not callable.
        ValueError: not elementwise (the shape changes).
    """
    if isinstance(phi, Phi):
        return phi
    for function, log_phi in LOG_PHI.items():
        if phi is function:
            return log_phi
    _check_elementwise(phi, "phi")
    return Phi(phi, _name(phi), is_convex=False, domain="where it is a number")


def derivative(function: Elementwise) -> Elementwise:
    """Elementwise derivative of a function by reverse mode, which nests in every mode."""

    def slope(u: Tensor) -> Tensor:
        return torch.func.grad(lambda v: function(v).sum())(u)

    return slope


def _check_elementwise(function: Elementwise, name: str) -> Tensor:
    """Call the function once and return what it gave."""
    if not callable(function):
        raise TypeError(f"{name} must be a function of a tensor, got {type(function).__name__}")
    # Inside the domain of a logarithm, a root, an arcsine; not square, so that a transpose shows in the shape.
    probe = torch.linspace(0.1, 0.9, 6, dtype=torch.float64).view(2, 3)
    before = probe.clone()
    result = function(probe)
    if not torch.equal(probe, before):
        raise ValueError(f"{name} must leave its argument as it is, but works in place")
    if not isinstance(result, Tensor) or result.shape != probe.shape:
        shape = tuple(result.shape) if isinstance(result, Tensor) else type(result).__name__
        raise ValueError(f"{name} must act on each element, but turned shape (2, 3) into {shape}")
    return result


def _name(function: Elementwise) -> str:
    return getattr(function, "__name__", type(function).__name__)


Negatives = Literal["two-view", "cross-view", "same-view"]
Anchors = Literal["both", "first"]
NEGATIVES: Mapping[str, str] = {
    "two-view": "both views of every other sample",
    "cross-view": "the other view of every other sample",
    "same-view": "the same view of every other sample",
}
ANCHORS: Mapping[str, str] = {"both": "all 2n vectors", "first": "the n vectors of the first view"}


@dataclass(frozen=True)
class Pairing:
    """Pairing of the vectors of a batch by a loss.

    Attributes:
        negatives: vectors that repel an anchor, a key of ``NEGATIVES``.
        anchors: vectors that are anchors, a key of ``ANCHORS``.
        normalize: whether vectors are of unit length (or zero).
    """

    negatives: Negatives = "two-view"
    anchors: Anchors = "both"
    normalize: bool = True

    def __post_init__(self) -> None:
        """Check the names.

        Raises:
            ValueError: an unknown name of negatives or anchors.
        """
        check_choice(self.negatives, "negatives", NEGATIVES)
        check_choice(self.anchors, "anchors", ANCHORS)

    def num_negatives(self, n: int) -> int:
        """Number of vectors that repel each anchor in a batch of n samples, n >= 2."""
        if not isinstance(n, Integral) or n < 2:
            raise ValueError(f"a contrastive loss needs at least 2 samples, got {n!r}; n is a whole number such as 256")
        return 2 * (n - 1) if self.negatives == "two-view" else n - 1

    def least_mean_gap(self, n: int, *, nonnegative: bool) -> float:
        """The mean over a unit-length batch of d_i^2 - d_ij^2 cannot be less.

        The sum of all vectors has a length >= 0, so the mean cosine of distinct samples is at least -1/(n-1); with
        equal views the gap is then -n/(n-1). For first-view anchors against both views no such bound holds beyond -2.
        """
        if nonnegative:
            return -1.0
        return -2.0 if self.anchors == "first" and self.negatives == "two-view" else -n / (n - 1)

    def explain(self) -> str:
        """The pairing in words."""
        return f"{NEGATIVES[self.negatives]}; anchors are {ANCHORS[self.anchors]}"


class ContrastiveLoss(Loss):
    """A loss of pairs.

    Attributes:
        pairing: anchors of a batch, and the vectors that repel them.
    """

    pairing: Pairing

    def num_negatives(self, n: int) -> int:
        """Number of vectors that repel each anchor in a batch of n samples, n >= 2."""
        return self.pairing.num_negatives(n)


def own_sample(n: int, num_views: int, device: torch.device) -> Tensor:
    """Keys of an anchor's own sample: itself and its other view among 2n, or its place among n; (2n or n, e)."""
    own_NE = torch.arange(num_views * n, device=device).view(num_views, n).T
    # Rows i and i + n, the two views of a sample, leave out the same two keys.
    return own_NE.repeat(num_views, 1)


def blocks_of(both_2ND: Tensor, pairing: Pairing, psi: Psi, part: Part | None = None) -> list[PairScores]:
    """Scores of all anchors of a pairing, or of a part of the batch, against their keys; own biases are in them.

    Args:
        both_2ND: first view above second, as ``prepare_both`` returns them.
        pairing: anchors of a batch, and the vectors that repel them.
        psi: function of each pair, whose scale and margin turn gaps into scores.
        part: samples whose vectors are anchors; None for all.

    Returns:
        Blocks whose rows (then columns) are the first-view anchors, then the second-view ones.
    """
    n = len(both_2ND) // 2
    if part is not None and part.last > n:
        raise ValueError(f"the part ends at sample {part.last}, but the batch has {n}")
    if not pairing.normalize:
        both_2ND = both_2ND.double()  # gaps are small differences of products as large as squared lengths
        # Gaps do not depend on the mean, so that its derivative is 0 with or without detach.
        both_2ND = both_2ND - both_2ND.detach().mean(0)
    z0, z1 = both_2ND.chunk(2)
    is_first, own = pairing.anchors == "first", slice(0, n) if part is None else slice(part.first, part.last)
    if pairing.negatives == "cross-view":
        return [_cross_view(z0, z1, pairing, psi, own)]
    views = [(z0, z1)] if is_first else [(z0, z1), (z1, z0)]
    if pairing.negatives == "two-view":
        excluded = own_sample(n, 2, both_2ND.device)
        # Anchors and keys are one set: each product serves both of its vectors.
        if part is None and not is_first:
            minus_own = _anchor_bias(z0, z1, pairing, psi)
            # For vectors as they are, |z_i'|^2 / 2 is that of another vector in each direction.
            biases = torch.cat([minus_own, minus_own if pairing.normalize else _anchor_bias(z1, z0, pairing, psi)])
            scale = both_2ND.new_full((), psi.scale)
            terms = ScoreTerms(both_2ND, None, scale, biases, _key_bias(both_2ND, pairing, psi))
            return [PairScores(terms, PairMask(excluded), is_unit=pairing.normalize)]
        anchors_AD, positives_AD = (torch.cat([view[own] for view in side]) for side in zip(*views, strict=True))
        return [_block(anchors_AD, positives_AD, both_2ND, (excluded[own].repeat(len(views), 1), pairing, psi))]
    excluded = own_sample(n, 1, both_2ND.device)
    # Within one view, too, the keys are the anchors unless only a part of them is asked for.
    return [
        _block(None if part is None else z[own], other[own], z, (excluded[own], pairing, psi)) for z, other in views
    ]


def _block(
    anchors_AD: Tensor | None, positives_AD: Tensor, keys_MD: Tensor, how: tuple[Tensor, Pairing, Psi]
) -> PairScores:
    """One-way scores; without anchors the keys are the anchors."""
    excluded_AE, pairing, psi = how
    anchors = keys_MD if anchors_AD is None else anchors_AD
    terms = ScoreTerms(
        anchors,
        None if anchors_AD is None else keys_MD,
        keys_MD.new_full((), psi.scale),
        _anchor_bias(anchors, positives_AD, pairing, psi),
        _key_bias(keys_MD, pairing, psi),
    )
    return PairScores(terms, PairMask(excluded_AE), is_unit=pairing.normalize)


def _cross_view(z0: Tensor, z1: Tensor, pairing: Pairing, psi: Psi, own: slice) -> PairScores:
    """First-view anchors along the rows, second-view anchors along the columns."""
    is_two_way = pairing.anchors == "both"
    terms = ScoreTerms(
        z0[own],
        z1,
        z0.new_full((), psi.scale),
        _anchor_bias(z0[own], z1[own], pairing, psi),
        _key_bias(z1, pairing, psi),
        # Columns are all second-view anchors, also of a part: what it knows of each is merged later.
        _anchor_bias(z1, z0, pairing, psi) if is_two_way else None,
        _key_bias(z0[own], pairing, psi) if is_two_way else None,
    )
    mask = PairMask(own_sample(len(z0), 1, z0.device)[own])
    return PairScores(terms, mask, is_two_way, is_unit=pairing.normalize)


def _anchor_bias(anchors_AD: Tensor, positives_AD: Tensor, pairing: Pairing, psi: Psi) -> Tensor:
    """Return what an anchor adds to its scores: minus the similarity to its positive, and the margin."""
    # gap_ij = (|p|^2 / 2 - <a, p>) + (<a, k> - |k|^2 / 2): |a|^2 / 2 cancels, and no distance is formed.
    own_A = row_dots(anchors_AD, positives_AD)
    if not pairing.normalize:
        own_A = own_A - 0.5 * positives_AD.square().sum(1)
    own_A = -psi.scale * own_A
    return own_A + psi.margin if psi.margin else own_A


def _key_bias(keys_MD: Tensor, pairing: Pairing, psi: Psi) -> Tensor | None:
    return None if pairing.normalize else (-0.5 * psi.scale) * keys_MD.square().sum(1)
