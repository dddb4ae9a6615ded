r"""A pairwise loss of two views with exponential psi on a GPU: value and gradient in four programs.

.. math:: L = g \sum_{i=1}^{2n} \phi(e^{r_i}), \qquad r_i = m + \log \sum_{j \ne i, i'} e^{s (\cos_{ij} - \cos_{ii'})}

Below some 10,000 samples a GPU waits for Python: each operation takes longer to be started than to be done. The general
route starts about 80, this one 20 (``triton_programs``): rows are scaled to unit length and pulled back by one program
each, and the pairs are seen by the two that every loss has. Nothing is read before the value; rows of lengths that need
care make it NaN, and ``losses.inputs.gathering`` then begins again without this route. Derivatives beyond the first are
those of the general route.
"""

# N samples, V = 2N vectors, D features

from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from counterpoint.core.numerics import ORDINARY_LENGTHS, is_transformed
from counterpoint.kernels import select
from counterpoint.kernels.contract import EXPONENTIAL, PairScores, ScoreTerms
from counterpoint.kernels.cpu.one_operation import RouteResult, one_operation
from counterpoint.kernels.cpu.upper_pairs import SmallLoss
from counterpoint.kernels.triton.triton_pairs import HALF, TritonPairs, shared_memory, why_not
from counterpoint.kernels.triton.triton_records import (
    LOG2_E,
    Direction,
    Pairs,
    PairSide,
    flipped,
    gradient_shape,
    holds_gradient,
    padded,
    product_shape,
)

BLOCK_ROWS = 16


class Views(NamedTuple):
    """Both views, or their gradients."""

    first_ND: Tensor
    second_ND: Tensor


class UnitOut(NamedTuple):
    """Output of ``unit_pairs``."""

    unit_VD: Tensor
    cosine_N: Tensor


class PullSums(NamedTuple):
    """Input of ``pull_pairs``."""

    total_VD: Tensor
    slope_V: Tensor


class RowTiling(NamedTuple):
    """Constants that a program is compiled for."""

    num_features: int
    all_features: int  # padded to a power of two
    block_rows: int


def weighted_loss(z0: Tensor, z1: Tensor, loss: SmallLoss, weight: float) -> Tensor | None:
    """The loss, if this route applies.

    Args:
        z0: first view, raw, (n, d).
        z1: second view, raw, (n, d).
        loss: scale, margin and functions of the loss.
        weight: factor of the sum over all 2n anchors, g; 1 / 2n for a mean.

    Returns:
        Scalar, or None if the general route is the right one: another device or dtype, more features than a tile's
        sums leave room for, a kernel that was asked for, a transform of ``torch.func``.
    """
    is_open = z0.device.type in select.PROGRAM_DEVICES and z0.dtype != torch.float64
    if not is_open or not select.is_free() or is_transformed():
        return None
    if why_not(PairScores(ScoreTerms(z0, None, z0)), EXPONENTIAL) is not None:
        return None
    choice = select.fused(z0.dtype, "two views, value and gradient in one operation")
    kernel = select.CATALOGUE[choice.name]
    if not isinstance(kernel, TritonPairs):
        return None
    dtype = HALF.get(kernel.precision, z0.dtype)
    if not holds_gradient(z0.shape[1], dtype):
        return None
    route = FusedTwoViews(loss, weight, choice, kernel.precision, dtype)
    return one_operation(route, z0.contiguous(), z1.contiguous())


@dataclass(frozen=True)
class FusedTwoViews:
    """Two views against each other.

    Attributes:
        loss: scale, margin and functions of the loss.
        weight: factor of the sum over all 2n anchors, g.
        choice: choice of the fused programs, with its reason.
        precision: precision of the programs' float32 products.
        dtype: dtype to which unit vectors are rounded before they are multiplied.
    """

    loss: SmallLoss
    weight: float
    choice: select.Choice
    precision: str
    dtype: torch.dtype

    def general(self, z0: Tensor, z1: Tensor) -> Tensor:
        """The loss by the general route."""
        return self.loss.general(z0.float(), z1.float())

    def find(self, *inputs: Tensor, wants_gradient: bool) -> RouteResult | None:
        """Return value and gradient, in float32; None if programs do not start."""
        run = partial(self._find, *inputs, wants_gradient=wants_gradient)
        result = select.unless_it_fails(self.choice.name, run)
        if result is not None:
            select.note(self.choice)
        return result

    def _find(self, z0: Tensor, z1: Tensor, *, wants_gradient: bool) -> RouteResult:
        from counterpoint.kernels.triton import triton_launch, triton_programs  # deferred: both need triton

        (n, d), loss, shared = z0.shape, self.loss, shared_memory(z0.device)
        views, grid = Views(z0, z1), (-(-n // BLOCK_ROWS),)
        launch = partial(triton_launch.launch, tiling=RowTiling(d, padded(d), BLOCK_ROWS))
        program = partial(triton_launch.Program, "exp", self.precision, False, True)
        new = z0.new_empty(0, dtype=torch.float32)
        unit = UnitOut(z0.new_empty(2 * n, d, dtype=self.dtype), new.new_empty(n))
        launch(triton_programs.unit_pairs[grid], z0, views, unit, n, *ORDINARY_LENGTHS)
        factor = new.new_full((), loss.scale * LOG2_E)
        bound = factor if loss.scale > 0 else -factor  # no score is farther from 0
        own_VE = torch.arange(2 * n, dtype=torch.int32, device=z0.device).view(2, n).T.repeat(2, 1)
        side = PairSide(unit.unit_VD, 2 * n, None)
        pairs = Pairs(side, side, factor, own_VE, Direction(None, None), None, bound)
        log_sum_V = triton_launch.statistics(pairs, program(product_shape(d, self.dtype, shared)))
        r_V = log_sum_V.view(2, n).sub(unit.cosine_N, alpha=loss.scale).view(-1)
        r_V = r_V + loss.margin if loss.margin else r_V
        value = loss.phi_of_log(r_V).sum() * self.weight
        if not wants_gradient:
            return RouteResult(value)
        slope_V = loss.slope_of_log(r_V)
        most = None
        if self.dtype == torch.float16:  # whose numbers end at 6e-8
            most = torch.linalg.vector_norm(slope_V, torch.inf).clamp_min(torch.finfo(torch.float32).tiny)
            slope_V = slope_V / most
        first = Direction(log_sum_V * -LOG2_E, None, slope_V, None)
        pairs = pairs._replace(first=first, second=flipped(first))
        shape = gradient_shape(d, self.dtype, shared)
        sums = triton_launch.gradients(pairs, program(shape), wants_first=False, wants_second=False)
        gradients = Views(torch.empty_like(z0, dtype=torch.float32), torch.empty_like(z1, dtype=torch.float32))
        pull_sums = PullSums(sums.total_OD, slope_V)
        launch(triton_programs.pull_pairs[grid], z0, views, pull_sums, gradients, n, loss.scale * self.weight)
        return RouteResult(value, gradients if most is None else [gradient * most for gradient in gradients])
