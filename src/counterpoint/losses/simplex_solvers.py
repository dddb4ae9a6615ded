r"""What the rules for alpha solve: shares of a row, the level of water-filling, the multiplier of inverse powers.

A cost of plus infinity marks a pair that does not count. Roots and supports are found on detached numbers; the formulas
that use them are the rules' own, and differentiable.
"""

# B anchors (rows), M keys (columns)

import math

import torch
from torch import Tensor

MAX_STEPS = 128  # each step halves the residual or the bracket; a handful do in practice


def excess(cost_BM: Tensor) -> tuple[Tensor, Tensor]:
    """Which pairs do not count, and by how much each cost exceeds the least of its row (0 where it does not count).

    >>> excess(torch.tensor([[3.0, 1.0, math.inf]]))
    (tensor([[False, False,  True]]), tensor([[2., 0., 0.]]))
    """
    is_out_BM = torch.isinf(cost_BM)
    return is_out_BM, torch.where(is_out_BM, 0.0, cost_BM - cost_BM.detach().amin(dim=1, keepdim=True))


def distance_power(cost_BM: Tensor, is_out_BM: Tensor, exponent: float) -> Tensor:
    """d^p from c = d^2; 1 where a pair does not count. At d = 0 a power with a kink has derivative 0.

    >>> distance_power(torch.tensor([[4.0, math.inf]]), torch.tensor([[False, True]]), 4.0)
    tensor([[16.,  1.]])
    """
    base_BM = torch.where(is_out_BM, 1.0, cost_BM)
    half = exponent / 2
    if half >= 1:
        return base_BM**half
    is_zero_BM = base_BM == 0  # infinite slope in c
    return torch.where(is_zero_BM, 0.0, torch.where(is_zero_BM, 1.0, base_BM) ** half)


def shares_with_slack(u_BM: Tensor, log_slack_B: Tensor) -> Tensor:
    """exp(u_ij) / (slack_i + sum_j exp(u_ij)), in the log domain.

    >>> shares_with_slack(torch.zeros(1, 2), torch.tensor([math.log(2.0)]))
    tensor([[0.2500, 0.2500]])
    """
    return torch.exp(u_BM - torch.logaddexp(torch.logsumexp(u_BM, dim=1), log_slack_B)[:, None])


def water_filled(excess_BM: Tensor, is_out_BM: Tensor, temperature: float) -> Tensor:
    r"""The support of the least :math:`\sum_j \alpha_j e_j + \frac{\tau}{2} \sum_j \alpha_j^2` on the simplex.

    With costs in ascending order, the first k are in if :math:`\sum_{j \le k} (e_k - e_j) < \tau`, which is the water
    it takes to cover them all.

    >>> e = torch.tensor([[0.0, 0.5, 9.0, 0.0]])
    >>> water_filled(e, torch.tensor([[False, False, False, True]]), 1.0)
    tensor([[ True,  True, False, False]])
    """
    sorted_BM = excess_BM.detach().masked_fill(is_out_BM, math.inf).sort(dim=1).values
    rank_M = torch.arange(1, sorted_BM.shape[1] + 1, device=excess_BM.device, dtype=excess_BM.dtype)
    is_covered_BM = rank_M * sorted_BM - sorted_BM.cumsum(dim=1) < temperature  # inf - inf is NaN: not covered
    num_covered_B1 = is_covered_BM.sum(dim=1, keepdim=True)
    highest_B1 = sorted_BM.gather(1, num_covered_B1 - 1)  # the least cost is always covered
    return (excess_BM.detach() <= highest_B1) & is_out_BM.logical_not()  # ties stand or fall together


def inverse_power_sum(t_B: Tensor, e_BM: Tensor, is_out_BM: Tensor, gamma: float) -> tuple[Tensor, Tensor, Tensor]:
    r"""Logarithm of :math:`\sum_j (e_j + e^t)^{-1/\gamma}`, its derivative in t, and the logarithm of each term.

    Exponentials of t are taken of -t <= 0 only, so that nothing overflows however large the multiplier.
    """
    y_BM = e_BM * torch.exp(-t_B)[:, None]
    log_terms_BM = -(t_B[:, None] + torch.log1p(y_BM)) / gamma
    log_terms_BM = log_terms_BM.masked_fill(is_out_BM, -math.inf)
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
    high_B = gamma * torch.log(num_terms_B)
    share_B = (e_BM.sum(dim=1) / num_terms_B * torch.exp(-high_B)).clamp(max=1 - torch.finfo(e_BM.dtype).eps)
    low_B = (high_B + torch.log1p(-share_B)).clamp(min=0.0)
    limit_B = 4 * torch.finfo(e_BM.dtype).eps * (1 + torch.log(num_terms_B))
    t_B, last_B = low_B, torch.full_like(low_B, math.inf)
    for _ in range(MAX_STEPS):
        log_sum_B, slope_B, _ = inverse_power_sum(t_B, e_BM, is_out_BM, gamma)
        residual_B = log_sum_B.abs()
        is_done_B = residual_B <= limit_B
        if _holds(is_done_B):
            break
        low_B, high_B = torch.where(log_sum_B > 0, t_B, low_B), torch.where(log_sum_B > 0, high_B, t_B)
        newton_B = t_B - log_sum_B / slope_B
        is_safe_B = (newton_B >= low_B) & (newton_B <= high_B) & (residual_B <= 0.5 * last_B)
        t_B = torch.where(is_done_B, t_B, torch.where(is_safe_B, newton_B, 0.5 * (low_B + high_B)))
        last_B = residual_B
    return t_B


def _holds(is_done_B: Tensor) -> bool:
    """All rows are done; under torch.func.vmap nobody can tell, and every step is taken."""
    try:
        return bool(is_done_B.all())
    except RuntimeError:
        return False
