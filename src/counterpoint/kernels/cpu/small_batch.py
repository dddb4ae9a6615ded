r"""Small batches: from raw vectors to the loss in one autograd operation, whose matrices fit the cache.

Below a few hundred samples the time goes into calls, not into arithmetic. ``OneOperation`` is that operation for any
loss that can say its value and its gradient; everything beyond a first reverse-mode derivative is left to the loss's
general route. ``TwoViews`` is the one of a pairwise loss with exponential psi, two views against each other:

.. math:: L = g \sum_{i=1}^{2n} \phi(e^{r_i}), \qquad r_i = m + \log \sum_{j \ne i, i'} e^{s (\cos_{ij} - \cos_{ii'})}

It keeps its exponentials (memory n x n), and its gradient is a single product, :math:`(w + w^\top) Z`. Up to
``LARGEST_SCALE`` exponentials need no reference; beyond, each row is taken relative to its largest score.

Its second derivative is in closed form, from what the gradient kept. With f = phi(exp), scores :math:`\sigma_{ij} = s\,
u_i^\top u_j` of unit vectors, weights :math:`p_{ij} = e_{ij} / S_i` of the negatives and :math:`W_{ij} = f'_i (p_{ij} -
[j = i'])`, the gradient is :math:`g s (W + W^\top) u`, and along a direction

.. math:: \dot r_i = \sum_j p_{ij} \dot\sigma_{ij} - \dot\sigma_{ii'}, \qquad
    \dot W_{ij} = f''_i \dot r_i (p_{ij} - [j = i'])
    + f'_i p_{ij} \Big(\dot\sigma_{ij} - \sum_k p_{ik} \dot\sigma_{ik}\Big)

Three matrix products for each direction. Double backward through the general route takes six: value, gradient and one
product then cost 1.5 to 2.1 times as much (InfoNCE at 0.5 and 0.02, DCL and MINE; 128, 256 and 512 samples of 128
features, one thread, pair by pair), above the 1.3 at which a closed form goes.
"""

# N samples, V = 2N vectors, H rows of a block, D features

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import torch
from torch import Tensor
from torch._C._functorch import is_legacy_batchedtensor

from counterpoint.core.numerics import ORDINARY_LENGTHS, is_transformed, take_radial
from counterpoint.core.thread_parts import alone, blocks, each_block, joined, own_rows
from counterpoint.kernels.contract import Elementwise
from counterpoint.kernels.select import LARGEST_SMALL, SMALL_BATCH, is_free, note

LARGEST_SCALE = 40.0  # exp(s) and exp(-s), and sums of 1024 of them, are ordinary numbers in float32
# Relative to a row's largest score, and to the largest weight: what adds nothing to a sum, but would make subnormal
# numbers, with which processors are slow.
LEAST_SCORE, LEAST_WEIGHT = -40.0, 1e-19


class SmallRoute(Protocol):
    """A loss of a small batch, as ``OneOperation`` wants it."""

    @property
    def general(self) -> Callable[..., Tensor]:
        """The same loss for any such inputs, differentiable to any order."""
        ...

    def value(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        """The value, and what the gradient is made of; no derivatives are recorded."""
        ...

    def gradient(self, upstream: Tensor, *kept: Tensor) -> tuple[Tensor, ...]:
        """Gradient for each of the inputs, from what was kept."""
        ...


class OneOperation(torch.autograd.Function):
    """A loss by its own value and gradient; any further derivative is that of its general route, or of ``Slope``."""

    @staticmethod
    def forward(ctx: Any, route: SmallRoute, *inputs: Tensor) -> Tensor:
        """The value."""
        value, *kept = route.value(*inputs)
        ctx.route, ctx.num_inputs = route, len(inputs)
        ctx.save_for_backward(*inputs, *kept)
        return value

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> Any:
        """The gradient, differentiable in turn where that is asked for."""
        # Gradients are recorded in backward under create_graph only.
        if not torch.is_grad_enabled():
            return None, *ctx.route.gradient(upstream[0], *ctx.saved_tensors[ctx.num_inputs :])
        if isinstance(ctx.route, TwoViews):
            return None, *Slope.apply(ctx.route, ctx.num_inputs, upstream[0], *ctx.saved_tensors)
        return None, *_general_gradient(ctx.route, upstream[0], ctx.saved_tensors[: ctx.num_inputs])[1]


def _general_gradient(
    route: SmallRoute, upstream: Tensor, inputs: Sequence[Tensor]
) -> tuple[list[Tensor], tuple[Tensor, ...]]:
    """What the gradient by the general route is made of, and the gradient, differentiable in turn."""
    with torch.enable_grad():
        # Nodes of their own stop the inner pass here: one input may be a function of the other.
        given = [value.view_as(value) for value in (upstream, *inputs)]
        given = [value if value.requires_grad else value.detach().requires_grad_() for value in given]
        return given, torch.autograd.grad(route.general(*given[1:]), given[1:], given[0], create_graph=True)


class Slope(torch.autograd.Function):
    """The gradient of ``TwoViews``, whose own derivative is in closed form; any further one by the general route."""

    @staticmethod
    def forward(ctx: Any, route: "TwoViews", num_inputs: int, upstream: Tensor, *saved: Tensor) -> tuple[Tensor, ...]:
        """Gradients for the inputs, which come first in what was saved."""
        ctx.route, ctx.num_inputs = route, num_inputs
        ctx.turn = TwoViewTurn(route, *saved[num_inputs + 1 :])
        ctx.save_for_backward(upstream, *saved)
        return route.gradient(upstream, *saved[num_inputs:])

    @staticmethod
    def backward(ctx: Any, *tangents: Tensor) -> Any:
        """The Hessian's product with the tangents, as it is symmetric, and its slope by upstream."""
        upstream, *saved = ctx.saved_tensors
        inputs, kept = saved[: ctx.num_inputs], saved[ctx.num_inputs :]
        nothing = (None,) * len(kept)
        if torch.is_grad_enabled() or any(map(is_legacy_batchedtensor, tangents)):
            given, gradients = _general_gradient(ctx.route, upstream, inputs)
            is_recorded = torch.is_grad_enabled()
            by_upstream, *products = torch.autograd.grad(gradients, given, tangents, create_graph=is_recorded)
            return None, None, by_upstream, *products, *nothing
        products = [turned * upstream for turned in ctx.turn.along(tangents)]
        by_upstream = None
        if ctx.needs_input_grad[2]:
            gradients = ctx.route.gradient(torch.ones_like(upstream), *kept)
            by_upstream = sum((g * t).sum() for g, t in zip(gradients, tangents, strict=True))
        return None, None, by_upstream, *products, *nothing


def is_small(num_pairs: int) -> bool:
    """Whether a shortcut may be taken: few pairs, no kernel asked for, and no transform that it would be blind to."""
    return num_pairs <= LARGEST_SMALL and is_free() and not is_transformed()


def ordinary_lengths(vectors_VD: Tensor) -> Tensor | None:
    """Length of each vector along the last dimension, which stays; None if one is zero, extreme or not finite.

    With lengths the shortcut is taken, which is noted as the choice of a kernel is; without, the general route.
    """
    # Split over threads, operations as small as these would wait for the other cores.
    with alone():
        length_V1 = torch.linalg.vector_norm(vectors_VD, dim=-1, keepdim=True)
        shortest, longest = torch.aminmax(length_V1)
    # NaN fails every comparison: asked like this, it takes the general route, which names it.
    if not (ORDINARY_LENGTHS[0] < shortest.item() and longest.item() < ORDINARY_LENGTHS[1]):
        return None
    note(SMALL_BATCH)
    return length_V1


@dataclass(frozen=True)
class SmallLoss:
    """What a pairwise loss of two views does with its scores.

    Attributes:
        scale: s, 1 / temperature.
        margin: m.
        phi_of_log: phi as a function of the logarithm of its argument.
        slope_of_log: its derivative with respect to that logarithm.
        general: the same loss (two views to a scalar) for any input, differentiable to any order.
    """

    scale: float
    margin: float
    phi_of_log: Elementwise
    slope_of_log: Elementwise
    general: Callable[[Tensor, Tensor], Tensor]


def weighted_loss(z0: Tensor, z1: Tensor, loss: SmallLoss, weight: float) -> Tensor | None:
    """The loss, where the shortcut applies.

    Args:
        z0: first view, raw, (n, d) in float32 or float64.
        z1: second view.
        loss: what is computed.
        weight: g, 1 / 2n for a mean.

    Returns:
        Scalar, or None if the general route is the right one: see ``is_small`` and ``ordinary_lengths``.
    """
    if not is_small(4 * len(z0) ** 2):
        return None
    # A copy, which may be divided in place.
    both_VD = torch.cat([z0.detach(), z1.detach()])
    length_V1 = ordinary_lengths(both_VD)
    if length_V1 is None:
        return None
    with alone():
        unit_VD = both_VD.div_(length_V1)
    return OneOperation.apply(TwoViews(loss, weight, unit_VD, length_V1), z0, z1)  # pyright: ignore[reportReturnType]


@dataclass(frozen=True)
class TwoViews:
    """Two views against each other.

    Attributes:
        loss: what is computed.
        weight: g.
        unit_VD: first view above second, at unit length.
        length_V1: what their lengths were.
    """

    loss: SmallLoss
    weight: float
    unit_VD: Tensor
    length_V1: Tensor

    @property
    def general(self) -> Callable[..., Tensor]:
        """See ``SmallRoute``."""
        return self.loss.general

    def value(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        """See ``SmallRoute``."""
        loss, unit_VD, is_bounded = self.loss, self.unit_VD, abs(self.loss.scale) <= LARGEST_SCALE
        num_vectors = len(unit_VD)
        with alone():
            scaled_VD = unit_VD * loss.scale
            exp_VV = unit_VD.new_empty(num_vectors, num_vectors)

        def work(rows: slice) -> tuple[Tensor, Tensor]:
            # Scores, which their exponentials overwrite.
            u_HV = torch.mm(own_rows(scaled_VD, rows), unit_VD.t(), out=own_rows(exp_VV, rows))
            # The positive's score, read before its place is filled.
            n = num_vectors // 2
            # Both vectors of a sample have the same one: of all rows one diagonal shows it twice.
            own_H = u_HV.diagonal(n).repeat(2) if len(u_HV) == num_vectors else _partners(u_HV, rows).clone()
            if is_bounded:
                _leave_out(u_HV.exp_(), rows, 0.0)
            else:
                top_H = _leave_out(u_HV, rows, -torch.inf).amax(1)
                # Sum and positive are both relative to the largest score: it cancels in the statistic.
                own_H -= top_H
                # The clamp lifts minus infinity as well, hence the second filling.
                _leave_out(u_HV.sub_(top_H[:, None]).clamp_(min=LEAST_SCORE).exp_(), rows, 0.0)
            sum_H = u_HV.sum(1)
            statistic_H = torch.log(sum_H).sub_(own_H)
            if loss.margin:
                statistic_H += loss.margin
            return sum_H, statistic_H

        # Two parts: no block holds rows of both views, so that its positives lie on one diagonal.
        found = each_block(blocks(num_vectors, 2), work, exp_VV.numel() * unit_VD.shape[1])
        sum_V, statistic_V = (joined(list(parts)) for parts in zip(*found, strict=True))
        value = loss.phi_of_log(statistic_V).sum().mul_(self.weight)
        return value, scaled_VD, exp_VV, sum_V, statistic_V

    def gradient(self, upstream: Tensor, *kept: Tensor) -> tuple[Tensor, ...]:
        """See ``SmallRoute``."""
        scaled_VD, exp_VV, sum_V, statistic_V = kept
        unit_VD, is_bounded = self.unit_VD, abs(self.loss.scale) <= LARGEST_SCALE
        weight_V, size = self.loss.slope_of_log(statistic_V), upstream * self.weight
        if is_bounded:
            weight_V, size = weight_V * size, None
        else:  # relative to the largest, without those that are nothing beside it
            largest = weight_V.abs().amax()
            largest = torch.where(largest > 0, largest, 1.0)
            weight_V, size = weight_V / largest, size * largest
            weight_V = torch.where(weight_V.abs() < LEAST_WEIGHT, 0.0, weight_V)
        # Weight of a negative: w_ij = factor_i e_ij; of the positive: minus their sum. Both views of a sample
        # have each other for a positive, so that the two sums add up.
        factor_V, pull_N = weight_V / sum_V, weight_V.view(2, -1).sum(0)

        def work(rows: slice) -> Tensor:
            exp_HV, unit_HD = own_rows(exp_VV, rows), own_rows(unit_VD, rows)
            factor_H1 = own_rows(factor_V, rows)[:, None]
            if is_bounded:
                # e_ij = e_ji: one exponential for both readings of a pair.
                weight_HV = torch.add(factor_H1, factor_V).mul_(exp_HV)
            else:
                # Each row has a reference of its own: e_ij and e_ji differ.
                weight_HV = (exp_VV[:, rows].t() * factor_V).addcmul_(exp_HV, factor_H1)
            first = rows.start % len(pull_N)
            _partners(weight_HV, rows).sub_(pull_N[first : first + len(weight_HV)])
            along_HD = torch.mm(weight_HV, scaled_VD)
            # Chain rule of x / |x|: nothing along the unit vector, the rest over the length.
            take_radial(along_HD, unit_HD)
            along_HD.div_(own_rows(self.length_V1, rows))
            return along_HD if size is None else along_HD.mul_(size)

        gradient_VD = joined(each_block(blocks(len(unit_VD), 2), work, exp_VV.numel() * unit_VD.shape[1]))
        first_ND, second_ND = gradient_VD.chunk(2)
        return first_ND, second_ND


@dataclass(frozen=True)
class TwoViewTurn:
    """The Hessian of two views against each other at one point; what all its products share is made once.

    Attributes:
        route: the loss, its vectors and their lengths.
        exp_VV: e, zero at pairs that do not count; each row may have a factor of its own.
        sum_V: S, with the same factors.
        statistic_V: r.
    """

    route: TwoViews
    exp_VV: Tensor
    sum_V: Tensor
    statistic_V: Tensor

    def along(self, tangents: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """Change of the gradient by the raw vectors along a change of them, view by view."""
        with alone():
            return self._along(torch.cat(tangents)).chunk(2)

    def _along(self, tangent_VD: Tensor) -> Tensor:
        """The same with one view above the other."""
        unit_VD, length_V1, scale = self.route.unit_VD, self.route.length_V1, self.route.loss.scale
        exp_VV, (slope_V, bend_V) = self.exp_VV, self._slopes
        # Along x / |x|: nothing along the unit vector, the rest over the length.
        radial_V1 = (tangent_VD * unit_VD).sum(1, keepdim=True)
        turned_VD = (tangent_VD - radial_V1 * unit_VD) / length_V1
        half_VV = (scale * turned_VD) @ unit_VD.T
        score_VV = half_VV + half_VV.T
        mean_V = torch.einsum("ij,ij->i", exp_VV, score_VV) / self.sum_V
        change_V = bend_V * (mean_V - score_VV.diagonal(len(exp_VV) // 2).repeat(2))
        factor_V = slope_V / self.sum_V
        first_V1 = (change_V / self.sum_V - factor_V * mean_V)[:, None]
        bent_VV = torch.addcmul(first_V1, factor_V[:, None], score_VV).mul_(exp_VV)
        bent_VV = self._with_positives(bent_VV, change_V)
        along_VD, inward_V1 = self._gradient
        change_VD = bent_VV @ unit_VD
        change_VD.addmm_(self._still, turned_VD).mul_(self.route.weight * scale)
        # The chain rule of x / |x| once more, on a gradient that turns with x.
        tilted_V1 = (turned_VD * along_VD + unit_VD * change_VD).sum(1, keepdim=True)
        total_VD = change_VD - turned_VD * inward_V1 - unit_VD * tilted_V1
        total_VD -= (along_VD - unit_VD * inward_V1) * (radial_V1 / length_V1)
        return total_VD / length_V1

    @cached_property
    def _slopes(self) -> tuple[Tensor, Tensor]:
        """The slope f' and the bend f'' at each statistic."""
        with torch.enable_grad():
            leaf_V = self.statistic_V.detach().requires_grad_()
            (slope_V,) = torch.autograd.grad(self.route.loss.phi_of_log(leaf_V).sum(), leaf_V, create_graph=True)
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
        unit_VD, factor = self.route.unit_VD, self.route.weight * self.route.loss.scale
        along_VD = (self._still @ unit_VD).mul_(factor)
        return along_VD, (along_VD * unit_VD).sum(1, keepdim=True)

    def _with_positives(self, negative_VV: Tensor, total_V: Tensor) -> Tensor:
        """Weights of both readings of each pair; the positive's is minus that of all negatives of its anchor."""
        both_VV, n = negative_VV + negative_VV.T, len(total_V) // 2
        pull_N = total_V.view(2, n).sum(0)
        both_VV.diagonal(n).sub_(pull_N)
        both_VV.diagonal(-n).sub_(pull_N)
        return both_VV


def _partners(u_HV: Tensor, rows: slice) -> Tensor:
    """View of each row's number at the other view of its sample: (2, n) of all rows, (h,) of rows within one view."""
    height, num_vectors = u_HV.shape
    n = num_vectors // 2
    if height == num_vectors:
        # Their places, (i, i') and (i', i), lie on two diagonals: one strided view shows both.
        return u_HV.as_strided((2, n), (2 * n * n - n, 2 * n + 1), n)
    return u_HV.diagonal((rows.start + n) % num_vectors)


def _leave_out(u_HV: Tensor, rows: slice, value: float) -> Tensor:
    """Overwrite each row's numbers at both vectors of its own sample, in place."""
    u_HV.diagonal(rows.start).fill_(value)
    _partners(u_HV, rows).fill_(value)
    return u_HV
