"""Lanczos with full reorthogonalisation: a symmetric operator, seen from one vector, as a small tridiagonal matrix."""

# P dimensions, M steps

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from counterpoint.core.checks import check_positive

NOISE = 16.0  # eps: share of the largest product that rounding may change


@dataclass(frozen=True)
class Tridiagonal:
    r"""What Lanczos found: :math:`H V = V T + \beta_M v_{M+1} e_M^\top` with :math:`V^\top V = I`.

    Attributes:
        alpha_M: diagonal of T, float64.
        beta_M: off-diagonal of T, and as last entry the norm of what is left.
        num_dims: P.
        is_exhausted: what is left is rounding: the vectors span an invariant subspace, and T's eigenvalues are H's.
        orthogonality: largest entry of V'V - I.
        noise: what an eigenvalue may be wrong by through rounding: that of T's norm in the dtype of the products.
    """

    alpha_M: Tensor
    beta_M: Tensor
    num_dims: int
    is_exhausted: bool
    orthogonality: float
    noise: float


@dataclass(frozen=True)
class Ritz:
    """Eigenvalues of T, ascending, which approximate those of H.

    Attributes:
        values_M: of T.
        weights_M: share of the probe that lies in the direction of each; they sum to 1.
        residuals_M: within so much of each value H has an eigenvalue.
    """

    values_M: Tensor
    weights_M: Tensor
    residuals_M: Tensor


def lanczos(
    product: Callable[[Tensor], Tensor], start_P: Tensor, *, steps: int, advance: Callable[[], object] = lambda: None
) -> Tridiagonal:
    """Run Lanczos from a vector, each new one made orthogonal to all earlier ones, twice.

    Without reorthogonalisation converged eigenvalues come back as ghosts, whatever the precision.

    Source: golub2010, section 4.1; parlett1998, section 6.9 (twice is enough).

    Args:
        product: of a symmetric matrix with a vector.
        start_P: of any length but zero, in the dtype and on the device of the products.
        steps: largest number of products, >= 1; never more than P.
        advance: called after each product.

    Returns:
        The tridiagonal matrix.

    Raises:
        ValueError: steps < 1, or a start of length zero.

    >>> matrix = torch.diag(torch.tensor([1.0, 3.0])).double()
    >>> tridiagonal = lanczos(lambda v: matrix @ v, torch.ones(2).double(), steps=2)
    >>> ritz(tridiagonal).values_M
    tensor([1., 3.], dtype=torch.float64)
    """
    check_positive(steps, "steps", hint="100 is common")
    length = float(start_P.norm())
    if length == 0:
        raise ValueError("start must not be the zero vector; draw it at random")
    num_dims = len(start_P)
    steps = min(steps, num_dims)
    basis_MP = start_P.new_empty(steps, num_dims)
    alpha, beta, largest = [], [], 0.0
    v_P, eps = start_P / length, torch.finfo(start_P.dtype).eps
    for step in range(steps):
        basis_MP[step] = v_P
        w_P = product(v_P)
        advance()
        largest = max(largest, float(w_P.norm()))
        known_JP = basis_MP[: step + 1]
        first_J = known_JP @ w_P
        w_P = w_P - known_JP.T @ first_J
        second_J = known_JP @ w_P
        w_P = w_P - known_JP.T @ second_J
        alpha.append(float(first_J[-1]) + float(second_J[-1]))
        beta.append(float(w_P.norm()))
        # Relative to what products measure: the same whatever the scale of the loss.
        if beta[-1] <= NOISE * eps * largest:
            break
        v_P = w_P / beta[-1]
    found = len(alpha)
    basis_MP = basis_MP[:found]
    gram_MM = (basis_MP @ basis_MP.T).double().cpu() - torch.eye(found, dtype=torch.float64)
    return Tridiagonal(
        alpha_M=torch.tensor(alpha, dtype=torch.float64),
        beta_M=torch.tensor(beta, dtype=torch.float64),
        num_dims=num_dims,
        is_exhausted=found == num_dims or beta[-1] <= NOISE * eps * largest,
        orthogonality=float(gram_MM.abs().max()),
        noise=NOISE * eps * largest,
    )


def ritz(tridiagonal: Tridiagonal) -> Ritz:
    """Eigenvalues of T with their weights and residuals, in float64 on the CPU.

    Source: golub2010, section 4.1 (nodes and weights of Gauss quadrature); parlett1998, section 4.5 (residuals).
    """
    off_M = tridiagonal.beta_M[:-1]
    matrix_MM = torch.diag(tridiagonal.alpha_M) + torch.diag(off_M, 1) + torch.diag(off_M, -1)
    values_M, vectors_MM = torch.linalg.eigh(matrix_MM)
    residuals_M = tridiagonal.beta_M[-1] * vectors_MM[-1].abs()
    return Ritz(values_M, vectors_MM[0].square(), residuals_M)
