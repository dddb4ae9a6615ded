"""InfoNCE, and its decoupled forms, in which the positive is not in the denominator."""

# N samples per view, A anchors, D features

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from counterpoint.core.checks import LARGEST, check_positive, check_real
from counterpoint.kernels.contract import EXPONENTIAL
from counterpoint.losses.family import member
from counterpoint.losses.inputs import check_temperature, prepare_views
from counterpoint.losses.loss import Loss, LossCard, Part, first_gradient, shown_by_call
from counterpoint.losses.pair_loss import Attention, PairLoss, Reduction
from counterpoint.losses.pairs import Anchors, ContrastiveLoss, Negatives, Pairing, Psi, log_plus


@shown_by_call
def InfoNCE(
    temperature: float = 0.5,
    epsilon: float = 1.0,
    negatives: Negatives = "two-view",
    normalize: bool = True,
    *,
    anchors: Anchors = "both",
    reduction: Reduction = "mean",
) -> PairLoss:
    r"""InfoNCE; with the defaults it is NT-Xent (SimCLR), with ``epsilon=0`` it is DCL.

    .. math:: L = \frac{1}{2n} \sum_{i=1}^{2n} \log\Big(\epsilon + \sum_{j \in N(i)} e^{(d_i^2 - d_{ij}^2)/\tau}\Big)

    All 2n vectors are anchors; the mean is over anchors. For unit vectors the exponent is
    :math:`(\cos_{ij} - \cos_{ii'})/\tau`, so that at epsilon = 1 each term is the cross-entropy of picking the
    positive.

    Use it first: other losses are compared with it (method ``simclr``). At a low temperature only
    the nearest negatives count.

    Source: alphacl2022, Eq. 1 and table of Fig. 1 (phi = tau log(eps + x), psi = exp(x / tau)). Differs from the paper:
        no factor tau in front (as in the released code and in NT-Xent); the positive belongs in the denominator
        (eps = 1) for SimCLR, where the text after Eq. 2 says eps = 0; all 2n vectors are anchors and both views repel.

    Equals lightly's ``NTXentLoss(temperature)`` and, with epsilon 0, its ``DCLLoss``, without a difference in
    normalisation.

    Args:
        temperature: tau > 0.
        epsilon: weight of the positive pair in the denominator, >= 0.
        negatives: vectors that repel an anchor: ``two-view`` (2n - 2: both views of the others), ``cross-view``
            (n - 1: the other view of the others, as DirectCLR and CLIP) or ``same-view`` (n - 1, as in alphacl2022).
        normalize: scale the inputs to unit length first; False takes the vectors as they are (as the papers' linear
            models do).
        anchors: ``both`` views, or the ``first`` only (as in alphacl2022).
        reduction: ``mean`` or ``sum`` over anchors.

    Raises:
        ValueError: temperature <= 0, epsilon < 0, or an unknown name.

    Unchanged by permuting samples, swapping views (with all anchors) and rotating all vectors.

    >>> import math
    >>> z = torch.eye(2)
    >>> round(float(InfoNCE(temperature=1.0)(z, z)), 6) == round(math.log(1 + 2 / math.e), 6)
    True
    """
    check_temperature(temperature)
    check_real(epsilon, "epsilon")
    if not 0 <= epsilon <= LARGEST:
        raise ValueError(f"epsilon must be >= 0, got {epsilon}; 1 is NT-Xent, 0 is DCL")
    return member(
        "InfoNCE" if epsilon else "DCL",
        # Eq. 2 without its factor tau; epsilon is the weight of the positive.
        log_plus(epsilon),
        Psi(EXPONENTIAL, f"exp(x / {temperature:g})", scale=1.0 / temperature),
        pairing=Pairing(negatives, anchors, normalize),
        alpha=f"exp(gap_ij / tau) / ({epsilon:g} + xi_i) / tau",
        reduction=reduction,
    )


@shown_by_call
def DCL(temperature: float = 0.1, negatives: Negatives = "two-view", normalize: bool = True) -> PairLoss:
    r"""Decoupled contrastive learning: InfoNCE without the positive in the denominator.

    .. math:: L = \frac{1}{2n} \sum_i \log \sum_{j \in N(i)} e^{(d_i^2 - d_{ij}^2)/\tau}

    Use it with small batches, for which it was made: a positive that already agrees does not weaken its anchor's
    gradient.

    Source: yeh2022, Eq. 6; alphacl2022, Eq. 2 at eps = 0. One log-sum-exp over all 2n - 2 negatives, as lightly's
        ``DCLLoss`` has since June 2025; earlier versions added one per view.

    Args:
        temperature: tau > 0.
        negatives: vectors that repel an anchor: ``two-view``, ``cross-view`` or ``same-view``, as in ``InfoNCE``.
        normalize: scale the inputs to unit length first.

    Raises:
        ValueError: temperature <= 0 or an unknown kind of negatives.

    >>> import math
    >>> z = torch.eye(2)
    >>> round(float(DCL(temperature=1.0)(z, z)), 6) == round(math.log(2 / math.e), 6)
    True
    """
    return InfoNCE(temperature, 0.0, negatives, normalize)


class DCLW(ContrastiveLoss):
    r"""Weighted decoupled contrastive learning: positives that already agree pull less, those that do not pull more.

    .. math:: L = \frac{1}{2n} \sum_{i=1}^{2n} \Big( -w_i \frac{\cos_{ii'}}{\tau}
        + \log \sum_{j \in N(i)} e^{\cos_{ij}/\tau} \Big), \qquad
        w_i = 2 - n \frac{e^{\cos_{ii'}/\sigma}}{\sum_k e^{\cos_{kk'}/\sigma}}

    N(i) are the 2n - 2 vectors of other samples; k runs over the n samples, so that the weights average to 1. The
    weights are held fixed in the gradient. Equal to lightly's ``DCLWLoss(temperature, sigma)`` of today (one
    log-sum-exp over all negatives; before June 2025 it added one per view) in a single process; over several
    processes lightly takes the weights' softmax over each process's samples, and here it is over all.

    Use it in place of DCL where positives differ much in how well they agree.

    Source: yeh2022, Eq. 6 with the weighting of section 3.2. The released code of the method differentiates the
        weights too: ``backpropagate_weights=True``.

    Args:
        temperature: tau > 0.
        sigma: temperature of the weights, > 0.
        backpropagate_weights: let the gradient go through the weights; all derivatives are then those of the value.

    Raises:
        ValueError: temperature or sigma <= 0 or not finite.

    Weights held fixed give a gradient and no Hessian: a second derivative raises a RuntimeError. Unchanged by
    permuting samples, swapping views and rotating all vectors.

    >>> z = torch.eye(2)  # both positives agree alike: weights of 1, and the loss is DCL, log(2 / e)
    >>> round(float(DCLW(temperature=1.0)(z, z)), 4)
    -0.3069
    """

    why_no_class_level = "the weights of its positives depend on the whole batch"

    def __init__(self, temperature: float = 0.1, sigma: float = 0.5, *, backpropagate_weights: bool = False) -> None:
        super().__init__()
        self.decoupled = DCL(temperature)
        self.pairing = self.decoupled.pairing
        check_positive(sigma, "sigma", hint="yeh2022 uses 0.5; losses.DCL has equal weights")
        self.temperature, self.sigma = temperature, sigma
        self.backpropagate_weights = backpropagate_weights
        self.card = LossCard(
            name="DCLW",
            phi="log(x) + (1 - w_i) cos_ii' / tau",
            psi=self.decoupled.card.psi,
            alpha="exp(cos_ij / tau) / (tau sum_k exp(cos_ik / tau))",
            negatives=self.decoupled.card.negatives,
            normalization="unit vectors; mean over anchors",
            source="yeh2022, Eq. 6 and section 3.2",
            second_derivative="true"
            if self.backpropagate_weights
            else "none, because the positives' weights are held fixed (backpropagate_weights=True: true)",
            fused="CPU, CUDA",
        )

    def forward(self, z0: Tensor, z1: Tensor, labels: Tensor | None = None, *, part: Part | None = None) -> Tensor:
        """See ``Loss.forward``; labels are checked and not used."""
        z0, z1 = prepare_views(z0, z1, labels, normalize=True)
        # The second-view anchors of a part are those of the same samples: one slice serves both.
        own = slice(0, len(z0)) if part is None else slice(part.first, part.last)
        # Products of all n samples are formed also for a part: the weights are a softmax over the whole batch.
        positive_N = (z0 * z1).sum(1)
        excess_A = (len(z0) * torch.softmax(positive_N / self.sigma, dim=0) - 1)[own]  # 1 - w
        # A detached weight would allow a second derivative, that of no loss, without a word.
        own_A = positive_N[own]
        if self.backpropagate_weights:
            pull_A = excess_A * own_A
        else:
            pull_A = first_gradient(excess_A.detach() * own_A, excess_A, refusal=_NO_SECOND)
        # Both vectors of a sample have one weight and one positive: the mean over n is that over 2n.
        # DCL's gap has -cos_ii' / tau in it already: what is left is small, where w is near 1.
        return self.decoupled(z0, z1, part=part) + pull_A.mean() / self.temperature

    def importance(self, z0: Tensor, z1: Tensor) -> Tensor:
        r"""Weight of each negative, :math:`\alpha_{ij} = \mathrm{softmax}_j(\cos_{ij}/\tau)/\tau`, dense: that of DCL.

        The loss has the gradient of :math:`\frac{1}{2n} \sum_i \big(\sum_j \alpha_{ij} \cos_{ij} - \frac{w_i}{\tau}
        \cos_{ii'}\big)` with alpha (and w) held fixed.
        """
        return self.decoupled.importance(z0, z1)

    def attention(self, z0: Tensor, z1: Tensor) -> Attention:
        """Entropy of each anchor's importance and its effective number of negatives: those of DCL."""
        return self.decoupled.attention(z0, z1)

    def chance(self, n: int) -> float:
        """Loss when all pairs look alike: weights are 1, and it is DCL's log(2n - 2)."""
        return self.decoupled.chance(n)

    def floor(self, n: int, *, nonnegative: bool = False) -> float:
        """A value that no embedding of n samples can go below: that of DCL.

        The softmax weighs similar positives more, so by Chebyshev's sum inequality its mean cosine is at least the
        plain mean; 2 minus it is then no stronger a pull than weights of 1, and the loss is at least DCL.
        """
        return self.decoupled.floor(n, nonnegative=nonnegative)


_NO_SECOND = (
    "DCLW has no second derivative while its weights are held fixed: differentiating its gradient gives the Hessian of "
    "no loss; use DCLW(..., backpropagate_weights=True), or DCL"
)


CATALOGUE: Mapping[str, Callable[..., Loss]] = {"infonce": InfoNCE, "dcl": DCL, "dclw": DCLW}
