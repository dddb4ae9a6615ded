"""A stack of square layers, linear or with ReLU between them: the toy models, with gradients written out."""

# N samples, D input dimensions, K embedding dimensions; H width of a layer

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

import torch
from torch import Tensor

from counterpoint.core.checks import check_weight
from counterpoint.core.errors import UsageError
from counterpoint.papers.directclr2022.flow_losses import FlowLoss
from counterpoint.papers.directclr2022.toy_augmentations import ToyViews

DECAY = 0.35  # singular values of the released start: exp(-0.35 i), i = 0, 1, ...


@dataclass(frozen=True)
class ToyNetwork:
    r""":math:`z = W_L \cdots W_2 W_1 x` without biases, or with ReLU between the layers.

    Source: directclr2022, sections 4.1 (one layer), 5.1 (two) and 5.4 (more layers, ReLU).

    Attributes:
        weights: W_1 first, each (outputs, inputs), float64.
        is_rectified: ReLU after every layer but the last.
    """

    weights: tuple[Tensor, ...]
    is_rectified: bool = False

    def __post_init__(self) -> None:
        """Keep float64; each layer takes what the one before it gives."""
        if not self.weights or any(weight.ndim != 2 for weight in self.weights):
            shapes = [tuple(weight.shape) for weight in self.weights]
            raise UsageError(f"weights must be one matrix per layer, at least 1, got shapes {shapes}")
        object.__setattr__(self, "weights", tuple(weight.double() for weight in self.weights))
        for place, (below, above) in enumerate(zip(self.weights[:-1], self.weights[1:], strict=True), start=1):
            if above.shape[1] != below.shape[0]:
                raise UsageError(f"W_{place + 1} takes {above.shape[1]} inputs, but W_{place} gives {below.shape[0]}")

    @property
    def depth(self) -> int:
        """L, the number of layers."""
        return len(self.weights)


@dataclass(frozen=True)
class NetworkAt:
    """A loss and its gradient at one network.

    Attributes:
        value: L.
        gradients: dL/dW_1 first, shaped as the weights.
    """

    value: float
    gradients: tuple[Tensor, ...]


def embed(network: ToyNetwork, x_ND: Tensor) -> Tensor:
    """Embeddings (n, k) of inputs (n, d)."""
    return layer_inputs(network, x_ND)[-1]


def layer_inputs(network: ToyNetwork, x_ND: Tensor) -> list[Tensor]:
    """What each layer sees, and the embedding last: L + 1 matrices.

    Raises:
        UsageError: inputs of another width than the first layer's.
    """
    num_inputs = network.weights[0].shape[1]
    if x_ND.shape[-1] != num_inputs:
        raise UsageError(f"inputs must have {num_inputs} dimensions, as W_1 takes, got {x_ND.shape[-1]}")
    seen = [x_ND]
    for place, weight in enumerate(network.weights, start=1):
        output_NH = seen[-1] @ weight.T
        seen.append(output_NH.relu() if network.is_rectified and place < network.depth else output_NH)
    return seen


def network_gradient(network: ToyNetwork, views: ToyViews, loss: FlowLoss) -> NetworkAt:
    r"""The loss of two views' embeddings and its gradient in every layer.

    For linear layers :math:`dL/dW_l = (W_L \cdots W_{l+1})^\top G (W_{l-1} \cdots W_1)^\top` with
    :math:`G = \sum_i (g_{z_i} x_i^\top + g_{z_i'} x_i'^\top)`. Source: directclr2022, Lemmas 1 and 3, where the flow is
    minus this.

    Args:
        network: whose input width is that of the views.
        views: two views of n samples.
        loss: with its gradients.

    Raises:
        UsageError: views of another width.
    """
    both_2ND = torch.cat([views.x_ND, views.other_ND])
    seen = layer_inputs(network, both_2ND)
    z_NK, other_NK = seen[-1].chunk(2)
    at = loss.at(z_NK, other_NK)
    upstream_NH = torch.cat([at.gradient_NK, at.other_gradient_NK])
    gradients: list[Tensor] = []
    for place in range(network.depth - 1, -1, -1):
        gradients.append(upstream_NH.T @ seen[place])
        upstream_NH = upstream_NH @ network.weights[place]
        if network.is_rectified:
            upstream_NH = upstream_NH * (seen[place] > 0)
    return NetworkAt(at.value, tuple(reversed(gradients)))


def product(weights: Sequence[Tensor]) -> Tensor:
    """W_L ... W_1 of weights given first layer first.

    >>> product([torch.tensor([[2.0]]), torch.tensor([[3.0]])])
    tensor([[6.]])
    """
    return reduce(lambda below, above: above @ below, weights)


def decaying_weight(num_dims: int, *, generator: torch.Generator, decay: float = DECAY) -> Tensor:
    r""":math:`U\, \mathrm{diag}(e^{-\delta i})\, V^\top`, i = 0 ... d-1: singular values that all differ.

    U and V are the singular vectors of a matrix with entries drawn from [0, 1), as in the released toys of
    directclr2022 (delta = 0.35). All entries of the leading pair have one sign.

    >>> torch.linalg.svdvals(decaying_weight(3, generator=torch.Generator().manual_seed(0)))
    tensor([1.0000, 0.7047, 0.4966], dtype=torch.float64)
    """
    if num_dims < 1:
        raise UsageError(f"num_dims must be >= 1, got {num_dims}; the paper has 16")
    check_weight(decay, "decay", hint="the released toys have 0.35")
    drawn_DD = torch.rand(num_dims, num_dims, generator=generator, dtype=torch.float64)
    u_DD, _, vh_DD = torch.linalg.svd(drawn_DD)
    sigma_D = torch.exp(-decay * torch.arange(num_dims, dtype=torch.float64))
    return (u_DD * sigma_D) @ vh_DD


def decaying_network(
    depth: int, num_dims: int, *, generator: torch.Generator, is_rectified: bool = False, decay: float = DECAY
) -> ToyNetwork:
    """Build L layers (d, d), each a ``decaying_weight`` of its own.

    Args:
        depth: L >= 1.
        num_dims: d >= 1.
        generator: the only source of randomness.
        is_rectified: ReLU between layers.
        decay: of the log singular values.
    """
    if depth < 1:
        raise UsageError(f"depth must be >= 1, got {depth}; the paper has 1 to 4 layers")
    weights = tuple(decaying_weight(num_dims, generator=generator, decay=decay) for _ in range(depth))
    return ToyNetwork(weights, is_rectified)
