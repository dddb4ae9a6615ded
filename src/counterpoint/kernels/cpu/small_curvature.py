r"""The second derivative of small losses in closed form: what a gradient does along a direction, from what it kept.

For :math:`L = g \sum_i f(r_i)` with scores :math:`\sigma_{ij} = s\, u_i^\top u_j` of unit vectors, weights
:math:`p_{ij} = e_{ij} / S_i` of the negatives and :math:`W_{ij} = f'_i (p_{ij} - [j = i'])`, the gradient is
:math:`g s (W + W^\top) u`, and along a direction

.. math:: \dot r_i = \sum_j p_{ij} \dot\sigma_{ij} - \dot\sigma_{ii'}, \qquad
    \dot W_{ij} = f''_i \dot r_i (p_{ij} - [j = i'])
    + f'_i p_{ij} \Big(\dot\sigma_{ij} - \sum_k p_{ik} \dot\sigma_{ik}\Big)

Three matrix products for each direction, where autograd through the matrix of scores takes six.
"""

# V = 2N vectors, D features

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import torch
from torch import Tensor
from torch._C._functorch import is_legacy_batchedtensor

from counterpoint.core.thread_parts import alone
from counterpoint.kernels.contract import Elementwise


class Curved(Protocol):
    """A loss of a small batch that knows its second derivative."""

    @property
    def general(self) -> Callable[..., Tensor]:
        """The same loss for any such inputs, differentiable to any order."""
        ...

    def gradient(self, upstream: Tensor, *kept: Tensor) -> tuple[Tensor, ...]:
        """Gradient for each of the inputs, from what was kept."""
        ...

    def turning(self, *kept: Tensor) -> "TwoViewTurn":
        """The Hessian, for upstream 1, from what was kept."""
        ...


class Slope(torch.autograd.Function):
    """The gradient of a small loss, whose own derivative is in closed form; any further one by the general route."""

    @staticmethod
    def forward(ctx: Any, route: Curved, num_inputs: int, upstream: Tensor, *saved: Tensor) -> tuple[Tensor, ...]:
        """Gradients for the inputs, which come first in what was saved."""
        ctx.route, ctx.num_inputs, ctx.turning = route, num_inputs, route.turning(*saved[num_inputs:])
        ctx.save_for_backward(upstream, *saved)
        return route.gradient(upstream, *saved[num_inputs:])

    @staticmethod
    def backward(ctx: Any, *tangents: Tensor) -> Any:
        """The Hessian's product with the tangents, as it is symmetric, and its slope by upstream."""
        upstream, *saved = ctx.saved_tensors
        inputs, kept = saved[: ctx.num_inputs], saved[ctx.num_inputs :]
        nothing = (None,) * len(kept)
        if torch.is_grad_enabled() or any(map(is_legacy_batchedtensor, tangents)):
            by_upstream, *products = _by_autograd(ctx.route, upstream, inputs, tangents)
            return None, None, by_upstream, *products, *nothing
        products = [turned * upstream for turned in ctx.turning.along(tangents)]
        by_upstream = None
        if ctx.needs_input_grad[2]:
            gradients = ctx.route.gradient(torch.ones_like(upstream), *kept)
            by_upstream = sum((g * t).sum() for g, t in zip(gradients, tangents, strict=True))
        return None, None, by_upstream, *products, *nothing


def _by_autograd(route: Curved, upstream: Tensor, inputs: list[Tensor], tangents: tuple[Tensor, ...]) -> list[Any]:
    """The same by the general route, differentiable in turn."""
    with torch.enable_grad():
        # Nodes of their own stop the inner passes here: one input may be a function of the other.
        given = [value.view_as(value) for value in (upstream, *inputs)]
        given = [value if value.requires_grad else value.detach().requires_grad_() for value in given]
        gradients = torch.autograd.grad(route.general(*given[1:]), given[1:], given[0], create_graph=True)
        return list(torch.autograd.grad(gradients, given, tangents, create_graph=torch.is_grad_enabled()))


@dataclass(frozen=True)
class TwoViewTurn:
    """The Hessian of two views against each other at one point; what all its products share is made once.

    Attributes:
        scale: s.
        weight: g.
        phi_of_log: f.
        unit_VD: first view above second, at unit length.
        length_V1: what their lengths were.
        exp_VV: e, zero at pairs that do not count; each row may have a factor of its own.
        sum_V: S, with the same factors.
        statistic_V: r.
    """

    scale: float
    weight: float
    phi_of_log: Elementwise
    unit_VD: Tensor
    length_V1: Tensor
    exp_VV: Tensor
    sum_V: Tensor
    statistic_V: Tensor

    def along(self, tangents: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """Change of the gradient by the raw vectors along a change of them, view by view."""
        with alone():
            return self._along(torch.cat(tangents)).chunk(2)

    def _along(self, tangent_VD: Tensor) -> Tensor:
        """The same with one view above the other."""
        unit_VD, exp_VV = self.unit_VD, self.exp_VV
        slope_V, bend_V = self._slopes
        # Along x / |x|: nothing along the unit vector, the rest over the length.
        radial_V1 = (tangent_VD * unit_VD).sum(1, keepdim=True)
        turned_VD = (tangent_VD - radial_V1 * unit_VD) / self.length_V1
        half_VV = (self.scale * turned_VD) @ unit_VD.T
        score_VV = half_VV + half_VV.T
        mean_V = torch.einsum("ij,ij->i", exp_VV, score_VV) / self.sum_V
        change_V = bend_V * (mean_V - score_VV.diagonal(len(exp_VV) // 2).repeat(2))
        factor_V = slope_V / self.sum_V
        first_V1 = (change_V / self.sum_V - factor_V * mean_V)[:, None]
        bent_VV = torch.addcmul(first_V1, factor_V[:, None], score_VV).mul_(exp_VV)
        bent_VV = self._with_positives(bent_VV, change_V)
        along_VD, inward_V1 = self._gradient
        change_VD = bent_VV @ unit_VD
        change_VD.addmm_(self._still, turned_VD).mul_(self.weight * self.scale)
        # The chain rule of x / |x| once more, on a gradient that turns with x.
        tilted_V1 = (turned_VD * along_VD + unit_VD * change_VD).sum(1, keepdim=True)
        total_VD = change_VD - turned_VD * inward_V1 - unit_VD * tilted_V1
        total_VD -= (along_VD - unit_VD * inward_V1) * (radial_V1 / self.length_V1)
        return total_VD / self.length_V1

    @cached_property
    def _slopes(self) -> tuple[Tensor, Tensor]:
        """The slope f' and the bend f'' at each statistic."""
        with torch.enable_grad():
            leaf_V = self.statistic_V.detach().requires_grad_()
            (slope_V,) = torch.autograd.grad(self.phi_of_log(leaf_V).sum(), leaf_V, create_graph=True)
            if not slope_V.requires_grad:  # phi is linear in the logarithm
                return slope_V, torch.zeros_like(leaf_V)
            (bend_V,) = torch.autograd.grad(slope_V.sum(), leaf_V)
        return slope_V.detach(), bend_V

    @cached_property
    def _still(self) -> Tensor:
        """The weights of all pairs, W + W'."""
        slope_V, _ = self._slopes
        return self._with_positives(self.exp_VV * (slope_V / self.sum_V)[:, None], slope_V)

    @cached_property
    def _gradient(self) -> tuple[Tensor, Tensor]:
        """Gradient by the unit vectors, and its part along each."""
        along_VD = (self._still @ self.unit_VD).mul_(self.weight * self.scale)
        return along_VD, (along_VD * self.unit_VD).sum(1, keepdim=True)

    def _with_positives(self, negative_VV: Tensor, total_V: Tensor) -> Tensor:
        """Weights of both readings of each pair; the positive's is minus that of all negatives of its anchor."""
        both_VV, n = negative_VV + negative_VV.T, len(total_V) // 2
        pull_N = total_V.view(2, n).sum(0)
        both_VV.diagonal(n).sub_(pull_N)
        both_VV.diagonal(-n).sub_(pull_N)
        return both_VV
