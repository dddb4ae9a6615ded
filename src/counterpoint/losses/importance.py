"""alpha-CL: choose the pairwise importance alpha by a rule, which may be the user's own, and follow the energy."""

# n samples, V = 2n vectors (first view before second), B anchors (rows), M keys (columns), D features

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from counterpoint.losses.alpha_energy import EnergyProblem, differentiable_energy, held_energy
from counterpoint.losses.alpha_rules import AlphaRule, Direct
from counterpoint.losses.inputs import prepare_views
from counterpoint.losses.loss import Loss, LossCard, Part
from counterpoint.losses.pairs import Anchors, ContrastiveLoss, Negatives, Pairing


class AlphaCL(ContrastiveLoss):
    r"""Pair-weighted contrastive learning (alpha-CL).

    .. math:: L = \frac{1}{2n} \sum_{i=1}^{2n} \sum_{j \in N(i)} \alpha_{ij} (d_i^2 - d_{ij}^2), \qquad
        \alpha = \mathrm{rule}(d_{ij}^2, d_i^2) \text{ held fixed}

    All 2n vectors are anchors unless ``anchors="first"``; the mean is over anchors. For unit vectors
    :math:`d_{ij}^2 = 1 - \cos_{ij}`, with a cosine of 0 to a zero vector; otherwise :math:`d_{ij}^2 = |z_i -
    z_j|^2/2`. With ``Entropy(tau)`` the gradient is tau times that of ``InfoNCE(tau, epsilon=0)`` (Corollary 1); with
    the alpha of any pairwise loss it is that loss's (Theorem 1).

    Use it to say directly, by a rule, how much a pair counts at each distance (method ``alpha-cl``).

    Source: alphacl2022, Theorem 1, Definition 1 and section 6. Differs from the paper, which maximises the energy E,
        a sum over n first-view anchors with same-view negatives (``negatives="same-view", anchors="first"``): L is -E
        with a mean over all 2n anchors, as in the released code.

    Args:
        rule: how alpha follows from the distances; None is ``Direct()``, the paper's best.
        negatives: which vectors repel an anchor: ``two-view``, ``cross-view`` or ``same-view``, as in ``InfoNCE``.
        normalize: scale the inputs to unit length first.
        anchors: ``both`` views, or the ``first`` only, as in ``InfoNCE``.
        backpropagate_alpha: let the gradient go through the rule as well (the paper's "backprop alpha", worse there).
            Then all derivatives are those of the value.
        stream: work on blocks of anchors, so that no matrix of all pairs exists; ``auto`` where the rule can.

    Raises:
        TypeError: ``rule`` is not a rule.
        ValueError: unknown negatives or anchors, or a rule that cannot stream asked to.

    Alpha held fixed gives a gradient and no Hessian: a second derivative raises a RuntimeError. Unchanged by permuting
    samples, swapping views and rotating all vectors (for a user's rule, where that rule is).

    >>> z = torch.eye(2)  # views agree, samples are orthogonal: every gap is 0 - 1
    >>> AlphaCL()(z, z)
    tensor(-1.)
    """

    why_no_class_level = (
        "its gradient, with alpha held fixed, is that of no function; take the pairwise loss with this alpha, which is "
        "InfoNCE for Entropy"
    )

    domain_error = (
        "its rule gives weights that are NaN or infinite; where a power of long distances overflows, normalise the "
        "vectors or lower the exponent"
    )

    def __init__(
        self,
        rule: AlphaRule | None = None,
        negatives: Negatives = "two-view",
        normalize: bool = True,
        *,
        anchors: Anchors = "both",
        backpropagate_alpha: bool = False,
        stream: bool | Literal["auto"] = "auto",
    ) -> None:
        super().__init__()
        self.rule = Direct() if rule is None else rule
        # A class is callable, too: Entropy in place of Entropy().
        if not callable(self.rule) or not hasattr(self.rule, "can_stream") or isinstance(self.rule, type):
            raise TypeError(f"rule must be a rule such as Entropy() or OwnRule(function), got {self.rule!r}")
        if stream is True and not self.rule.can_stream:
            raise ValueError(f"stream=True needs a rule that decides each row independently, got {self.rule}")
        self.pairing = Pairing(negatives, anchors, normalize)
        self.backpropagate_alpha = backpropagate_alpha
        self.streams = self.rule.can_stream if stream == "auto" else stream
        held = "none, because alpha is held fixed (backpropagate_alpha=True: autograd)"
        self.card = LossCard(
            name="AlphaCL",
            phi="x",
            psi="alpha x",
            alpha=f"{type(self.rule).__name__}: {self.rule.formula}",
            negatives=self.pairing.explain(),
            normalization=f"{'unit length' if self.pairing.normalize else 'as they are'}; mean over anchors",
            source="alphacl2022, Theorem 1, Definition 1 and section 6",
            second_derivative="autograd" if self.backpropagate_alpha else held,
            fused="CPU, CUDA" if self.streams else "none, because the rule is given all pairs",
        )

    def forward(self, z0: Tensor, z1: Tensor, labels: Tensor | None = None, *, part: Part | None = None) -> Tensor:
        """See ``Loss.forward``; labels are checked and not used."""
        problem, z_VD, dtype = self._problem(z0, z1, labels, part)
        # Definition 1 holds alpha fixed (sg); the other way is the paper's "backprop alpha".
        energy = differentiable_energy if self.backpropagate_alpha else held_energy
        return energy(z_VD, problem).to(dtype)

    def importance(self, z0: Tensor, z1: Tensor) -> Tensor:
        r"""Pairwise importance alpha, dense."""
        problem, z_VD, dtype = self._problem(z0.detach(), z1.detach(), None, None)
        alpha_VV = z_VD.new_zeros(len(z_VD), len(z_VD))
        for block in problem.blocks():
            alpha_VV[block.rows, block.keys] = problem.alpha(*problem.costs(z_VD, block), block)
        return alpha_VV.to(dtype)

    def chance(self, n: int) -> float:
        """Loss when all pairs look alike (nothing learned, or full collapse): every gap is 0."""
        self.num_negatives(n)
        return 0.0

    def floor(self, n: int, *, nonnegative: bool = False) -> float:
        r"""A value that no embedding of n samples can go below.

        The rules give less weight to larger costs, so by Chebyshev's sum inequality the weighted mean cost of an anchor
        is at most its plain mean. Where rows sum to 1 that leaves the mean gap, for unit vectors at least -n/(n-1)
        (a simplex with equal views; non-negative: -1, an orthonormal basis), which the rules attain. Where rows have
        at most weight s, each anchor is at least -s times its mean cost, which averages to at most n/(n-1) over
        negatives that come from both views or the anchor's own, and to 2 over the other view's (non-negative: 1).

        Args:
            n: samples per batch, >= 2.
            nonnegative: the embedding has no negative entries.

        Returns:
            The bound; minus infinity for vectors of any length and for a user's own rule.
        """
        row_sum = self.rule.row_sum(self.num_negatives(n))
        if not self.pairing.normalize or row_sum is None:
            return -math.inf
        if self.pairing.negatives == "cross-view" and not row_sum.is_constant and not nonnegative:
            return -2.0 * row_sum.most  # opposite views: costs to the other view reach 2
        return row_sum.most * self.pairing.least_mean_gap(n, nonnegative=nonnegative)

    def _problem(
        self, z0: Tensor, z1: Tensor, labels: Tensor | None, part: Part | None
    ) -> tuple[EnergyProblem, Tensor, torch.dtype]:
        """What is asked, the vectors it is asked of, and the precision of the answer."""
        z0, z1 = prepare_views(z0, z1, labels, normalize=self.pairing.normalize)
        z_VD, dtype = torch.cat([z0, z1]), z0.dtype
        if not self.pairing.normalize:
            # Distances of long vectors that lie close cancel in |a|^2 + |k|^2 - 2<a, k>: so float64, and
            # no common mean.
            z_VD = z_VD.double()
            z_VD = z_VD - z_VD.detach().mean(0)
        own = (0, len(z0)) if part is None else (part.first, part.last)
        # Keys are all vectors also for a part: a rule sees whole rows.
        return EnergyProblem(self.rule, self.pairing, self.streams, len(z0), own), z_VD, dtype


@dataclass(frozen=True)
class OwnRule:
    r"""A user's own rule.

    .. math:: \alpha = f(d_{ij}^2, d_i^2)

    Where the function gives :math:`\alpha_{ij} = \phi'(\xi_i)\,\psi'(d_i^2 - d_{ij}^2)`, AlphaCL has the gradient of
    the pairwise loss of phi and psi.

    Source: alphacl2022, Definition 1 ("a direct mapping") and Theorem 1.

    Args:
        function: from costs (b, m), infinite where there is no negative, and own costs (b,) to alpha (b, m).
        can_stream: the function treats each row independently. If not, it gets all 2n anchors and 2n vectors at once,
            first view before second.

    Raises:
        TypeError: the function is not callable, or does not return a floating tensor.
        ValueError: on use: alpha has another shape, dtype or device, is negative or not finite, or weighs a pair
            that does not count.

    >>> def nearest_only(cost_BM, own_B):
    ...     return (cost_BM == cost_BM.amin(1, keepdim=True)).to(cost_BM.dtype)
    >>> OwnRule(nearest_only, can_stream=True)(torch.tensor([[0.5, 0.1, math.inf]]), torch.zeros(1))
    tensor([[0., 1., 0.]])
    """

    function: Callable[[Tensor, Tensor], Tensor]
    can_stream: bool = False
    formula: ClassVar[str] = "the user's own"

    def __post_init__(self) -> None:
        if not callable(self.function):
            raise TypeError(
                f"function must be callable, got {type(self.function).__name__}; give f(cost, own) -> alpha"
            )

    def __call__(self, cost_BM: Tensor, own_B: Tensor) -> Tensor:
        """See ``alpha_rules.AlphaRule``."""
        alpha_BM = self.function(cost_BM, own_B)
        if not isinstance(alpha_BM, Tensor) or not alpha_BM.is_floating_point():
            kind = alpha_BM.dtype if isinstance(alpha_BM, Tensor) else type(alpha_BM).__name__
            raise TypeError(f"alpha must be a floating-point tensor, got {kind}; compute it from the costs")
        ours, theirs = ((tuple(z.shape), z.dtype, z.device) for z in (cost_BM, alpha_BM))
        if ours != theirs:
            raise ValueError(f"alpha must be of the shape, dtype and device of the costs, {ours}, got {theirs}")
        held_BM = alpha_BM.detach()
        # NaN fails both comparisons.
        is_good_BM = torch.where(torch.isfinite(cost_BM), (held_BM >= 0) & (held_BM < math.inf), held_BM == 0)
        is_bad_B = is_good_BM.all(dim=1).logical_not()
        if bool(is_bad_B.any()):
            raise ValueError(
                "alpha must be >= 0 and finite, and 0 where the cost is infinite (not a negative), but row "
                f"{int(is_bad_B.nonzero()[0])} is not; clamp it, mask it with torch.isinf(cost), or look for 0 / 0"
            )
        return alpha_BM

    def row_sum(self, num_negatives: int) -> None:
        """See ``alpha_rules.AlphaRule``."""
        return


CATALOGUE: Mapping[str, Callable[..., Loss]] = {"alpha-cl": AlphaCL}
