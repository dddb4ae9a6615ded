"""MIO's closed-form projector gradient and Hessian: by autograd, by the paper's sums in loops; what they are not."""

import numpy as np
import pytest
import torch
from torch import Tensor

from counterpoint.core.errors import UsageError
from counterpoint.losses import MIOv1, MIOv2, MIOv3
from oracles import mio_bounds_oracle as oracle
from reproductions.mio2021.projector_curvature import projector_curvature

LOSSES = {1: MIOv1, 2: MIOv2, 3: MIOv3}
TIGHT = 1e-10


def drawn(num: int, width: int, dims: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    h_MF = torch.randn(2 * num, width, generator=generator, dtype=torch.float64)
    return h_MF, torch.randn(width, dims, generator=generator, dtype=torch.float64) / 2


def by_autograd(version: int, h_MF: Tensor, psi_FD: Tensor, tau: float, *, normalize: bool = False) -> list[Tensor]:
    loss = LOSSES[version](temperature=tau, normalize=normalize)

    def of_weights(weights_FD: Tensor) -> Tensor:
        z_MD = h_MF @ weights_FD
        return loss(*z_MD.chunk(2))

    leaf_FD = psi_FD.clone().requires_grad_()
    value = of_weights(leaf_FD)
    (gradient_FD,) = torch.autograd.grad(value, leaf_FD)
    hessian = torch.autograd.functional.hessian(of_weights, psi_FD)
    assert isinstance(hessian, Tensor)
    return [value.detach(), gradient_FD, hessian]


def relative(ours: Tensor, theirs: Tensor) -> float:
    return float((ours - theirs).abs().max() / theirs.abs().max())


@pytest.mark.parametrize("version", LOSSES)
@pytest.mark.parametrize(
    ("num", "width", "dims", "tau"), [(2, 1, 1, 1.0), (3, 4, 2, 0.8), (6, 3, 5, 2.0), (5, 7, 3, 0.9)]
)
def test_it_is_what_autograd_finds(version: int, num: int, width: int, dims: int, tau: float) -> None:
    h_MF, psi_FD = drawn(num, width, dims)
    found = projector_curvature(h_MF, psi_FD, temperature=tau, version=version)
    value, gradient_FD, hessian_FDFD = by_autograd(version, h_MF, psi_FD, tau)
    assert found.value == pytest.approx(float(value), rel=TIGHT)
    assert relative(found.gradient_FD, gradient_FD) < TIGHT
    assert relative(found.hessian_FDFD, hessian_FDFD) < TIGHT


@pytest.mark.parametrize("version", LOSSES)
def test_it_is_the_papers_sum_over_pairs_with_equal_columns(version: int) -> None:
    h_MF, psi_FD = drawn(3, 3, 2)
    ours = projector_curvature(h_MF, psi_FD, temperature=0.8, version=version).hessian_FDFD.numpy()
    right = oracle.projector_hessian(h_MF.numpy(), psi_FD.numpy(), 0.8, version)
    printed = oracle.projector_hessian(h_MF.numpy(), psi_FD.numpy(), 0.8, version, oracle.other_column)
    assert np.abs(ours - right).max() < TIGHT * np.abs(right).max()
    assert np.abs(ours - printed).max() > 1e-2 * np.abs(right).max()  # after Eq. 28 and 34


@pytest.mark.parametrize("version", LOSSES)
def test_it_is_false_for_the_cosines_that_are_trained(version: int) -> None:
    h_MF, psi_FD = drawn(4, 3, 2)
    found = projector_curvature(h_MF, psi_FD, temperature=0.8, version=version)
    _, gradient_FD, hessian_FDFD = by_autograd(version, h_MF, psi_FD, 0.8, normalize=True)
    assert relative(found.gradient_FD, gradient_FD) > 1e-2
    assert relative(found.hessian_FDFD, hessian_FDFD) > 1e-2


def test_a_rotation_of_the_embedding_costs_nothing() -> None:
    """C does not change with psi R, so that H(psi A) = g A for antisymmetric A."""
    h_MF, psi_FD = drawn(4, 3, 3)
    found = projector_curvature(h_MF, psi_FD, temperature=0.8, version=3)
    turning_DD = torch.tensor([[0.0, 1, -2], [-1, 0, 0.5], [2, -0.5, 0]], dtype=torch.float64)
    product_FD = torch.einsum("flgk,gk->fl", found.hessian_FDFD, psi_FD @ turning_DD)
    assert relative(product_FD, found.gradient_FD @ turning_DD) < TIGHT


@pytest.mark.parametrize(
    ("shapes", "version", "words"),
    [
        (((4, 3), (3, 2)), 4, "version must be 1, 2 or 3, got 4"),
        (((3, 3), (3, 2)), 1, r"h must be \(2N, F\)"),
        (((2, 3), (3, 2)), 1, r"h must be \(2N, F\)"),
        (((4, 3), (2, 2)), 1, r"psi \(F, D\), got \(4, 3\) and \(2, 2\)"),
        (((4, 100), (100, 50)), 1, "at most 4,096 weights"),
    ],
)
def test_other_arguments_are_refused(shapes: tuple[tuple[int, int], ...], version: int, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        projector_curvature(*(torch.ones(shape) for shape in shapes), temperature=0.5, version=version)
    with pytest.raises(ValueError, match="temperature must be > 0"):
        projector_curvature(torch.ones(4, 3), torch.ones(3, 2), temperature=0, version=1)
