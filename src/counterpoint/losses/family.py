r"""The members of the pairwise family, after the table of alphacl2022, Fig. 1: each a choice of phi and psi.

.. math:: L = \frac{1}{|A|} \sum_{i \in A} \phi(\xi_i), \qquad \xi_i = \sum_{j \in N(i)} \psi(d_i^2 - d_{ij}^2)

with :math:`d^2 = |a - b|^2/2`, so that for unit vectors the gap :math:`d_i^2 - d_{ij}^2` is
:math:`\cos_{ij} - \cos_{ii'}`; a zero vector has cosine 0 with all. All members take ``negatives`` (which vectors repel
an anchor: ``two-view``, the 2n - 2 vectors of other samples; ``cross-view``, the n - 1 in the other view;
``same-view``, the n - 1 in its own) and ``normalize`` (False takes vectors as they are).
"""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from counterpoint.core.checks import LARGEST, check_choice, check_positive, check_real
from counterpoint.kernels.pair_functions import EXPONENTIAL, HINGE, IDENTITY, SIGMOID
from counterpoint.losses.blocks import Anchors, Negatives, Pairing
from counterpoint.losses.loss import LossCard
from counterpoint.losses.pair_loss import REDUCTIONS, PairLoss, Reduction
from counterpoint.losses.pairs import LINEAR, Phi, Psi, log_plus


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

    Source: alphacl2022, Eq. 1 and table of Fig. 1 (phi = tau log(eps + x), psi = exp(x / tau)). Differs from the paper:
        no factor tau in front (as in the released code and in NT-Xent); the positive belongs in the denominator
        (eps = 1) for SimCLR, where the text after Eq. 2 says eps = 0; all 2n vectors are anchors and both views repel.

    Equals lightly's ``NTXentLoss(temperature)`` and, with epsilon 0, its ``DCLLoss``, without a difference in
    normalisation.

    Args:
        temperature: tau > 0.
        epsilon: weight of the positive pair in the denominator, >= 0.
        negatives: which vectors repel an anchor: ``two-view`` (2n - 2: both views of the others), ``cross-view``
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
        log_plus(epsilon),
        Psi(EXPONENTIAL, f"exp(x / {temperature:g})", scale=1.0 / temperature),
        pairing=Pairing(negatives, anchors, normalize),
        alpha=f"exp(gap_ij / tau) / ({epsilon:g} + xi_i) / tau",
        reduction=reduction,
    )


def DCL(temperature: float = 0.1, negatives: Negatives = "two-view", normalize: bool = True) -> PairLoss:
    r"""Decoupled contrastive learning: InfoNCE without the positive in the denominator.

    .. math:: L = \frac{1}{2n} \sum_i \log \sum_{j \in N(i)} e^{(d_i^2 - d_{ij}^2)/\tau}

    Source: yeh2022, Eq. 6; alphacl2022, Eq. 2 at eps = 0. One log-sum-exp over all 2n - 2 negatives, as lightly's
        ``DCLLoss`` has since June 2025; earlier versions added one per view.

    Args:
        temperature: tau > 0.
        negatives: which vectors repel an anchor.
        normalize: scale the inputs to unit length first.

    Raises:
        ValueError: temperature <= 0 or an unknown kind of negatives.

    >>> import math
    >>> z = torch.eye(2)
    >>> round(float(DCL(temperature=1.0)(z, z)), 6) == round(math.log(2 / math.e), 6)
    True
    """
    return InfoNCE(temperature, 0.0, negatives, normalize)


def MINE(negatives: Negatives = "two-view", normalize: bool = True) -> PairLoss:
    r"""MINE as the family has it: phi = log(x), psi = exp(x).

    .. math:: L = \frac{1}{2n} \sum_i \log \sum_{j \in N(i)} e^{d_i^2 - d_{ij}^2}

    Source: alphacl2022, table of Fig. 1, after mine2018. Differs from the Donsker-Varadhan bound of mine2018, whose
        logarithm is taken once over the whole batch; here, as in the table, it is taken per anchor.

    Args:
        negatives: which vectors repel an anchor.
        normalize: scale the inputs to unit length first.

    Raises:
        ValueError: an unknown kind of negatives.

    >>> import math
    >>> z = torch.eye(2)
    >>> round(float(MINE()(z, z)), 6) == round(math.log(2 / math.e), 6)
    True
    """
    return member(
        "MINE",
        log_plus(0.0),
        Psi(EXPONENTIAL, "exp(x)"),
        pairing=Pairing(negatives, normalize=normalize),
        alpha="exp(gap_ij) / xi_i",
    )


def Triplet(margin: float = 1.0, negatives: Negatives = "two-view", normalize: bool = True) -> PairLoss:
    r"""Triplet loss over all pairs: a negative counts while it is closer than the positive plus a margin.

    .. math:: L = \frac{1}{2n} \sum_i \sum_{j \in N(i)} [d_i^2 - d_{ij}^2 + \epsilon]_+

    The hinge has slope 0 at its corner, as ``torch.relu``; its second derivative is 0 wherever it exists.

    Source: alphacl2022, table of Fig. 1, after schroff2015, Eq. 2. Half squared distances: a margin of m here is 2 m on
        squared distances.

    Args:
        margin: epsilon, any finite number; unit vectors have gaps between -2 and 2.
        negatives: which vectors repel an anchor.
        normalize: scale the inputs to unit length first.

    Raises:
        ValueError: a margin that is not finite, or an unknown kind of negatives.

    >>> z = torch.eye(2)
    >>> float(Triplet(margin=1.5)(z, z))
    1.0
    """
    check_margin(margin)
    return member(
        "Triplet",
        LINEAR,
        Psi(HINGE, f"[x + {margin:g}]_+", margin=margin),
        pairing=Pairing(negatives, normalize=normalize),
        alpha="1 where gap_ij + margin > 0",
    )


def SoftTriplet(
    temperature: float = 1.0, margin: float = 0.0, negatives: Negatives = "two-view", normalize: bool = True
) -> PairLoss:
    r"""Soft triplet loss: phi = tau log(1 + x), psi = exp(x / tau + epsilon).

    .. math:: L = \frac{1}{2n} \sum_i \tau \log\Big(1 + \sum_{j \in N(i)} e^{(d_i^2 - d_{ij}^2)/\tau + \epsilon}\Big)

    Source: alphacl2022, table of Fig. 1 (epsilon is a margin there).

    Args:
        temperature: tau > 0.
        margin: epsilon, added to the scaled gap.
        negatives: which vectors repel an anchor.
        normalize: scale the inputs to unit length first.

    Raises:
        ValueError: temperature <= 0, a margin that is not finite, or an unknown kind of negatives.

    >>> import math
    >>> z = torch.eye(2)
    >>> round(float(SoftTriplet()(z, z)), 6) == round(math.log(1 + 2 / math.e), 6)
    True
    """
    check_temperature(temperature)
    check_margin(margin)
    return member(
        "SoftTriplet",
        log_plus(1.0, factor=temperature),
        Psi(EXPONENTIAL, f"exp(x / {temperature:g} + {margin:g})", scale=1.0 / temperature, margin=margin),
        pairing=Pairing(negatives, normalize=normalize),
        alpha="exp(gap_ij / tau + margin) / (1 + xi_i)",
    )


def NPlusOneTuplet(negatives: Negatives = "two-view", normalize: bool = True) -> PairLoss:
    r"""(N+1)-tuplet loss: phi = log(1 + x), psi = exp(x).

    .. math:: L = \frac{1}{2n} \sum_i \log\Big(1 + \sum_{j \in N(i)} e^{d_i^2 - d_{ij}^2}\Big)

    Source: alphacl2022, table of Fig. 1, after sohn2016, Eq. 6.

    Args:
        negatives: which vectors repel an anchor.
        normalize: scale the inputs to unit length first.

    Raises:
        ValueError: an unknown kind of negatives.

    >>> import math
    >>> z = torch.eye(2)
    >>> round(float(NPlusOneTuplet()(z, z)), 6) == round(math.log(1 + 2 / math.e), 6)
    True
    """
    return member(
        "NPlusOneTuplet",
        log_plus(1.0),
        Psi(EXPONENTIAL, "exp(x)"),
        pairing=Pairing(negatives, normalize=normalize),
        alpha="exp(gap_ij) / (1 + xi_i)",
    )


def LiftedStructured(margin: float = 1.0, negatives: Negatives = "two-view", normalize: bool = True) -> PairLoss:
    r"""Lifted structured loss: phi = [log x]_+^2, psi = exp(x + epsilon).

    .. math:: L = \frac{1}{2n} \sum_i \Big[\log \sum_{j \in N(i)} e^{d_i^2 - d_{ij}^2 + \epsilon}\Big]_+^2

    Its second derivative jumps where the logarithm is 0.

    Source: alphacl2022, table of Fig. 1, after ohsong2016, Eq. 4.

    Args:
        margin: epsilon.
        negatives: which vectors repel an anchor.
        normalize: scale the inputs to unit length first.

    Raises:
        ValueError: a margin that is not finite, or an unknown kind of negatives.

    >>> import math
    >>> z = torch.eye(2)
    >>> round(float(LiftedStructured()(z, z)), 6) == round(math.log(2) ** 2, 6)
    True
    """
    check_margin(margin)
    return member(
        "LiftedStructured",
        Phi(_squared_hinge_of_log, "[log x]_+^2", _squared_hinge, _squared_hinge_slope),
        Psi(EXPONENTIAL, f"exp(x + {margin:g})", margin=margin),
        pairing=Pairing(negatives, normalize=normalize),
        alpha="2 [log xi_i]_+ exp(gap_ij + margin) / xi_i",
    )


def ModifiedTriplet(steepness: float = 1.0, negatives: Negatives = "two-view", normalize: bool = True) -> PairLoss:
    r"""Modified triplet loss: phi = x, psi = sigmoid(c x).

    .. math:: L = \frac{1}{2n} \sum_i \sum_{j \in N(i)} \sigma\big(c\,(d_i^2 - d_{ij}^2)\big)

    Source: alphacl2022, table of Fig. 1, after coria2020, Eq. 10.

    Args:
        steepness: c > 0.
        negatives: which vectors repel an anchor.
        normalize: scale the inputs to unit length first.

    Raises:
        ValueError: c <= 0 or an unknown kind of negatives.

    >>> z = torch.ones(2, 1)
    >>> float(ModifiedTriplet()(z, z))
    1.0
    """
    check_positive(steepness, "steepness", hint="1 is a common value")
    return member(
        "ModifiedTriplet",
        LINEAR,
        Psi(SIGMOID, f"sigmoid({steepness:g} x)", scale=steepness, is_convex=False),
        pairing=Pairing(negatives, normalize=normalize),
        alpha="c sigmoid'(c gap_ij)",
    )


def LinearTriplet(negatives: Negatives = "two-view", normalize: bool = True) -> PairLoss:
    r"""Triplet contrastive loss, also called the quadratic loss: phi and psi are linear, so that all pairs weigh alike.

    .. math:: L = \frac{1}{2n} \sum_i \sum_{j \in N(i)} (d_i^2 - d_{ij}^2)

    Computed from sums of vectors, in time linear in n. Without normalisation it has no lower bound.

    Source: alphacl2022, table of Fig. 1, after ji2021, Eq. 2. The quadratic loss of the released code divides by the
        number of negatives.

    Args:
        negatives: which vectors repel an anchor.
        normalize: scale the inputs to unit length first.

    Raises:
        ValueError: an unknown kind of negatives.

    >>> z = torch.eye(2)
    >>> float(LinearTriplet()(z, z))
    -2.0
    """
    return member(
        "LinearTriplet",
        LINEAR,
        Psi(IDENTITY, "x"),
        pairing=Pairing(negatives, normalize=normalize),
        alpha="1",
    )


def member(name: str, phi: Phi, psi: Psi, *, pairing: Pairing, alpha: str, reduction: Reduction = "mean") -> PairLoss:
    """A pairwise loss with its card."""
    check_choice(reduction, "reduction", REDUCTIONS)
    units = "unit vectors" if pairing.normalize else "vectors as they are"
    card = LossCard(
        name=name,
        phi=phi.formula,
        psi=psi.formula,
        alpha=alpha,
        negatives=pairing.explain(),
        normalization=f"{units}; {REDUCTIONS[reduction]}",
        source="alphacl2022, Eq. 1 and table of Fig. 1",
        second_derivative=_SECOND.get(name, "true"),
        fused="no pairs" if psi.function == IDENTITY else "CPU, CUDA",
    )
    return PairLoss(phi, psi, pairing=pairing, reduction=reduction, card=card)


_SECOND = {
    "Triplet": "true, 0 wherever it exists",
    "LiftedStructured": "true, with a jump at log xi = 0",
}


def check_temperature(temperature: float) -> None:
    """Require a finite temperature > 0."""
    check_positive(temperature, "temperature", hint="common values are 0.1 to 0.5")


def check_margin(margin: float) -> None:
    """Require a finite margin."""
    check_real(margin, "margin")
    if not abs(margin) <= LARGEST:
        raise ValueError(f"margin must be a finite number, got {margin}; unit vectors have gaps between -2 and 2")


def _squared_hinge(log_xi: Tensor) -> Tensor:
    return torch.relu(log_xi).square()


def _squared_hinge_of_log(xi: Tensor) -> Tensor:
    return _squared_hinge(xi.log())


def _squared_hinge_slope(log_xi: Tensor) -> Tensor:
    return 2 * torch.relu(log_xi)


CATALOGUE: Mapping[str, Callable[..., PairLoss]] = {
    "infonce": InfoNCE,
    "dcl": DCL,
    "mine": MINE,
    "triplet": Triplet,
    "soft-triplet": SoftTriplet,
    "n-plus-one-tuplet": NPlusOneTuplet,
    "lifted-structured": LiftedStructured,
    "modified-triplet": ModifiedTriplet,
    "linear-triplet": LinearTriplet,
}
