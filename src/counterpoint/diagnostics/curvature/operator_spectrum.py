"""What is known of the spectrum of one Hessian: counts with bounds, extreme eigenvalues, trace, certificates."""

# P parameters, M Lanczos steps

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from counterpoint.diagnostics.curvature.curvature_certificates import Certificate, certificates
from counterpoint.diagnostics.curvature.hessian_products import HessianOperator
from counterpoint.diagnostics.curvature.lanczos import Ritz, Tridiagonal, lanczos, ritz
from counterpoint.diagnostics.curvature.mass_brackets import (
    Bracket,
    Estimate,
    Masses,
    mass_up_to,
    masses,
    trace_estimate,
)

NUM_EXTREME = 5  # eigenvalues at each end
NUM_THRESHOLDS = 25  # points of the curve of bounds


@dataclass(frozen=True)
class Eigenvalue:
    """An approximate eigenvalue.

    Attributes:
        value: of T.
        error: within so much of the value the Hessian has an eigenvalue.
    """

    value: float
    error: float


@dataclass(frozen=True)
class CurvePoint:
    """Bounds on the share of eigenvalues up to a threshold, averaged over the probes."""

    threshold: float
    share: Bracket


@dataclass(frozen=True)
class OperatorSpectrum:
    """What Lanczos found of a Hessian.

    Attributes:
        value: of the loss.
        gradient_norm: of its gradient.
        masses: eigenvalues below -tau, within, and above tau.
        signs: the same with a tau of 0: eigenvalues that rounding tells from zero, and those that it does not.
        largest: eigenvalues at the upper end, descending.
        smallest: eigenvalues at the lower end, ascending.
        trace: with its standard error.
        curve: bounds on the share up to thresholds from the least to the largest Ritz value.
        ritz_values: ascending, of each probe.
        ritz_weights: shares of each probe, which sum to 1.
        noise: what an eigenvalue may be wrong by through rounding.
        orthogonality: largest entry of V'V - I over the probes.
        is_exhausted: whether a probe's vectors span an invariant subspace.
        certificates: symmetry and invariances.
    """

    value: float
    gradient_norm: float
    masses: Masses
    signs: Masses
    largest: tuple[Eigenvalue, ...]
    smallest: tuple[Eigenvalue, ...]
    trace: Estimate
    curve: tuple[CurvePoint, ...]
    ritz_values: tuple[tuple[float, ...], ...]
    ritz_weights: tuple[tuple[float, ...], ...]
    noise: float
    orthogonality: float
    is_exhausted: bool
    certificates: tuple[Certificate, ...]

    @property
    def has_negative_curvature(self) -> bool:
        """Whether a direction was found along which the loss curves down by more than rounding."""
        return self.smallest[0].value < -self.noise

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)


def operator_spectrum(
    operator: HessianOperator,
    starts: Sequence[Tensor],
    *,
    steps: int,
    threshold: float,
    last_layer: Sequence[str] = (),
    advance: Callable[[], object] = lambda: None,
) -> OperatorSpectrum:
    """Run Lanczos from each probe and put together what its tridiagonal matrices say.

    Args:
        operator: the Hessian.
        starts: Gaussian vectors (P,), one for each probe.
        steps: of Lanczos.
        threshold: tau.
        last_layer: see ``certificates``.
        advance: called after each product of Lanczos.
    """
    generator = torch.Generator().manual_seed(0)
    checks = certificates(operator, last_layer, generator=generator)
    found = [lanczos(operator, start.to(operator.gradient_P), steps=steps, advance=advance)[0] for start in starts]
    noise = max([each.noise for each in found] + [_measured_noise(found[0], checks[0])])
    values = [ritz(each) for each in found]
    # Eigenvalues of the probe that went furthest to each end.
    lowest, highest = min(values, key=lambda one: one.values_M[0]), max(values, key=lambda one: one.values_M[-1])
    return OperatorSpectrum(
        value=operator.value,
        gradient_norm=float(operator.gradient_P.norm()),
        masses=masses(found, threshold, noise=noise),
        signs=masses(found, 0.0, noise=noise),
        largest=tuple(reversed(_eigenvalues(highest, slice(-NUM_EXTREME, None)))),
        smallest=_eigenvalues(lowest, slice(None, NUM_EXTREME)),
        trace=trace_estimate(found),
        curve=_curve(found, float(lowest.values_M[0]), float(highest.values_M[-1]), noise),
        ritz_values=tuple(tuple(one.values_M.tolist()) for one in values),
        ritz_weights=tuple(tuple(one.weights_M.tolist()) for one in values),
        noise=noise,
        orthogonality=max(each.orthogonality for each in found),
        is_exhausted=any(each.is_exhausted for each in found),
        certificates=checks,
    )


def _measured_noise(first: Tridiagonal, symmetry: Certificate) -> float:
    """What products are wrong by, from their asymmetry: the norm of an error of random entries of that size."""
    assert symmetry.defect is not None
    # |H v| for a unit vector, times the length of a Gaussian one.
    typical = float(first.alpha_M[0].square() + first.beta_M[0].square()) ** 0.5 * first.num_dims**0.5
    return 2 * symmetry.defect * typical


def _eigenvalues(found: Ritz, part: slice) -> tuple[Eigenvalue, ...]:
    """Some Ritz values with their residuals."""
    pairs = zip(found.values_M[part].tolist(), found.residuals_M[part].tolist(), strict=True)
    return tuple(Eigenvalue(value, error) for value, error in pairs)


def _curve(found: Sequence[Tridiagonal], low: float, high: float, noise: float) -> tuple[CurvePoint, ...]:
    """Bounds at thresholds that lie densest around zero, where most eigenvalues are."""
    largest = max(abs(low), abs(high))
    if largest == 0:
        return ()
    unit = largest / 1000
    ends = torch.tensor([low / unit, high / unit], dtype=torch.float64).asinh()
    thresholds = (
        torch.linspace(float(ends[0]), float(ends[1]), NUM_THRESHOLDS, dtype=torch.float64).sinh() * unit
    ).tolist()
    points = []
    for threshold in thresholds:
        parts = [mass_up_to(each, threshold, noise=noise) for each in found]
        mean = Bracket(sum(p.low for p in parts) / len(parts), sum(p.high for p in parts) / len(parts))
        points.append(CurvePoint(threshold, mean))
    return tuple(points)
