r"""Gradient and Hessian of MIO's losses in the weights of a linear projector, in closed form.

With features h, a projector psi, z = h psi and the dot products :math:`C_{nm} = z_n^\top z_m`,

.. math:: \frac{\partial C_{nm}}{\partial \psi_k} = A^{(k)}_{nm} = h_n z_{mk} + h_m z_{nk}, \qquad
    \frac{\partial^2 C_{nm}}{\partial \psi_l \partial \psi_k^\top} = B^{(l)(k)}_{nm}
    = [l = k] \, (h_n h_m^\top + h_m h_n^\top)
"""

# M = 2N vectors, first views first; F features of the encoder, D of the projector

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import softplus

from counterpoint.core.checks import check_positive
from counterpoint.core.errors import UsageError

LARGEST = 4096  # weights: a dense Hessian of more takes over 128 MiB


@dataclass(frozen=True)
class ProjectorCurvature:
    """A loss of MIO as a function of the weights of a linear projector, to second order.

    Attributes:
        value: of the loss.
        gradient_FD: by each weight.
        hessian_FDFD: by each two weights.
    """

    value: float
    gradient_FD: Tensor
    hessian_FDFD: Tensor


def projector_curvature(h_MF: Tensor, psi_FD: Tensor, *, temperature: float, version: int) -> ProjectorCurvature:
    r"""Value, gradient and Hessian of MIO-v1, v2 or v3 of dot products, in the weights of a linear projector.

    .. math:: \frac{\partial L}{\partial \psi_k} = \sum_{n \ne m} w_{nm} A^{(k)}_{nm}, \qquad
        \frac{\partial^2 L}{\partial \psi_l \partial \psi_k^\top}
        = \sum_{n \ne m} w_{nm} B^{(l)(k)}_{nm} + w'_{nm} A^{(l)}_{nm} A^{(k)\top}_{nm}

    where w and w' are the first and second derivatives of the pair's loss by C, over the 2N positives or the
    2N(2N - 2) negatives.

    Source: mio2021, supplement, Eq. 7, 18, 25, 28, 33 and 34. Differs from the definitions of B after Eq. 28 and 34,
        which are non-zero for l != k: they hold for l = k, as in Eq. 18. Differs from the loss that is trained, whose C
        is a cosine: the formulas are of the dot product, and are false for vectors scaled to unit length and for a
        projector with a non-linear layer.

    Args:
        h_MF: features of both views, (2N, F) with N >= 2, first views first.
        psi_FD: weights of the projector, z = h psi.
        temperature: tau > 0.
        version: 1, 2 or 3.

    Returns:
        In float64.

    Raises:
        UsageError: other shapes, another version, or more than 4,096 weights.
        ValueError: temperature <= 0.

    >>> h, psi = torch.tensor([[1.0], [0.0], [2.0], [0.0]]), torch.ones(1, 1)
    >>> found = projector_curvature(h, psi, temperature=1.0, version=2)  # -E+ C + E- log(1 + e^C), C_02 = 2 psi^2
    >>> found.gradient_FD, found.hessian_FDFD.flatten()
    (tensor([[-2.]], dtype=torch.float64), tensor([-2.], dtype=torch.float64))
    """
    check_positive(temperature, "temperature", hint="mio2021 uses 0.2")
    _check_shapes(h_MF, psi_FD, version)
    h_MF, psi_FD = h_MF.detach().double(), psi_FD.detach().double()
    z_MD = h_MF @ psi_FD
    s_MM = z_MD @ z_MD.T / temperature
    value_MM, first_MM, second_MM = _pair_terms(s_MM, version)
    first_MM, second_MM = first_MM / temperature, second_MM / temperature**2
    # A is symmetric in n and m, as the weights are: each sum over both is twice the sum over one term.
    gradient_FD = 2 * h_MF.T @ first_MM @ z_MD
    bent_FF = 2 * h_MF.T @ first_MM @ h_MF
    # w' A A': the four products of (h_n z_m + h_m z_n) with itself, two by two alike.
    same_FlFk = 2 * torch.einsum("nf,ng,nm,ml,mk->flgk", h_MF, h_MF, second_MM, z_MD, z_MD)
    other_FlFk = 2 * torch.einsum("nf,nk,nm,mg,ml->flgk", h_MF, z_MD, second_MM, h_MF, z_MD)
    eye_DD = torch.eye(psi_FD.shape[1], dtype=torch.float64, device=h_MF.device)
    hessian_FDFD = torch.einsum("fg,lk->flgk", bent_FF, eye_DD) + same_FlFk + other_FlFk
    return ProjectorCurvature(float(value_MM.sum()), gradient_FD, hessian_FDFD)


def _pair_terms(s_MM: Tensor, version: int) -> tuple[Tensor, Tensor, Tensor]:
    """Share of each pair in the loss, with its first and second derivative by the score s = C / tau."""
    size = len(s_MM)
    place = torch.arange(size, device=s_MM.device) % (size // 2)
    is_positive_MM = (place[:, None] == place) & ~torch.eye(size, dtype=torch.bool, device=s_MM.device)
    is_negative_MM = place[:, None] != place
    sigma_MM, bend_MM = torch.sigmoid(s_MM), torch.sigmoid(s_MM) * torch.sigmoid(-s_MM)
    zero_MM, one_MM = torch.zeros_like(s_MM), torch.ones_like(s_MM)
    # Eq. 11, 12 and 18: what attracts, then what repels.
    attract = (softplus(-s_MM), sigma_MM - 1, bend_MM) if version == 1 else (-s_MM, -one_MM, zero_MM)
    repel = (s_MM.exp(),) * 3 if version == 3 else (softplus(s_MM), sigma_MM, bend_MM)
    first, second, third = (
        torch.where(is_positive_MM, p / size, 0.0) + torch.where(is_negative_MM, q / (size * (size - 2)), 0.0)
        for p, q in zip(attract, repel, strict=True)
    )
    return first, second, third


def _check_shapes(h_MF: Tensor, psi_FD: Tensor, version: int) -> None:
    """Require both views of two samples or more, a matrix that takes them, and a known version."""
    if version not in (1, 2, 3):
        raise UsageError(f"version must be 1, 2 or 3, got {version}")
    if h_MF.ndim != 2 or len(h_MF) < 4 or len(h_MF) % 2 or psi_FD.ndim != 2 or len(psi_FD) != h_MF.shape[1]:
        raise UsageError(
            f"h must be (2N, F) with N >= 2 and psi (F, D), got {tuple(h_MF.shape)} and {tuple(psi_FD.shape)}"
        )
    if psi_FD.numel() > LARGEST:
        raise UsageError(f"psi must have at most {LARGEST:,} weights for a dense Hessian, got {psi_FD.numel():,}")
