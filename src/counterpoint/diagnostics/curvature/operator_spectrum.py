"""What is known of the spectrum of one Hessian: counts with bounds, extreme eigenvalues, trace, symmetry."""

# P parameters, M Lanczos steps

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from counterpoint.diagnostics.curvature.hessian_products import HessianOperator
from counterpoint.diagnostics.curvature.lanczos import Ritz, Tridiagonal, lanczos, ritz
from counterpoint.diagnostics.curvature.mass_brackets import masses, trace_estimate
from counterpoint.diagnostics.curvature.spectrum_records import Estimate, OperatorSpectrum, ProductCheck

LIMITS = {torch.float64: 1e-10, torch.float32: 1e-4}  # of the relative defect of symmetry


@dataclass(frozen=True)
class SpectrumPlan:
    """What is asked of a spectrum.

    Attributes:
        steps: of Lanczos.
        threshold: tau.
        top: how many eigenvalues at each end are named with their errors.
    """

    steps: int = 100
    threshold: float = 1.0
    top: int = 5


def operator_spectrum(
    operator: HessianOperator,
    starts: Sequence[Tensor],
    plan: SpectrumPlan,
    *,
    advance: Callable[[], object] = lambda: None,
) -> OperatorSpectrum:
    """Run Lanczos from each probe and put together what its tridiagonal matrices say.

    Args:
        operator: the Hessian.
        starts: Gaussian vectors (P,), one for each probe.
        plan: steps, threshold, and how many eigenvalues are named.
        advance: called after each product of Lanczos.
    """
    check = symmetry(operator)
    found = [
        lanczos(operator.__matmul__, start.to(operator.gradient_P), steps=plan.steps, advance=advance)
        for start in starts
    ]
    values = [ritz(each) for each in found]
    noise = max([each.noise for each in found] + [_measured_noise(found[0], check)])
    # Eigenvalues of the probe that went furthest to each end.
    lowest = min(values, key=lambda one: float(one.values_M[0]))
    highest = max(values, key=lambda one: float(one.values_M[-1]))
    num = min(plan.top, len(lowest.values_M), len(highest.values_M))
    return OperatorSpectrum(
        value=operator.value,
        gradient_norm=float(operator.gradient_P.norm()),
        masses=masses(found, plan.threshold, noise=noise),
        signs=masses(found, 0.0, noise=noise),
        largest=_eigenvalues(highest, noise)[::-1][:num],
        smallest=_eigenvalues(lowest, noise)[:num],
        trace=trace_estimate(found),
        ritz_values=tuple(tuple(one.values_M.tolist()) for one in values),
        ritz_weights=tuple(tuple(one.weights_M.tolist()) for one in values),
        noise=noise,
        orthogonality=max(each.orthogonality for each in found),
        is_exhausted=any(each.is_exhausted for each in found),
        certificates=(check,),
    )


def symmetry(operator: HessianOperator) -> ProductCheck:
    """Whether u'Hv = v'Hu for two Gaussian vectors, drawn on the CPU so that devices see the same."""
    gradient_P, generator = operator.gradient_P, torch.Generator().manual_seed(0)
    u_P, v_P = (torch.randn(len(gradient_P), generator=generator, dtype=torch.float64).to(gradient_P) for _ in range(2))
    hu_P, hv_P = operator @ u_P, operator @ v_P
    size = max(float(u_P.norm() * hv_P.norm()), float(v_P.norm() * hu_P.norm()))
    defect = abs(float(u_P @ hv_P) - float(v_P @ hu_P)) / size if size else 0.0
    return ProductCheck("symmetry", defect, LIMITS[gradient_P.dtype], "u'Hv = v'Hu for two Gaussian vectors")


def _measured_noise(first: Tridiagonal, check: ProductCheck) -> float:
    """What products are wrong by, from their asymmetry: the norm of an error of random entries of that size."""
    # |H v| for a unit vector, times the length of a Gaussian one.
    typical = float(first.alpha_M[0].square() + first.beta_M[0].square()) ** 0.5 * first.num_dims**0.5
    return 2 * (check.defect or 0.0) * typical


def _eigenvalues(found: Ritz, noise: float) -> tuple[Estimate, ...]:
    """Ritz values with what they may be wrong by, ascending: their residuals, and rounding."""
    pairs = zip(found.values_M.tolist(), found.residuals_M.tolist(), strict=True)
    return tuple(Estimate(value, error + noise) for value, error in pairs)
