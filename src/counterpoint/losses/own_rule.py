"""A user's own rule for the pairwise importance alpha, and what an alpha must be to make an energy."""

# B anchors (rows), M keys (columns)

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor


@dataclass(frozen=True)
class OwnRule:
    r"""A user's own rule.

    .. math:: \alpha = f(d_{ij}^2, d_i^2)

    Where the function gives :math:`\alpha_{ij} = \phi'(\xi_i)\,\psi'(d_i^2 - d_{ij}^2)`, AlphaCL has the gradient of
    the pairwise loss of phi and psi.

    Source: alphacl2022, Definition 1 ("a direct mapping") and Theorem 1.

    Args:
        function: from costs (b, m), infinite where there is no negative, and own costs (b,) to alpha (b, m).
        can_stream: the function looks at each row by itself. If not, it gets all 2n anchors and 2n vectors at once,
            first view before second.

    Raises:
        TypeError: the function is not callable, or does not return a floating tensor.
        ValueError: on use: alpha has another shape, dtype or device, is negative or not finite, or weighs a pair
            that does not count.

    >>> def nearest_only(cost_BM, own_B):
    ...     return (cost_BM == cost_BM.amin(1, keepdim=True)).to(cost_BM.dtype)
    >>> OwnRule(nearest_only, can_stream=True)(torch.tensor([[0.5, 0.1, math.inf]]), torch.zeros(1))
    tensor([[0., 1., 0.]])
    """

    function: Callable[[Tensor, Tensor], Tensor]
    can_stream: bool = False
    formula: ClassVar[str] = "the user's own"

    def __post_init__(self) -> None:
        """Check the function."""
        if not callable(self.function):
            raise TypeError(
                f"function must be callable, got {type(self.function).__name__}; give f(cost, own) -> alpha"
            )

    def __call__(self, cost_BM: Tensor, own_B: Tensor) -> Tensor:
        """See ``alpha_rules.AlphaRule``."""
        alpha_BM = self.function(cost_BM, own_B)
        check_alpha(alpha_BM, cost_BM)
        return alpha_BM

    def row_sum(self, num_negatives: int) -> None:
        """See ``alpha_rules.AlphaRule``."""
        return


def check_alpha(alpha_BM: Tensor, cost_BM: Tensor) -> None:
    """Require weights that an energy can be made of.

    Raises:
        TypeError: not a floating tensor.
        ValueError: another shape, dtype or device than the costs; a row with a negative, NaN or infinite weight, or
            with weight where the cost is infinite (the row is named).
    """
    if not isinstance(alpha_BM, Tensor) or not alpha_BM.is_floating_point():
        kind = alpha_BM.dtype if isinstance(alpha_BM, Tensor) else type(alpha_BM).__name__
        raise TypeError(f"alpha must be a floating-point tensor, got {kind}; compute it from the costs")
    if alpha_BM.shape != cost_BM.shape:
        raise ValueError(f"alpha must have the shape of the costs, {tuple(cost_BM.shape)}, got {tuple(alpha_BM.shape)}")
    if alpha_BM.dtype != cost_BM.dtype or alpha_BM.device != cost_BM.device:
        ours, theirs = (f"{z.dtype} on {z.device}" for z in (cost_BM, alpha_BM))
        raise ValueError(f"alpha must be {ours} as the costs are, got {theirs}; convert it with alpha.to(cost)")
    held_BM = alpha_BM.detach()
    is_weight_BM = (held_BM >= 0) & (held_BM < math.inf)
    _raise_at(is_weight_BM, "alpha must be >= 0 and finite", "clamp it, or look for 0 / 0")
    is_placed_BM = (held_BM == 0) | torch.isfinite(cost_BM)
    _raise_at(
        is_placed_BM, "alpha must be 0 where the cost is infinite (not a negative)", "mask it with torch.isinf(cost)"
    )


def _raise_at(is_good_BM: Tensor, claim: str, remedy: str) -> None:
    """Name the first row where a claim fails."""
    is_bad_B = is_good_BM.all(dim=1).logical_not()
    if bool(is_bad_B.any()):
        raise ValueError(f"{claim}, but row {int(is_bad_B.nonzero()[0])} is not; {remedy}")
