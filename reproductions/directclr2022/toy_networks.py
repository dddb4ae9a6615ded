"""Stacks of square layers, linear or with ReLU between them, and their training.

Gradients are written out. Training is gradient flow on fixed views by an adaptive integrator, or SGD on fresh batches.
A ``Toy`` is one loss on the data of the paper's figures, 16 dimensions, and how to train on it.
"""

# N samples, D input dimensions, K embedding dimensions, H width of a layer, T recorded times

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from counterpoint.core.checks import check_positive, check_weight
from counterpoint.core.errors import TrainingError, UsageError
from reproductions.directclr2022.singular_vectors import log_spectrum
from reproductions.directclr2022.toy_models import (
    DistanceInfoNCE,
    FlowLoss,
    LossAt,
    ProductInfoNCE,
    ToyData,
    ToyViews,
    block_noise,
    draw_views,
    gaussian_points,
)
from reproductions.flow_integrator import TOLERANCE, State, integrate
from reproductions.reproduction import FigureRun

NUM_DIMS = 16
NUM_POINTS = 10_000
WEAK, STRONG = 0.001, 1.5  # noise of the released toys
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
        """Keep float64, and check that each layer is as wide as the outputs of the one before it."""
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


def embed(network: ToyNetwork, x_ND: Tensor) -> Tensor:
    """Embeddings (n, k) of inputs (n, d)."""
    return layer_inputs(network, x_ND)[-1]


def layer_inputs(network: ToyNetwork, x_ND: Tensor) -> list[Tensor]:
    """Inputs of each layer, and the embedding last: L + 1 matrices.

    Raises:
        UsageError: inputs of another width than the first layer's.
    """
    num_inputs = network.weights[0].shape[1]
    if x_ND.shape[-1] != num_inputs:
        raise UsageError(f"inputs must have {num_inputs} dimensions, as W_1 takes, got {x_ND.shape[-1]}")
    seen = [x_ND]
    for place, weight in enumerate(network.weights, start=1):
        output_NH = seen[-1] @ weight.T
        # The embedding itself has no ReLU.
        seen.append(output_NH.relu() if network.is_rectified and place < network.depth else output_NH)
    return seen


def network_gradient(network: ToyNetwork, views: ToyViews, loss: FlowLoss) -> LossAt:
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
    # Both views in one pass, as the layers share their weights.
    both_2ND = torch.cat([views.x_ND, views.other_ND])
    seen = layer_inputs(network, both_2ND)
    z_NK, other_NK = seen[-1].chunk(2)
    at = loss.at(z_NK, other_NK)
    upstream_NH = torch.cat(at.gradients)
    gradients: list[Tensor] = []
    for place in range(network.depth - 1, -1, -1):
        gradients.append(upstream_NH.T @ seen[place])
        upstream_NH = upstream_NH @ network.weights[place]
        if network.is_rectified:
            # A layer takes what the ReLU below gives, positive where its gate is open; that of x itself is not used.
            upstream_NH = upstream_NH * (seen[place] > 0)
    return LossAt(at.value, tuple(reversed(gradients)))


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
    # No two alike where decay > 0: the singular vectors are unique, save for their signs.
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


@dataclass(frozen=True)
class NetworkPath:
    """A network while it learns.

    Attributes:
        times_T: time of the flow; for SGD rate times steps, so that both can be compared.
        networks: the network at each time.
        losses_T: of the fixed views, or of the batch that the step then took.
    """

    times_T: Tensor
    networks: tuple[ToyNetwork, ...]
    losses_T: Tensor

    @property
    def last(self) -> ToyNetwork:
        """The network at the end."""
        return self.networks[-1]


@dataclass(frozen=True)
class SgdPlan:
    """Rate, steps and batch size of SGD without momentum or weight decay.

    Source: the released toys of directclr2022: two layers with rate 0.01 (one layer 0.001), 10000 steps of 128.

    Attributes:
        rate: step size > 0.
        num_steps: >= 1.
        batch_size: n >= 2, drawn anew for each step.
        num_records: networks kept, start and end included, >= 2.
    """

    rate: float = 0.01
    num_steps: int = 10_000
    batch_size: int = 128
    num_records: int = 101

    def __post_init__(self) -> None:
        """Check the ranges."""
        check_positive(self.rate, "rate", hint="the released toys have 0.01 and 0.001")
        for name, least in (("num_steps", 1), ("batch_size", 2), ("num_records", 2)):
            if getattr(self, name) < least:
                raise UsageError(f"{name} must be >= {least}, got {getattr(self, name)}")


# Eq. 2 is a sum over the batch, so its rate is smaller; it has settled after a tenth of the time.
RELEASED = SgdPlan(rate=0.01, num_steps=10_000, batch_size=128, num_records=51)
EQ_2 = SgdPlan(rate=0.001, num_steps=2_000, batch_size=128, num_records=51)
QUICK_RELEASED = SgdPlan(rate=0.05, num_steps=2_000, batch_size=64, num_records=21)
QUICK_EQ_2 = SgdPlan(rate=0.002, num_steps=1_000, batch_size=64, num_records=21)


def gradient_flow(
    network: ToyNetwork, views: ToyViews, loss: FlowLoss, times_T: Tensor, *, tolerance: float = TOLERANCE
) -> NetworkPath:
    r"""Follow :math:`\dot W_l = -dL/dW_l` with all weights alpha recomputed at each moment.

    Args:
        network: at the first time. With ReLU the velocity jumps where a unit switches for a
            sample, and where it jumps back the flow slides along that edge: the integrator may give up.
        views: fixed; the flow knows no batches.
        loss: of the embeddings.
        times_T: at least 2 increasing times; the first is the start's.
        tolerance: of each step's error.
    """

    def velocity(weights: State) -> list[Tensor]:
        at = network_gradient(ToyNetwork(weights, network.is_rectified), views, loss)
        return [-gradient for gradient in at.gradients]

    path = integrate(velocity, network.weights, times_T, tolerance=tolerance)
    networks = tuple(ToyNetwork(state, network.is_rectified) for state in path.states)
    values = [network_gradient(reached, views, loss).value for reached in networks]
    return NetworkPath(path.times_T, networks, torch.tensor(values, dtype=torch.float64))


def gradient_descent(
    network: ToyNetwork,
    data: ToyData,
    loss: FlowLoss,
    *,
    descent: SgdPlan,
    generator: torch.Generator,
) -> NetworkPath:
    """Train by SGD, each step on a batch of its own.

    Args:
        network: the start, as wide as the data.
        data: where batches come from.
        loss: of the embeddings.
        descent: rate, steps and batch.
        generator: draws the batches.

    Raises:
        TrainingError: the loss is no longer finite.
        UsageError: a network of another width than the data.
    """
    last = descent.num_steps
    # Evenly, with the start and the end.
    recorded = {round(place * last / (descent.num_records - 1)) for place in range(descent.num_records)}
    weights, times, networks, values = network.weights, [], [], []
    # One turn more than steps: the last one records only.
    for step in range(last + 1):
        # All draws come from one generator: a longer run begins like a shorter one.
        views = draw_views(data, descent.batch_size, generator=generator)
        at = network_gradient(ToyNetwork(weights, network.is_rectified), views, loss)
        if step in recorded:
            # Weights that overflow stay so: recorded steps find it.
            if not abs(at.value) < float("inf"):
                raise TrainingError(f"the loss is {at.value} at step {step}; a rate below {descent.rate:g} may help")
            times.append(step * descent.rate)
            networks.append(ToyNetwork(weights, network.is_rectified))
            values.append(at.value)
        if step < last:
            weights = tuple(w - descent.rate * g for w, g in zip(weights, at.gradients, strict=True))
    to_tensor = torch.tensor
    return NetworkPath(to_tensor(times).double(), tuple(networks), to_tensor(values).double())


@dataclass(frozen=True)
class Toy:
    """One loss on one data model, with the plan of its training and its name."""

    name: str
    loss: FlowLoss
    data: ToyData
    descent: SgdPlan
    seed: int
    progress: Callable[[str], None]

    def train(self, start: ToyNetwork) -> NetworkPath:
        """Train a start by SGD, with the same batches for every start."""
        kind = "ReLU" if start.is_rectified else "linear"
        self.progress(f"{self.name}: {self.descent.num_steps} steps, {kind}, depth {start.depth}")
        # batches; the points have the seed itself, the start + 2
        generator = torch.Generator().manual_seed(self.seed + 1)
        return gradient_descent(start, self.data, self.loss, descent=self.descent, generator=generator)

    def start(self, depth: int, *, is_rectified: bool = False) -> ToyNetwork:
        """Draw the released start; networks of different depths share their first layers."""
        generator = torch.Generator().manual_seed(self.seed + 2)
        return decaying_network(depth, NUM_DIMS, generator=generator, is_rectified=is_rectified)

    def spectrum(self, network: ToyNetwork) -> Tensor:
        """Log spectrum (d,) of the embedded points, without noise."""
        return log_spectrum(embed(network, self.data.points_PD))


def make_toys(run: FigureRun, figure: str, start: int = 0, noise_DD: Tensor | None = None) -> tuple[Toy, Toy]:
    """Make a toy for each loss, the released one first, with the draws of one start of a figure."""
    seed = run.seed_of(figure, start)
    points_PD = gaussian_points(NUM_POINTS, NUM_DIMS, generator=torch.Generator().manual_seed(seed))
    data = ToyData(block_noise(NUM_DIMS, WEAK) if noise_DD is None else noise_DD, points_PD)
    # Both have the same points, noise and seeds; only loss and plan differ.
    released, eq_2 = (QUICK_RELEASED, QUICK_EQ_2) if run.quick else (RELEASED, EQ_2)
    return (
        Toy("released loss", ProductInfoNCE(), data, released, seed, run.progress),
        Toy("Eq. 2", DistanceInfoNCE(), data, eq_2, seed, run.progress),
    )
