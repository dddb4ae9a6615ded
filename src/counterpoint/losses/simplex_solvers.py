r"""Solvers of the rules for alpha: shares of a row, the level of water-filling, the multiplier of inverse powers.

A cost of plus infinity marks a pair that does not count. Roots and supports are found on detached numbers; the formulas
that use them are the rules' own, and differentiable.
"""

# B anchors (rows), M keys (columns)

import math

import torch
from torch import Tensor

from counterpoint.losses.inputs import can_read, seen

MAX_STEPS = 128  # each step halves the residual or the bracket; a handful do in practice
# Numbers of steps where convergence cannot be checked. The water level needs one step for each key that leaves alone,
# so n steps only for costs that differ by a factor of n!: 30 for 30 decades. The multiplier needed at most 8.
UNSEEN_STEPS, UNSEEN_LEVELS = 16, 32


def excess(cost_BM: Tensor) -> tuple[Tensor, Tensor]:
    """Mark pairs that do not count, and return by how much each cost exceeds the least of its row (0 if not counted).

    >>> excess(torch.tensor([[3.0, 1.0, math.inf]]))
    (tensor([[False, False,  True]]), tensor([[2., 0., 0.]]))
    """
    is_out_BM = torch.isinf(cost_BM)
    # Held: no share changes when all costs of a row move alike, so that its derivatives would cancel.
    return is_out_BM, torch.where(is_out_BM, 0.0, cost_BM - cost_BM.detach().amin(dim=1, keepdim=True))


def distance_power(cost_BM: Tensor, is_out_BM: Tensor, exponent: float) -> Tensor:
    """d^p from c = d^2; 1 where a pair does not count. At d = 0 a power with a kink has derivative 0.

    >>> distance_power(torch.tensor([[4.0, math.inf]]), torch.tensor([[False, True]]), 4.0)
    tensor([[16.,  1.]])
    """
    # Masked before the power: an infinite slope, times the 0 that a later mask sends back, would be NaN.
    base_BM = torch.where(is_out_BM, 1.0, cost_BM)
    half = exponent / 2
    if half >= 1:
        return base_BM**half
    is_zero_BM = base_BM == 0  # infinite slope in c
    # Both arms of where are differentiated: 0 must not be raised to the power in either.
    return torch.where(is_zero_BM, 0.0, torch.where(is_zero_BM, 1.0, base_BM) ** half)


def shares_with_slack(u_BM: Tensor, log_slack_B: Tensor) -> Tensor:
    """exp(u_ij) / (slack_i + sum_j exp(u_ij)), in the log domain.

    >>> shares_with_slack(torch.zeros(1, 2), torch.tensor([math.log(2.0)]))
    tensor([[0.2500, 0.2500]])
    """
    return torch.exp(u_BM - torch.logaddexp(torch.logsumexp(u_BM, dim=1), log_slack_B)[:, None])


def water_level(excess_BM: Tensor, temperature: float) -> Tensor:
    r"""The level mu of the least :math:`\sum_j \alpha_j e_j + \frac{\tau}{2} \sum_j \alpha_j^2` on the simplex, (b, 1).

    Root of :math:`\sum_j (\mu - e_j)_+ = \tau`, convex and piecewise linear in mu. Newton's method from the right,
    where all are covered, falls monotonically and is exact once no key leaves: a few passes, where sorting takes many.

    >>> water_level(torch.tensor([[0.0, 0.5, 9.0, math.inf]]), 1.0)
    tensor([[0.7500]])
    """
    is_in_BM = excess_BM < math.inf
    num_B1 = is_in_BM.sum(dim=1, keepdim=True).to(excess_BM.dtype)
    # All costs e_j are >= 0, so that tau <= K mu at the root: no level is below tau / K.
    least_B1, limit = temperature / num_B1, 4 * torch.finfo(excess_BM.dtype).eps
    # The root if all keys were covered; as (x)_+ >= x it is never left of the true one.
    level_B1 = least_B1 + torch.where(is_in_BM, excess_BM, 0.0).sum(dim=1, keepdim=True) / num_B1
    for _ in range(_num_steps(excess_BM, excess_BM.shape[1], UNSEEN_LEVELS)):
        depth_BM = torch.relu(level_B1 - excess_BM)
        beyond_B1 = depth_BM.sum(dim=1, keepdim=True) - temperature
        covered_B1 = depth_BM.sign().sum(dim=1, keepdim=True)
        # No key left since the last step: it went along one straight piece, down to its root.
        is_done_B1 = (covered_B1 == num_B1) | (beyond_B1.abs() <= limit * covered_B1 * level_B1)
        level_B1 = torch.maximum(level_B1 - beyond_B1 / covered_B1, least_B1)  # rounding of a high level may fall below
        if _are_all_done(is_done_B1):
            break
        num_B1 = covered_B1
    return level_B1


def inverse_power_sum(t_B: Tensor, e_BM: Tensor, is_out_BM: Tensor, gamma: float) -> tuple[Tensor, Tensor, Tensor]:
    r"""Logarithm of :math:`\sum_j (e_j + e^t)^{-1/\gamma}`, its derivative in t, and the logarithm of each term.

    Exponentials of t are taken of -t <= 0 only, so that nothing overflows however large the multiplier.
    """
    y_BM = e_BM * torch.exp(-t_B)[:, None]  # log(e_j + e^t) = t + log(1 + e_j e^-t)
    log_terms_BM = -(t_B[:, None] + torch.log1p(y_BM)) / gamma
    log_terms_BM = log_terms_BM.masked_fill(is_out_BM, -math.inf)
    # d log sum / dt = -1/gamma times the mean of e^t / (e_j + e^t) under the terms' shares.
    slope_B = -(torch.softmax(log_terms_BM, dim=1) / (1 + y_BM)).sum(dim=1) / gamma
    return torch.logsumexp(log_terms_BM, dim=1), slope_B, log_terms_BM


def inverse_power_root(e_BM: Tensor, is_out_BM: Tensor, gamma: float) -> Tensor:
    r"""The t >= 0 at which :math:`\sum_j (e_j + e^t)^{-1/\gamma} = 1`, where the least e_j is 0.

    With K terms, the one at e = 0 alone gives :math:`e^t \ge 1`, convexity :math:`e^t \ge K^\gamma - \bar e`, and
    e >= 0 :math:`e^t \le K^\gamma`. Newton's method in t inside this bracket; a step that leaves it, or did not halve
    the residual, gives way to bisection.

    >>> e = torch.tensor([[0.0, 1.5]], dtype=torch.float64)  # 1 / 1.5 + 1 / 3 = 1
    >>> torch.exp(inverse_power_root(e, e < 0, 1.0))
    tensor([1.5000], dtype=torch.float64)
    """
    num_terms_B = is_out_BM.logical_not().sum(dim=1).to(e_BM.dtype)
    # Bracket of t, both ends as logarithms: K^gamma itself may overflow.
    high_B = gamma * torch.log(num_terms_B)
    share_B = (e_BM.sum(dim=1) / num_terms_B * torch.exp(-high_B)).clamp(max=1 - torch.finfo(e_BM.dtype).eps)
    low_B = (high_B + torch.log1p(-share_B)).clamp(min=0.0)
    # A uniform row has terms of -log K, and rounding errors of their size.
    limit_B = 4 * torch.finfo(e_BM.dtype).eps * (1 + torch.log(num_terms_B))
    # No step has been taken yet: the first Newton step may be as long as the bracket allows.
    t_B, last_B = low_B, torch.full_like(low_B, math.inf)
    for _ in range(_num_steps(e_BM, MAX_STEPS, UNSEEN_STEPS)):
        log_sum_B, slope_B, _ = inverse_power_sum(t_B, e_BM, is_out_BM, gamma)
        residual_B = log_sum_B.abs()
        is_done_B = residual_B <= limit_B
        if _are_all_done(is_done_B):
            break
        # The sum falls as t grows: where it is above 1, the root is to the right.
        low_B, high_B = torch.where(log_sum_B > 0, t_B, low_B), torch.where(log_sum_B > 0, high_B, t_B)
        newton_B = t_B - log_sum_B / slope_B
        is_safe_B = (newton_B >= low_B) & (newton_B <= high_B) & (residual_B <= 0.5 * last_B)
        # Rows that are done stay, so that a row does not depend on those that are solved beside it.
        t_B = torch.where(is_done_B, t_B, torch.where(is_safe_B, newton_B, 0.5 * (low_B + high_B)))
        last_B = residual_B
    return t_B


def inverse_powers(e_BM: Tensor, gamma: float) -> Tensor:
    r"""The numbers :math:`(e_j + m)^{-1/\gamma}` whose sum is 1, where the least e_j is 0; not differentiable.

    :math:`\big(\sum_j (e_j + m)^{-1/\gamma}\big)^{-\gamma}` is concave and increasing in m, so that Newton's method
    from the left, :math:`m \ge \max(1, K^\gamma - \bar e)`, rises monotonically to where it is 1; it is nearly linear
    where m is large beside all e_j.

    >>> inverse_powers(torch.tensor([[0.0, 1.5, math.inf]]), 1.0)
    tensor([[0.6667, 0.3333, 0.0000]])
    """
    is_in_BM = e_BM < math.inf
    num_B1 = is_in_BM.sum(dim=1, keepdim=True).to(e_BM.dtype)
    mean_B1 = torch.where(is_in_BM, e_BM, 0.0).sum(dim=1, keepdim=True) / num_B1
    m_B1 = (num_B1**gamma - mean_B1).clamp(min=1.0)  # not right of the root: convexity in e_j
    limit_B1 = 4 * torch.finfo(e_BM.dtype).eps * (1 + num_B1.log())
    power_BM = e_BM
    for _ in range(_num_steps(e_BM, MAX_STEPS, UNSEEN_STEPS)):
        base_BM = e_BM + m_B1
        power_BM = base_BM ** (-1 / gamma)  # 0 for an infinite e_j, and so in all sums
        total_B1 = power_BM.sum(dim=1, keepdim=True)
        is_done_B1 = (total_B1 - 1).abs() <= limit_B1
        if _are_all_done(is_done_B1):
            break
        slope_B1 = power_BM.div(base_BM).sum(dim=1, keepdim=True)
        # Newton on F = S^-gamma = 1: (1 - F) / F' with F' = S^(-gamma-1) sum_j power_j / base_j.
        step_B1 = (total_B1 ** (1 + gamma) - total_B1) / slope_B1
        # Rows that are done stay, so that a row does not depend on those that are solved beside it.
        m_B1 = m_B1 + torch.where(is_done_B1, 0.0, step_B1)
    return power_BM


def _num_steps(like: Tensor, most: int, unseen: int) -> int:
    """Number of steps to try: at most those needed if convergence can be checked, else enough."""
    return most if can_read(like) else min(most, unseen)


def _are_all_done(is_done_B: Tensor) -> bool:
    """Tell whether all rows are known to be done; if this cannot be known, every step is taken."""
    return can_read(is_done_B) and bool(seen(is_done_B.all(), False))
