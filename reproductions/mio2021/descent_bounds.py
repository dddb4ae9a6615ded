r"""What bounded smoothness and noise say about a finite training run: steps of a cosine schedule, and what is left.

Stochastic descent on an L-smooth loss with gradient noise of variance sigma^2 obeys

.. math:: \sum_t \Big(\eta_t - \frac{L \eta_t^2}{2}\Big) E\|\nabla f(w_t)\|^2
    \le f(w_1) - f^* + \frac{L \sigma^2}{2} \sum_t \eta_t^2
"""

import math
from dataclasses import dataclass

from counterpoint.core.checks import check_positive, check_weight
from counterpoint.core.errors import UsageError


@dataclass(frozen=True)
class StepSums:
    """Sums over a schedule: of its steps, and of their squares."""

    total: float
    squares: float


def cosine_step_sums(largest: float, num_steps: int) -> StepSums:
    r"""Exact sums over a cosine schedule that ends at 0.

    .. math:: \eta_t = \frac{\eta}{2} (1 + \cos(\pi t / T)), \quad t = 1 \ldots T

    .. math:: \sum_t \eta_t = \frac{T - 1}{2} \eta, \qquad \sum_t \eta_t^2 = \Big( \frac38 T - \frac12 \Big) \eta^2
        \quad (T \ge 2)

    Both grow with the horizon T.

    Source: mio2021, section 2.5. Differs from Eq. 26, and Eq. 51 of its supplement, which have a finite sum of squares
        beside an infinite sum of steps: no cosine schedule has both.

    Args:
        largest: eta > 0, where the schedule starts.
        num_steps: T >= 2.

    Raises:
        UsageError: fewer than two steps.

    >>> cosine_step_sums(2.0, 8)
    StepSums(total=7.0, squares=10.0)
    """
    check_positive(largest, "largest", hint="it is the first learning rate")
    if num_steps < 2:
        raise UsageError(f"num_steps must be >= 2, got {num_steps}; a schedule that ends at 0 takes no step before")
    # The cosines sum to -1, and their squares to T / 2 for T >= 2.
    return StepSums((num_steps - 1) / 2 * largest, (3 / 8 * num_steps - 1 / 2) * largest**2)


def cosine_gradient_bound(
    largest: float, num_steps: int, *, excess: float, smoothness: float, noise_variance: float
) -> float:
    r"""Bound of the least expected squared gradient norm of a run with cosine steps.

    .. math:: \min_t E\|\nabla f(w_t)\|^2 \le
        \frac{f(w_1) - f^* + \frac{L \sigma^2}{2} \sum_t \eta_t^2}{\sum_t (\eta_t - L \eta_t^2 / 2)}

    As T grows it falls to ``noise_floor``, not to 0: this argument does not show that longer training makes the
    gradient vanish, unless eta falls as well, about as 1 / sqrt(T). (The small steps at the end of a schedule can do
    better than the bound: on a quadratic they do.)

    Source: mio2021, Eq. 25, with the sums of ``cosine_step_sums``.

    Args:
        largest: eta, 0 < eta < 2 / L.
        num_steps: T >= 2.
        excess: f(w_1) - f^*, >= 0.
        smoothness: L > 0, the largest curvature.
        noise_variance: sigma^2 >= 0.

    Raises:
        UsageError: a value out of range.

    >>> round(cosine_gradient_bound(0.5, 1000, excess=1.0, smoothness=1.0, noise_variance=0.0), 6)
    0.004928
    """
    check_weight(excess, "excess", hint="it is the loss above its least value")
    check_weight(noise_variance, "noise_variance", hint="0 is plain gradient descent")
    _check_rate(largest, smoothness)
    sums = cosine_step_sums(largest, num_steps)
    # > 0: every step but the last, which is 0, lies below 2 / L.
    spent = sums.total - smoothness / 2 * sums.squares
    return (excess + smoothness * noise_variance / 2 * sums.squares) / spent


def noise_floor(largest: float, *, smoothness: float, noise_variance: float) -> float:
    r"""Limit of ``cosine_gradient_bound`` for endless training, :math:`\frac{3 L \eta}{8 - 3 L \eta} \sigma^2`.

    Source: corrects mio2021, Eq. 26. Equation 46 of its supplement leaves such a constant for steps of one size, too:
        there sigma^2, so that "converges at O(1/T)" is true only where gradients have no noise.

    Raises:
        UsageError: a value out of range.

    >>> noise_floor(1.0, smoothness=1.0, noise_variance=5.0)
    3.0
    """
    check_weight(noise_variance, "noise_variance", hint="0 is plain gradient descent")
    _check_rate(largest, smoothness)
    # For T -> infinity the steps sum to eta T / 2 and their squares to 3 eta^2 T / 8.
    share = 3 * smoothness * largest
    return share / (8 - share) * noise_variance


def constant_step_bound(num_steps: int, *, excess: float, smoothness: float, noise_variance: float) -> float:
    r"""Bound of the mean expected squared gradient norm for steps of 1 / L.

    .. math:: \frac{1}{T} \sum_t E\|\nabla f(w_t)\|^2 \le \frac{2L}{T} (f(w_1) - f^*) + \sigma^2

    Source: mio2021, supplement, Eq. 46.

    Raises:
        UsageError: a value out of range.

    >>> constant_step_bound(100, excess=1.0, smoothness=5.0, noise_variance=0.25)
    0.35
    """
    check_positive(smoothness, "smoothness", hint="it is the largest curvature")
    check_weight(excess, "excess", hint="it is the loss above its least value")
    check_weight(noise_variance, "noise_variance", hint="0 is plain gradient descent")
    if num_steps < 1:
        raise UsageError(f"num_steps must be >= 1, got {num_steps}")
    # Steps of 1 / L give T / (2 L) on the left and T sigma^2 / (2 L) on the right: sigma^2 stays for every T.
    return 2 * smoothness / num_steps * excess + noise_variance


def _check_rate(largest: float, smoothness: float) -> None:
    """Require steps that can only lead downhill, 0 < eta < 2 / L."""
    check_positive(largest, "largest", hint="it is the first learning rate")
    check_positive(smoothness, "smoothness", hint="it is the largest curvature")
    if not (math.isfinite(largest * smoothness) and largest * smoothness < 2):  # NaN and overflow are refused as well
        raise UsageError(f"largest must be < 2 / smoothness = {2 / smoothness:g}, got {largest}")
