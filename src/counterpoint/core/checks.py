"""Argument checks at the public boundary; each writes the whole error sentence."""

import math
from collections.abc import Collection
from numbers import Real

import torch
from torch import Tensor

from counterpoint.core.errors import MOST_NAMED, NonFiniteError, UsageError

LARGEST = 1e30  # float32 holds it, its inverse, and its product with anything ordinary
ROWS_AT_ONCE = 4096


def check_positive(value: float, name: str, *, hint: str = "") -> None:
    """Require value > 0, of a size that float32 holds together with its inverse.

    Raises:
        TypeError: not a number.
        ValueError: with name, value, range and remedy.

    >>> check_positive(-1, "temperature", hint="common values are 0.1 to 0.5")
    Traceback (most recent call last):
    ValueError: temperature must be > 0, got -1; common values are 0.1 to 0.5
    """
    check_real(value, name)
    tail = f", got {value}{f'; {hint}' if hint else ''}"
    if not value > 0:  # NaN compares false: `value <= 0` would let it pass
        raise ValueError(f"{name} must be > 0{tail}")
    if not 1 / LARGEST <= value <= LARGEST:
        raise ValueError(f"{name} must be between {1 / LARGEST:g} and {LARGEST:g}{tail}")


def check_real(value: float, name: str) -> None:
    """Require a plain number: a tensor would silently get no gradient.

    Raises:
        TypeError: anything else.
    """
    if isinstance(value, bool) or not isinstance(value, Real):  # True is a Real
        raise TypeError(f"{name} must be a number, got {type(value).__name__}; CrossModal has a learnable temperature")


def check_weight(value: float, name: str, *, hint: str) -> None:
    """Require 0 <= value < infinity.

    Raises:
        ValueError: with name, value, range and remedy.

    >>> check_weight(-1, "weight", hint="0.01 is common")
    Traceback (most recent call last):
    ValueError: weight must be >= 0 and finite, got -1; 0.01 is common
    """
    if not 0 <= value < math.inf:
        raise ValueError(f"{name} must be >= 0 and finite, got {value}; {hint}")


def check_whole(value: int, name: str, least: int, end: int, remedy: str) -> None:
    """Require a whole number from ``least`` to ``end`` - 1.

    >>> check_whole(True, "seed", 0, 2**64, "0 is as good as any")
    Traceback (most recent call last):
    ValueError: seed must be a whole number from 0 to 18446744073709551615, got True; 0 is as good as any
    """
    # True is an int to Python.
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value < end:
        raise ValueError(f"{name} must be a whole number from {least} to {end - 1}, got {value!r}; {remedy}")


def check_choice(value: str, name: str, choices: Collection[str]) -> None:
    """Require value to be one of the choices.

    Raises:
        ValueError: naming the choices.
    """
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(choices)}, got {value!r}")


def check_dense(values: Tensor, name: str, *, error: type[Exception] = TypeError) -> None:
    """Require an ordinary tensor, with a place in memory for each entry.

    Raises:
        TypeError: sparse, nested or quantized; or the error that is given.

    >>> check_dense(torch.eye(2).to_sparse(), "z0")
    Traceback (most recent call last):
    TypeError: z0 must be a dense tensor, got one of layout sparse_coo; convert it with .to_dense()
    """
    # First: a nested tensor has neither layout nor shape that can be relied on.
    if values.is_nested:
        raise error(f"{name} must be a dense tensor, got a nested one; pad its rows to one length")
    if values.layout != torch.strided:
        layout = str(values.layout).removeprefix("torch.")
        raise error(f"{name} must be a dense tensor, got one of layout {layout}; convert it with .to_dense()")
    if values.is_quantized:
        raise error(f"{name} must be a dense tensor, got a quantized one; convert it with .dequantize()")


def check_held(values: Tensor, name: str, *, error: type[Exception] = TypeError) -> None:
    """Require a dense tensor that holds numbers.

    Raises:
        TypeError: it is not dense, or on the device meta; or the error that is given.
    """
    check_dense(values, name, error=error)
    if values.is_meta:
        raise error(f"{name} is on the device meta and holds no numbers; make it on a real device")


def require_numbers(values: object, name: str) -> None:
    """Refuse a tensor that holds no numbers, or not all of them.

    Raises:
        UsageError: it is sparse, nested, quantized or on the device meta.
    """
    if isinstance(values, Tensor):
        check_held(values, name, error=UsageError)


def check_features(z_ND: Tensor, name: str, *, min_rows: int = 2) -> None:
    """Require a finite floating matrix with enough rows.

    Raises:
        TypeError: not a dense floating tensor.
        ValueError: not a matrix, too few rows, or rows that are not finite (a NonFiniteError that names the first).

    >>> check_features(torch.tensor([[0.0], [math.nan], [1.0], [math.inf]]), "z")
    Traceback (most recent call last):
    counterpoint.core.errors.NonFiniteError: z must be finite, but row 1 holds NaN or infinity, as does row 3
    """
    if not isinstance(z_ND, Tensor):
        remedy = "" if z_ND is None else f"; use torch.as_tensor({name})"
        raise TypeError(f"{name} must be a floating-point tensor, got {type(z_ND).__name__}{remedy}")
    check_held(z_ND, name)
    if not z_ND.is_floating_point():
        raise TypeError(f"{name} must be a floating-point tensor, got {z_ND.dtype}; convert it with .float()")
    if z_ND.ndim != 2:
        raise ValueError(f"{name} must have shape (samples, features), got {tuple(z_ND.shape)}")
    if z_ND.shape[1] < 1:
        raise ValueError(f"{name} must have at least 1 feature, got shape {tuple(z_ND.shape)}")
    if len(z_ND) < min_rows:
        raise ValueError(f"{name} must have at least {min_rows} rows, got {len(z_ND)}")
    if bool(torch.isfinite(z_ND.sum())):
        return
    # Part by part: isfinite() of a large table at once would take as much memory again.
    finite_N = torch.cat([torch.isfinite(part).all(dim=1) for part in z_ND.split(ROWS_AT_ONCE)])
    if not bool(finite_N.all()):
        first, *others = (~finite_N).nonzero()[:, 0].tolist()
        listed = ", ".join(map(str, others[:MOST_NAMED])) + (", ..." if len(others) > MOST_NAMED else "")
        more = f", as does row {listed}" if len(others) == 1 else f", as do {len(others):,} more rows: {listed}"
        raise NonFiniteError(f"{name} must be finite, but row {first} holds NaN or infinity{more if others else ''}")


def check_labels(labels_N: Tensor, num_samples: int) -> None:
    """Require one integer label per sample.

    Raises:
        TypeError: not a tensor.
        ValueError: another length or shape, or labels that are not whole numbers.
    """
    if not isinstance(labels_N, Tensor):
        raise TypeError(f"labels must be a tensor, got {type(labels_N).__name__}; use torch.as_tensor(labels)")
    check_dense(labels_N, "labels")
    if labels_N.ndim != 1 or len(labels_N) != num_samples:
        raise ValueError(f"labels must be one per sample, shape ({num_samples},), got {tuple(labels_N.shape)}")
    if labels_N.is_floating_point() or labels_N.is_complex():
        raise ValueError(f"labels must be whole numbers, got {labels_N.dtype}")
