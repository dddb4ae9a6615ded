r"""One linear layer under strong augmentation: :math:`\dot W = W X`, and what the eigenvalues of X say about W.

directclr2022, section 4. X is a covariance of differences between samples minus one between views, so augmentation that
is stronger than the data along a direction makes an eigenvalue of X negative, and W shrinks along it.
"""

# N samples, D input dimensions, K embedding dimensions, T times

from dataclasses import dataclass

import torch
from torch import Tensor

from counterpoint.core.checks import check_features
from counterpoint.core.errors import UsageError
from counterpoint.papers.directclr2022.flow_losses import CovarianceGap, FlowLoss
from counterpoint.papers.directclr2022.toy_augmentations import ToyViews
from counterpoint.papers.flow_integrator import TOLERANCE, FlowPath, State, integrate


@dataclass(frozen=True)
class GapDirections:
    """Eigenvectors of X: where a linear model grows, and where it vanishes.

    Attributes:
        rates_D: eigenvalues, descending: the exponential rate of W along each eigenvector.
        directions_DD: eigenvectors as columns, in that order.
    """

    rates_D: Tensor
    directions_DD: Tensor

    @property
    def num_vanishing(self) -> int:
        """Number of negative rates: as many singular values of W vanish."""
        return int((self.rates_D < 0).sum())


def covariance_gap(weight_KD: Tensor, views: ToyViews, loss: FlowLoss) -> CovarianceGap:
    r"""X at embeddings z = W x, with :math:`dL/dW = -W X`.

    Source: directclr2022, Lemma 1, Eq. 5, 7 and appendix B.2. Eq. 6 as printed has the wrong sign.

    Args:
        weight_KD: W (k, d).
        views: two views (n, d).
        loss: ``flow_losses.DistanceInfoNCE()`` is the paper's Eq. 2, ``ProductInfoNCE()`` that of its released toys.

    >>> views = ToyViews(torch.tensor([[0.0], [1.0]]), torch.tensor([[0.0], [1.0]]))
    >>> from counterpoint.papers.directclr2022.flow_losses import DistanceInfoNCE
    >>> covariance_gap(torch.zeros(1, 1), views, DistanceInfoNCE()).gap  # alpha_12 = alpha_21 = 1/2
    tensor([[1.]], dtype=torch.float64)
    """
    check_features(weight_KD, "weight", min_rows=1)
    weight_KD = weight_KD.double()
    return loss.covariance_gap(views, views.x_ND @ weight_KD.T, views.other_ND @ weight_KD.T)


def gap_directions(gap_DD: Tensor) -> GapDirections:
    """Split the input space by the sign of X's eigenvalues (Theorem 1).

    Args:
        gap_DD: X, symmetric.

    >>> gap_directions(torch.diag(torch.tensor([-1.0, 2.0]))).num_vanishing
    1
    """
    check_features(gap_DD, "gap", min_rows=1)
    gap_DD = gap_DD.double()
    if gap_DD.shape[0] != gap_DD.shape[1] or not torch.allclose(gap_DD, gap_DD.T, rtol=1e-9, atol=1e-9):
        raise UsageError("gap must be square and symmetric; use (x + x.T) / 2")
    rates_D, directions_DD = torch.linalg.eigh(gap_DD)
    return GapDirections(rates_D.flip(0), directions_DD.flip(1))


def fixed_gap_flow(weight_KD: Tensor, gap_DD: Tensor, times_T: Tensor) -> FlowPath:
    r"""W while X stays as it is: :math:`W(t) = W(0)\, e^{X t}`, in closed form.

    Source: directclr2022, Eq. 23 and Theorem 1. Along an eigenvector u, :math:`|W(t) u| = e^{\lambda t} |W(0) u|`: it
    vanishes for a negative eigenvalue and grows without bound for a positive one. "Vanishing" is absolute for the first
    kind; with weak augmentation small ones still fall behind the largest.

    Args:
        weight_KD: W(0).
        gap_DD: X, symmetric.
        times_T: any times.

    >>> flow = fixed_gap_flow(torch.ones(1, 2), torch.diag(torch.tensor([-1.0, 0.0])), torch.tensor([0.0, 20.0]))
    >>> flow.states[-1][0].round(decimals=6)
    tensor([[0., 1.]], dtype=torch.float64)
    """
    check_features(weight_KD, "weight", min_rows=1)
    split = gap_directions(gap_DD)
    along_KD = weight_KD.double() @ split.directions_DD
    times_T = times_T.detach().double()
    states = tuple(((along_KD * torch.exp(split.rates_D * t)) @ split.directions_DD.T,) for t in times_T)
    return FlowPath(times_T, states, 0)


def singular_value_ceilings(weight_KD: Tensor, gap_DD: Tensor, time: float) -> Tensor:
    r"""Largest values (d,) that the singular values of :math:`W(0) e^{X t}` can take, descending.

    .. math:: \sigma_k(W(t)) \le |W(0)|\, e^{\lambda_k t}

    with the spectral norm, because :math:`\sigma_k(A B) \le |A| \sigma_k(B)`. Theorem 1 of directclr2022 follows:
    where X has m negative eigenvalues, the m smallest singular values fall to 0.

    >>> singular_value_ceilings(torch.eye(2), torch.diag(torch.tensor([0.0, -1.0])), 100.0).round(decimals=6)
    tensor([1., 0.], dtype=torch.float64)
    """
    largest = torch.linalg.matrix_norm(weight_KD.double(), ord=2)
    return largest * torch.exp(gap_directions(gap_DD).rates_D * time)


def linear_flow(
    weight_KD: Tensor, views: ToyViews, loss: FlowLoss, times_T: Tensor, *, tolerance: float = TOLERANCE
) -> FlowPath:
    r"""Follow :math:`\dot W = W X(W)` with X recomputed at each moment (Eq. 5 of directclr2022).

    Args:
        weight_KD: W at the first time.
        views: fixed.
        loss: gives the weights alpha.
        times_T: at least 2 increasing times.
        tolerance: of each step's error.
    """

    def velocity(state: State) -> list[Tensor]:
        return [state[0] @ covariance_gap(state[0], views, loss).gap]

    return integrate(velocity, [weight_KD], times_T, tolerance=tolerance)
