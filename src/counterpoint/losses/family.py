r"""Pairwise losses of the form sum_i phi(sum_j psi(d_i^2 - d_ij^2)), after alphacl2022, Eq. 1.

With :math:`d_i^2 = |z_i - z_i'|^2/2` between an anchor and its positive and :math:`d_{ij}^2 = |z_i - z_j|^2/2` to a
negative,
every member has the gradient of :math:`\sum_{ij} \alpha_{ij} (d_i^2 - d_{ij}^2)` with the pairwise importance
:math:`\alpha_{ij} = \phi'(\xi_i)\,\psi'(d_i^2 - d_{ij}^2)` held fixed (Theorem 1).
"""

# N samples per view, A anchors, M keys, D features

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn

from counterpoint.core.checks import check_choice, check_features, check_labels, check_positive
from counterpoint.core.numerics import unit_rows
from counterpoint.kernels import dense
from counterpoint.kernels.contract import PairScores
from counterpoint.kernels.differentiable import row_logsumexp

Negatives = Literal["two-view", "cross-view", "same-view"]
NEGATIVES: Mapping[str, str] = {
    "two-view": "both views of every other sample",
    "cross-view": "the other view of every other sample",
    "same-view": "the same view of every other sample",
}


class InfoNCE(nn.Module):
    r"""InfoNCE; with the defaults it is NT-Xent (SimCLR), with ``epsilon=0`` it is DCL.

    .. math:: L = \frac{1}{2n} \sum_{i=1}^{2n} \log\Big(\epsilon + \sum_{j \in N(i)} e^{(d_i^2 - d_{ij}^2)/\tau}\Big)

    All 2n vectors are anchors; the mean is over anchors. For unit vectors the exponent is
    :math:`(\cos_{ij} - \cos_{ii'})/\tau`, so that at epsilon = 1 each term is the cross-entropy of picking the
    positive.

    Source: alphacl2022, Eq. 1 and table of Fig. 1 (phi = tau log(eps + x), psi = exp(x / tau)). Differs from the
        paper: no
    factor tau in front (as in the released code and in NT-Xent); the positive belongs in the denominator
    (eps = 1) for SimCLR, where the text after Eq. 2 says eps = 0.

    Args:
        temperature: tau > 0.
        epsilon: weight of the positive pair in the denominator, >= 0.
        negatives: which vectors repel an anchor: ``two-view`` (2n - 2: both views of the others), ``cross-view`` (n -
            1: the
            other view of the others, as DirectCLR and CLIP) or ``same-view`` (n - 1, as in alphacl2022).
        normalize: scale the inputs to unit length first; False takes the vectors as they are (as the papers' linear
            models do).

    Raises:
        ValueError: temperature <= 0, epsilon < 0, or an unknown kind of negatives.

    Unchanged by permuting samples, swapping views and rotating all vectors.

    >>> z = torch.eye(2)
    >>> round(float(InfoNCE(temperature=1.0)(z, z)), 6) == round(math.log(1 + 2 / math.e), 6)
    True
    """

    def __init__(
        self, temperature: float = 0.5, epsilon: float = 1.0, negatives: Negatives = "two-view", normalize: bool = True
    ) -> None:
        super().__init__()
        check_positive(temperature, "temperature", hint="common values are 0.1 to 0.5")
        check_choice(negatives, "negatives", NEGATIVES)
        if not 0 <= epsilon < math.inf:
            raise ValueError(f"epsilon must be >= 0, got {epsilon}; 1 is NT-Xent, 0 is DCL")
        self.temperature = temperature
        self.epsilon = epsilon
        self.negatives: Negatives = negatives
        self.normalize = normalize

    def forward(self, z0: Tensor, z1: Tensor, labels: Tensor | None = None) -> Tensor:
        """Mean loss over the 2n anchors.

        Args:
            z0: embeddings of the first view, shape (n, d), n >= 2.
            z1: embeddings of the second view, same shape and order of samples.
            labels: accepted so that all losses are called alike; InfoNCE does not use them.

        Returns:
            Scalar tensor; float32 for half-precision inputs.

        Raises:
            TypeError: inputs are not floating point.
            ValueError: shapes differ, n < 2, or a row is not finite (named).
        """
        if labels is not None:
            check_labels(labels, len(z0))
        per_anchor = [self._denominator(block) for block in self._blocks(z0, z1)]
        return torch.cat(per_anchor).mean()

    def importance(self, z0: Tensor, z1: Tensor) -> Tensor:
        r"""Pairwise importance :math:`\alpha_{ij} = e^{u_{ij}} / (\epsilon + \sum_k e^{u_{ik}}) / \tau`, dense.

        The loss has the gradient of :math:`\frac{1}{2n}\sum_{ij} \alpha_{ij} (d_i^2 - d_{ij}^2)` with alpha held fixed.

        Returns:
            Tensor (2n, 2n): rows are anchors and columns are vectors, first view before second; zero where j does not
            repel i.
        """
        blocks = list(self._blocks(z0, z1))
        num_anchors = sum(len(block.anchor_rows) for block in blocks)
        alpha = blocks[0].scores.anchors_ND.new_zeros(num_anchors, num_anchors)
        for block in blocks:
            weight_AM = torch.exp(dense.score_matrix(block.scores) - self._denominator(block)[:, None])
            rows, columns = torch.meshgrid(block.anchor_rows, block.key_rows, indexing="ij")
            alpha[rows, columns] = weight_AM / self.temperature
        return alpha

    def num_negatives(self, n: int) -> int:
        """Number of vectors that repel each anchor in a batch of n samples, n >= 2."""
        if n < 2:
            raise ValueError(f"a contrastive loss needs at least 2 samples, got {n}")
        return 2 * (n - 1) if self.negatives == "two-view" else n - 1

    def chance(self, n: int) -> float:
        """Loss when all pairs look alike (nothing learned, or full collapse): log(epsilon + negatives)."""
        return math.log(self.epsilon + self.num_negatives(n))

    def floor(self, n: int, *, nonnegative: bool = False) -> float:
        r"""A value that no embedding of n samples can go below.

        For unit vectors the mean gap over negatives is at least -n/(n-1), reached when the samples form a simplex
        and both views agree; for non-negative unit vectors cosines are >= 0 and it is at least -1. By
        Jensen's inequality :math:`L \ge \log(\epsilon + K e^{-g/\tau})` with K negatives. Attained if the
        dimension is at least n - 1 (non-negative: n).

        Args:
            n: samples per batch, >= 2.
            nonnegative: the embedding has no negative entries.
        """
        num_negatives = self.num_negatives(n)
        if not self.normalize:
            return self._log_epsilon
        gap = 1.0 if nonnegative else n / (n - 1)
        return float(np.logaddexp(math.log(num_negatives) - gap / self.temperature, self._log_epsilon))

    @property
    def _log_epsilon(self) -> float:
        return math.log(self.epsilon) if self.epsilon > 0 else -math.inf

    def _denominator(self, block: "_Block") -> Tensor:
        """Per-anchor log(epsilon + sum_j exp(u_ij)), shape (a,)."""
        lse_A = row_logsumexp(block.scores, dense)
        return lse_A if self.epsilon == 0 else torch.logaddexp(lse_A, lse_A.new_tensor(self._log_epsilon))

    def _blocks(self, z0: Tensor, z1: Tensor) -> Iterator["_Block"]:
        """Yield the blocks of anchors and keys; together their anchors are all 2n vectors."""
        z0, z1 = self._prepare(z0, z1)
        num_samples = len(z0)
        first = torch.arange(num_samples, device=z0.device)
        second = first + num_samples
        if self.negatives == "two-view":
            both, partner = torch.cat([first, second]), torch.cat([second, first])
            z_all, positives = torch.cat([z0, z1]), torch.cat([z1, z0])
            excluded = torch.stack([both, partner], dim=1)
            yield _Block(self._scores(z_all, positives, z_all, excluded), both, both)
            return
        is_cross = self.negatives == "cross-view"
        for anchors, others, rows, other_rows in ((z0, z1, first, second), (z1, z0, second, first)):
            keys, key_rows = (others, other_rows) if is_cross else (anchors, rows)
            yield _Block(self._scores(anchors, others, keys, first[:, None]), rows, key_rows)

    def _scores(self, anchors_AD: Tensor, positives_AD: Tensor, keys_MD: Tensor, excluded_AE: Tensor) -> PairScores:
        """The gap (d_i^2 - d_ij^2) / tau without subtracting distances (see ``kernels.contract``)."""
        own_A = 0.5 * positives_AD.square().sum(1) - (anchors_AD * positives_AD).sum(1)
        key_M = -0.5 * keys_MD.square().sum(1)
        scale = 1.0 / self.temperature
        return PairScores(anchors_AD, keys_MD, scale, scale * own_A, scale * key_M, excluded_AE)

    def _prepare(self, z0: Tensor, z1: Tensor) -> tuple[Tensor, Tensor]:
        """Check both views, lift half precision to float32, normalise."""
        check_features(z0, "z0")
        check_features(z1, "z1")
        if z0.shape != z1.shape:
            raise ValueError(f"z0 and z1 must have the same shape, got {tuple(z0.shape)} and {tuple(z1.shape)}")
        z0, z1 = z0.to(_working_dtype(z0)), z1.to(_working_dtype(z1))
        return (unit_rows(z0), unit_rows(z1)) if self.normalize else (z0, z1)


@dataclass(frozen=True)
class _Block:
    """Scores of some anchors against some keys, and where both stand among the 2n vectors."""

    scores: PairScores
    anchor_rows: Tensor
    key_rows: Tensor


def _working_dtype(z: Tensor) -> torch.dtype:
    """Losses are computed in float32 at least."""
    return torch.float64 if z.dtype == torch.float64 else torch.float32


CATALOGUE: Mapping[str, type[InfoNCE]] = {"infonce": InfoNCE}
