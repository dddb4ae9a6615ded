"""Products and extreme eigenvalues of PyHessian, curvlinops and hessian-eigenthings, where they can be imported."""

from collections.abc import Callable
from typing import Any

import torch
from scipy.sparse.linalg import ArpackNoConvergence, eigsh
from torch import Tensor, nn

from counterpoint.diagnostics.curvature.hessian_products import CoupledLoss, flat

Product = Callable[[Tensor], Tensor]


def peer_products(coupled: CoupledLoss, module: nn.Module) -> dict[str, Product]:
    """Products by name; all see the two views packed into one batch, whose loss looks at no target."""
    products: dict[str, Product] = {}
    packed = torch.cat(coupled.inputs)
    none = torch.zeros(len(packed))

    def loss(z: Tensor, _: Tensor) -> Tensor:
        return coupled.loss({}, torch.stack(z.chunk(2), dim=1))

    for name, make in PEERS.items():
        try:
            product = make(coupled, module, loss, (packed, none))
            product(torch.ones(coupled.num_parameters))
            products[name] = product
        except (ImportError, NotImplementedError) as error:
            print(f"{name} is not measured: {str(error).splitlines()[0]}")
    return products


def peer_extremes(matrix_PP: Tensor, steps: int) -> dict[str, float]:
    """The eigenvalue of largest size of a quadratic loss, by each peer's own algorithm with so many products."""
    extremes: dict[str, float] = {}
    for name, extreme in (
        ("PyHessian (power iteration)", _pyhessian_extreme),
        ("curvlinops (SciPy's eigsh)", _curvlinops_extreme),
        ("hessian-eigenthings (Lanczos)", _eigenthings_extreme),
    ):
        try:
            extremes[name] = extreme(Quadratic(matrix_PP), steps)
        except (ImportError, NotImplementedError, ArpackNoConvergence) as error:
            print(f"{name} is not measured: {str(error).splitlines()[0]}")
    return extremes


class Quadratic(nn.Module):
    """1/2 theta' A theta, whose Hessian is A."""

    def __init__(self, matrix_PP: Tensor) -> None:
        super().__init__()
        self.matrix_PP = matrix_PP
        self.theta_P = nn.Parameter(torch.ones(len(matrix_PP), dtype=matrix_PP.dtype))

    def forward(self, _: Tensor) -> Tensor:
        """The value, (1, 1)."""
        return (0.5 * self.theta_P @ self.matrix_PP @ self.theta_P).reshape(1, 1)


def _output_loss(output: Tensor, _: Tensor) -> Tensor:
    """A loss that is the output."""
    return output.sum()


def _pyhessian_extreme(module: Quadratic, steps: int) -> float:
    """Extreme eigenvalue by PyHessian's power iteration."""
    from pyhessian import hessian  # pyright: ignore[reportMissingImports]  # deferred: a peer, optional

    peer_hessian = hessian(module, _output_loss, data=(torch.zeros(1, 1), torch.zeros(1)), cuda=False)
    return peer_hessian.eigenvalues(maxIter=steps, tol=0.0)[0][0]


def _curvlinops_extreme(module: Quadratic, steps: int) -> float:
    """Extreme eigenvalue by ARPACK on curvlinops' operator."""
    operator = _curvlinops_operator(module, _output_loss, (torch.zeros(1, 1), torch.zeros(1)))
    pairs = eigsh(operator.to_scipy(), k=1, which="LM", ncv=min(20, len(module.theta_P)), maxiter=max(1, steps // 20))
    return float(pairs[0][0])


def _eigenthings_extreme(module: Quadratic, steps: int) -> float:
    """Extreme eigenvalue by hessian-eigenthings' Lanczos."""
    import hessian_eigenthings as peer  # pyright: ignore[reportMissingImports]  # deferred: a peer, optional

    data = [(torch.zeros(1, 1), torch.zeros(1))]
    operator = peer.HessianOperator(module, data, lambda model, batch: _output_loss(model(batch[0]), batch[1]))
    return float(peer.lanczos(operator, k=1, max_iter=steps, which="LM", seed=0).eigenvalues[0])


def _pyhessian(
    coupled: CoupledLoss, module: nn.Module, loss: Callable[..., Tensor], data: tuple[Tensor, ...]
) -> Product:
    """PyHessian's product of one batch, whose graph it keeps."""
    from pyhessian import hessian  # pyright: ignore[reportMissingImports]  # deferred: a peer, optional
    from pyhessian.utils import hessian_vector_product  # pyright: ignore[reportMissingImports]  # deferred: as above

    peer_hessian = hessian(module, loss, data=data, cuda=False)
    return lambda v: flat(hessian_vector_product(peer_hessian.gradsH, peer_hessian.params, coupled.split(v)))


def _curvlinops(
    coupled: CoupledLoss, module: nn.Module, loss: Callable[..., Tensor], data: tuple[Tensor, ...]
) -> Product:
    """Product of curvlinops, forward over reverse, from scratch each time."""
    operator = _curvlinops_operator(module, loss, data)
    return lambda v: operator @ v


def _curvlinops_operator(module: nn.Module, loss: Callable[..., Tensor], data: tuple[Tensor, ...]) -> Any:
    """Operator of curvlinops of a loss that need not look at a target."""
    from curvlinops import HessianLinearOperator  # pyright: ignore[reportMissingImports]  # deferred: a peer, optional

    class Loss(nn.Module):
        reduction = "mean"

        def forward(self, z: Tensor, target: Tensor) -> Tensor:
            return loss(z, target)

    parameters = [value for value in module.parameters() if value.requires_grad]
    return HessianLinearOperator(module, Loss(), parameters, [data], check_deterministic=False)


def _eigenthings(
    coupled: CoupledLoss, module: nn.Module, loss: Callable[..., Tensor], data: tuple[Tensor, ...]
) -> Product:
    """Product of hessian-eigenthings by double backward, from scratch each time."""
    from hessian_eigenthings import HessianOperator  # pyright: ignore[reportMissingImports]  # deferred: as above

    return HessianOperator(module, [data], lambda model, batch: loss(model(batch[0]), batch[1])).matvec


PEERS = {"PyHessian": _pyhessian, "curvlinops": _curvlinops, "hessian-eigenthings": _eigenthings}
