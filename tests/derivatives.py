"""Derivatives of functions of one tensor; torch.autograd.functional takes tuples too, and its types say so."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

Function = Callable[[Tensor], Tensor]


def jacobian(function: Function, x: Tensor) -> Tensor:
    """Shape of the value, then shape of ``x``."""
    return _tensor(torch.autograd.functional.jacobian(function, x))


def hessian(function: Function, x: Tensor) -> Tensor:
    """Shape of ``x`` twice; ``function`` has one number as its value."""
    return _tensor(torch.autograd.functional.hessian(function, x))


def hvp(function: Function, x: Tensor, vector: Tensor) -> Tensor:
    """Hessian times vector, by a pass backward through the product of gradient and vector."""
    return _tensor(torch.autograd.functional.hvp(function, x, vector)[1])


def vhp(function: Function, x: Tensor, vector: Tensor) -> Tensor:
    """Vector times Hessian."""
    return _tensor(torch.autograd.functional.vhp(function, x, vector)[1])


def _tensor(value: Any) -> Tensor:
    assert isinstance(value, Tensor)
    return value
