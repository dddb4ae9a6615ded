"""What is known of the spectrum of one Hessian: counts with bounds, extreme eigenvalues, trace, certificates."""

# P parameters, M Lanczos steps, K eigenvalues at both ends

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from counterpoint.diagnostics.curvature.curvature_certificates import certificates
from counterpoint.diagnostics.curvature.hessian_products import HessianOperator
from counterpoint.diagnostics.curvature.lanczos import Ritz, Tridiagonal, lanczos, ritz, ritz_vectors
from counterpoint.diagnostics.curvature.mass_brackets import mass_up_to, masses, trace_estimate
from counterpoint.diagnostics.curvature.spectrum_records import (
    Bracket,
    Eigenvalue,
    OperatorSpectrum,
    ProductCheck,
    ShareBounds,
)

NUM_THRESHOLDS = 25  # points of the curve of bounds


@dataclass(frozen=True)
class SpectrumPlan:
    """What is asked of a spectrum.

    Attributes:
        steps: of Lanczos.
        threshold: tau.
        top: how many eigenvalues at each end are named with their errors.
        keeps_vectors: keep their approximate eigenvectors, too.
    """

    steps: int = 100
    threshold: float = 1.0
    top: int = 5
    keeps_vectors: bool = False


def operator_spectrum(
    operator: HessianOperator,
    starts: Sequence[Tensor],
    plan: SpectrumPlan,
    *,
    last_layer: Sequence[str] = (),
    advance: Callable[[], object] = lambda: None,
) -> OperatorSpectrum:
    """Run Lanczos from each probe and put together what its tridiagonal matrices say.

    Args:
        operator: the Hessian.
        starts: Gaussian vectors (P,), one for each probe.
        plan: steps, threshold, and what is kept.
        last_layer: see ``certificates``.
        advance: called after each product of Lanczos.
    """
    generator = torch.Generator().manual_seed(0)
    checks = certificates(operator, last_layer, generator=generator)
    found, values, vectors = [], [], []
    for start in starts:
        tridiagonal, basis_MP = lanczos(operator, start.to(operator.gradient_P), steps=plan.steps, advance=advance)
        found.append(tridiagonal)
        values.append(ritz(tridiagonal))
        # Of the basis, the largest thing here, no more is kept than is asked for.
        vectors.append(ritz_vectors(values[-1], basis_MP, _ends(values[-1], plan.top)) if plan.keeps_vectors else None)
        del basis_MP
    noise = max([each.noise for each in found] + [_measured_noise(found[0], checks[0])])
    # Eigenvalues of the probe that went furthest to each end.
    low = min(range(len(values)), key=lambda at: values[at].values_M[0])
    high = max(range(len(values)), key=lambda at: values[at].values_M[-1])
    lowest, highest = values[low], values[high]
    num = min(plan.top, len(lowest.values_M), len(highest.values_M))
    return OperatorSpectrum(
        value=operator.value,
        gradient_norm=float(operator.gradient_P.norm()),
        masses=masses(found, plan.threshold, noise=noise),
        signs=masses(found, 0.0, noise=noise),
        largest=_eigenvalues(highest, _ends(highest, num)[:num], noise),
        smallest=_eigenvalues(lowest, _ends(lowest, num)[num:], noise),
        trace=trace_estimate(found),
        curve=_curve(found, float(lowest.values_M[0]), float(highest.values_M[-1]), noise),
        ritz_values=tuple(tuple(one.values_M.tolist()) for one in values),
        ritz_weights=tuple(tuple(one.weights_M.tolist()) for one in values),
        noise=noise,
        orthogonality=max(each.orthogonality for each in found),
        is_exhausted=any(each.is_exhausted for each in found),
        certificates=checks,
        vectors_KP=_both_ends(vectors[high], vectors[low], num),
    )


def _measured_noise(first: Tridiagonal, symmetry: ProductCheck) -> float:
    """What products are wrong by, from their asymmetry: the norm of an error of random entries of that size."""
    assert symmetry.defect is not None
    # |H v| for a unit vector, times the length of a Gaussian one.
    typical = float(first.alpha_M[0].square() + first.beta_M[0].square()) ** 0.5 * first.num_dims**0.5
    return 2 * symmetry.defect * typical


def _ends(found: Ritz, top: int) -> Tensor:
    """Places of the largest values, descending, then those of the least, ascending."""
    ascending = torch.arange(len(found.values_M))
    return torch.cat([ascending.flip(0)[:top], ascending[:top]])


def _both_ends(high_KP: Tensor | None, low_KP: Tensor | None, num: int) -> Tensor | None:
    """Vectors of the largest values of one probe and of the least of another."""
    if high_KP is None or low_KP is None:
        return None
    return torch.cat([high_KP[:num], low_KP[len(low_KP) // 2 :][:num]])


def _eigenvalues(found: Ritz, places: Tensor, noise: float) -> tuple[Eigenvalue, ...]:
    """Some Ritz values with what they may be wrong by: their residuals, and rounding."""
    pairs = zip(found.values_M[places].tolist(), found.residuals_M[places].tolist(), strict=True)
    return tuple(Eigenvalue(value, error + noise) for value, error in pairs)


def _curve(found: Sequence[Tridiagonal], low: float, high: float, noise: float) -> tuple[ShareBounds, ...]:
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
        points.append(ShareBounds(threshold, mean))
    return tuple(points)
