"""CLIP's loss between two kinds of data, such as pictures and their captions, and the scale that it learns."""

# N samples, A own anchors, D features

import math
from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from counterpoint.core.checks import check_positive
from counterpoint.core.numerics import unit_rows
from counterpoint.kernels import dense
from counterpoint.kernels.contract import EXPONENTIAL, PairMask, PairScores, ScoreTerms
from counterpoint.losses.class_level import LogOfSum, not_covered
from counterpoint.losses.inputs import check_temperature, prepare_views
from counterpoint.losses.loss import LossCard, Part
from counterpoint.losses.pair_loss import block_statistics
from counterpoint.losses.pairs import ContrastiveLoss, Pairing


class CrossModal(ContrastiveLoss):
    r"""CLIP's loss: find the right text for each image, and the right image for each text.

    .. math:: L = \frac{1}{2n} \sum_i \Big[ \log\Big(1 + \sum_{j \ne i} e^{s(\langle x_i, y_j\rangle - \langle x_i,
        y_i\rangle)}\Big) + \log\Big(1 + \sum_{j \ne i} e^{s(\langle x_j, y_i\rangle - \langle x_i, y_i\rangle)}\Big)
        \Big]

    z0 holds x (images), z1 holds y (texts). Each bracket is the cross-entropy of picking the partner among all n, the
    positive being in the denominator; the mean is over the 2n anchors. s is 1 / temperature, learned as the parameter
    ``scale.log``. Equal to open_clip's ``ClipLoss`` on normalised features with ``logit_scale`` s.

    A learned s may grow without bound on data that can be told apart; ``scale.limit_()`` after each step of the
    optimiser brings it back to ``max_scale``, as CLIP does.

    Use it for paired data of two kinds, such as pictures with caption vectors (method ``cross-modal``).

    Source: radford2021, section 2.3 and Fig. 3; ncl2024, appendix C, Eq. 12 for the non-negative features.

    Args:
        temperature: first value of 1 / s, > 0.
        learnable_temperature: whether s is a parameter; False holds it fixed.
        max_scale: largest s that ``scale.limit_()`` leaves.
        nonnegative: apply a ReLU to the inputs first (a silent sample is then similar to none).
        normalize: scale the inputs (after the ReLU) to unit length first.

    Raises:
        ValueError: temperature <= 0 or not finite, or a learnable one below 1 / max_scale.

    Unchanged by permuting samples, swapping views and, except for the ReLU, by rotating all vectors.

    >>> z = torch.eye(2)
    >>> round(float(CrossModal(temperature=1.0)(z, z).detach()), 6) == round(math.log(1 + 1 / math.e), 6)
    True
    """

    def __init__(
        self,
        temperature: float = 0.07,
        learnable_temperature: bool = True,
        max_scale: float = 100.0,
        nonnegative: bool = False,
        *,
        normalize: bool = True,
    ) -> None:
        super().__init__()
        check_temperature(temperature)
        self.pairing = Pairing("cross-view")
        self.scale = LogitScale(1.0 / temperature, is_learned=learnable_temperature, most=max_scale)
        self.nonnegative, self.normalize = nonnegative, normalize
        self.card = LossCard(
            name="CrossModal",
            phi="log(1 + x)",
            psi="exp(s x), s learned" if self.scale.log is not None else f"exp({self.scale.start:g} x)",
            alpha="s exp(s gap_ij) / (1 + xi_i)",
            negatives="the other kind's vector of every other sample; anchors are all 2n vectors",
            normalization=f"{'ReLU, ' if nonnegative else ''}{'unit vectors' if normalize else 'vectors as they are'}; "
            "mean over anchors",
            source="radford2021, section 2.3 and Fig. 3",
            fused="CPU, CUDA",
        )

    def forward(self, z0: Tensor, z1: Tensor, labels: Tensor | None = None, *, part: Part | None = None) -> Tensor:
        """See ``Loss.forward``; labels are checked and not used."""
        z0, z1 = self._prepared(z0, z1, labels)
        own = slice(0, len(z0)) if part is None else slice(part.first, part.last)
        # Each product is read twice: images pick texts along the rows, texts pick images along the columns.
        statistics = block_statistics(_scores(z0, z1, self.scale(z0), own), EXPONENTIAL, part)
        # log(1 + e^x) = -logsigmoid(-x), exact in both tails
        return -F.logsigmoid(-torch.cat(statistics)).mean()

    def importance(self, z0: Tensor, z1: Tensor) -> Tensor:
        r"""Pairwise importance :math:`\alpha_{ij} = s\,p_{ij}`, p_ij the probability that i picks j, dense.

        The loss has the gradient of :math:`\frac{1}{2n} \sum_{ij} \alpha_{ij} (\langle z_i, z_j\rangle -
        \langle z_i, z_i'\rangle)` with alpha held fixed.
        """
        z0, z1 = self._prepared(z0.detach(), z1.detach(), None)
        n = len(z0)
        alpha = z0.new_zeros(2 * n, 2 * n)
        with torch.no_grad():
            scale = self.scale(z0)
            # Two readings of the same scores; the second is that of the transposed matrix.
            alpha[:n, n:] = _picked(_scores(z0, z1, scale, slice(0, n)))
            alpha[n:, :n] = _picked(_scores(z1, z0, scale, slice(0, n)))
        return alpha

    def chance(self, n: int) -> float:
        """Loss when all pairs look alike: log n."""
        return math.log(1 + self.num_negatives(n))

    def floor(self, n: int, *, nonnegative: bool = False) -> float:
        r"""A value that no embedding of n samples can go below at the present scale.

        Jensen's inequality puts the mean gap g into :math:`L \ge \log(1 + (n-1) e^{s g})`, and for unit vectors g is at
        least -n/(n-1), reached when the samples form a simplex and both views agree (non-negative: -1, an orthonormal
        basis). Vectors of any length have no least gap: 0.
        """
        num_negatives = self.num_negatives(n)
        if not self.normalize:
            return 0.0
        gap = self.pairing.least_mean_gap(n, nonnegative=nonnegative or self.nonnegative)
        return math.log1p(num_negatives * math.exp(self.scale.value * gap))

    def class_level(self) -> LogOfSum:
        """See ``Loss.class_level``; at the present scale, for encoders that give both kinds one representation.

        Their class means are then shared, and each direction is InfoNCE over the other kind: Lemma 1 of imbalanced2026
        holds for both. Encoders whose class means differ between the kinds are not covered by the bound.
        """
        if not self.normalize:
            raise not_covered(self.card.name, "its vectors have no fixed length (normalize=False)")
        if self.nonnegative:
            raise not_covered(self.card.name, "its ReLU allows no negative entry; use nonnegative=False")
        return LogOfSum(self.card.name, scale=self.scale.value)

    def _prepared(self, z0: Tensor, z1: Tensor, labels: Tensor | None) -> tuple[Tensor, Tensor]:
        """Check vectors, and make them non-negative and of unit length if asked for."""
        if not self.nonnegative:
            return prepare_views(z0, z1, labels, normalize=self.normalize)
        # ReLU first: after scaling it would leave vectors shorter than 1.
        z0, z1 = (torch.relu(z) for z in prepare_views(z0, z1, labels, normalize=False))
        return (unit_rows(z0), unit_rows(z1)) if self.normalize else (z0, z1)


def _scores(x_ND: Tensor, y_ND: Tensor, scale: Tensor, own: slice) -> PairScores:
    """Similarities less that of the anchor's own pair: own x along the rows, all y along the columns."""
    # The gap form: the positive is 0 in every row and column, and is the 1 in log(1 + x).
    minus_own_N = -scale * (x_ND * y_ND).sum(1)
    own_A1 = torch.arange(len(x_ND), device=x_ND.device)[own, None]  # the positive's column
    terms = ScoreTerms(x_ND[own], y_ND, scale, row_own_N=minus_own_N[own], column_own_M=minus_own_N)
    return PairScores(terms, PairMask(own_A1), is_two_way=True)


def _picked(scores: PairScores) -> Tensor:
    """Scale times the probability that each row's anchor picks each negative rather than its positive, (n, n)."""
    u_NM = dense.row_scores(scores)
    with_positive = torch.cat([u_NM.new_zeros(len(u_NM), 1), u_NM], dim=1)  # the positive's gap to itself is 0
    return scores.terms.scale * torch.softmax(with_positive, dim=1)[:, 1:]


class LogitScale(nn.Module):
    """A positive factor.

    Learned, it is exp of the parameter ``log``, a scalar of torch's default dtype. It has no bound of its own: an
    optimiser may overshoot, so call ``limit_`` after each step, as open_clip does (which also keeps the factor above
    1; that matters only where it starts below).

    Args:
        start: first value, > 0 and finite.
        is_learned: whether ``log`` is a parameter or None.
        most: largest value that ``limit_`` leaves to a learned factor, at least ``start``.

    Raises:
        ValueError: a start <= 0 or not finite, or a most below the start.

    >>> scale = LogitScale(10.0, is_learned=True, most=100.0)
    >>> _ = scale.log.data.fill_(9.0)
    >>> scale.limit_()
    >>> round(scale.value, 3)
    100.0
    """

    log: nn.Parameter | None

    def __init__(self, start: float, *, is_learned: bool, most: float = math.inf) -> None:
        super().__init__()
        check_positive(start, "scale", hint="it is 1 / temperature")
        if is_learned and not most >= start:
            raise ValueError(
                f"max_scale must be >= the first scale, 1 / temperature = {start:g}, got {most}; CLIP uses 100"
            )
        self.start, self.most = start, most
        # The logarithm is what is learned: steps are relative, and the factor stays positive.
        self.log = nn.Parameter(torch.tensor(math.log(start))) if is_learned else None

    def forward(self, like: Tensor) -> Tensor:
        """The factor as a scalar tensor of another tensor's dtype."""
        return like.new_full((), self.start) if self.log is None else self.log.to(like.dtype).exp()

    @property
    def value(self) -> float:
        """The present factor."""
        return self.start if self.log is None else math.exp(float(self.log.detach()))

    @torch.no_grad()
    def limit_(self) -> None:
        """Bring a learned factor back to at most ``most``."""
        if self.log is not None:
            self.log.clamp_(max=math.log(self.most))


CATALOGUE: Mapping[str, type[CrossModal]] = {"cross-modal": CrossModal}
