"""Losses around another loss: harder negatives count more, or an l1 penalty joins it."""

# N samples per view, A anchors, M keys, D features

import math
from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor

from counterpoint.core.checks import check_weight
from counterpoint.losses.class_level import LogOfSum, not_covered
from counterpoint.losses.inputs import check_views, lift, prepare_views
from counterpoint.losses.loss import Loss, Part
from counterpoint.losses.pair_loss import Attention, PairLoss, statistics
from counterpoint.losses.pairs import ContrastiveLoss, Psi, derivative, log_plus


class HardNegatives(ContrastiveLoss):
    r"""A pairwise loss whose negatives are weighted by the exponential of their own score.

    .. math:: L = \frac{1}{|A|} \sum_{i \in A} \phi(\xi_i), \qquad
        \xi_i = K \frac{\sum_{j \in N(i)} e^{\beta u_{ij}} e^{u_{ij}}}{\sum_{j \in N(i)} e^{\beta u_{ij}}}

    with :math:`u_{ij} = (d_i^2 - d_{ij}^2)/\tau` (plus a margin) the wrapped loss's exponent and K the number of
    negatives. The sum over negatives becomes K times their mean under weights that favour the hard ones, computed as
    :math:`\log \xi_i = \mathrm{lse}((1 + \beta) u_i) - \mathrm{lse}(\beta u_i) + \log K`. What an anchor adds to all
    its scores cancels in the weights, which are :math:`e^{\beta \cos_{ij}/\tau}` for unit vectors. The gradient goes
    through the weights, as in the authors' code. beta = 0 is the wrapped loss.

    Use it where most negatives are easy. A large ``beta`` also repels other samples of the anchor's own class.

    Source: robinson2021, section 3, with tau^+ = 0 (no correction for false negatives). With ``InfoNCE(tau)`` it is
        the authors' code at tau_plus = 0, whose lower clamp of the sum never acts on unit vectors.

    Args:
        loss: a pairwise loss with exponential psi: ``InfoNCE``, ``DCL``, ``MINE``, ``SoftTriplet``, ``NPlusOneTuplet``,
            ``LiftedStructured``, or ``PairLoss(phi, torch.exp)``.
        beta: concentration on hard negatives, >= 0; common values are 0.5 to 2.

    Raises:
        TypeError: another kind of loss.
        ValueError: beta < 0 or not finite.

    Has the invariances of the wrapped loss.

    >>> from counterpoint.losses.infonce import InfoNCE
    >>> z = torch.eye(2)  # all negatives are equally hard
    >>> inner = InfoNCE(temperature=1.0)
    >>> round(float(HardNegatives(inner, beta=2.0)(z, z)), 5) == round(float(inner(z, z)), 5)
    True
    """

    def __init__(self, loss: PairLoss, beta: float = 1.0) -> None:
        super().__init__()
        if not isinstance(loss, PairLoss) or not loss.psi.function.in_log_domain:
            name_or_type = loss.card.name if isinstance(loss, Loss) else type(loss).__name__
            raise TypeError(f"loss must be a pairwise loss with exponential psi, such as InfoNCE(), got {name_or_type}")
        check_weight(beta, "beta", hint="0 is the wrapped loss, 0.5 to 2 are common")
        self.loss, self.beta, self.pairing = loss, beta, loss.pairing
        self.card = replace(
            loss.card,
            name=f"HardNegatives({loss.card.name})",
            alpha="phi'(xi_i) d xi_i / d gap_ij, through the weights",
            negatives=f"{loss.card.negatives}; weights exp({beta:g} u_ij), of mean 1",
            source=f"{loss.card.source}; robinson2021, section 3",
        )

    def forward(self, z0: Tensor, z1: Tensor, labels: Tensor | None = None, *, part: Part | None = None) -> Tensor:
        """See ``Loss.forward``; labels are checked and not used."""
        # Both sums would be taken for nothing, and the wrapped loss may have a shortcut.
        if self.beta == 0:
            return self.loss(z0, z1, labels, part=part)
        z0, z1 = prepare_views(z0, z1, labels, normalize=self.loss.pairing.normalize)
        per_anchor_A = self.loss.phi_of(self._log_xi(z0, z1, part))
        num_parts = 1.0 if part is None else len(z0) / (part.last - part.first)
        return self.loss.reduced(per_anchor_A, num_parts).to(z0.dtype)

    def importance(self, z0: Tensor, z1: Tensor) -> Tensor:
        r"""Pairwise importance :math:`\alpha_{ij} = \phi'(\xi_i)\,\partial \xi_i/\partial(d_i^2 - d_{ij}^2)`, dense.

        With p the softmax over (1 + beta) u and q that over beta u it is proportional to (1 + beta) p - beta q, which
        is negative for the easiest negatives: coming closer, they would take weight from harder ones. The loss has the
        gradient of :math:`\frac{1}{|A|}\sum_{ij} \alpha_{ij} (d_i^2 - d_{ij}^2)` with alpha held fixed.
        """
        if self.beta == 0:
            return self.loss.importance(z0, z1)
        # (1 + beta) p - beta q, over tau: what log xi changes by with a gap.
        slopes_MM = self._log_sum(1 + self.beta).importance(z0, z1) - self._log_sum(self.beta).importance(z0, z1)
        z0, z1 = prepare_views(z0.detach(), z1.detach(), normalize=self.loss.pairing.normalize)
        # d phi / d log xi, which d log xi / d gap is multiplied with.
        phi_slope_A = derivative(self.loss.phi_of)(self._log_xi(z0, z1, None))
        slopes_MM[: len(phi_slope_A)] *= phi_slope_A[:, None]  # rows beyond the anchors are zero
        return slopes_MM

    def attention(self, z0: Tensor, z1: Tensor) -> Attention:
        r"""Entropy of each anchor's weights in the sum over negatives, in linear memory.

        Not that of ``importance``, which may be negative and is then no distribution: of the numerator's terms, the
        softmax of :math:`(1 + \beta) u_{ij}`. At beta = 0 the two are one.
        """
        return self._log_sum(1 + self.beta).attention(z0, z1)

    def chance(self, n: int) -> float:
        """Loss when all pairs look alike: weights are then equal, and it is that of the wrapped loss."""
        return self.loss.chance(n)

    def floor(self, n: int, *, nonnegative: bool = False) -> float:
        """A value that no embedding of n samples can go below: that of the wrapped loss.

        Weights rise with the exponential they weigh, so that by Chebyshev's sum inequality xi_i is at least the plain
        sum; phi increases.
        """
        return self.loss.floor(n, nonnegative=nonnegative)

    def class_level(self) -> LogOfSum:
        """See ``Loss.class_level``: the risk of collapsed classes, which is not convex.

        Weights rise with the exponential they weigh, so that by Chebyshev's sum inequality xi_i is at least the plain
        sum; phi increases. No encoder therefore does better than the wrapped loss's risk (Lemma 1 of imbalanced2026),
        which is the lower bound here; that collapsed classes are optimal is not proved.
        """
        plain = self.loss.class_level()
        if not isinstance(plain, LogOfSum):
            raise not_covered(self.card.name, "its sum is not inside a logarithm")
        return replace(plain, name=self.card.name, hardness=self.beta)

    def _log_xi(self, z0: Tensor, z1: Tensor, part: Part | None) -> Tensor:
        """lse((1 + beta) u) - lse(beta u) + log K for each anchor, first view before second."""
        # All is in the log domain: e^((1 + beta) u) alone may overflow.
        psis = (self._sharpened(factor) for factor in (1 + self.beta, self.beta))
        sharp_A, plain_A = (statistics(torch.cat([z0, z1]), self.loss.pairing, psi, part) for psi in psis)
        return sharp_A - plain_A + math.log(self.num_negatives(len(z0)))

    def _log_sum(self, factor: float) -> PairLoss:
        """The loss mean_i lse(factor * u_i), whose importance is factor / tau times a softmax."""
        # phi = log: phi'(xi) psi' is then a softmax times the scale.
        return PairLoss(log_plus(0.0), self._sharpened(factor), pairing=self.loss.pairing)

    def _sharpened(self, factor: float) -> Psi:
        """The wrapped loss's psi of factor * u."""
        psi = self.loss.psi
        return replace(psi, scale=factor * psi.scale, margin=factor * psi.margin)


class SparsityPenalty(Loss):
    r"""Another loss plus the mean l1 norm of the embeddings.

    .. math:: L = L_{\mathrm{inner}}(Z, Z') + \frac{\lambda}{2n} \sum_{z \in Z \cup Z'} |z|_1

    The mean is over both views. By default the l1 norm is that of the vectors at unit length, from 1 (one active
    feature) to sqrt(D) (all equally active): most losses do not see a vector's length, and a penalty on raw vectors
    would then only shrink them, with no zero gained.

    Use it where dimensions should be sparse and the loss alone leaves all of them active.

    Source: ncl2024, Eq. 14 (appendix D.2, with the spectral loss and lambda = 0.01). Eq. 14 takes vectors as they are:
        ``normalize=False``.

    Args:
        loss: the loss that is penalised; gets labels and part as they come.
        weight: lambda >= 0.
        normalize: take the l1 norm at unit length; zero vectors count 0. What the inner loss does is its own matter.

    Raises:
        TypeError: ``loss`` is not a Loss.
        ValueError: weight < 0 or not finite.

    Unchanged by permuting samples and swapping views where the inner loss is; not by rotation, which is its point. The
    penalty is a mean over samples: each process takes that of the whole batch, whatever its part.

    >>> from counterpoint.losses.spectral import SpectralContrastive
    >>> z = torch.tensor([[3.0, 4.0], [0.0, 0.0]])
    >>> inner = SpectralContrastive()
    >>> penalised = SparsityPenalty(inner, weight=10.0)
    >>> round(float(penalised(z, z) - inner(z, z)), 4)
    7.0
    """

    why_no_class_level = "its l1 norm depends on the axes, not on inner products alone"

    def __init__(self, loss: Loss, weight: float = 0.01, *, normalize: bool = True) -> None:
        super().__init__()
        if not isinstance(loss, Loss):
            raise TypeError(f"loss must be one of counterpoint.losses, got {type(loss).__name__}; build it first")
        check_weight(weight, "weight", hint="ncl2024 uses 0.01")
        self.loss = loss
        self.uses_labels, self.draws_by_step = loss.uses_labels, loss.draws_by_step
        self.weight = weight
        self.normalize = normalize
        norm = f"{weight:g} x mean l1 norm {'at unit length' if normalize else 'as they are'}"
        self.card = replace(
            loss.card,
            name=f"SparsityPenalty({loss.card.name})",
            normalization=f"{loss.card.normalization}; plus {norm}",
            source=f"{loss.card.source}; ncl2024, Eq. 14",
        )

    def forward(
        self, z0: Tensor, z1: Tensor, labels: Tensor | None = None, *, part: Part | None = None, **drawn: int
    ) -> Tensor:
        """The inner loss with its labels, part and step, plus the penalty on both views; see ``Loss.forward``."""
        check_views(z0, z1, labels)
        z0, z1 = lift(z0), lift(z1)  # once: two gradients of float8 vectors cannot be added
        # Eq. 14, of all vectors also for a part: the mean over parts has the penalty once.
        vectors = torch.cat(prepare_views(z0, z1, labels, normalize=self.normalize))
        return self.loss(z0, z1, labels, part=part, **drawn) + self.weight * vectors.abs().sum(dim=1).mean()

    def chance(self, n: int) -> float:
        """Least loss of non-zero vectors that are all alike: one active feature, whose l1 norm is 1 at unit length.

        Vectors as they are may be as short as one likes: then it is the inner loss's.
        """
        return self.loss.chance(n) + (self.weight if self.normalize else 0.0)

    def floor(self, n: int, *, nonnegative: bool = False) -> float:
        """The inner loss's floor: an l1 norm is at least 0, which zero vectors reach."""
        return self.loss.floor(n, nonnegative=nonnegative)


CATALOGUE: Mapping[str, type[Loss]] = {"hard-negatives": HardNegatives, "sparsity-penalty": SparsityPenalty}
