"""Products of the Hessian of a batch-coupled loss with vectors: exact, with the graph kept or in chunks."""

# N samples, C samples per chunk, P parameters in one vector

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from counterpoint.core.checks import check_positive
from counterpoint.core.errors import NonFiniteError
from counterpoint.diagnostics.curvature.coupled_loss import CoupledLoss, flat
from counterpoint.diagnostics.curvature.spectrum_records import ProductRoute

PART_BYTES = 32 * 2**20  # of the graph of one part: small enough that a processor's cache helps


@dataclass(frozen=True)
class HessianOperator:
    """The Hessian of a loss at fixed parameters, known by its products ``operator @ v``.

    Attributes:
        loss: whose Hessian it is.
        gradient_P: its gradient.
        value: of the loss.
        route: how products are computed.
        product: takes and gives (P,).
    """

    loss: CoupledLoss
    gradient_P: Tensor
    value: float
    route: ProductRoute
    product: Callable[[Tensor], Tensor]

    def __matmul__(self, v_P: Tensor) -> Tensor:
        """H v.

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


def hessian_operator(loss: CoupledLoss, *, chunk_size: int, memory_limit: float) -> HessianOperator:
    """The Hessian by the faster route that fits: the whole graph kept, or one chunk at a time.

    Args:
        loss: at its parameters.
        chunk_size: samples per chunk, >= 1. Chunks whose graph is smaller than the vector and its product, which are
            there anyway, are made larger: they would cost time and save no memory.
        memory_limit: bytes that the graph of the whole batch may keep. What it needs is measured on one chunk.

    Raises:
        ValueError: chunk_size < 1.
        RuntimeError: the loss has no second derivative; its own words.
    """
    check_positive(chunk_size, "chunk_size", hint="it is the number of samples that are encoded at once")
    size = min(chunk_size, loss.num_samples)
    if not loss.is_separable:
        return kept_products(loss, reason="the encoder mixes the samples of a batch (BatchNorm), so it is not cut")
    needed = graph_bytes(loss, size)
    words = f"the graph of the whole batch, about {needed / 2**20:,.0f} MiB,"
    if needed <= memory_limit:
        return kept_products(loss, reason=f"{words} fits", needed=needed, part_size=part_size(loss, needed))
    vectors = 2 * loss.num_parameters * next(iter(loss.parameters.values())).element_size()
    size = min(loss.num_samples, max(size, math.ceil(vectors * loss.num_samples / max(1, needed))))
    return chunked_products(loss, size, reason=f"{words} does not fit", needed=needed)


def kept_products(
    loss: CoupledLoss, *, reason: str = "as asked", needed: int | None = None, part_size: int | None = None
) -> HessianOperator:
    r"""The Hessian with the graph of its gradient kept: about two gradients of time per product.

    .. math:: H v = \nabla_\theta \langle \nabla_\theta L(\theta), v \rangle

    Source: pearlmutter1994, section 3; the inner gradient, and what it needs, is computed once.

    Args:
        loss: at its parameters.
        reason: why this route, for the record.
        needed: bytes that the graph keeps, for the record.
        part_size: samples that are encoded at once; None takes all.
    """
    leaves = list((named := loss.leaves()).values())
    with torch.enable_grad():
        parts = [loss.encode(named, part) for part in loss.chunks(part_size or loss.num_samples)]
        value = loss.loss(named, torch.cat(parts))
        gradient = torch.autograd.grad(value, leaves, create_graph=True, materialize_grads=True)

    def product(v_P: Tensor) -> Tensor:
        return flat(_pulled_back(gradient, leaves, loss.split(v_P), keeps=True))

    route = ProductRoute("kept", loss.num_samples, needed, reason)
    return HessianOperator(loss, flat(gradient).detach(), float(value.detach()), route, product)


def chunked_products(
    loss: CoupledLoss, chunk_size: int, *, reason: str = "as asked", needed: int | None = None
) -> HessianOperator:
    r"""The Hessian in the memory of one chunk of samples, the embeddings and a few vectors: four gradients of time.

    With :math:`g = \partial\ell/\partial Z`, the change :math:`\dot Z = J v` of the embeddings, and chunks B,

    .. math:: H v = \underbrace{\sum_B \nabla^2_\theta \langle Z_B, g_B \rangle\, v}_{\text{first pass}}
        + \underbrace{\sum_B J_B^\top \dot g_B}_{\text{second pass}} + \dot g_\theta, \qquad
        \dot g = \nabla^2 \ell \cdot (v, \dot Z).

    Exact for every chunk size: the loss sees all embeddings and all their tangents. The first pass also gives
    :math:`\dot Z_B`, as the derivative of :math:`\langle \nabla_\theta \langle Z_B, g_B\rangle, v\rangle` with respect
    to g, so that nothing is needed of the encoder but a second derivative in reverse mode.

    Source: gao2021, section 3 (gradient caching), applied to dual numbers. Differs from a first pass in forward mode,
        which takes a tenth longer (``benchmarks/curvature.py``) and which encoders with functions of their own lack.

    Args:
        loss: at its parameters; it must be separable.
        chunk_size: samples per chunk, >= 1.
        reason: why this route, for the record.
        needed: bytes that the graph of the whole batch would keep, for the record.

    Raises:
        ValueError: the encoder mixes samples.
    """
    if not loss.is_separable:
        raise ValueError(
            "the encoder mixes the samples of a batch, so that chunks would change the loss; keep it whole"
        )
    leaves = list((named := loss.leaves()).values())
    with torch.no_grad():
        z = torch.cat([loss.encode(named, chunk) for chunk in loss.chunks(chunk_size)])
    z.requires_grad_()
    with torch.enable_grad():
        value = loss.loss(named, z)
        # The loss's graph over the embeddings is small: it is kept for all products.
        outer = torch.autograd.grad(value, [z, *leaves], create_graph=True, materialize_grads=True)
    cotangent = outer[0].detach()

    def product(v_P: Tensor) -> Tensor:
        v = loss.split(v_P)
        total = [torch.zeros_like(part) for part in v]
        tangents = [
            _add_curved(total, loss, chunk, g, v)
            for chunk, g in zip(loss.chunks(chunk_size), cotangent.split(chunk_size), strict=True)
        ]
        g_dot, *own = _pulled_back(outer, [z, *leaves], [torch.cat(tangents), *v], keeps=True)
        _add(total, own)
        for chunk, g in zip(loss.chunks(chunk_size), g_dot.split(chunk_size), strict=True):
            _add(total, _seeded(loss, chunk, g))
        return flat(total)

    gradient = [part.detach().clone() for part in outer[1:]]
    for chunk, g in zip(loss.chunks(chunk_size), cotangent.split(chunk_size), strict=True):
        _add(gradient, _seeded(loss, chunk, g))
    return HessianOperator(
        loss, flat(gradient), float(value.detach()), ProductRoute("chunked", chunk_size, needed, reason), product
    )


def part_size(loss: CoupledLoss, needed: int) -> int:
    """Samples that are best encoded at once in a kept graph: all on a GPU, on a processor what its cache can hold.

    Args:
        loss: at its parameters; it must be separable.
        needed: bytes that the graph of all samples keeps.
    """
    if loss.inputs[0].device.type != "cpu":
        return loss.num_samples
    return min(loss.num_samples, max(1, loss.num_samples * PART_BYTES // max(1, needed)))


def graph_bytes(loss: CoupledLoss, chunk_size: int) -> int:
    """What the graph of the gradient of the whole batch keeps for the encoder, from one chunk of it."""
    kept: dict[int, int] = {}

    def count(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    chunk = next(loss.chunks(chunk_size))
    leaves = list((named := loss.leaves()).values())
    with torch.enable_grad(), torch.autograd.graph.saved_tensors_hooks(count, lambda tensor: tensor):
        z = loss.encode(named, chunk)
        gradient = torch.autograd.grad(z, leaves, torch.ones_like(z), create_graph=True, allow_unused=True)
    for tensor in (*loss.parameters.values(), *chunk):
        kept.pop(tensor.untyped_storage().data_ptr(), None)
    del gradient  # held until here: what it keeps was to be counted
    return sum(kept.values()) * loss.num_samples // len(chunk[0])


def _add_curved(
    total: Sequence[Tensor], loss: CoupledLoss, chunk: tuple[Tensor, ...], g: Tensor, v: Sequence[Tensor]
) -> Tensor:
    """Add what the encoder's own curvature makes of v; returns the change of the chunk's embeddings along v."""
    leaves = list((named := loss.leaves()).values())
    weight = g.clone().requires_grad_()
    with torch.enable_grad():
        z = loss.encode(named, chunk)
        pulled = torch.autograd.grad(z, leaves, weight, create_graph=True, materialize_grads=True)
        *curved, tangent = _pulled_back(pulled, [*leaves, weight], v, keeps=False)
    _add(total, curved)
    return tangent


def _seeded(loss: CoupledLoss, chunk: tuple[Tensor, ...], g: Tensor) -> Sequence[Tensor]:
    """A chunk's share of the gradient whose derivative with respect to its embeddings is g."""
    leaves = list((named := loss.leaves()).values())
    with torch.enable_grad():
        return torch.autograd.grad(loss.encode(named, chunk), leaves, g, materialize_grads=True)


def _add(total: Sequence[Tensor], parts: Sequence[Tensor]) -> None:
    """Add in place."""
    for sum_so_far, part in zip(total, parts, strict=True):
        sum_so_far.add_(part)


def _pulled_back(outputs: Sequence[Tensor], at: Sequence[Tensor], v: Sequence[Tensor], *, keeps: bool) -> list[Tensor]:
    """Derivative of <outputs, v>; zero for what nothing depends on."""
    pairs = [(output, part) for output, part in zip(outputs, v, strict=True) if output.requires_grad]
    if not pairs:
        return [torch.zeros_like(leaf) for leaf in at]
    named, weights = zip(*pairs, strict=True)
    return list(torch.autograd.grad(named, at, weights, retain_graph=keeps, materialize_grads=True))
