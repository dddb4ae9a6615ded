r"""The min player of alpha-CL: the importance of an exponential loss is the answer to a convex problem.

For :math:`\psi(x) = e^{x/\tau}` the weights :math:`\alpha_{ij} = \phi'(\xi_i)\psi'(d_i^2 - d_{ij}^2)` solve

.. math:: \min_\alpha \sum_{ij} \alpha_{ij} c_{ij} + \tau \sum_{ij} \alpha_{ij} \log \alpha_{ij}, \quad
    \alpha \ge 0,\ \sum_j \alpha_{ij} = m_i = \xi_i \phi'(\xi_i) / \tau, \qquad c_{ij} = d_{ij}^2 - d_i^2

(alphacl2022, Theorem 2 and Lemma 5). For InfoNCE with the paper's phi, :math:`m_i = \xi_i/(\xi_i + \epsilon) \le 1`.
Section 6 of the paper puts the sum at 1 for every regulariser, which InfoNCE meets at epsilon = 0 only.
"""

# A anchors, V = 2n vectors

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from counterpoint.core.checks import check_positive
from counterpoint.core.errors import UsageError
from counterpoint.losses.blocks import Pairing
from counterpoint.losses.inputs import prepare_views
from counterpoint.losses.pair_loss import PairLoss
from reproductions.alphacl2022.contrastive_covariance import gap_costs

FEASIBLE = 1e-9  # how far a row of alpha may be from its mass, relative to it


@dataclass(frozen=True)
class ImportanceProblem:
    r"""Least energy less entropy, one problem per anchor.

    Attributes:
        cost_AV: c_ij = d_ij^2 - d_i^2, plus infinity where j does not repel i; every row has a finite entry.
        mass_A: what each row of alpha sums to, >= 0.
        temperature: tau > 0.

    >>> problem = ImportanceProblem(torch.tensor([[0.0, math.log(3.0)]]).double(), torch.ones(1).double(), 1.0)
    >>> problem.solution(), round(problem.minimum(), 6) == round(-math.log(4 / 3), 6)
    (tensor([[0.7500, 0.2500]], dtype=torch.float64), True)
    """

    cost_AV: Tensor
    mass_A: Tensor
    temperature: float

    def __post_init__(self) -> None:
        """Check the parts."""
        check_positive(self.temperature, "temperature", hint="common values are 0.1 to 0.5")
        if self.cost_AV.ndim != 2 or self.mass_A.shape != self.cost_AV.shape[:1]:
            shapes = f"{tuple(self.cost_AV.shape)} and {tuple(self.mass_A.shape)}"
            raise UsageError(f"costs must be a matrix and the mass one number per row, got shapes {shapes}")
        if not bool(torch.isfinite(self.cost_AV).any(dim=1).all()):
            raise UsageError("every anchor must have a pair of finite cost")
        if not bool((self.mass_A >= 0).all()):
            raise UsageError(f"the mass of a row must be >= 0, got {float(self.mass_A.min()):g}")

    def solution(self) -> Tensor:
        """The minimiser: each row a softmax of minus the costs, times its mass (Eq. 60)."""
        return self.mass_A[:, None] * torch.softmax(-self.cost_AV / self.temperature, dim=1)

    def objective(self, alpha_AV: Tensor) -> float:
        """E - R of any alpha of finite entries, with 0 log 0 = 0; infinite where a weight lies on an infinite cost."""
        # Infinite costs count only where there is weight: 0 * infinity is NaN.
        cost_AV = torch.where(alpha_AV > 0, self.cost_AV, 0.0)
        # entr(a) = -a log a, 0 at 0
        return float((alpha_AV * cost_AV).sum() - self.temperature * torch.special.entr(alpha_AV).sum())

    def minimum(self) -> float:
        r"""The least objective, :math:`\sum_i \tau m_i (\log m_i - \log \sum_j e^{-c_{ij}/\tau})`."""
        log_sum_A = torch.logsumexp(-self.cost_AV / self.temperature, dim=1)
        # m log m is 0 for an anchor without mass
        least_A = torch.xlogy(self.mass_A, self.mass_A) - self.mass_A * log_sum_A
        return self.temperature * float(least_A.sum())

    def gap(self, alpha_AV: Tensor) -> float:
        r"""By how much a feasible alpha misses the minimum; 0 for the solution alone.

        .. math:: \tau \sum_i m_i \operatorname{KL}(\alpha_i/m_i \,\|\, \mathrm{softmax}(-c_i/\tau))

        Raises:
            ValueError: alpha is negative somewhere, or a row does not sum to its mass.
        """
        self._check_feasible(alpha_AV)
        # -inf for an anchor without mass
        log_share_AV = torch.log_softmax(-self.cost_AV / self.temperature, dim=1) + self.mass_A.log()[:, None]
        is_used_AV = alpha_AV > 0
        # Both terms only where there is weight, else 0 * -infinity would be NaN.
        log_ratio_AV = torch.where(is_used_AV, alpha_AV, 1.0).log() - torch.where(is_used_AV, log_share_AV, 0.0)
        return self.temperature * float((alpha_AV * log_ratio_AV).sum())

    def stationarity(self, alpha_AV: Tensor) -> float:
        """Largest spread of the slope c + tau (log alpha + 1) over the pairs of an anchor: 0 at the solution alone.

        Anchors without mass do not count.
        """
        # Eq. 62: the slope is the multiplier mu, one number per anchor.
        is_pair_AV = torch.isfinite(self.cost_AV) & (self.mass_A > 0)[:, None]
        safe_AV = torch.where(is_pair_AV, alpha_AV, 1.0)
        slope_AV = torch.where(is_pair_AV, self.cost_AV, 0.0) + self.temperature * (safe_AV.log() + 1)
        highest_A = slope_AV.masked_fill(~is_pair_AV, -math.inf).amax(dim=1)
        lowest_A = slope_AV.masked_fill(~is_pair_AV, math.inf).amin(dim=1)
        return float((highest_A - lowest_A).clamp(min=0.0).max())  # an anchor that is left out has -inf - inf

    def _check_feasible(self, alpha_AV: Tensor) -> None:
        """Require alpha in the set A of Eq. 7."""
        if alpha_AV.shape != self.cost_AV.shape:
            raise UsageError(f"alpha must have shape {tuple(self.cost_AV.shape)}, got {tuple(alpha_AV.shape)}")
        if bool((alpha_AV < 0).any()):
            raise UsageError(f"alpha must be >= 0, got {float(alpha_AV.min()):g}")
        off_A = (alpha_AV.sum(1) - self.mass_A).abs() - FEASIBLE * self.mass_A
        # Asked so that a NaN is refused, too.
        if not bool((off_A <= 0).all()):
            row = int(off_A.argmax())
            total, mass = float(alpha_AV[row].sum()), float(self.mass_A[row])
            raise UsageError(f"row {row} of alpha must sum to xi phi'(xi) / tau = {mass:.6g}, got {total:.6g}")


def importance_problem(loss: PairLoss, z0: Tensor, z1: Tensor) -> ImportanceProblem:
    r"""The problem whose minimiser is the importance that a loss gives to a batch.

    Source: alphacl2022, Theorem 2. A factor in front of phi (the paper's InfoNCE has tau log, ours log) and a margin in
        psi change the mass and nothing else.

    Args:
        loss: a pairwise loss with exponential psi.
        z0: first view (n, d), n >= 2.
        z1: second view.

    Returns:
        One row per anchor (first view before second, as in ``loss.importance``), one column per vector.

    Raises:
        TypeError: not a pairwise loss.
        ValueError: psi is not exponential (Theorem 2 does not hold), or views that do not fit.

    >>> from counterpoint.losses import InfoNCE
    >>> loss = InfoNCE(temperature=1.0, epsilon=0.0)
    >>> z = torch.eye(3).double()
    >>> problem = importance_problem(loss, z, z)
    >>> problem.mass_A, problem.gap(loss.importance(z, z)) < 1e-12
    (tensor([1., 1., 1., 1., 1., 1.], dtype=torch.float64), True)
    """
    if not isinstance(loss, PairLoss):
        raise TypeError(
            f"loss must be a pairwise loss, got {type(loss).__name__}; a rule of AlphaCL states its own problem"
        )
    if not loss.psi.function.in_log_domain:
        raise UsageError(f"Theorem 2 needs psi(x) = exp(x / tau), got {loss.psi.formula}; such are InfoNCE, DCL, MINE")
    z0, z1 = (z.detach() for z in prepare_views(z0.double(), z1.double(), normalize=loss.pairing.normalize))
    temperature = 1.0 / loss.psi.scale  # psi(x) = exp(scale x + margin)
    is_pair_AV = _repels(loss.pairing, len(z0))
    cost_VV = gap_costs(torch.cat([z0, z1]), torch.cat([z1, z0]))
    # One column per vector; anchors that are first views only are the first n rows.
    cost_AV = cost_VV[: len(is_pair_AV)].masked_fill(~is_pair_AV, math.inf)
    # A margin multiplies psi, and so xi, by e^margin.
    log_xi_A = torch.logsumexp(-cost_AV / temperature, dim=1) + loss.psi.margin
    # xi phi'(xi) is the slope of phi in log xi.
    slope_A = torch.func.grad(lambda log_xi: loss.phi.of_statistic(log_xi, is_log=True).sum())(log_xi_A)
    return ImportanceProblem(cost_AV, slope_A / temperature, temperature)


def _repels(pairing: Pairing, num_samples: int) -> Tensor:
    """True where vector j repels anchor i."""
    vector_V = torch.arange(2 * num_samples)
    anchor_A = vector_V[:num_samples] if pairing.anchors == "first" else vector_V
    sample_V, view_V = vector_V % num_samples, vector_V // num_samples
    is_other_AV = sample_V[anchor_A][:, None] != sample_V
    is_same_view_AV = view_V[anchor_A][:, None] == view_V
    kinds = {"two-view": is_other_AV, "same-view": is_other_AV & is_same_view_AV}
    return kinds.get(pairing.negatives, is_other_AV & ~is_same_view_AV)  # "cross-view"
