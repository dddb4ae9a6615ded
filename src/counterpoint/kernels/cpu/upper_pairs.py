r"""Unit vectors against each other, exponential psi: each pair once, value and gradient in one pass.

Scores are symmetric. Strips of rows of the upper triangle are multiplied, their exponentials kept, and summed along
rows and columns. With the sums S a loss says its value and :math:`f_i = \partial L / \partial S_i`: a pair weighs
:math:`e_{ij} (f_i + f_j)`. What attracts is subtracted pair by pair, before weights meet a vector, and one product with
the vectors is the gradient: 1.5 products and one exponential per pair, where autograd through the matrix takes 3.

One reference c for all rows makes :math:`e_{ij} = e^{s \cos_{ij} - c}` symmetric (``tiles.common_reference``).
Where there is none, or a row's sum is so small that what was lifted shows, the general route is taken.

Of two views and their positives i' (``_TwoViews``):

.. math:: L = g \sum_{i=1}^{2n} \phi(e^{r_i}), \qquad r_i = m + \log \sum_{j \ne i, i'} e^{s (\cos_{ij} - \cos_{ii'})}

Of one set with classes (``_OneSet``), M the number of anchors that have a positive:

.. math:: L = -\frac{1}{M} \sum_i \frac{1}{|P(i)|} \sum_{j \in P(i)} \log p_{ij}

with p_i the softmax over all vectors but i. An only positive is taken out of the sum, its loss is :math:`\log(1 +
e^{r_i})`: only there can the loss come near zero, where a difference of logarithms would lose digits.
"""

# N samples, V vectors (2N of two views), H rows and W columns of a strip, D features

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import NamedTuple

import torch
from torch import Tensor

from counterpoint.core.numerics import take_radial
from counterpoint.core.processor_routines import add_product_, exponent_unit, multiply
from counterpoint.core.thread_parts import blocks, each_block, joined, only_values, own_rows, single_threaded
from counterpoint.kernels.contract import Elementwise, softplus
from counterpoint.kernels.cpu.one_operation import Product, RouteResult, is_small, one_operation, ordinary_lengths
from counterpoint.kernels.cpu.tiles import common_reference, exponentials_, is_exact
from counterpoint.kernels.select import LARGEST_KEPT, LARGEST_SMALL, SMALL_BATCH, note

STRIP = 256  # most rows of a strip: 128 and 512 took as long or longer from 512 to 4,096 vectors


class _PerVector(NamedTuple):
    value: Tensor
    factor_V: Tensor  # s dL/dS
    pull: Tensor  # s times how strongly vectors attract their positives


class _UnitVectors(NamedTuple):  # a third of the time of a frozen record, which 32 pairs would notice
    """Vectors at unit length, (v, d), what their lengths were, s and c."""

    unit_VD: Tensor
    length_V1: Tensor
    scale: float
    reference: float

    def exponentials(self, own_HD: Tensor, other_WD: Tensor, out_HW: Tensor) -> Tensor:
        """e^(u - c)."""
        unit = exponent_unit(out_HW)
        score_HW = multiply(own_HD, other_WD.t(), scale=self.scale * unit, room_HW=out_HW)
        return exponentials_(score_HW, self.reference, unit)

    def find(self, loss: "_TwoViews | _OneSet", num_inputs: int, *, wants_gradient: bool) -> RouteResult | None:
        """Return value, and gradient for the raw vectors, which came in several parts; None if c is not exact."""
        unit_VD, num = self.unit_VD, self.unit_VD.shape[0]
        if num <= STRIP:
            with only_values(), single_threaded():
                return self._find_whole(loss, num_inputs, wants_gradient=wants_gradient)
        # A quarter: three steps wake a thread each, which did not pay for 512 vectors of 128 features.
        strips, num_products = blocks(num, 2, STRIP), num * unit_VD.numel() // 4
        # A tensor for each strip: an allocator keeps small ones for the next call, and hands large ones back.
        buffers = {rows.start: unit_VD.new_empty(rows.stop - rows.start, num - rows.start) for rows in strips}

        def below(values_V: Tensor, rows: slice) -> Tensor:
            return own_rows(values_V, slice(rows.start, num))

        def exponentials(rows: slice) -> tuple[Tensor, ...]:
            exp_HW = buffers[rows.start] = self.exponentials(
                own_rows(unit_VD, rows), below(unit_VD, rows), buffers[rows.start]
            )
            loss.erase(exp_HW, rows)
            return (exp_HW.sum(1),) if rows.stop == num else (exp_HW.sum(1), exp_HW[:, exp_HW.shape[0] :].sum(0))

        def weights(rows: slice) -> None:
            weight_HW = buffers[rows.start].mul_(own_rows(factor_V, rows)[:, None] + below(factor_V, rows))
            loss.attract(weight_HW, rows, pull)

        def products(rows: slice) -> Tensor:
            along_HD = multiply(buffers[rows.start], below(unit_VD, rows))
            for above in strips[: strips.index(rows)]:  # what lies left of the diagonal was kept above it
                columns = slice(rows.start - above.start, rows.stop - above.start)
                add_product_(along_HD, buffers[above.start][:, columns].t(), unit_VD[above])
            # Chain rule of x / |x|: nothing along the unit vector, the rest over the length.
            take_radial(along_HD, own_rows(unit_VD, rows))
            return along_HD.div_(own_rows(self.length_V1, rows))

        with only_values():
            strip_sums = each_block(strips, exponentials, num_products)
            with single_threaded():
                sum_V = joined([sums[0] for sums in strip_sums])
                # Sums follow the order of strips: the same bits for any number of threads.
                for rows, sums in zip(strips[:-1], strip_sums, strict=False):
                    sum_V[rows.stop :] += sums[1]
                if self.reference and not is_exact(sum_V.log(), num):
                    return None
                note(SMALL_BATCH)
                value, factor_V, pull = loss.of_sums(sum_V)
            if not wants_gradient:
                return RouteResult(value)
            each_block(strips, weights, num_products)
            return RouteResult(value, joined(each_block(strips, products, num_products)).chunk(num_inputs))

    def _find_whole(self, loss: "_TwoViews | _OneSet", num_inputs: int, *, wants_gradient: bool) -> RouteResult | None:
        """The same for one strip: 32 pairs would notice the calls that several take."""
        unit_VD, num = self.unit_VD, self.unit_VD.shape[0]
        rows = slice(0, num)
        exp_VV = self.exponentials(unit_VD, unit_VD, unit_VD.new_empty(num, num))
        loss.erase(exp_VV, rows)
        sum_V = exp_VV.sum(1)
        if self.reference and not is_exact(sum_V.log(), num):
            return None
        note(SMALL_BATCH)
        value, factor_V, pull = loss.of_sums(sum_V)
        if not wants_gradient:
            return RouteResult(value)
        weight_VV = exp_VV.mul_(factor_V[:, None] + factor_V)
        loss.attract(weight_VV, rows, pull)
        along_VD = multiply(weight_VV, unit_VD)
        take_radial(along_VD, unit_VD)
        return RouteResult(value, along_VD.div_(self.length_V1).chunk(num_inputs))


@dataclass(frozen=True)
class SmallLoss:
    """Functions by which a pairwise loss of two views turns its scores into a value."""

    scale: float  # s
    margin: float  # m
    phi_of_log: Elementwise  # phi as a function of the logarithm of its argument
    slope_of_log: Elementwise  # its derivative by that logarithm
    general: Callable[[Tensor, Tensor], Tensor]  # see ``one_operation.Route``


def weighted_loss(z0: Tensor, z1: Tensor, loss: SmallLoss, weight: float) -> Tensor | None:
    """The loss of two raw views, with g = weight; None if only the general route is right (``_unit_vectors``)."""
    vectors = _unit_vectors(loss.scale, z0, z1)
    return None if vectors is None else one_operation(_TwoViews(loss, weight, vectors), z0, z1)


def _unit_vectors(scale: float, *views: Tensor) -> _UnitVectors | None:
    """Raw views below each other; None if they are too many or too large: see ``is_small``, ``ordinary_lengths``."""
    reference = common_reference(abs(scale), views[0].dtype)
    num = sum(view.shape[0] for view in views)  # ``len`` of a tensor is a function in Python
    if reference is None or not is_small(num * num, LARGEST_KEPT):
        return None
    with single_threaded():
        raw_VD = joined([view.detach() for view in views])
        length_V1 = ordinary_lengths(raw_VD)
        return None if length_V1 is None else _UnitVectors(raw_VD / length_V1, length_V1, scale, reference)


class _TwoViews(NamedTuple):
    """Two views against each other: the loss, g, and the vectors, first view above second."""

    loss: SmallLoss
    weight: float
    vectors: _UnitVectors

    @property
    def general(self) -> Callable[..., Tensor]:
        return self.loss.general

    def find(self, *inputs: Tensor, wants_gradient: bool) -> RouteResult | None:
        result = self.vectors.find(self, 2, wants_gradient=wants_gradient)
        # The Hessian takes several whole matrices.
        if result is None or self.vectors.unit_VD.shape[0] ** 2 > LARGEST_SMALL:
            return result
        return RouteResult(result.value, result.gradients, partial(_hessian, self))

    def erase(self, exp_HW: Tensor, rows: slice) -> None:
        """Set the pairs that do not count to zero in a strip, whose first column is that of its first row."""
        n = self.vectors.unit_VD.shape[0] // 2
        if exp_HW.shape[0] == 2 * n:
            # The pairs (i, i), (i, i'), (i', i) and (i', i') of a sample lie on lines of one slope.
            exp_HW.as_strided((2, 2, n), (2 * n * n, n, 2 * n + 1)).fill_(0.0)
            return
        exp_HW.diagonal().fill_(0.0)
        exp_HW.diagonal(n).fill_(0.0)

    def of_sums(self, sum_V: Tensor) -> _PerVector:
        statistic_2N, loss = self.statistic(sum_V), self.loss
        value = loss.phi_of_log(statistic_2N).sum().mul_(self.weight)
        slope_2N = loss.slope_of_log(statistic_2N).mul(self.weight * loss.scale)
        # The positive weighs minus the sum of the negatives. Both views of a sample have each other for a positive,
        # so that the two sums add up.
        return _PerVector(value, slope_2N.view(-1) / sum_V, slope_2N.sum(0))

    def attract(self, weight_HW: Tensor, rows: slice, pull: Tensor) -> None:
        n = self.vectors.unit_VD.shape[0] // 2
        if weight_HW.shape[0] == 2 * n:
            # Positives in both readings, (i, i') and (i', i), lie on two diagonals: one strided view shows both.
            weight_HW.as_strided((2, n), (2 * n * n - n, 2 * n + 1), n).sub_(pull)
            return
        partners = weight_HW.diagonal(n)
        if partners.shape[0]:  # a strip of the second view has its positives to the left
            partners.sub_(pull[rows])

    def statistic(self, sum_V: Tensor) -> Tensor:
        """The r of each vector, (2, n)."""
        first_ND, second_ND = self.vectors.unit_VD.chunk(2)
        own_N = torch.linalg.vecdot(first_ND, second_ND)
        statistic_2N = sum_V.view(2, -1).log().sub_(own_N, alpha=self.loss.scale)
        shift = self.vectors.reference + self.loss.margin
        return statistic_2N.add_(shift) if shift else statistic_2N


def _hessian(route: _TwoViews) -> Product:
    r"""The Hessian of two views against each other at one point, as a function of a change of them.

    With f = phi(exp), scores :math:`\sigma_{ij} = s\, u_i^\top u_j` of unit vectors, weights :math:`p_{ij} = e_{ij} /
    S_i` of the negatives and :math:`W_{ij} = f'_i (p_{ij} - [j = i'])`, the gradient is :math:`g s (W + W^\top) u`, and
    along a direction

    .. math:: \dot r_i = \sum_j p_{ij} \dot\sigma_{ij} - \dot\sigma_{ii'}, \qquad
        \dot W_{ij} = f''_i \dot r_i (p_{ij} - [j = i'])
        + f'_i p_{ij} \Big(\dot\sigma_{ij} - \sum_k p_{ik} \dot\sigma_{ik}\Big)

    Three matrix products for each direction; double backward through the general route takes six.
    """
    loss, vectors, unit_VD, length_V1 = route.loss, route.vectors, route.vectors.unit_VD, route.vectors.length_V1
    rows_of_all = slice(0, len(unit_VD))

    def with_positives(negative_VV: Tensor, total_V: Tensor) -> Tensor:
        """Weights of both readings of each pair; the positive's is minus that of all negatives of its anchor."""
        route.attract(negative_VV, rows_of_all, total_V.view(2, -1).sum(0))
        return negative_VV

    # Values that all products share.
    with single_threaded(), only_values():
        exp_VV = vectors.exponentials(unit_VD, unit_VD, unit_VD.new_empty(len(unit_VD), len(unit_VD)))
        route.erase(exp_VV, rows_of_all)
        sum_V = exp_VV.sum(1)
        with torch.enable_grad():
            leaf_V = route.statistic(sum_V).view(-1).detach().requires_grad_()
            (slope_V,) = torch.autograd.grad(loss.phi_of_log(leaf_V).sum(), leaf_V, create_graph=True)
            # f'' at each statistic; where phi is linear in the logarithm, its slope has no graph.
            has_bend = slope_V.requires_grad
            bend_V = torch.autograd.grad(slope_V.sum(), leaf_V)[0] if has_bend else torch.zeros_like(leaf_V)
        slope_V = slope_V.detach()
        factor_V = slope_V / sum_V
        factor_VV = factor_V[:, None] + factor_V
        still_VV = with_positives(exp_VV * factor_VV, slope_V)
        along_VD = multiply(still_VV, unit_VD).mul_(route.weight * loss.scale)
        inward_V1 = (along_VD * unit_VD).sum(1, keepdim=True)

    def product(tangents: Sequence[Tensor]) -> Sequence[Tensor]:
        with single_threaded(), only_values():
            tangent_VD = torch.cat(list(tangents))
            # Along x / |x|: nothing along the unit vector, the rest over the length.
            radial_V1 = (tangent_VD * unit_VD).sum(1, keepdim=True)
            turned_VD = (tangent_VD - radial_V1 * unit_VD) / length_V1
            # One product of twice the depth: a matrix and its transpose take longer to add than to multiply.
            left_VD, right_VD = (torch.cat(pair, dim=1) for pair in ((turned_VD, unit_VD), (unit_VD, turned_VD)))
            score_VV = multiply(loss.scale * left_VD, right_VD.T)
            own_V = score_VV.diagonal(len(exp_VV) // 2).repeat(2)
            weighted_VV = score_VV.mul_(exp_VV)
            mean_V = weighted_VV.sum(1) / sum_V
            change_V = bend_V * (mean_V - own_V)
            first_V = change_V / sum_V - factor_V * mean_V
            bent_VV = weighted_VV.mul_(factor_VV).addcmul_(exp_VV, first_V[:, None] + first_V)
            change_VD = multiply(with_positives(bent_VV, change_V), unit_VD)
            add_product_(change_VD, still_VV, turned_VD).mul_(route.weight * loss.scale)
            # The chain rule of x / |x| once more, on a gradient that turns with x.
            tilted_V1 = (turned_VD * along_VD + unit_VD * change_VD).sum(1, keepdim=True)
            total_VD = change_VD - turned_VD * inward_V1 - unit_VD * tilted_V1
            total_VD -= (along_VD - unit_VD * inward_V1) * (radial_V1 / length_V1)
            return total_VD.div_(length_V1).chunk(2)

    return product


def supervised_loss(x_VD: Tensor, class_V: Tensor, scale: float, general: Callable[[Tensor], Tensor]) -> Tensor | None:
    """The supervised loss of raw vectors and their labels; None as of ``weighted_loss``."""
    vectors = _unit_vectors(scale, x_VD)
    if vectors is None:
        return None
    with single_threaded():
        _, class_V, counts_C = torch.unique(class_V, return_inverse=True, return_counts=True)
    return one_operation(_OneSet(vectors, class_V, counts_C, general), x_VD)


@dataclass(frozen=True)
class _OneSet:
    """All vectors against each other, with their classes from 0, and how many are of each."""

    vectors: _UnitVectors
    class_V: Tensor
    counts_C: Tensor
    general: Callable[..., Tensor]

    def find(self, *inputs: Tensor, wants_gradient: bool) -> RouteResult | None:
        return self.vectors.find(self, 1, wants_gradient=wants_gradient)

    @cached_property
    def num_positives(self) -> Tensor:
        """Number of positives of each vector."""
        return (self.counts_C - 1).to(self.vectors.unit_VD.dtype).index_select(0, self.class_V)

    @cached_property
    def has_few(self) -> bool:
        """Tell whether some anchors have one positive, or none."""
        return self.counts_C.amin().item() < 3

    def erase(self, exp_HW: Tensor, rows: slice) -> None:
        if self.has_few:
            exp_HW.masked_fill_(self._is_positive(rows).logical_and_(self.num_positives[rows, None] == 1), 0.0)
        exp_HW.diagonal().fill_(0.0)

    def of_sums(self, sum_V: Tensor) -> _PerVector:
        unit_VD, _, scale, reference = self.vectors
        num_V = self.num_positives
        sums_CD = unit_VD.new_zeros(len(self.counts_C), unit_VD.shape[1]).index_add_(0, self.class_V, unit_VD)
        # The class's sum less the anchor: scores of all its positives in linear time.
        others_VD = sums_CD.index_select(0, self.class_V).sub_(unit_VD)
        attraction_V = others_VD.mul_(unit_VD).sum(1).mul_(scale)
        # No anchor at all: loss 0, not 0 / 0.
        share = num_V.count_nonzero().clamp(min=1).to(num_V.dtype).reciprocal()
        # Log-sum-exp less the mean score of the positives; 0 / 0 without any, which is put right below.
        loss_V, pull_V = sum_V.log().add_(reference).addcdiv_(attraction_V, num_V, value=-1), num_V.reciprocal()
        if self.has_few:
            is_only_V, is_none_V = num_V == 1, num_V == 0
            total_V = sum_V + (attraction_V - reference).exp()
            # log(1 + e^{r_i}), and 1 - p as the others' share: an only positive loses no digits where p is near 1.
            loss_V = torch.where(is_only_V, softplus(loss_V), loss_V).masked_fill_(is_none_V, 0.0)
            pull_V = torch.where(is_only_V, sum_V / total_V, pull_V).masked_fill_(is_none_V, 0.0)
            # Divided by an infinite sum, all shares of an anchor without positives are 0.
            sum_V = torch.where(is_only_V, total_V, sum_V).masked_fill_(is_none_V, torch.inf)
        value, share = loss_V.sum() * share, share * scale
        return _PerVector(value, share / sum_V, share * pull_V)

    def attract(self, weight_HW: Tensor, rows: slice, pull: Tensor) -> None:
        pull = pull[rows, None] + pull[rows.start :] if self.has_few else 2 * pull[rows, None]
        weight_HW.sub_(self._is_positive(rows) * pull)
        weight_HW.diagonal().fill_(0.0)

    def _is_positive(self, rows: slice) -> Tensor:
        return self.class_V[rows, None] == self.class_V[rows.start :]
