r"""The members of the pairwise family, after the table of alphacl2022, Fig. 1: each a choice of phi and psi.

.. math:: L = \frac{1}{|A|} \sum_{i \in A} \phi(\xi_i), \qquad \xi_i = \sum_{j \in N(i)} \psi(d_i^2 - d_{ij}^2)

with :math:`d^2 = |a - b|^2/2`, so that for unit vectors the gap :math:`d_i^2 - d_{ij}^2` is
:math:`\cos_{ij} - \cos_{ii'}`; a zero vector has cosine 0 with all. All members take ``negatives`` (which vectors repel
an anchor: ``two-view``, the 2n - 2 vectors of other samples; ``cross-view``, the n - 1 in the other view;
``same-view``, the n - 1 in its own) and ``normalize`` (False takes vectors as they are).
"""

from collections.abc import Callable, Mapping
from dataclasses import replace

import torch
from torch import Tensor

from counterpoint.core.checks import LARGEST, check_positive, check_real
from counterpoint.kernels.contract import EXPONENTIAL, HINGE, IDENTITY, SIGMOID
from counterpoint.losses.inputs import check_temperature
from counterpoint.losses.loss import shown_by_call
from counterpoint.losses.pair_loss import PairLoss, Reduction
from counterpoint.losses.pairs import LINEAR, Negatives, Pairing, Phi, Psi, log_plus


@shown_by_call
def MINE(negatives: Negatives = "two-view", normalize: bool = True) -> PairLoss:
    r"""MINE in the pairwise family: phi = log(x), psi = exp(x).

    .. math:: L = \frac{1}{2n} \sum_i \log \sum_{j \in N(i)} e^{d_i^2 - d_{ij}^2}

    Use it for comparisons within the family: no temperature sharpens it, so that on unit vectors its weights differ by
    a factor of e^2 = 7.4 at most.

    Source: alphacl2022, table of Fig. 1, after mine2018. Differs from the Donsker-Varadhan bound of mine2018, whose
        logarithm is taken once over the whole batch; here, as in the table, it is taken per anchor.

    Args:
        negatives: vectors that repel an anchor: ``two-view``, ``cross-view`` or ``same-view``, as in ``InfoNCE``.
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


@shown_by_call
def Triplet(margin: float = 1.0, negatives: Negatives = "two-view", normalize: bool = True) -> PairLoss:
    r"""Triplet loss over all pairs: a negative counts while it is closer than the positive plus a margin.

    .. math:: L = \frac{1}{2n} \sum_i \sum_{j \in N(i)} [d_i^2 - d_{ij}^2 + \epsilon]_+

    The hinge has slope 0 at its corner, as ``torch.relu``; its second derivative is 0 wherever it exists.

    Use it where a margin has a meaning, as in retrieval: pairs beyond the margin have weight 0, all others weigh alike.

    Source: alphacl2022, table of Fig. 1, after schroff2015, Eq. 2. Half squared distances: a margin of m here is 2 m on
        squared distances.

    Args:
        margin: epsilon, any finite number; unit vectors have gaps between -2 and 2.
        negatives: vectors that repel an anchor: ``two-view``, ``cross-view`` or ``same-view``, as in ``InfoNCE``.
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


@shown_by_call
def SoftTriplet(
    temperature: float = 1.0, margin: float = 0.0, negatives: Negatives = "two-view", normalize: bool = True
) -> PairLoss:
    r"""Soft triplet loss: phi = tau log(1 + x), psi = exp(x / tau + epsilon).

    .. math:: L = \frac{1}{2n} \sum_i \tau \log\Big(1 + \sum_{j \in N(i)} e^{(d_i^2 - d_{ij}^2)/\tau + \epsilon}\Big)

    Use it where InfoNCE should have a margin beside its temperature.

    Source: alphacl2022, table of Fig. 1 (epsilon is a margin there).

    Args:
        temperature: tau > 0.
        margin: epsilon, added to the scaled gap.
        negatives: vectors that repel an anchor: ``two-view``, ``cross-view`` or ``same-view``, as in ``InfoNCE``.
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


@shown_by_call
def NPlusOneTuplet(negatives: Negatives = "two-view", normalize: bool = True) -> PairLoss:
    r"""(N+1)-tuplet loss: phi = log(1 + x), psi = exp(x).

    .. math:: L = \frac{1}{2n} \sum_i \log\Big(1 + \sum_{j \in N(i)} e^{d_i^2 - d_{ij}^2}\Big)

    Use it for comparisons within the family: it is InfoNCE at temperature 1.

    Source: alphacl2022, table of Fig. 1, after sohn2016, Eq. 6.

    Args:
        negatives: vectors that repel an anchor: ``two-view``, ``cross-view`` or ``same-view``, as in ``InfoNCE``.
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


@shown_by_call
def LiftedStructured(margin: float = 1.0, negatives: Negatives = "two-view", normalize: bool = True) -> PairLoss:
    r"""Lifted structured loss: phi = [log x]_+^2, psi = exp(x + epsilon).

    .. math:: L = \frac{1}{2n} \sum_i \Big[\log \sum_{j \in N(i)} e^{d_i^2 - d_{ij}^2 + \epsilon}\Big]_+^2

    Its second derivative jumps where the logarithm is 0.

    Use it for comparisons with metric learning: an anchor whose negatives are all far enough away has no gradient.

    Source: alphacl2022, table of Fig. 1, after ohsong2016, Eq. 4.

    Args:
        margin: epsilon, any finite number, added to each gap.
        negatives: vectors that repel an anchor: ``two-view``, ``cross-view`` or ``same-view``, as in ``InfoNCE``.
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
        Phi(_squared_hinge_of_log, "[log x]_+^2", _squared_hinge, _squared_hinge_slope),  # convex: [x + log c]_+^2
        Psi(EXPONENTIAL, f"exp(x + {margin:g})", margin=margin),
        pairing=Pairing(negatives, normalize=normalize),
        alpha="2 [log xi_i]_+ exp(gap_ij + margin) / xi_i",
    )


@shown_by_call
def ModifiedTriplet(steepness: float = 1.0, negatives: Negatives = "two-view", normalize: bool = True) -> PairLoss:
    r"""Modified triplet loss: phi = x, psi = sigmoid(c x).

    .. math:: L = \frac{1}{2n} \sum_i \sum_{j \in N(i)} \sigma\big(c\,(d_i^2 - d_{ij}^2)\big)

    Use it where no single pair should dominate: a pair adds 1 at most, and pairs about as similar as the positive weigh
    most.

    Source: alphacl2022, table of Fig. 1, after coria2020, Eq. 10.

    Args:
        steepness: factor of the gap, c > 0.
        negatives: vectors that repel an anchor: ``two-view``, ``cross-view`` or ``same-view``, as in ``InfoNCE``.
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
        Psi(SIGMOID, f"sigmoid({steepness:g} x)", scale=steepness, is_convex=False),  # convex left of 0 only
        pairing=Pairing(negatives, normalize=normalize),
        alpha="c sigmoid'(c gap_ij)",
    )


@shown_by_call
def LinearTriplet(negatives: Negatives = "two-view", normalize: bool = True) -> PairLoss:
    r"""Triplet contrastive loss, also called the quadratic loss: phi and psi are linear, so pairs have equal weight.

    .. math:: L = \frac{1}{2n} \sum_i \sum_{j \in N(i)} (d_i^2 - d_{ij}^2)

    Computed from sums of vectors, in time linear in n. Without normalisation it has no lower bound.

    Use it as a baseline that weighs all pairs alike, and for very large batches.

    Source: alphacl2022, table of Fig. 1, after ji2021, Eq. 2. The quadratic loss of the released code divides by the
        number of negatives.

    Args:
        negatives: vectors that repel an anchor: ``two-view``, ``cross-view`` or ``same-view``, as in ``InfoNCE``.
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
        Psi(IDENTITY, "x"),  # sum_j <a, k_j> = <a, sum_j k_j>: no pairs
        pairing=Pairing(negatives, normalize=normalize),
        alpha="1",
    )


def member(name: str, phi: Phi, psi: Psi, *, pairing: Pairing, alpha: str, reduction: Reduction = "mean") -> PairLoss:
    """A pairwise loss with its card: its name, and alpha as a formula."""
    loss = PairLoss(phi, psi, pairing=pairing, reduction=reduction)
    loss.card = replace(
        loss.card,
        name=name,
        alpha=alpha,
        source="alphacl2022, Eq. 1 and table of Fig. 1",
        second_derivative=_SECOND.get(name, "true"),
        # Equal, not identical: a loss that went through a pickle holds a copy of the function.
        fused="no pairs" if psi.function == IDENTITY else "CPU, CUDA",
    )
    return loss


_SECOND = {
    "Triplet": "true, 0 wherever it exists",
    "LiftedStructured": "true, with a jump at log xi = 0",
}


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
    "mine": MINE,
    "triplet": Triplet,
    "soft-triplet": SoftTriplet,
    "n-plus-one-tuplet": NPlusOneTuplet,
    "lifted-structured": LiftedStructured,
    "modified-triplet": ModifiedTriplet,
    "linear-triplet": LinearTriplet,
}
