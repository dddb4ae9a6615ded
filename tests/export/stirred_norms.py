"""Encoders whose norms have statistics of their own."""

from collections.abc import Callable

from torch import nn

from counterpoint.nn.trained import Encoder

MakeEncoder = Callable[..., Encoder]


def stirred(module: nn.Module) -> nn.Module:
    """BatchNorms with statistics of their own, so that a forgotten one shows."""
    for norm in module.modules():
        if isinstance(norm, nn.BatchNorm1d | nn.BatchNorm2d):
            assert norm.running_mean is not None
            assert norm.running_var is not None
            norm.running_mean.uniform_(-0.1, 0.1)
            norm.running_var.uniform_(0.5, 1.5)
    return module
