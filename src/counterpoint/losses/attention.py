r"""How a loss spreads its attention: the entropy of each anchor's importance, without storing a pair.

With :math:`p_{ij} = \alpha_{ij} / \sum_k \alpha_{ik}` over the negatives of anchor i,

.. math:: H_i = -\sum_j p_{ij} \log p_{ij}, \qquad \mathrm{effective\ negatives} = e^{H_i}

which is the number of negatives if all weigh alike and 1 if a single one takes all. The factor :math:`\phi'(\xi_i)`
cancels.
"""

# N samples, A anchors

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from counterpoint.kernels.contract import PairFunction, PairScores, ScoreTerms
from counterpoint.kernels.differentiable import reduce


@dataclass(frozen=True)
class Attention:
    """Per anchor: first-view anchors, then second-view ones.

    Attributes:
        entropy_A: H_i in nats; NaN for an anchor all of whose pairs weigh nothing (a hinge that is satisfied).
        effective_negatives_A: exp(H_i).
        num_negatives: the number they can reach.
    """

    entropy_A: Tensor
    effective_negatives_A: Tensor
    num_negatives: int

    @property
    def mean_effective_negatives(self) -> float:
        """Mean over the anchors that attend to anything; NaN if none does."""
        return float(self.effective_negatives_A.nanmean())


@torch.no_grad()
def attention_of(scores: PairScores, psi: PairFunction, num_negatives: int) -> list[Tensor]:
    """Entropy per anchor of a block, rows then columns.

    Args:
        scores: the pair scores.
        psi: the elementwise function; weights are its slopes, which must not be negative.
        num_negatives: keys per anchor, the bound that rounding is kept within.
    """
    if psi.in_log_domain:
        entropy = _softmax_entropy(scores, psi)
    else:
        total = reduce(scores, PairFunction(f"slope of {psi.name}", psi.slope, psi.curvature, torch.zeros_like))
        spread = reduce(
            scores, PairFunction(f"x log x of {psi.name}", _x_log_x(psi), torch.zeros_like, torch.zeros_like)
        )
        entropy = [
            torch.where(weight > 0, torch.log(weight) - x_log_x / weight, torch.nan)
            for weight, x_log_x in zip(total.both(), spread.both(), strict=True)
        ]
    limit = math.log(num_negatives)
    return [entropy_A.clamp(0.0, limit) for entropy_A in entropy]


def _softmax_entropy(scores: PairScores, psi: PairFunction) -> list[Tensor]:
    r"""Log-sum-exp minus mean score, :math:`r - \sum_j p_j u_j`; the mean is the derivative of r(t u) at t = 1."""

    def log_sums(factor: Tensor) -> tuple[Tensor, ...]:
        return tuple(reduce(replace(scores, terms=_scaled(scores.terms, factor)), psi).both())

    one = torch.ones((), dtype=scores.terms.anchors_ND.dtype, device=scores.terms.anchors_ND.device)
    values, means, *_ = torch.func.jvp(log_sums, (one,), (one,))
    return [value - mean for value, mean in zip(values, means, strict=True)]


def _scaled(terms: ScoreTerms, factor: Tensor) -> ScoreTerms:
    """Terms whose scores are all multiplied by a factor."""
    anchors_ND, keys_MD, *added = terms.flat()
    assert anchors_ND is not None
    return ScoreTerms(anchors_ND, keys_MD, *(None if term is None else term * factor for term in added))  # pyright: ignore[reportArgumentType]


def _x_log_x(psi: PairFunction):
    """Return the function psi' log psi', 0 where psi' is 0."""

    def x_log_x(u: Tensor) -> Tensor:
        slope = psi.slope(u)
        return torch.special.xlogy(slope, slope)

    return x_log_x
