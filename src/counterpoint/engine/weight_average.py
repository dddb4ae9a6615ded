"""Exponential moving average of a method's weights, which evaluation and users get in their place.

Not torch's ``AveragedModel``: its first update copies the weights, so that every average would have other bits, and it
deep-copies the module, which refuses one that keeps a computed tensor; it was no faster (53 against 43 ms, ResNet-18).
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from counterpoint.core.errors import RunError


def averaging_decay(step: int, decay: float) -> float:
    """Share of the average that a step keeps: the given one, less at first.

    ``min(decay, (1 + step) / (10 + step))``: without the rise the untrained weights would weigh decay^t after t steps,
    which is 90 % after 100 steps of 0.999. A function of the step alone, so that resuming needs nothing else.

    Args:
        step: updates done before this one, >= 0.
        decay: in (0, 1).

    >>> [averaging_decay(step, 0.99) for step in (0, 8, 10_000)]
    [0.1, 0.5, 0.99]
    """
    return min(decay, (1 + step) / (10 + step))


class WeightAverage:
    r"""The average :math:`\bar w \leftarrow d_t \bar w + (1 - d_t) w`, with :math:`d_t` of ``averaging_decay``.

    Floating tensors are averaged, BatchNorm's statistics too; others (counters) are copied. What is given is what is
    averaged: leave out what has no mean, such as a queue of keys.

    Args:
        state: parameters and buffers by name, as ``Module.state_dict`` gives them; the average starts at them.
        decay: largest share that a step keeps, in (0, 1).

    >>> average = WeightAverage({"w": torch.zeros(2)}, decay=0.99)
    >>> average.update({"w": torch.ones(2)}, step=0)
    >>> average.tensors()["w"]
    tensor([0.9000, 0.9000])
    """

    def __init__(self, state: Mapping[str, Tensor], decay: float) -> None:
        if not 0 < decay < 1:
            raise ValueError(f"decay must be > 0 and < 1, got {decay}; 0.99 to 0.9999 are common")
        self.decay = decay
        self._average = {name: value.detach().clone() for name, value in state.items()}
        self._is_placed = False

    @torch.no_grad()
    def update(self, state: Mapping[str, Tensor], *, step: int) -> None:
        """Move the average towards the weights of now.

        Args:
            state: the same names as at the start; more are passed over.
            step: updates done before this one, counted from 0 in the whole run.
        """
        self._place(state)
        means = [name for name, value in self._average.items() if value.is_floating_point()]
        weight = 1.0 - averaging_decay(step, self.decay)  # 1 - d_t
        # w + (1 - d) (w_now - w) = d w + (1 - d) w_now, in one call for all tensors.
        own, now = [self._average[name] for name in means], [state[name].detach() for name in means]
        torch._foreach_lerp_(own, now, weight)  # pyright: ignore[reportPrivateImportUsage]
        # Counters, such as BatchNorm's number of batches, are whole numbers and have no mean.
        counters = {name: state[name] for name in self._average.keys() - set(means)}
        _copy(counters, self._average)

    def tensors(self) -> dict[str, Tensor]:
        """Copies by name, on the CPU, for a checkpoint or for export."""
        return {
            name: value.to("cpu", copy=True, memory_format=torch.contiguous_format)
            for name, value in self._average.items()
        }

    @torch.no_grad()
    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Inverse of ``tensors``.

        Raises:
            RunError: other names, shapes or kinds of number than this average has.
        """
        if _kinds(tensors) != _kinds(self._average):
            raise RunError("the saved average of weights is of another model; resume with the settings of the run")
        # In place: device and memory layout stay those of the weights.
        for name, value in tensors.items():
            self._average[name].copy_(value)

    @contextmanager
    def applied(self, module: nn.Module) -> Iterator[None]:
        """Inside the block a module has the average's weights; after it, its own again, bit for bit.

        Args:
            module: has the names that are averaged; its other tensors stay.
        """
        live = module.state_dict()
        self._place(live)
        # A copy, since the average is written into the module's own tensors: its parameters stay the same
        # objects.
        own = {name: live[name].detach().clone() for name in self._average}
        try:
            _copy(self._average, live)
            yield
        finally:
            _copy(own, live)

    @torch.no_grad()
    def _place(self, state: Mapping[str, Tensor]) -> None:
        # Not when it is made: the engine moves the weights and lays them out (channels last) only later.
        """Bring the average, once, to where the weights are by now: their device and memory layout."""
        if self._is_placed:
            return
        for name, value in self._average.items():
            self._average[name] = torch.empty_like(state[name].detach()).copy_(value)
        self._is_placed = True


@torch.no_grad()
def _copy(values: Mapping[str, Tensor], into: Mapping[str, Tensor]) -> None:
    """Write tensors into those of the same names."""
    for name, value in values.items():
        into[name].copy_(value)


def _kinds(tensors: Mapping[str, Tensor]) -> dict[str, tuple[torch.Size, torch.dtype]]:
    return {name: (value.shape, value.dtype) for name, value in tensors.items()}
