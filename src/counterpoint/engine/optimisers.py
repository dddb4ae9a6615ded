"""Optimisers with weight-decay groups, and the schedule: linear warm-up, then cosine to zero, per step."""

import math
from dataclasses import dataclass

import torch
from torch import nn
from torch.optim import Optimizer

from counterpoint.core.settings import OptimSettings


def build_optimizer(module: nn.Module, settings: OptimSettings) -> Optimizer:
    """AdamW or SGD; vectors (biases and norms) are not decayed.

    Args:
        module: whose trainable parameters are optimised.
        settings: with every ``auto`` filled in.
    """
    trainable = [parameter for parameter in module.parameters() if parameter.requires_grad]
    groups = [
        {"params": [p for p in trainable if p.ndim > 1], "weight_decay": settings.weight_decay},
        {"params": [p for p in trainable if p.ndim <= 1], "weight_decay": 0.0},
    ]
    learning_rate = float(settings.learning_rate)
    if settings.name == "sgd":
        return torch.optim.SGD(groups, lr=learning_rate, momentum=settings.momentum)
    return torch.optim.AdamW(groups, lr=learning_rate)


@dataclass(frozen=True)
class WarmupCosine:
    r"""Learning rate as a pure function of the step, so that resuming needs no scheduler state.

    .. math:: \eta_t = \eta \min\big(1, (t+1)/W\big) \cdot \tfrac12 \big(1 + \cos(\pi \max(0, t - W) / (T - W))\big)

    Args:
        peak: eta > 0.
        num_steps: T, all steps of the run.
        num_warmup: W, steps of the linear rise.

    >>> schedule = WarmupCosine(peak=1.0, num_steps=100, num_warmup=10)
    >>> [round(schedule(step), 3) for step in (0, 9, 10, 55, 100)]
    [0.1, 1.0, 1.0, 0.5, 0.0]
    """

    peak: float
    num_steps: int
    num_warmup: int

    def __call__(self, step: int) -> float:
        """Learning rate of a step, counted from 0."""
        if step < self.num_warmup:
            return self.peak * (step + 1) / self.num_warmup
        share = (step - self.num_warmup) / max(1, self.num_steps - self.num_warmup)
        return self.peak * 0.5 * (1.0 + math.cos(math.pi * share))


def set_learning_rate(optimizer: Optimizer, learning_rate: float) -> None:
    """Give every group the same rate."""
    for group in optimizer.param_groups:
        group["lr"] = learning_rate
