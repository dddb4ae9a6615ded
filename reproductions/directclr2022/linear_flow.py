r"""One and two linear layers: their flow, what it conserves, and which singular values grow.

directclr2022, sections 4 and 5. One layer follows :math:`\dot W = W X`. X is a covariance of differences between
samples minus one between views, so augmentation that is stronger than the data along a direction makes an eigenvalue
of X negative, and W shrinks along it.

With z = W2 W1 x and G = dL/d(W2 W1) = -W2 W1 X, each of two layers sees the other's singular values in its gradient;
the small ones hardly grow, and the embedding loses dimensions although X has no negative eigenvalue.
"""

# N samples, D input dimensions, K embedding dimensions or singular values, T times

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from counterpoint.core.checks import check_features
from counterpoint.core.errors import UsageError
from reproductions.directclr2022.toy_models import CovarianceGap, FlowLoss, ToyViews
from reproductions.flow_integrator import TOLERANCE, FlowPath, State, integrate


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
        loss: ``toy_models.DistanceInfoNCE()`` is the paper's Eq. 2, ``ProductInfoNCE()`` that of its released toys.

    >>> views = ToyViews(torch.tensor([[0.0], [1.0]]), torch.tensor([[0.0], [1.0]]))
    >>> from reproductions.directclr2022.toy_models import DistanceInfoNCE
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
    # eigh is ascending
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
    # e^{X t} = U e^{Lambda t} U^T (appendix B.3), without a matrix exponential.
    along_KD = weight_KD.double() @ split.directions_DD
    times_T = times_T.detach().double()
    states = tuple(((along_KD * torch.exp(split.rates_D * t)) @ split.directions_DD.T,) for t in times_T)
    return FlowPath(times_T, states)


def singular_value_ceilings(weight_KD: Tensor, gap_DD: Tensor, time: float) -> Tensor:
    r"""Largest values (d,) that the singular values of :math:`W(0) e^{X t}` can take, descending.

    .. math:: \sigma_k(W(t)) \le |W(0)|\, e^{\lambda_k t}

    with the spectral norm, because :math:`\sigma_k(A B) \le |A| \sigma_k(B)`. Theorem 1 of directclr2022 follows:
    where X has m negative eigenvalues, the m smallest singular values fall to 0.

    >>> singular_value_ceilings(torch.eye(2), torch.diag(torch.tensor([0.0, -1.0])), 100.0).round(decimals=6)
    tensor([1., 0.], dtype=torch.float64)
    """
    largest = torch.linalg.matrix_norm(weight_KD.double(), ord=2)
    # e^{X t} is symmetric and positive: its eigenvalues are its singular values
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
        return [state[0] @ covariance_gap(state[0], views, loss).gap]  # Eq. 3 and 5

    return integrate(velocity, [weight_KD], times_T, tolerance=tolerance)


@dataclass(frozen=True)
class LayerRates:
    """A time derivative for each of two layers: of the matrices, or of their singular values.

    Attributes:
        first: of W1.
        second: of W2.
    """

    first: Tensor
    second: Tensor


@dataclass(frozen=True)
class AlignedGrowth:
    """Singular values of two aligned layers over time.

    Attributes:
        first_TK: of W1; infinite from the blow-up on.
        second_TK: of W2.
        blow_up_K: when both become infinite; infinite where they never do.
    """

    first_TK: Tensor
    second_TK: Tensor
    blow_up_K: Tensor


def two_layer_velocity(w1_DD: Tensor, w2_DD: Tensor, gradient_DD: Tensor) -> LayerRates:
    r""":math:`\dot W_1 = -W_2^\top G`, :math:`\dot W_2 = -G W_1^\top`.

    Source: directclr2022, Lemma 3 (Eq. 8, 9).

    Args:
        w1_DD: the first layer.
        w2_DD: the second layer.
        gradient_DD: G, gradient of the loss in the product W2 W1; -W2 W1 X by Eq. 10.
    """
    return LayerRates(-w2_DD.T @ gradient_DD, -gradient_DD @ w1_DD.T)  # Eq. 8, 9


def conserved(weights: Sequence[Tensor]) -> tuple[Tensor, ...]:
    r"""What the flow of any loss keeps: :math:`W_l W_l^\top - W_{l+1}^\top W_{l+1}` for each two neighbouring layers.

    Source: directclr2022, appendix B.5, for two layers. The constant is rarely 0: the layers agree only as far as they
    have outgrown it, so directions with small singular values need not align.

    >>> conserved([torch.tensor([[2.0]]), torch.tensor([[1.0]])])[0]
    tensor([[3.]])
    """
    return tuple(below @ below.T - above.T @ above for below, above in pairwise(weights))


def conservation_drift(start: Sequence[Tensor], later: Sequence[Tensor]) -> float:
    """Largest change of an entry of what the flow conserves."""
    pairs = zip(conserved(start), conserved(later), strict=True)
    return max((float((after - before).abs().max()) for before, after in pairs), default=0.0)


def two_layer_flow(
    w1_DD: Tensor, w2_DD: Tensor, gap_DD: Tensor, times_T: Tensor, *, tolerance: float = TOLERANCE
) -> FlowPath:
    r"""Follow both layers while X stays as it is.

    .. math:: \dot W_1 = W_2^\top W_2 W_1 X, \qquad \dot W_2 = W_2 W_1 X W_1^\top

    Source: directclr2022, Eq. 8 to 10. With a positive definite X singular values become infinite in finite time, the
    largest first. ``toy_networks.gradient_flow`` recomputes X.

    Args:
        w1_DD: at the first time.
        w2_DD: at the first time.
        gap_DD: X, symmetric.
        times_T: at least 2 increasing times, before the blow-up.
        tolerance: of each step's error.
    """
    gap_DD = gap_DD.double()
    gap_directions(gap_DD)  # requires symmetry

    def velocity(state: State) -> list[Tensor]:
        rates = two_layer_velocity(state[0], state[1], -state[1] @ state[0] @ gap_DD)  # G of Eq. 10
        return [rates.first, rates.second]

    return integrate(velocity, [w1_DD, w2_DD], times_T, tolerance=tolerance)


def aligned_rates(first_K: Tensor, second_K: Tensor, curvature_K: Tensor) -> LayerRates:
    r"""Rates of singular values when the layers are aligned, :math:`V_2 = U_1`.

    .. math:: \dot\sigma_1^k = \sigma_1^k (\sigma_2^k)^2 (v_1^{k\top} X v_1^k), \qquad
              \dot\sigma_2^k = \sigma_2^k (\sigma_1^k)^2 (v_1^{k\top} X v_1^k)

    Source: directclr2022, Theorem 3 (Eq. 11). Differs from the statement "V2 = U1^T", which means V2 = U1. Exact for
    any X at a moment of exact alignment.

    Args:
        first_K: singular values of W1.
        second_K: singular values of W2, in the same order.
        curvature_K: :math:`v_1^{k\top} X v_1^k`.

    >>> aligned_rates(torch.tensor([2.0]), torch.tensor([3.0]), torch.tensor([1.0]))
    LayerRates(first=tensor([18.]), second=tensor([12.]))
    """
    return LayerRates(first_K * second_K.square() * curvature_K, second_K * first_K.square() * curvature_K)  # Eq. 11


def aligned_growth(first_K: Tensor, second_K: Tensor, curvature_K: Tensor, times_T: Tensor) -> AlignedGrowth:
    r"""Solve Theorem 3 for a fixed X whose eigenvectors are the right singular vectors of W1.

    With the constant :math:`C = \sigma_1^2 - \sigma_2^2` and the curvature r, :math:`\sigma_2^2/\sigma_1^2` grows as
    :math:`e^{2 C r t}`, so that

    .. math:: \sigma_1(t)^2 = \frac{\sigma_1^2}{1 - 2 r t\, \varphi(2 C r t)\, \sigma_2^2}, \qquad
              \varphi(a) = (e^a - 1)/a

    and likewise for the second layer with -C. Differs from directclr2022, section 5.3, which says
    :math:`\dot\sigma_1 = \sigma_1(\sigma_1^2 + C) r` beside :math:`\sigma_1^2 = \sigma_2^2 + C`; the sign before C must
    be minus.

    Args:
        first_K: singular values of W1 at time 0, > 0.
        second_K: singular values of W2 at time 0, > 0, in the same order.
        curvature_K: r, eigenvalues of X in that order.
        times_T: times >= 0.

    Raises:
        UsageError: a singular value that is not above 0, or a time below 0.

    >>> grown = aligned_growth(torch.tensor([1.0]), torch.tensor([1.0]), torch.tensor([1.0]), torch.tensor([0.375]))
    >>> grown.first_TK, grown.blow_up_K  # 1 / (1 - 2 t) = 4
    (tensor([[2.]], dtype=torch.float64), tensor([0.5000], dtype=torch.float64))
    """
    if bool((torch.cat([first_K, second_K]) <= 0).any()):
        raise UsageError("singular values must be > 0; a layer that is 0 along a direction stays so")
    check_features(times_T[:, None], "times", min_rows=1)
    if float(times_T.min()) < 0:
        raise UsageError(f"times must be >= 0, got {float(times_T.min()):g}; singular values are those of time 0")
    # p = sigma_1^2 and q = sigma_2^2 at time 0, so that C = p - q.
    p_K, q_K, r_K = first_K.double().square(), second_K.double().square(), curvature_K.double()
    gap_K = p_K - q_K
    time_T1 = times_T.double()[:, None]
    # Both denominators are 0 where e^{2 C r t} = p / q, which has t > 0 for r > 0 only.
    blow_up_K = torch.where(r_K > 0, _log1p_ratio(gap_K / q_K) / (2 * r_K * q_K), torch.inf)
    exponent_TK = 2 * gap_K * r_K * time_T1
    # Beyond the blow-up the closed form goes on with negative squares, which are replaced below.
    first_TK = p_K / (1 - 2 * r_K * time_T1 * _expm1_ratio(exponent_TK) * q_K)
    second_TK = q_K / (1 - 2 * r_K * time_T1 * _expm1_ratio(-exponent_TK) * p_K)
    is_over_TK = time_T1 >= blow_up_K
    return AlignedGrowth(
        torch.where(is_over_TK, torch.inf, first_TK).sqrt(),
        torch.where(is_over_TK, torch.inf, second_TK).sqrt(),
        blow_up_K,
    )


def _expm1_ratio(a: Tensor) -> Tensor:
    """(e^a - 1) / a, 1 at 0."""
    # expm1 keeps the digits next to 0; the inner where avoids 0 / 0.
    return torch.where(a == 0, 1.0, torch.expm1(a) / torch.where(a == 0, 1.0, a))


def _log1p_ratio(a: Tensor) -> Tensor:
    """log(1 + a) / a, 1 at 0."""
    return torch.where(a == 0, 1.0, torch.log1p(a) / torch.where(a == 0, 1.0, a))
