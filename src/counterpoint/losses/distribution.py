"""Losses that give the embedding a distribution: views agree, and random slices of a batch follow a target.

No vector repels another. What speaks against collapse is the distance of each slice from that of an isotropic Gaussian
(``SIGReg``, ``VISReg``) or of a sparse, non-negative target (``RDMReg``). Directions are drawn anew each step.
"""

# N samples per view, D features, M slices, L local views

import math
from abc import abstractmethod
from collections.abc import Mapping
from typing import final

import numpy as np
import torch
from torch import Tensor

from counterpoint.core.checks import check_positive, check_real, check_weight, check_whole
from counterpoint.core.counter_random import PURPOSE_TARGET, epps_pulley, knots, normal, slice_directions, uniform
from counterpoint.core.numerics import is_transformed, product
from counterpoint.losses.inputs import prepare_views
from counterpoint.losses.loss import Loss, LossCard, Part, first_gradient
from counterpoint.losses.pairs import Pairing

NUM_SLICES = 256


class SlicedLoss(Loss):
    """A loss of random slices, whose directions follow from seed and step.

    Takes the whole batch in every process, so that all ranks compare the same slices of the samples of all ranks.
    """

    draws_by_step = True
    why_no_class_level = "it compares the distribution of a batch: no vector has negatives"

    def __init__(self, num_slices: int, seed: int) -> None:
        super().__init__()
        check_whole(num_slices, "num_slices", 1, 2**31, f"{NUM_SLICES} to 1024 are common")
        check_whole(seed, "seed", 0, 2**64, "0 is as good as any")
        self.num_slices, self.seed = num_slices, seed

    @final
    def forward(
        self,
        z0: Tensor,
        z1: Tensor,
        labels: Tensor | None = None,
        *,
        part: Part | None = None,
        step: int = 0,
        local_LND: Tensor | None = None,
    ) -> Tensor:
        r"""Loss of the whole batch; see ``Loss.forward``. Labels are only checked, ``part`` is ignored.

        With local views every view should be where the two global ones have their mean c, and has a distribution: the
        distance of two views becomes :math:`\frac{4}{V} \sum_v |z_v - c|^2`, the same for V = 2, and means over two
        views become means over all V.

        Args:
            z0: first global view, (n, d).
            z1: second global view, (n, d).
            labels: class numbers, int64 (n,), or None; only checked.
            part: share of one of several processes; ignored.
            step: number of the call, 0 to 2**32 - 1, from which its draws follow.
            local_LND: further views of the same samples, (l, n, d), as multi-crop has them; None for two views.

        Raises:
            TypeError: local views that are no tensor.
            ValueError: local views of another shape.
        """
        check_whole(step, "step", 0, 2**32, "number the calls from 0")
        global_views = prepare_views(z0, z1, labels, normalize=False)
        local = []
        if local_LND is not None:
            if not isinstance(local_LND, Tensor):
                kind = type(local_LND).__name__
                raise TypeError(f"local_LND must be a tensor (l, n, d), got {kind}; use torch.stack on a list of views")
            if local_LND.ndim != 3 or local_LND.shape[1:] != z0.shape:
                expected, shape = f"(l, {len(z0)}, {z0.shape[1]})", tuple(local_LND.shape)
                raise ValueError(f"local_LND must be views of the samples of z0, {expected}, got {shape}")
            for place, z_ND in enumerate(local_LND):
                local.append(prepare_views(z0, z_ND, normalize=False, name1=f"local_LND[{place}]")[1])
        z0, z1 = global_views
        directions_DM = slice_directions(self.num_slices, z0, seed=self.seed, step=step)
        # Row by row: torch splits a sum of all entries by the number of threads, and its bits follow.
        distance = (z0 - z1).square().mean(1).mean()
        if local:
            centre_ND = (z0 + z1) / 2
            local_distances = [4 * (z_ND - centre_ND).square().mean(1).mean() for z_ND in local]
            # Both global views are equally far from their mean: |z0 - c|^2 = |z0 - z1|^2 / 4.
            distance = torch.stack([distance, distance, *local_distances]).mean()
        return self._total(distance, (z0, z1, *local), directions_DM, step)

    @abstractmethod
    def _total(self, distance: Tensor, views: tuple[Tensor, ...], directions_DM: Tensor, step: int) -> Tensor:
        """The loss, from four times the mean square of a view's difference from the centre, and from the views."""

    def floor(self, n: int, *, nonnegative: bool = False) -> float:
        """Zero: no term can be negative. Not attained, since n samples are no Gaussian."""
        Pairing().num_negatives(n)  # refuses n < 2
        return 0.0


class SIGReg(SlicedLoss):
    r"""SIGReg with the prediction of LeJEPA: views agree, and every slice of a view looks standard normal.

    .. math::
        L = \frac{1 - \lambda}{2 n d} \sum_i \big(|z_i - c_i|^2 + |z_i' - c_i|^2\big)
          + \frac{\lambda}{2 M} \sum_{m=1}^{M} \big( T(Z a_m) + T(Z' a_m) \big), \qquad c_i = \frac{z_i + z_i'}{2}

        T(p) = n \int_{-5}^{5} \Big| \frac{1}{n} \sum_i e^{\mathrm{i} t p_i} - e^{-t^2 / 2} \Big|^2 e^{-t^2 / 2} \, dt

    T is Epps and Pulley's test of normality, by the trapezoid rule on 17 knots; the unit vectors a are drawn anew each
    step. n is the batch of all ranks: halving a batch halves the weight of T.

    Use it where two views should agree without negatives, teacher or stop-gradient, and the embedding should be an
    isotropic Gaussian (method ``lejepa``). Where all vectors are alike nothing moves them apart, as the gradient is the
    same for all: start from embeddings that are spread, as BatchNorm in the projector gives them.

    Source: balestriero2025, sections on SIGReg and LeJEPA; the test is of epps1983. Local views: ``forward``.

    Args:
        lambda_: weight of T, 0 to 1; agreement has 1 - lambda.
        num_slices: number of directions each step, M >= 1.
        seed: seed of the directions.

    Raises:
        ValueError: an argument out of range.

    Unchanged by permuting samples and swapping views; for many slices nearly so by rotating all vectors. Time and
    memory n D M.

    >>> z = torch.zeros(4, 2)
    >>> abs(float(SIGReg()(z, z)) - SIGReg().chance(4)) < 1e-6
    True
    """

    card = LossCard(
        name="SIGReg",
        negatives="none: slices of the batch should be standard normal",
        normalization="inputs as they are; mean over samples and features, over slices and views",
        source="balestriero2025, SIGReg and LeJEPA",
    )

    def __init__(self, lambda_: float = 0.05, num_slices: int = NUM_SLICES, seed: int = 0) -> None:
        super().__init__(num_slices, seed)
        check_weight(lambda_, "lambda_", hint="balestriero2025 uses 0.02 to 0.05")
        if lambda_ > 1:
            raise ValueError(f"lambda_ must be at most 1, got {lambda_}; balestriero2025 uses 0.02 to 0.05")
        self.lambda_ = lambda_

    def _total(self, distance: Tensor, views: tuple[Tensor, ...], directions_DM: Tensor, step: int) -> Tensor:
        statistics = [epps_pulley(product(z_ND, directions_DM)).mean() for z_ND in views]
        # |z - c|^2 = |z' - c|^2 = |z - z'|^2 / 4
        return (1 - self.lambda_) * distance / 4 + self.lambda_ * torch.stack(statistics).mean()

    def chance(self, n: int) -> float:
        """Loss when all vectors are zero, the lowest value of a collapsed batch: lambda n times a constant."""
        Pairing().num_negatives(n)  # refuses n < 2
        return self.lambda_ * n * sum(weight * (1 - normal_at_t) ** 2 for _, normal_at_t, weight in knots())


_NO_SECOND = (
    "VISReg has no second derivative, since the deviations that divide are held fixed: differentiating its gradient "
    "gives the Hessian of no loss"
)


class VISReg(SlicedLoss):
    r"""VISReg: views agree, every feature keeps a deviation of 1, and the shape of every slice is a Gaussian's.

    .. math::
        L = \frac{\lambda}{nd} \sum_i |z_i - z_i'|^2 + \frac{\mu}{2} (s(Z) + s(Z')) + \frac{\nu}{2} (w(Z) + w(Z'))

        s(Z) = \frac{1}{d} \sum_p (1 - \sigma_p)^2, \qquad \sigma_p = \sqrt{\mathrm{var}_p + \epsilon}

        w(Z) = \frac{1}{nM} \sum_{m=1}^{M} \sum_{i=1}^{n}
        \Big( \big(\hat Z a_m\big)_{(i)} - \Phi^{-1}\big(\tfrac{i - 1/2}{n}\big) \Big)^2, \qquad
        \hat z_{ip} = \frac{z_{ip} - \bar z_p}{\sigma_p}

    w is the sliced Wasserstein distance to an isotropic Gaussian: sorted slices against sorted quantiles. The
    :math:`\sigma` that divides is held fixed, so that s alone moves the scale. Variances divide by n - 1.

    Use it as ``SIGReg``, where embeddings may start almost alike: neither the gradient of s nor that of w vanishes at
    collapse (method ``visreg``).

    Source: wu2026, sections on scale and shape regularization. Chosen here: features are centred first, sorted
        slices meet the quantiles of a Gaussian, and the three weights are 1.

    Args:
        invariance: lambda, weight of the distance between views, >= 0.
        scale: mu, weight of the deviations' distance from 1, >= 0.
        shape: nu, weight of the sliced Wasserstein distance, >= 0.
        num_slices: number of directions each step, M >= 1.
        seed: seed of the directions.
        variance_epsilon: added to each variance under the root, > 0.

    Raises:
        ValueError: an argument out of range.

    Unchanged by permuting samples, swapping views and moving all vectors together. Time n D M and the sorting of M
    columns, memory n (D + M). Deviations held fixed give a gradient and no Hessian: a second derivative raises.

    >>> z = torch.ones(4, 2)
    >>> abs(float(VISReg()(z, z)) - VISReg().chance(4)) < 1e-6
    True
    """

    card = LossCard(
        name="VISReg",
        negatives="none: slices of the batch should be standard normal",
        normalization="shape of standardised features; mean over samples and features, over slices and views",
        source="wu2026, scale, shape and invariance",
        second_derivative="none, because the deviations that divide are held fixed",
    )

    def __init__(
        self,
        invariance: float = 1.0,
        scale: float = 1.0,
        shape: float = 1.0,
        num_slices: int = NUM_SLICES,
        seed: int = 0,
        variance_epsilon: float = 1e-4,
    ) -> None:
        super().__init__(num_slices, seed)
        for value, name in ((invariance, "invariance"), (scale, "scale"), (shape, "shape")):
            check_weight(value, name, hint="1 is the default of each")
        check_positive(variance_epsilon, "variance_epsilon", hint="1e-4 is the default")
        self.invariance, self.scale, self.shape = invariance, scale, shape
        self.variance_epsilon = variance_epsilon

    def _total(self, distance: Tensor, views: tuple[Tensor, ...], directions_DM: Tensor, step: int) -> Tensor:
        scales, shapes, quantiles_N = [], [], normal_quantiles(views[0])
        for z_ND in views:
            centred_ND = z_ND - z_ND.mean(dim=0)
            variance_D = centred_ND.square().sum(dim=0) / (len(z_ND) - 1)
            deviation_D = (variance_D + self.variance_epsilon).sqrt()
            scales.append((1 - deviation_D).square().mean())
            shape_ND = first_gradient(centred_ND / deviation_D.detach(), deviation_D, refusal=_NO_SECOND)
            slices_NM = product(shape_ND, directions_DM)
            shapes.append(sorted_distance(slices_NM, quantiles_N))
        return (
            self.invariance * distance
            + self.scale * torch.stack(scales).mean()
            + self.shape * torch.stack(shapes).mean()
        )

    def chance(self, n: int) -> float:
        """Loss when all vectors are alike: no deviation, and the mean square of the quantiles."""
        Pairing().num_negatives(n)  # refuses n < 2
        quantiles_N = normal_quantiles(torch.zeros(n, 1, dtype=torch.float64))
        no_scale = (1 - math.sqrt(self.variance_epsilon)) ** 2
        return self.scale * no_scale + self.shape * float(quantiles_N.square().mean())


class RDMReg(SlicedLoss):
    r"""RDMReg with the prediction of Rectified LpJEPA: views agree, and features are sparse draws of a known shape.

    .. math::
        L = \frac{\lambda}{nd} \sum_i |z_i - z_i'|^2 + \frac{\nu}{2nM} \sum_{m=1}^{M} \sum_{i=1}^{n}
        \big( (Z a_m)_{(i)} - (Y a_m)_{(i)} \big)^2 + \big( (Z' a_m)_{(i)} - (Y a_m)_{(i)} \big)^2

    Y holds n draws of :math:`\max(0, \mu + g)` in each feature, g of variance 1: Gaussian (p = 2) or Laplace (p = 1). A
    product of such targets has no closed form in other directions, so that sorted slices of the batch meet sorted
    slices of draws. The share of zeros is expected to be :math:`P(g < -\mu)` (``zero_share``).

    Use it for embeddings that are sparse and non-negative by design, as NCL's are by learning. Give it non-negative
    embeddings: the method ``rectified-lejepa`` puts a ReLU before it.

    Source: kuang2026, section on rectified distribution matching regularization. Chosen here: both weights are 1, and
        half of the target's entries are zero (mu = 0).

    Args:
        mu: shift of the target before the ReLU, in its deviations; negative for more than half zeros.
        p: 2 for the rectified Gaussian, 1 for the rectified Laplace.
        invariance: lambda, weight of the distance between views, >= 0.
        matching: nu, weight of the sliced distance, >= 0.
        num_slices: number of directions each step, M >= 1.
        seed: seed of the directions and of the target's draws.

    Raises:
        ValueError: an argument out of range.

    Unchanged by permuting samples and swapping views. Time n D M and the sorting of 3 M columns, memory n (D + M).

    >>> round(RDMReg(mu=0.0).zero_share, 2), round(RDMReg(mu=-1.0, p=2).zero_share, 2)
    (0.5, 0.84)
    """

    card = LossCard(
        name="RDMReg",
        negatives="none: slices of the batch should be those of a sparse target",
        normalization="inputs as they are; mean over samples and features, over slices and views",
        source="kuang2026, RDMReg",
    )

    def __init__(
        self,
        mu: float = 0.0,
        p: int = 1,
        invariance: float = 1.0,
        matching: float = 1.0,
        num_slices: int = NUM_SLICES,
        seed: int = 0,
    ) -> None:
        super().__init__(num_slices, seed)
        check_real(mu, "mu")
        if not abs(mu) <= 10:
            raise ValueError(f"mu must be from -10 to 10, got {mu}; 0 makes half of the entries zero")
        check_whole(p, "p", 1, 3, "2 is the Gaussian, 1 the Laplace distribution")
        for value, name in ((invariance, "invariance"), (matching, "matching")):
            check_weight(value, name, hint="1 is the default of each")
        self.mu, self.p, self.invariance, self.matching = mu, p, invariance, matching

    @property
    def zero_share(self) -> float:
        """Expected share of zeros in a target's draw."""
        if self.p == 2:
            return 0.5 * math.erfc(self.mu / math.sqrt(2))
        tail = 0.5 * math.exp(-math.sqrt(2) * abs(self.mu))  # of Laplace's distribution of variance 1
        return tail if self.mu > 0 else 1 - tail

    def _total(self, distance: Tensor, views: tuple[Tensor, ...], directions_DM: Tensor, step: int) -> Tensor:
        target_MN = sorted_slices(product(self.draw_target(views[0], step), directions_DM))
        distances = [sorted_distance(product(z_ND, directions_DM), target_MN) for z_ND in views]
        return self.invariance * distance + self.matching * torch.stack(distances).mean()

    def draw_target(self, like_ND: Tensor, step: int = 0) -> Tensor:
        """Draw as many vectors of the target as there are samples, of their dtype and on their device."""
        ids_N, num_features = torch.arange(len(like_ND), device=like_ND.device), like_ND.shape[1]
        if self.p == 2:
            drawn_ND = normal(self.seed, step, ids_N, PURPOSE_TARGET, num_features).to(like_ND.dtype)
        else:
            centred_ND = uniform(self.seed, step, ids_N, PURPOSE_TARGET, num_features).to(like_ND.dtype) - 0.5
            # Laplace of variance 1 by its quantiles; those of u = 0, minus infinity, become zeros below.
            drawn_ND = -math.sqrt(0.5) * centred_ND.sign() * torch.log1p(-2 * centred_ND.abs())
        return (self.mu + drawn_ND).relu()

    def chance(self, n: int) -> float:
        """Expected loss when all vectors are the target's mean, the lowest value of a collapsed batch."""
        Pairing().num_negatives(n)  # refuses n < 2
        # First two moments of max(0, mu + g).
        mu, scale = self.mu, math.sqrt(0.5)
        tail = 0.5 * math.exp(-abs(mu) / scale)  # mass of Laplace's beyond |mu|, whose excess is exponential
        if self.p == 2:
            above, density = 1 - self.zero_share, math.exp(-mu * mu / 2) / math.sqrt(2 * math.pi)
            first, second = mu * above + density, (mu * mu + 1) * above + mu * density
        elif mu <= 0:
            first, second = tail * scale, 2 * tail * scale**2
        else:
            first, second = mu + tail * scale, mu * mu + 2 * scale**2 - 2 * tail * scale**2
        # In every direction the slice of independent features has their variance.
        return self.matching * (second - first**2)


def sorted_slices(slices_NM: Tensor) -> Tensor:
    """Each slice in ascending order, as a row, (m, n)."""
    slices_MN = slices_NM.mT.contiguous()
    if slices_MN.device.type != "cpu" or torch.compiler.is_compiling() or is_transformed():
        return slices_MN.sort(dim=1).values
    # NumPy sorts with vector instructions: 3 to 10 times as fast as torch on a CPU.
    order_MN = torch.from_numpy(np.argsort(slices_MN.detach().numpy(), axis=1))
    return slices_MN.gather(1, order_MN)


def sorted_distance(slices_NM: Tensor, target_MN: Tensor) -> Tensor:
    """Mean square between sorted slices and a target that is sorted already, (m, n) or (n,)."""
    return (sorted_slices(slices_NM) - target_MN).square().mean(1).mean()


def normal_quantiles(like_ND: Tensor) -> Tensor:
    """Quantiles of a standard normal at (i - 1/2) / n, in the dtype and on the device of n samples."""
    levels_N = (torch.arange(len(like_ND), dtype=torch.float64, device=like_ND.device) + 0.5) / len(like_ND)
    return torch.special.ndtri(levels_N).to(like_ND.dtype)


CATALOGUE: Mapping[str, type[Loss]] = {"sigreg": SIGReg, "visreg": VISReg, "rdmreg": RDMReg}
