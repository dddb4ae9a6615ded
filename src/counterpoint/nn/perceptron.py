"""A stack of linear layers, as projectors and predictors are made of."""

import itertools
from collections.abc import Sequence

from torch import nn


def perceptron(widths: Sequence[int], *, has_norm: bool, output_norm: bool = False) -> nn.Sequential:
    """Linear layers with ReLU between them; weights are drawn from torch's generator.

    A layer before a BatchNorm has no bias: the norm would subtract it.

    Args:
        widths: of the input, of each hidden layer and of the output.
        has_norm: a BatchNorm after each hidden layer.
        output_norm: a BatchNorm without scale and shift after the last layer.

    >>> [type(layer).__name__ for layer in perceptron([4, 3, 2], has_norm=True)]
    ['Linear', 'BatchNorm1d', 'ReLU', 'Linear']
    """
    layers: list[nn.Module] = []
    for width_in, width in itertools.pairwise(widths[:-1]):
        layers.append(nn.Linear(width_in, width, bias=not has_norm))
        layers += [nn.BatchNorm1d(width), nn.ReLU()] if has_norm else [nn.ReLU()]
    layers.append(nn.Linear(widths[-2], widths[-1], bias=not output_norm))
    if output_norm:
        layers.append(nn.BatchNorm1d(widths[-1], affine=False))
    return nn.Sequential(*layers)
