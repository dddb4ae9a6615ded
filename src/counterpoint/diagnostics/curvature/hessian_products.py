"""The Hessian of a loss that couples all samples of a batch, by exact products with vectors."""

# N samples, P parameters in one vector

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from counterpoint.core.errors import NonFiniteError

Parameters = Mapping[str, Tensor]
Inputs = tuple[Tensor, ...]
MEASURED = 8  # samples whose graph tells what that of all keeps


@dataclass(frozen=True)
class CoupledLoss:
    r"""A loss of a whole batch as a function of the parameters of an encoder.

    .. math:: L(\theta) = \ell(\theta, Z), \qquad Z = \big(f_\theta(x_1), \dots, f_\theta(x_N)\big)

    Both must be functions: the same views, and no dropout.

    Attributes:
        encode: ``encode(parameters, inputs)`` gives the embeddings (n, ...) of samples, both views together.
        loss: ``loss(parameters, embeddings)`` gives a scalar; it may use parameters of its own.
        parameters: parameters by name, with respect to which the Hessian is taken.
        inputs: tensors (N, ...) whose rows belong together, such as both views.
    """

    encode: Callable[[Parameters, Inputs], Tensor]
    loss: Callable[[Parameters, Tensor], Tensor]
    parameters: Parameters
    inputs: Inputs

    @cached_property
    def num_parameters(self) -> int:
        """Number of parameters, P."""
        return sum(value.numel() for value in self.parameters.values())

    def leaves(self) -> dict[str, Tensor]:
        """The parameters as new leaves, of which derivatives can be taken."""
        return {name: value.detach().requires_grad_() for name, value in self.parameters.items()}

    def split(self, v_P: Tensor) -> list[Tensor]:
        """A vector of all parameters as tensors of their shapes."""
        parts = v_P.split([value.numel() for value in self.parameters.values()])
        return [part.reshape(value.shape) for part, value in zip(parts, self.parameters.values(), strict=True)]


@dataclass(frozen=True)
class HessianOperator:
    """The Hessian of a loss at fixed parameters, known by its products ``operator @ v``.

    Attributes:
        gradient_P: gradient of the loss, (P,).
        value: value of the loss.
        product: function of a vector (P,) that gives its product with the Hessian, (P,).
    """

    gradient_P: Tensor
    value: float
    product: Callable[[Tensor], Tensor]

    def __matmul__(self, v_P: Tensor) -> Tensor:
        """Return the product H v.

        Raises:
            NonFiniteError: the product is NaN or infinite.
        """
        product_P = self.product(v_P.to(self.gradient_P))
        if not bool(torch.isfinite(product_P).all()):
            raise NonFiniteError(
                "a Hessian-vector product is NaN or infinite: the loss has no second derivative at these parameters "
                "(two samples with one embedding, a length of zero), or overflows; try float64 or another checkpoint"
            )
        return product_P


def hessian_operator(loss: CoupledLoss) -> HessianOperator:
    r"""The Hessian with the graph of its gradient kept: about two gradients of time per product.

    .. math:: H v = \nabla_\theta \langle \nabla_\theta L(\theta), v \rangle

    Source: pearlmutter1994, section 3; the inner gradient, and what it needs, is computed once.

    Raises:
        RuntimeError: the loss has no second derivative; its own words.
    """
    leaves = list((named := loss.leaves()).values())
    with torch.enable_grad():
        value = loss.loss(named, loss.encode(named, loss.inputs))
        gradient = torch.autograd.grad(value, leaves, create_graph=True, materialize_grads=True)

    def product(v_P: Tensor) -> Tensor:
        # Parameters that the loss does not depend on have no graph.
        pairs = [(part, v) for part, v in zip(gradient, loss.split(v_P), strict=True) if part.requires_grad]
        if not pairs:
            return torch.zeros_like(v_P)
        parts, weights = zip(*pairs, strict=True)
        return flat(torch.autograd.grad(parts, leaves, weights, retain_graph=True, materialize_grads=True))

    return HessianOperator(flat(gradient).detach(), float(value.detach()), product)


def graph_bytes(loss: CoupledLoss) -> int:
    """Bytes that the graph of the gradient keeps for the encoder, estimated from a few samples."""
    storage_bytes: dict[int, int] = {}

    def count(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        storage_bytes[storage.data_ptr()] = storage.nbytes()
        return tensor

    first_rows = tuple(rows[:MEASURED] for rows in loss.inputs)
    leaves = list((named := loss.leaves()).values())
    with torch.enable_grad(), torch.autograd.graph.saved_tensors_hooks(count, lambda tensor: tensor):
        z = loss.encode(named, first_rows)
        gradient = torch.autograd.grad(z, leaves, torch.ones_like(z), create_graph=True, allow_unused=True)
    for tensor in (*loss.parameters.values(), *first_rows):
        storage_bytes.pop(tensor.untyped_storage().data_ptr(), None)
    del gradient  # held until here: what it keeps was to be counted
    return sum(storage_bytes.values()) * len(loss.inputs[0]) // len(first_rows[0])


def flat(parts: Sequence[Tensor]) -> Tensor:
    """Concatenate tensors into one vector."""
    return torch.cat([part.reshape(-1) for part in parts])
