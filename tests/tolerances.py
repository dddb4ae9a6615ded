"""The one tolerance table. Tests compare through these functions and state no tolerance of their own."""

import math

import torch
from torch import Tensor

# Largest error relative to the largest expected magnitude.
RELATIVE = {torch.float64: 1e-10, torch.float32: 1e-5}
# Low precision: error at most this many times that of the dense operation in the same precision.
LOW_PRECISION_RATIO = 1.25
# Estimators: fixed seed and sample size, within this many standard errors.
STANDARD_ERRORS = 5.0


def relative_error(actual: Tensor, expected: Tensor) -> float:
    """Largest difference over the largest expected magnitude, both taken in float64."""
    assert actual.shape == expected.shape, f"shape {tuple(actual.shape)}, expected {tuple(expected.shape)}"
    if expected.numel() == 0:
        return 0.0
    actual, expected = actual.detach().double().cpu(), expected.detach().double().cpu()
    difference, scale = float((actual - expected).abs().max()), float(expected.abs().max())
    return difference / scale if scale > 0 else difference


def assert_close(actual: Tensor, expected: Tensor, *, dtype: torch.dtype | None = None) -> None:
    """Assert the table's tolerance for ``dtype`` (default: the dtype of ``actual``)."""
    limit, error = RELATIVE[dtype or actual.dtype], relative_error(actual, expected)
    assert error <= limit, f"relative error {error:.3g} exceeds {limit:.3g}"


def assert_low_precision(actual: Tensor, dense: Tensor, exact: Tensor) -> None:
    """Assert that ``actual`` errs at most 1.25 times as much as ``dense`` in the same precision."""
    limit, error = LOW_PRECISION_RATIO * relative_error(dense, exact), relative_error(actual, exact)
    assert error <= limit, f"error {error:.3g} exceeds {LOW_PRECISION_RATIO} x the dense operation's ({limit:.3g})"


def assert_estimate(estimate: float, truth: float, standard_error: float) -> None:
    """Assert that an estimate lies within 5 standard errors of the truth."""
    distance = abs(float(estimate) - truth) / standard_error
    assert math.isfinite(distance), f"estimate {estimate} is not finite"
    assert distance <= STANDARD_ERRORS, f"estimate {estimate:.6g} is {distance:.1f} standard errors from {truth:.6g}"
