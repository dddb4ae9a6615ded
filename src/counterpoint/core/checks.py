"""Argument checks at the public boundary; each writes the whole error sentence."""

from collections.abc import Collection

import torch
from torch import Tensor

from counterpoint.core.errors import NonFiniteError


def check_positive(value: float, name: str, *, hint: str = "") -> None:
    """Require value > 0.

    Raises:
        ValueError: with name, value, range and remedy.

    >>> check_positive(-1, "temperature", hint="common values are 0.1 to 0.5")
    Traceback (most recent call last):
    ValueError: temperature must be > 0, got -1; common values are 0.1 to 0.5
    """
    if not value > 0:
        raise ValueError(f"{name} must be > 0, got {value}{f'; {hint}' if hint else ''}")


def check_choice(value: str, name: str, choices: Collection[str]) -> None:
    """Require value to be one of the choices.

    Raises:
        ValueError: naming the choices.
    """
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(choices)}, got {value!r}")


def check_features(z_ND: Tensor, name: str, *, min_rows: int = 2) -> None:
    """Require a finite floating matrix with enough rows.

    Raises:
        TypeError: not a floating tensor.
        ValueError: not a matrix, too few rows, or a row that is not finite (a NonFiniteError that names the first).
    """
    if not isinstance(z_ND, Tensor) or not z_ND.is_floating_point():
        kind = z_ND.dtype if isinstance(z_ND, Tensor) else type(z_ND).__name__
        raise TypeError(f"{name} must be a floating-point tensor, got {kind}; convert it with .float()")
    if z_ND.ndim != 2:
        raise ValueError(f"{name} must have shape (samples, features), got {tuple(z_ND.shape)}")
    if len(z_ND) < min_rows:
        raise ValueError(f"{name} must have at least {min_rows} rows, got {len(z_ND)}")
    finite_N = torch.isfinite(z_ND).all(dim=1)
    if not bool(finite_N.all()):
        raise NonFiniteError(f"{name} must be finite, but row {int((~finite_N).nonzero()[0])} holds NaN or infinity")


def check_labels(labels_N: Tensor, num_samples: int) -> None:
    """Require one integer label per sample.

    Raises:
        ValueError: another length or shape, or labels that are not whole numbers.
    """
    if labels_N.ndim != 1 or len(labels_N) != num_samples:
        raise ValueError(f"labels must be one per sample, shape ({num_samples},), got {tuple(labels_N.shape)}")
    if labels_N.is_floating_point() or labels_N.is_complex():
        raise ValueError(f"labels must be whole numbers, got {labels_N.dtype}")
