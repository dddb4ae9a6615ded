r"""How a loss spreads its attention: the entropy of each anchor's importance.

With :math:`p_{ij} = \alpha_{ij} / \sum_k \alpha_{ik}` over the negatives of anchor i,

.. math:: H_i = -\sum_j p_{ij} \log p_{ij}, \qquad \mathrm{effective\ negatives} = e^{H_i}

which is the number of negatives if all weigh alike and 1 if a single one takes all. The factor :math:`\phi'(\xi_i)`
cancels.
"""

# N samples, A anchors

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from counterpoint.core.numerics import row_entropy
from counterpoint.kernels.contract import PairFunction, PairScores, ScoreTerms
from counterpoint.kernels.differentiable import reduce


@dataclass(frozen=True)
class Attention:
    """Per anchor: first-view anchors, then second-view ones.

    Attributes:
        entropy_A: H_i in nats; NaN for an anchor all of whose pairs weigh nothing (a hinge that is satisfied).
        num_negatives: the number that ``effective_negatives_A`` can reach.
    """

    entropy_A: Tensor
    num_negatives: int

    @classmethod
    def of_importance(cls, alpha_AM: Tensor) -> "Attention":
        """That of weights that a loss has told, such as ``loss.importance(z0, z1)``; NaN for rows without weight.

        >>> attention = Attention.of_importance(torch.tensor([[0.0, 2.0, 2.0], [0.0, 0.0, 1.0]]))
        >>> attention.effective_negatives_A, attention.num_negatives
        (tensor([2., 1.]), 2)
        """
        entropy_A = row_entropy(alpha_AM / alpha_AM.sum(1, keepdim=True))
        return cls(torch.where(alpha_AM.any(1), entropy_A, torch.nan), int((alpha_AM > 0).sum(1).max()))

    @property
    def effective_negatives_A(self) -> Tensor:
        """exp(H_i)."""
        return self.entropy_A.exp()

    @property
    def mean_effective_negatives(self) -> float:
        """Mean over the anchors that attend to anything; NaN if none does."""
        return float(self.effective_negatives_A.nanmean())


@torch.no_grad()
def attention_of(blocks: Sequence[PairScores], psi: PairFunction, num_negatives: int) -> Attention:
    """Entropy per anchor, block by block, rows then columns.

    Args:
        blocks: the pair scores, in float64: entropy is a difference of larger numbers.
        psi: the elementwise function; weights are its slopes, which must not be negative.
        num_negatives: keys per anchor, the bound that rounding is kept within.
    """
    entropy_A = torch.cat([h_A for scores in blocks for h_A in _entropies(scores, psi)])
    return Attention(entropy_A.clamp(0.0, math.log(num_negatives)), num_negatives)


def _entropies(scores: PairScores, psi: PairFunction) -> list[Tensor]:
    if not psi.in_log_domain:
        total = reduce(scores, PairFunction(f"slope of {psi.name}", psi.slope, psi.curvature, torch.zeros_like))

        def x_log_x(u: Tensor) -> Tensor:
            slope = psi.slope(u)
            return torch.special.xlogy(slope, slope)

        spread = reduce(scores, PairFunction(f"x log x of {psi.name}", x_log_x, torch.zeros_like, torch.zeros_like))
        return [
            torch.where(weight > 0, torch.log(weight) - added / weight, torch.nan)
            for weight, added in zip(total.both(), spread.both(), strict=True)
        ]
    # Log-sum-exp minus mean score, r - sum_j p_j u_j; the mean is the derivative of r(t u) at t = 1.
    anchors_ND, keys_MD, *added = scores.terms.flat()
    assert anchors_ND is not None

    def log_sums(factor: Tensor) -> tuple[Tensor, ...]:
        scaled = (None if term is None else term * factor for term in added)
        return tuple(reduce(replace(scores, terms=ScoreTerms(anchors_ND, keys_MD, *scaled)), psi).both())  # pyright: ignore[reportArgumentType]

    one = torch.ones((), dtype=anchors_ND.dtype, device=anchors_ND.device)
    values, means, *_ = torch.func.jvp(log_sums, (one,), (one,))
    return [value - mean for value, mean in zip(values, means, strict=True)]
