r"""Losses that judge every pair separately: is it a positive, yes or no?

With s the scaled similarity of a pair, :math:`-\log \sigma(s) = \log(1 + e^{-s})` is what a positive costs and
:math:`-\log(1 - \sigma(s)) = \log(1 + e^s)` what a negative costs. phi is linear, so that every pair's weight is known
before any other pair is seen: loss and gradient take one pass over the pairs.
"""

# N samples per view, A anchors, M = 2N keys, D features

import math
from collections.abc import Callable, Mapping

import torch
import torch.nn.functional as F
from torch import Tensor

from counterpoint.core.errors import NonFiniteError
from counterpoint.core.numerics import row_dots
from counterpoint.kernels import dense
from counterpoint.kernels.contract import (
    EXPONENTIAL,
    SOFTPLUS,
    Elementwise,
    PairFunction,
    PairMask,
    PairScores,
    ScoreTerms,
)
from counterpoint.kernels.cpu.one_operation import reduce_total
from counterpoint.kernels.differentiable import reduce
from counterpoint.losses.class_level import ClassLevel, Separable, not_covered
from counterpoint.losses.inputs import check_temperature, prepare_views, require
from counterpoint.losses.loss import LossCard, Part, shown_by_call
from counterpoint.losses.pairs import ContrastiveLoss, Pairing, own_sample


class BinaryContrast(ContrastiveLoss):
    r"""Binary contrastive loss: positives and negatives each by their own function of the scaled similarity.

    .. math:: L = \frac{1}{T_P} \sum_{n} p(C_{nn'}/\tau) + \frac{1}{T_N} \sum_{n} \sum_{m \ne n, n'} q(C_{nm}/\tau)

    Sums are over all 2N vectors; n' is the other view of n, which is not a negative of n. There are T_P = 2N positives
    and T_N = 2N(2N - 2) negatives.

    Args:
        name: name of the version of MIO: ``MIOv1``, ``MIOv2`` or ``MIOv3``.
        attract: p, convex and decreasing, and its formula.
        repel: q, convex and increasing: the exponential or softplus.
        temperature: tau > 0.
        normalize: whether C is the cosine; False makes it the dot product.

    Raises:
        ValueError: temperature <= 0 or not finite.
    """

    def __init__(
        self, name: str, attract: tuple[Elementwise, str], repel: PairFunction, *, temperature: float, normalize: bool
    ) -> None:
        super().__init__()
        check_temperature(temperature)
        (self.attract, formula), self.repel = attract, repel
        self.temperature, self.normalize = temperature, normalize
        self.pairing, is_exponential = Pairing(), repel.in_log_domain
        self.card = LossCard(
            name=name,
            phi=f"x / (2n - 2); the positive adds {formula}",
            psi="exp(C / tau)" if is_exponential else "log(1 + exp(C / tau))",
            alpha=f"{'exp' if is_exponential else 'sigmoid'}(C_ij / tau) / ((2n - 2) tau)",
            negatives=self.pairing.explain(),
            normalization=f"{'unit vectors' if normalize else 'vectors as they are'}; mean over positives + over "
            "negatives",
            source="mio2021, " + {"MIOv1": "Eq. 4", "MIOv2": "Eq. 12", "MIOv3": "Eq. 18"}[name],
            fused="CPU, CUDA",
        )

    def forward(self, z0: Tensor, z1: Tensor, labels: Tensor | None = None, *, part: Part | None = None) -> Tensor:
        """See ``Loss.forward``; labels are checked and not used.

        Raises:
            NonFiniteError: ``MIOv3`` only: its exponential, or that of its gradient, leaves the range of the dtype.
        """
        z0, z1 = prepare_views(z0, z1, labels, normalize=self.normalize)
        own = slice(0, len(z0)) if part is None else slice(part.first, part.last)
        # C is symmetric: the mean over first-view vectors is that over all T_P = 2N.
        positive_A = row_dots(z0[own], z1[own]) / self.temperature
        # Eq. 4, 12 or 18, by the choice of p and q.
        return self.attract(positive_A).mean() + self._mean_over_negatives(self._scores(z0, z1, part), len(z0))

    def importance(self, z0: Tensor, z1: Tensor) -> Tensor:
        r"""Weight of each negative, :math:`\alpha_{nm} = q'(C_{nm}/\tau) / ((2N-2)\tau)`, dense.

        The loss has the gradient of :math:`\frac{1}{2N} \sum_n \big(\sum_m \alpha_{nm} C_{nm} - \beta_n C_{nn'}\big)`
        with alpha and the positives' own weight :math:`\beta_n = -p'(C_{nn'}/\tau)/\tau` held fixed.
        """
        z0, z1 = prepare_views(z0.detach(), z1.detach(), normalize=self.normalize)
        u_MM = dense.row_scores(self._scores(z0, z1, None))
        is_out_MM = u_MM == -math.inf
        # Slopes are asked for at finite scores only: of minus infinity they may be NaN.
        slope_MM = self.repel.slope(u_MM.masked_fill(is_out_MM, 0.0)).masked_fill(is_out_MM, 0.0)
        return slope_MM / (self.num_negatives(len(z0)) * self.temperature)

    def chance(self, n: int) -> float:
        """Loss when all vectors look alike: p(1/tau) + q(1/tau); of vectors as they are, when all are zero."""
        self.num_negatives(n)
        logit = 1.0 / self.temperature if self.normalize else 0.0
        return self._at(logit, logit)

    def floor(self, n: int, *, nonnegative: bool = False) -> float:
        r"""A value that no embedding of n samples can go below: p(1/tau) + q(-1/((n-1) tau)) for unit vectors.

        The sum of all 2n vectors has a length >= 0, so with c the mean cosine of the positives that of the negatives is
        at least -(1+c)/(2n-2). Jensen's inequality puts both means into p and q; either then falls as c grows to 1. A
        simplex with equal views attains it. Non-negative vectors have no cosine below 0: p(1/tau) + q(0), attained by
        an orthonormal basis. Dot products have no bounds: p(infinity) + q(-infinity), or q(0) where non-negative.
        """
        self.num_negatives(n)
        # Dot products are unbounded: the limits of p and q. MIOv2 and v3 then have no floor.
        highest = 1.0 / self.temperature if self.normalize else math.inf
        return self._at(highest, 0.0 if nonnegative else -highest / (n - 1))

    def class_level(self) -> ClassLevel:
        """See ``Loss.class_level``.

        p is decreasing, so that positives cost at least p(1/tau): no cosine exceeds 1. q is convex: given the classes,
        Jensen's inequality puts the product of two class means into it. Lemma 1 of imbalanced2026 then holds pair by
        pair, but unit class means need not be best: where negatives may share the anchor's class, shorter ones repel
        themselves less (``own_slope_C`` of the risk is then positive).
        """
        if not self.normalize:
            raise not_covered(self.card.name, "its vectors have no fixed length (normalize=False)")
        # p is any elementwise function, and the caller may have switched derivatives off.
        with torch.enable_grad():
            best = torch.tensor(1.0 / self.temperature, dtype=torch.float64, requires_grad=True)
            (slope,) = torch.autograd.grad(self.attract(best), best)
        return Separable(
            self.card.name,
            self.repel,
            1.0 / self.temperature,
            attract=float(self.attract(best.detach())),
            attract_slope=float(slope) / self.temperature,
            is_mean=True,
        )

    def _scores(self, z0: Tensor, z1: Tensor, part: Part | None) -> PairScores:
        """All 2n vectors, or those of a part, against the vectors of other samples."""
        keys_MD = torch.cat([z0, z1])
        both_M2 = own_sample(len(z0), 2, z0.device)  # the keys m = n, n' that the sums leave out
        scale = z0.new_full((), 1.0 / self.temperature)
        if part is None:
            return PairScores(ScoreTerms(keys_MD, None, scale), PairMask(both_M2))
        own = slice(part.first, part.last)
        anchors_AD = torch.cat([z0[own], z1[own]])
        return PairScores(ScoreTerms(anchors_AD, keys_MD, scale), PairMask(both_M2[own].repeat(2, 1)))

    def _mean_over_negatives(self, scores: PairScores, n: int) -> Tensor:
        # T_N = 2N (2N - 2), or the part's share of it.
        num_pairs = len(scores.terms.anchors_ND) * self.num_negatives(n)
        if not self.repel.in_log_domain:
            return reduce_total(scores, self.repel, 1.0 / num_pairs)
        # Eq. 18: a sum of 4N^2 exponentials may leave the dtype where their mean does not.
        log_mean = torch.logsumexp(reduce(scores, self.repel).rows_N, 0) - math.log(num_pairs)
        # The mean of exponentials, and that over tau as in the gradient, must be finite numbers.
        limit = math.log(torch.finfo(log_mean.dtype).max) - max(0.0, -math.log(self.temperature))

        def complain() -> None:
            raise NonFiniteError(
                f"mean of exp(C / temperature) must stay below e^{limit:.4g} in {log_mean.dtype}, got "
                f"e^{float(log_mean.detach()):.4g}; raise the temperature ({self.temperature:g}), normalise the "
                "vectors, or use float64"
            )

        # A NaN is named elsewhere.
        require(~(log_mean.detach() > limit), complain, "mean of exp(C / temperature) is too large for its dtype")
        return log_mean.exp()

    def _at(self, positive: float, negative: float) -> float:
        """Loss when all positives have one logit and all negatives another."""
        p, q = (torch.tensor(logit, dtype=torch.float64) for logit in (positive, negative))
        return float(self.attract(p)) + float(self.repel.value(q))


@shown_by_call
def MIOv1(temperature: float = 0.2, normalize: bool = True) -> BinaryContrast:
    r"""MIO, version 1: binary cross-entropy of "is this pair a positive?", positives and negatives with equal weight.

    .. math:: L = \frac{1}{2N} \sum_{n=1}^{2N} \ln(1 + e^{-C_{nn'}/\tau})
        + \frac{1}{2N(2N-2)} \sum_{n=1}^{2N} \sum_{m \ne n, n'} \ln(1 + e^{C_{nm}/\tau})

    N samples, 2N vectors; n' is the other view of n; C is the cosine. The positive is not a negative of its anchor.

    Use it beside version 3, to see what each of the paper's two steps changes.

    Source: mio2021, Eq. 2, 4 and 11. Differs from Eq. 3 as printed, whose first exponent lacks its minus sign. The
        sum over n up to N with 1/N is written over all 2N vectors with 1/(2N): the same, as C is symmetric.

    Args:
        temperature: tau > 0; the paper uses 0.2, its released code 0.5.
        normalize: scale the inputs to unit length first. False takes dot products, for which alone the paper's
            formulas of gradient and Hessian hold.

    Raises:
        ValueError: temperature <= 0 or not finite.

    Unchanged by permuting samples, swapping views and rotating all vectors.

    >>> z = torch.eye(2)
    >>> round(float(MIOv1(1.0)(z, z)), 6) == round(math.log(1 + 1 / math.e) + math.log(2), 6)
    True
    """
    attract = _softplus_of_minus, "log(1 + exp(-C / tau))"
    return BinaryContrast("MIOv1", attract, SOFTPLUS, temperature=temperature, normalize=normalize)


@shown_by_call
def MIOv2(temperature: float = 0.2, normalize: bool = True) -> BinaryContrast:
    r"""MIO, version 2: version 1 without the repelling term of positives.

    .. math:: L = -\frac{1}{2N} \sum_{n=1}^{2N} \frac{C_{nn'}}{\tau}
        + \frac{1}{2N(2N-2)} \sum_{n=1}^{2N} \sum_{m \ne n, n'} \ln(1 + e^{C_{nm}/\tau})

    Use it beside version 3, to see what the bound by an exponential changes.

    Source: mio2021, Eq. 12 and 13.

    Args:
        temperature: tau > 0; the paper uses 0.2.
        normalize: scale the inputs to unit length first; False takes dot products, and then nothing bounds the loss.

    Raises:
        ValueError: temperature <= 0 or not finite.

    Unchanged by permuting samples, swapping views and rotating all vectors.

    >>> z = torch.eye(2)
    >>> round(float(MIOv2(1.0)(z, z)), 6) == round(-1 + math.log(2), 6)
    True
    """
    # Eq. 11: log(1 + e^-s) = -s + log(1 + e^s). The second term, by which positives repel, is dropped.
    return BinaryContrast("MIOv2", (torch.neg, "-C / tau"), SOFTPLUS, temperature=temperature, normalize=normalize)


@shown_by_call
def MIOv3(temperature: float = 0.2, normalize: bool = True) -> BinaryContrast:
    r"""MIO, version 3, the paper's proposal: negatives cost an exponential.

    .. math:: L = -\frac{1}{2N} \sum_{n=1}^{2N} \frac{C_{nn'}}{\tau}
        + \frac{1}{2N(2N-2)} \sum_{n=1}^{2N} \sum_{m \ne n, n'} e^{C_{nm}/\tau}

    An upper bound of version 2, as ln(1 + x) <= x, that nowhere touches it: no surrogate in the sense of
    majorise-minimise, as the paper has it. The mean of exponentials is taken in the log domain, so that it is exact
    wherever it is a number of the dtype at all; equal unit vectors leave float32 below a temperature of about 0.012.

    Use it where each pair should count separately from the other pairs of its anchor (method ``mio``).

    Source: mio2021, Eq. 17 (whose last line lacks 1/T_P and 1/T_N) and 18.

    Args:
        temperature: tau > 0; the paper uses 0.2.
        normalize: scale the inputs to unit length first; False takes dot products, and then nothing bounds the loss.

    Raises:
        ValueError: temperature <= 0 or not finite; on use, a loss or gradient beyond the range of the dtype.

    Unchanged by permuting samples, swapping views and rotating all vectors.

    >>> z = torch.eye(2)
    >>> float(MIOv3(1.0)(z, z))
    0.0
    """
    return BinaryContrast("MIOv3", (torch.neg, "-C / tau"), EXPONENTIAL, temperature=temperature, normalize=normalize)


def _softplus_of_minus(s: Tensor) -> Tensor:
    return -F.logsigmoid(s)


CATALOGUE: Mapping[str, Callable[..., BinaryContrast]] = {
    "mio-v1": MIOv1,
    "mio-v2": MIOv2,
    "mio-v3": MIOv3,
}
