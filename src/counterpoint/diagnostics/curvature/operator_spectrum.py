"""The spectrum of one Hessian by Lanczos: counts with two-sided bounds, extreme eigenvalues, trace, symmetry."""

# P parameters, M Lanczos steps

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from scipy.special import betainc
from torch import Tensor

from counterpoint.core.checks import check_positive
from counterpoint.diagnostics.curvature.hessian_products import HessianOperator
from counterpoint.diagnostics.curvature.spectrum_records import (
    LEVEL,
    Bracket,
    Estimate,
    Mass,
    Masses,
    OperatorSpectrum,
    ProductCheck,
)

NOISE = 16.0  # eps: share of the largest product that rounding may change
LIMITS = {torch.float64: 1e-10, torch.float32: 1e-4}  # of the relative defect of symmetry
ROUNDING = 1e-10  # of shares, through the eigenvectors of a small matrix
FAR = 1e4  # a diagonal entry this many times larger than the others costs digits
SIMPLE = 16.0  # times its mean: more weight than one direction has but once in 16,000
SETTLED = 1e-3  # a Ritz value counts as an eigenvalue where its residual is so small a share of the largest value


@dataclass(frozen=True)
class Tridiagonal:
    r"""The result of Lanczos: :math:`H V = V T + \beta_M v_{M+1} e_M^\top` with :math:`V^\top V = I`.

    Attributes:
        alpha_M: diagonal of T, float64.
        beta_M: off-diagonal of T; its last entry is the norm of the residual vector.
        num_dims: number of parameters, P.
        is_exhausted: whether that norm is rounding: the vectors span an invariant subspace, T's eigenvalues are H's.
        orthogonality: largest entry of V'V - I.
        noise: error of an eigenvalue by rounding: ``NOISE`` times the dtype's eps times the largest norm of a product.
    """

    alpha_M: Tensor
    beta_M: Tensor
    num_dims: int
    is_exhausted: bool
    orthogonality: float
    noise: float


@dataclass(frozen=True)
class Ritz:
    """Eigenvalues of T, ascending, which approximate those of H.

    Attributes:
        values_M: eigenvalues of T.
        weights_M: share of the probe in the direction of each eigenvector; the shares sum to 1.
        residuals_M: distance from each value within which H has an eigenvalue.
    """

    values_M: Tensor
    weights_M: Tensor
    residuals_M: Tensor


def lanczos(
    product: Callable[[Tensor], Tensor], start_P: Tensor, *, steps: int, advance: Callable[[], object] = lambda: None
) -> Tridiagonal:
    """Run Lanczos from a vector, each new one made orthogonal to all earlier ones, twice.

    Without reorthogonalisation converged eigenvalues come back as ghosts, whatever the precision.

    Source: golub2010, section 4.1; parlett1998, section 6.9 (twice is enough).

    Args:
        product: function of a vector (P,) that gives its product with a symmetric matrix.
        start_P: vector to start from, of any length but zero, in the dtype and on the device of the products.
        steps: largest number of products, >= 1; never more than P.
        advance: function that is called after each product.

    Returns:
        The tridiagonal matrix.

    Raises:
        ValueError: steps < 1, or a start of length zero.

    >>> matrix = torch.diag(torch.tensor([1.0, 3.0])).double()
    >>> tridiagonal = lanczos(lambda v: matrix @ v, torch.ones(2).double(), steps=2)
    >>> ritz(tridiagonal).values_M
    tensor([1., 3.], dtype=torch.float64)
    """
    check_positive(steps, "steps", hint="100 is common")
    length = float(start_P.norm())
    if length == 0:
        raise ValueError("start must not be the zero vector; draw it at random")
    num_dims = len(start_P)
    steps = min(steps, num_dims)
    basis_MP = start_P.new_empty(steps, num_dims)
    alpha, beta, largest = [], [], 0.0
    v_P, eps = start_P / length, torch.finfo(start_P.dtype).eps
    for step in range(steps):
        basis_MP[step] = v_P
        w_P = product(v_P)
        advance()
        largest = max(largest, float(w_P.norm()))
        so_far_JP = basis_MP[: step + 1]
        first_J = so_far_JP @ w_P
        w_P = w_P - so_far_JP.T @ first_J
        second_J = so_far_JP @ w_P
        w_P = w_P - so_far_JP.T @ second_J
        alpha.append(float(first_J[-1]) + float(second_J[-1]))
        beta.append(float(w_P.norm()))
        # Relative to what products measure: the same whatever the scale of the loss.
        if beta[-1] <= NOISE * eps * largest:
            break
        v_P = w_P / beta[-1]
    num_steps = len(alpha)
    basis_MP = basis_MP[:num_steps]
    gram_MM = (basis_MP @ basis_MP.T).double().cpu() - torch.eye(num_steps, dtype=torch.float64)
    return Tridiagonal(
        alpha_M=torch.tensor(alpha, dtype=torch.float64),
        beta_M=torch.tensor(beta, dtype=torch.float64),
        num_dims=num_dims,
        is_exhausted=num_steps == num_dims or beta[-1] <= NOISE * eps * largest,
        orthogonality=float(gram_MM.abs().max()),
        noise=NOISE * eps * largest,
    )


def ritz(tridiagonal: Tridiagonal) -> Ritz:
    """Eigenvalues of T with their weights and residuals, in float64 on the CPU.

    Source: golub2010, section 4.1 (nodes and weights of Gauss quadrature); parlett1998, section 4.5 (residuals).
    """
    off_M = tridiagonal.beta_M[:-1]
    matrix_MM = torch.diag(tridiagonal.alpha_M) + torch.diag(off_M, 1) + torch.diag(off_M, -1)
    values_M, vectors_MM = torch.linalg.eigh(matrix_MM)
    residuals_M = tridiagonal.beta_M[-1] * vectors_MM[-1].abs()
    return Ritz(values_M, vectors_MM[0].square(), residuals_M)


def operator_spectrum(
    operator: HessianOperator,
    starts: Sequence[Tensor],
    *,
    steps: int = 100,
    threshold: float = 1.0,
    top: int = 5,
    advance: Callable[[], object] = lambda: None,
) -> OperatorSpectrum:
    """Run Lanczos from each probe and combine the results of the tridiagonal matrices.

    Args:
        operator: the Hessian.
        starts: Gaussian vectors (P,), one for each probe.
        steps: largest number of steps of Lanczos for each probe.
        threshold: tau: eigenvalues are counted below -tau, within, and above tau.
        top: largest number of eigenvalues at each end that are given with their errors.
        advance: function that is called after each product of Lanczos.
    """
    check = symmetry(operator)
    tridiagonals = [
        lanczos(operator.__matmul__, start.to(operator.gradient_P), steps=steps, advance=advance) for start in starts
    ]
    results = [ritz(tridiagonal) for tridiagonal in tridiagonals]
    # |H v| for a unit vector, times the length of a Gaussian one.
    first = tridiagonals[0]
    typical = float(first.alpha_M[0].square() + first.beta_M[0].square()) ** 0.5 * first.num_dims**0.5
    # The error of products, from their asymmetry: the norm of an error of random entries of that size.
    measured = 2 * (check.defect or 0.0) * typical
    noise = max([tridiagonal.noise for tridiagonal in tridiagonals] + [measured])
    # Eigenvalues of the probe that went furthest to each end.
    lowest = min(results, key=lambda result: float(result.values_M[0]))
    highest = max(results, key=lambda result: float(result.values_M[-1]))
    num = min(top, len(lowest.values_M), len(highest.values_M))
    return OperatorSpectrum(
        value=operator.value,
        gradient_norm=float(operator.gradient_P.norm()),
        masses=masses(tridiagonals, threshold, noise=noise),
        signs=masses(tridiagonals, 0.0, noise=noise),
        largest=_eigenvalues(highest, noise)[::-1][:num],
        smallest=_eigenvalues(lowest, noise)[:num],
        trace=trace_estimate(tridiagonals),
        ritz_values=tuple(tuple(result.values_M.tolist()) for result in results),
        ritz_weights=tuple(tuple(result.weights_M.tolist()) for result in results),
        noise=noise,
        orthogonality=max(tridiagonal.orthogonality for tridiagonal in tridiagonals),
        is_exhausted=any(tridiagonal.is_exhausted for tridiagonal in tridiagonals),
        certificates=(check,),
    )


def symmetry(operator: HessianOperator) -> ProductCheck:
    """Check that u'Hv = v'Hu for two Gaussian vectors, drawn on the CPU so that devices see the same."""
    gradient_P, generator = operator.gradient_P, torch.Generator().manual_seed(0)
    u_P, v_P = (torch.randn(len(gradient_P), generator=generator, dtype=torch.float64).to(gradient_P) for _ in range(2))
    hu_P, hv_P = operator @ u_P, operator @ v_P
    size = max(float(u_P.norm() * hv_P.norm()), float(v_P.norm() * hu_P.norm()))
    defect = abs(float(u_P @ hv_P) - float(v_P @ hu_P)) / size if size else 0.0
    return ProductCheck("symmetry", defect, LIMITS[gradient_P.dtype], "u'Hv = v'Hu for two Gaussian vectors")


def _eigenvalues(result: Ritz, noise: float) -> tuple[Estimate, ...]:
    """Return Ritz values with their errors, ascending; an error is the residual plus rounding."""
    pairs = zip(result.values_M.tolist(), result.residuals_M.tolist(), strict=True)
    return tuple(Estimate(value, error + noise) for value, error in pairs)


def mass_up_to(tridiagonal: Tridiagonal, threshold: float, *, noise: float) -> Bracket:
    r"""Bounds on the share of the probe that lies at eigenvalues up to a threshold.

    .. math:: \sum_{\theta_j < t} w_j \;\le\; \mu(-\infty, t) \;\le\; \mu(-\infty, t] \;\le\; \sum_{\theta_j \le t} w_j

    with the nodes and weights of the Gauss-Radau rule that has a node at t: T with one more row, whose diagonal entry
    is chosen so that t is an eigenvalue. Both sides hold for every measure with these moments.

    Source: golub2010, section 6.2 (the rule); szego1939, section 3.41 (the inequalities of Chebyshev, Markov and
        Stieltjes). Differs from them in that eigenvalues are known to within ``noise`` only: the lower bound is taken
        at t - noise and the upper one at t + noise.

    Args:
        tridiagonal: result of Lanczos for one probe.
        threshold: t, the largest eigenvalue that counts.
        noise: largest error of an eigenvalue.

    >>> one_step = Tridiagonal(torch.tensor([0.0]), torch.tensor([1.0]), 2, False, 0.0, 0.0)
    >>> round(mass_up_to(one_step, -1.0, noise=0.0).high, 6)  # moments 1, 0, 1: at most half of it lies at -1 or below
    0.5
    """
    low, _ = _radau_sums(tridiagonal, threshold - noise)
    _, high = _radau_sums(tridiagonal, threshold + noise)
    return Bracket(max(0.0, low - ROUNDING), min(1.0, high + ROUNDING))


def masses(tridiagonals: Sequence[Tridiagonal], threshold: float, *, noise: float) -> Masses:
    """Bounds on the numbers of eigenvalues below -tau, within and above tau.

    Args:
        tridiagonals: results of Lanczos, one for each probe, all started from Gaussian vectors.
        threshold: tau, >= 0; with 0 the range within holds what rounding cannot tell from zero.
        noise: largest error of an eigenvalue.
    """
    below = [mass_up_to(tridiagonal, -threshold, noise=noise) for tridiagonal in tridiagonals]
    up_to = [mass_up_to(tridiagonal, threshold, noise=noise) for tridiagonal in tridiagonals]
    above = [Bracket(1 - bracket.high, 1 - bracket.low) for bracket in up_to]
    within = [Bracket(max(0.0, 1 - b.high - a.high), 1 - b.low - a.low) for b, a in zip(below, above, strict=True)]
    values_by_probe = [ritz(tridiagonal).values_M for tridiagonal in tridiagonals]
    least = [max(int((sign * values_M > threshold + noise).sum()) for values_M in values_by_probe) for sign in (-1, 1)]
    num_dims, num_probes = tridiagonals[0].num_dims, len(tridiagonals)

    def mass(parts: Sequence[Bracket], at_least: int) -> Mass:
        share = Bracket(sum(p.low for p in parts) / num_probes, min(1.0, sum(p.high for p in parts) / num_probes))
        low, high = count_interval(share, num_dims, num_probes)
        return Mass(share, (max(low, at_least), max(high, at_least)), at_least)

    return Masses(mass(below, least[0]), mass(within, 0), mass(above, least[1]))


def count_interval(share: Bracket, num_dims: int, num_probes: int) -> tuple[int, int]:
    r"""95 % interval for the number of eigenvalues in a range, from bounds on the share that Gaussian probes see of it.

    The share of one probe that lies in k of P directions has the distribution Beta(k/2, (P - k)/2); the mean of n
    probes is taken as Beta(nk/2, n(P - k)/2), whose variance is at least its own.

    Args:
        share: bounds on the share that the probes see, averaged over them.
        num_dims: number of parameters, P.
        num_probes: number of probes, n.

    >>> count_interval(Bracket(0.1, 0.1), 100_000, 1)
    (9739, 10264)
    """
    tail = (1 - LEVEL) / 2

    def seen_at_most(x: float, k: int) -> float:
        """Chance that k directions show at most the share x."""
        if k in (0, num_dims):
            return 1.0 if k == 0 or x >= 1 else 0.0
        return float(betainc(num_probes * k / 2, num_probes * (num_dims - k) / 2, x))

    # Both chances fall as k grows; the interval has all k that neither bound refuses.
    numbers = range(num_dims + 1)
    low = bisect_left(numbers, True, key=lambda k: seen_at_most(share.low, k) <= 1 - tail) if share.low > 0 else 0
    high = (
        bisect_left(numbers, True, key=lambda k: seen_at_most(share.high, k) < tail) - 1 if share.high < 1 else num_dims
    )
    return min(low, num_dims), max(min(low, num_dims), high)


def trace_estimate(tridiagonals: Sequence[Tridiagonal]) -> Estimate:
    r"""The trace with a standard error: eigenvalues that have settled counted one by one, the rest estimated.

    .. math:: \operatorname{tr} H \approx \sum_{j \in S} \theta_j + (P - |S|)
        \frac{\sum_{j \notin S} w_j \theta_j}{\sum_{j \notin S} w_j}

    for each probe, whose settled Ritz values S are those with small residuals; then the mean. The error is that of a
    Gaussian probe in the remaining dimensions, :math:`(P - |S|) \sqrt{2 \operatorname{Var}_w(\theta) / (P - |S| + 2)}`:
    without the outliers it is much smaller than Hutchinson's. A settled value is taken for one eigenvalue; where it is
    one of several that are equal, the others are missing (zeros, the usual case, add nothing).

    Source: hutchinson1990, section 2 (the plain estimate); meyer2021, section 3 (large eigenvalues apart).
    """
    parts = [_probe_trace(tridiagonal, ritz(tridiagonal)) for tridiagonal in tridiagonals]
    count = len(parts)
    squares = sum(part.error**2 for part in parts)
    return Estimate(sum(part.value for part in parts) / count, squares**0.5 / count)


def _probe_trace(tridiagonal: Tridiagonal, result: Ritz) -> Estimate:
    values_M, weights_M = result.values_M, result.weights_M
    if len(values_M) == tridiagonal.num_dims:
        return Estimate(float(values_M.sum()), 0.0)
    is_settled_M = result.residuals_M <= SETTLED * values_M.abs().max()
    # A value whose own size is that of its residual belongs to the bulk: it is no direction apart.
    is_settled_M &= result.residuals_M <= SETTLED * values_M.abs()
    # Equal eigenvalues settle as one, on which the probe has more weight than on one direction.
    is_settled_M &= weights_M <= min(SIMPLE / tridiagonal.num_dims, 0.5)
    is_settled_M &= not tridiagonal.is_exhausted
    num_unsettled, settled = tridiagonal.num_dims - int(is_settled_M.sum()), float(values_M[is_settled_M].sum())
    unsettled_M = torch.where(is_settled_M, 0.0, weights_M)
    total = float(unsettled_M.sum())
    if total == 0:
        return Estimate(settled, 0.0)
    mean = float((unsettled_M * values_M).sum()) / total
    variance = float((unsettled_M * (values_M - mean).square()).sum()) / total
    return Estimate(settled + num_unsettled * mean, num_unsettled * (2 * variance / (num_unsettled + 2)) ** 0.5)


def _radau_sums(tridiagonal: Tridiagonal, threshold: float) -> tuple[float, float]:
    """Weight of the nodes below the threshold, and of those up to it, in the rule that has a node there."""
    alpha_M, beta_M = tridiagonal.alpha_M, tridiagonal.beta_M
    if tridiagonal.is_exhausted:  # T has all there is: the measure itself
        result = ritz(tridiagonal)
        values_M, weights_M = result.values_M, result.weights_M
        return float(weights_M[values_M < threshold].sum()), float(weights_M[values_M <= threshold].sum())
    # Pivots of T - tI; as many are negative as T has eigenvalues below t.
    pivot, num_below, tiny = 0.0, 0, torch.finfo(torch.float64).tiny
    for step, alpha in enumerate((alpha_M - threshold).tolist()):
        pivot = alpha - (float(beta_M[step - 1]) ** 2 / pivot if step else 0.0)
        pivot = pivot if abs(pivot) > tiny else -tiny
        num_below += pivot < 0
    last = threshold + float(beta_M[-1]) ** 2 / pivot  # the last pivot of the longer matrix is then 0
    if abs(last) > FAR * float(alpha_M.abs().max() + beta_M.max()):
        # t lies at an eigenvalue of T, where the rule does not exist: the nodes of the Gauss rule on both sides bound.
        weights_M = ritz(tridiagonal).weights_M
        return float(weights_M[: max(0, num_below - 1)].sum()), float(weights_M[: num_below + 1].sum())
    diagonal_K = torch.cat([alpha_M, torch.tensor([last], dtype=torch.float64)])
    matrix_KK = torch.diag(diagonal_K) + torch.diag(beta_M, 1) + torch.diag(beta_M, -1)
    weights_K = torch.linalg.eigh(matrix_KK)[1][0].square()
    # Eigenvalues of T and of the longer matrix take turns: t is the one behind as many as T has below t.
    return float(weights_K[:num_below].sum()), float(weights_K[: num_below + 1].sum())
