"""Training the toy networks: gradient flow on fixed views by an adaptive integrator, and SGD on fresh batches."""

# T recorded times, N samples

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from counterpoint.core.checks import check_positive
from counterpoint.core.errors import TrainingError, UsageError
from counterpoint.papers.directclr2022.flow_losses import FlowLoss
from counterpoint.papers.directclr2022.flow_network import ToyNetwork, network_gradient
from counterpoint.papers.directclr2022.toy_augmentations import ToyData, ToyViews, draw_views
from counterpoint.papers.flow_integrator import TOLERANCE, State, integrate


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
    """How SGD goes: no momentum, no weight decay.

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
    at_record: Callable[[int], None] | None = None,
) -> NetworkPath:
    """Train by SGD, each step on a batch of its own.

    Args:
        network: the start, as wide as the data.
        data: where batches come from.
        loss: of the embeddings.
        descent: rate, steps and batch.
        generator: draws the batches.
        at_record: called with the step whenever a network is kept.

    Raises:
        TrainingError: the loss is no longer finite.
        UsageError: a network of another width than the data.
    """
    last = descent.num_steps
    recorded = {round(place * last / (descent.num_records - 1)) for place in range(descent.num_records)}
    weights, times, networks, values = network.weights, [], [], []
    for step in range(last + 1):
        views = draw_views(data, descent.batch_size, generator=generator)
        at = network_gradient(ToyNetwork(weights, network.is_rectified), views, loss)
        if step in recorded:
            _require_finite(at.value, step, descent)
            times.append(step * descent.rate)
            networks.append(ToyNetwork(weights, network.is_rectified))
            values.append(at.value)
            if at_record is not None:
                at_record(step)
        if step < last:
            weights = tuple(w - descent.rate * g for w, g in zip(weights, at.gradients, strict=True))
    to_tensor = torch.tensor
    return NetworkPath(to_tensor(times).double(), tuple(networks), to_tensor(values).double())


def _require_finite(value: float, step: int, descent: SgdPlan) -> None:
    """Stop with the remedy when the loss has overflowed."""
    if not abs(value) < float("inf"):
        raise TrainingError(f"the loss is {value} at step {step}; a rate below {descent.rate:g} may help")
