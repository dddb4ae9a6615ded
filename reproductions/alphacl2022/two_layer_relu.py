r"""Two ReLU layers on data of orthogonal modes: linear dynamics with weights that stick to zero.

The network is :math:`z = W_2 [W_1 x]_+`. Every input has at most one positive entry and no negative one, and
augmentation only scales it (alphacl2022, Assumption 1, in coordinates where the modes are the axes, and with every
hidden node seeing the whole input). Then negative weights of the first layer do nothing (Lemma 3), and from
:math:`W_1 \ge 0` on the flow of the energy is that of a linear network in which an entry of W_1 that reached 0 stays
there (Theorem 4).
"""

# N samples, M modes (inputs), K hidden nodes, O outputs

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from counterpoint.core.checks import check_features, check_weight
from counterpoint.core.errors import UsageError
from reproductions.alphacl2022.contrastive_covariance import loss_gradients
from reproductions.alphacl2022.deep_linear import check_symmetric, layer_velocities

SAME_SCALE = 1e-9  # relative; how far a second view may be from a multiple of the first


@dataclass(frozen=True)
class ModeMixture:
    """Two views of samples that obey Assumption 1.

    Attributes:
        first_NM: non-negative rows with at most one positive entry.
        second_NM: the same rows, each times a positive factor.
        mode_N: which entry is positive; -1 for a row of zeros.
    """

    first_NM: Tensor
    second_NM: Tensor
    mode_N: Tensor

    @property
    def covers_all_modes(self) -> bool:
        """Every mode has a sample, as Lemmas 14 and 15 ask."""
        return bool(torch.isin(torch.arange(self.first_NM.shape[1]), self.mode_N).all())


@dataclass(frozen=True)
class LayerVelocities:
    """The gradient of the energy by both layers.

    Attributes:
        first_KM: by W_1.
        second_OK: by W_2.
    """

    first_KM: Tensor
    second_OK: Tensor


@dataclass(frozen=True)
class ModeSpectrum:
    """What the eigenvectors of X_alpha look like on orthogonal modes.

    Attributes:
        top_M: unit eigenvector of the largest eigenvalue; of mixed signs (Lemma 14).
        bottom_M: unit eigenvector of the smallest one, unique; all entries positive.
        largest_eigenvalue: lambda_max.
        smallest_eigenvalue: lambda_min.
        largest_off_diagonal: < 0 (Lemma 15).
    """

    top_M: Tensor
    bottom_M: Tensor
    largest_eigenvalue: float
    smallest_eigenvalue: float
    largest_off_diagonal: float


def as_mixture(first_NM: Tensor, second_NM: Tensor) -> ModeMixture:
    """Check Assumption 1 on two views.

    Source: alphacl2022, Assumption 1.

    Args:
        first_NM: first view.
        second_NM: second view.

    Raises:
        ValueError: the first sample that breaks it, and how.

    >>> as_mixture(torch.eye(2), 2 * torch.eye(2)).mode_N
    tensor([0, 1])
    >>> as_mixture(torch.eye(2), -torch.eye(2))
    Traceback (most recent call last):
    counterpoint.core.errors.UsageError: sample 0 has a negative entry; modes are non-negative
    """
    check_features(first_NM, "first view", min_rows=1)
    check_features(second_NM, "second view", min_rows=1)
    if first_NM.shape != second_NM.shape:
        raise UsageError(f"both views must have one shape, got {tuple(first_NM.shape)} and {tuple(second_NM.shape)}")
    first_NM, second_NM = first_NM.double(), second_NM.double()
    both = torch.stack([first_NM, second_NM])
    _refuse_first((both < 0).any(dim=2).any(dim=0), "has a negative entry; modes are non-negative")
    _refuse_first(((both > 0).sum(dim=2) > 1).any(dim=0), "has more than one positive entry; modes are one-hot")
    largest_N, mode_N = first_NM.max(dim=1)
    # A row has one positive entry at most, so that its sum is that entry.
    factor_N = second_NM.sum(1) / torch.where(largest_N > 0, largest_N, 1.0)
    off_N = (second_NM - factor_N[:, None] * first_NM).abs().amax(dim=1)
    # gamma > 0: a sample that is 0 in one view must be so in both.
    is_off_N = (off_N > SAME_SCALE * second_NM.amax(dim=1)) | ((largest_N > 0) & (factor_N <= 0))
    _refuse_first(is_off_N, "has a second view that is no positive multiple of the first; augmentation only scales")
    return ModeMixture(first_NM, second_NM, torch.where(largest_N > 0, mode_N, -1))


def draw_mixture(
    magnitudes_M: Tensor, num_samples: int, *, spread: float = 0.05, generator: torch.Generator
) -> ModeMixture:
    r"""Samples of orthogonal modes: magnitude times a log-normal factor, drawn for each view by itself.

    Every mode has a sample; the other samples draw theirs uniformly.

    Args:
        magnitudes_M: positive magnitude of each mode.
        num_samples: N >= M.
        spread: standard deviation of the factor's logarithm, >= 0.
        generator: source of randomness.

    Raises:
        ValueError: magnitudes that are not positive, too few samples, or a negative spread.

    >>> made = draw_mixture(torch.tensor([2.0, 1.0]), 4, spread=0.0, generator=torch.Generator().manual_seed(0))
    >>> made.covers_all_modes, sorted(set(made.first_NM.sum(1).tolist()))
    (True, [1.0, 2.0])
    """
    check_weight(spread, "spread", hint="0.05 is a mild augmentation")
    if magnitudes_M.ndim != 1 or not bool((magnitudes_M > 0).all()):
        raise UsageError(f"magnitudes must be a vector of numbers > 0, got {magnitudes_M.tolist()}")
    num_modes = len(magnitudes_M)
    if num_samples < num_modes:
        raise UsageError(f"num_samples must be at least the number of modes {num_modes}, got {num_samples}")
    # Lemma 15 needs every mode; the order of samples is arbitrary, so the first ones cover them.
    rest_N = torch.randint(num_modes, (num_samples - num_modes,), generator=generator)
    mode_N = torch.cat([torch.arange(num_modes), rest_N])
    factor_2N = torch.exp(spread * torch.randn(2, num_samples, generator=generator, dtype=torch.float64))
    one_hot_NM = torch.nn.functional.one_hot(mode_N, num_modes).double()
    first_NM, second_NM = one_hot_NM * (factor_2N * magnitudes_M.double()[mode_N])[:, :, None]
    return ModeMixture(first_NM, second_NM, mode_N)


def relu_velocities(alpha_NN: Tensor, mixture: ModeMixture, w1_KM: Tensor, w2_OK: Tensor) -> LayerVelocities:
    r"""The gradient of the energy through the gates of the ReLU, sample by sample.

    .. math:: \dot w_{1km} = \sum_i g_k[i]\, d_k[i]\, x_m[i] \quad (\text{and the same of } x'), \qquad
        d_k[i] = [w_{1k}^\top x_i > 0]

    Source: alphacl2022, Eq. 39.

    Args:
        alpha_NN: importance of each pair, held fixed.
        mixture: the data.
        w1_KM: first layer, of any sign.
        w2_OK: second layer.

    Raises:
        ValueError: as in ``contrastive_covariance``.

    >>> made = relu_velocities(torch.ones(2, 2), as_mixture(torch.eye(2), torch.eye(2)), torch.eye(2), torch.eye(2))
    >>> made.first_KM
    tensor([[2., 0.],
            [0., 2.]], dtype=torch.float64)
    """
    w1_KM, w2_OK = w1_KM.double(), w2_OK.double()
    views = (mixture.first_NM, mixture.second_NM)
    hidden = [torch.relu(x_NM @ w1_KM.T) for x_NM in views]
    slopes = loss_gradients(alpha_NN, *(f_NK @ w2_OK.T for f_NK in hidden))
    first_KM, second_OK = torch.zeros_like(w1_KM), torch.zeros_like(w2_OK)
    for x_NM, f_NK, slope_NO in zip(views, hidden, (slopes.anchors_ND, slopes.partners_ND), strict=True):
        received_NK = -slope_NO @ w2_OK  # g, of the energy: minus the loss's
        first_KM = first_KM + (received_NK * (f_NK > 0)).T @ x_NM  # Eq. 39
        # Lemma 1 for the upper layer, sample by sample.
        second_OK = second_OK - slope_NO.T @ f_NK
    return LayerVelocities(first_KM, second_OK)


def sticky_velocities(x_alpha_MM: Tensor, w1_KM: Tensor, w2_OK: Tensor) -> LayerVelocities:
    r"""The linear network's gradient, with the sticky weight rule: entries of W_1 at zero do not move.

    .. math:: \dot W_1 = [W_1 > 0] \odot W_2^\top W_2 W_1 X_\alpha, \qquad \dot W_2 = W_2 W_1 X_\alpha W_1^\top

    Equal to ``relu_velocities`` on data that obey Assumption 1.

    Source: alphacl2022, Theorem 4, Eq. 40 and Lemma 1.

    Args:
        x_alpha_MM: contrastive covariance of the input, symmetric.
        w1_KM: first layer, >= 0.
        w2_OK: second layer.

    Raises:
        ValueError: a negative entry of W_1 (it does nothing: take its positive part), or matrices that do not fit.

    >>> sticky_velocities(torch.tensor([[2.0, -2.0], [-2.0, 2.0]]), torch.eye(2), torch.eye(2)).first_KM
    tensor([[2., 0.],
            [0., 2.]], dtype=torch.float64)
    """
    if bool((w1_KM < 0).any()):
        raise UsageError(
            f"W_1 must be >= 0, got {float(w1_KM.min()):g}; Lemma 3: use its positive part, w1.clamp(min=0)"
        )
    first_KM, second_OK = layer_velocities(x_alpha_MM, [w1_KM, w2_OK])
    return LayerVelocities(torch.where(w1_KM > 0, first_KM, 0.0), second_OK)  # Eq. 40


def mode_spectrum(x_alpha_MM: Tensor) -> ModeSpectrum:
    r"""Eigenvectors of X_alpha, with the signs that Lemmas 14 and 15 speak of.

    Where all off-diagonal entries are negative, Perron and Frobenius give the *smallest* eigenvalue a unique
    eigenvector with positive entries; every other one, the top one too, is orthogonal to it and has mixed signs.

    Source: alphacl2022, Lemmas 14 and 15.

    Args:
        x_alpha_MM: symmetric, M >= 2.

    Raises:
        ValueError: not symmetric and finite, or a single mode.

    >>> mode_spectrum(torch.tensor([[2.0, -2.0], [-2.0, 2.0]])).bottom_M
    tensor([0.7071, 0.7071], dtype=torch.float64)
    """
    x_MM = check_symmetric(x_alpha_MM)
    if len(x_MM) < 2:
        raise UsageError("X_alpha must have at least 2 modes, got 1")
    values_M, vectors_MM = torch.linalg.eigh(x_MM)
    # -infinity keeps the diagonal out of the maximum below.
    off_diagonal_MM = x_MM.masked_fill(torch.eye(len(x_MM), dtype=torch.bool), -math.inf)
    # The sign of an eigenvector is arbitrary; a positive sum makes the one of Perron and Frobenius positive.
    top_M, bottom_M = (v_M * torch.sign(v_M.sum()) if v_M.sum() != 0 else v_M for v_M in vectors_MM[:, [-1, 0]].T)
    return ModeSpectrum(top_M, bottom_M, float(values_M[-1]), float(values_M[0]), float(off_diagonal_MM.max()))


def _refuse_first(is_bad_N: Tensor, how: str) -> None:
    """Name the first sample that breaks a rule."""
    if bool(is_bad_N.any()):
        raise UsageError(f"sample {int(is_bad_N.nonzero()[0])} {how}")
