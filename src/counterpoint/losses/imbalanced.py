"""The generalised contrastive loss of the imbalanced-geometry paper, whose optimal class means theory predicts."""

# N samples per view, A anchors, H of a strip, M = 2N vectors (first view before second), K draws per anchor, D features

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import torch
from torch import Tensor

from counterpoint.core.checks import check_choice, check_whole
from counterpoint.core.counter_random import PURPOSE_NEGATIVES, words
from counterpoint.core.numerics import into_ball, is_transformed
from counterpoint.core.thread_parts import ordered_map
from counterpoint.kernels import dense
from counterpoint.kernels.contract import EXPONENTIAL, SOFTPLUS, PairMask
from counterpoint.kernels.differentiable import PerSlice, reduce, written_out
from counterpoint.losses.class_level import LogOfSum, not_covered
from counterpoint.losses.inputs import can_read, check_temperature, prepare_views
from counterpoint.losses.labelled import LabelledVectors, label_vectors
from counterpoint.losses.loss import Loss, LossCard, Part
from counterpoint.losses.pairs import Pairing

STRIP_NUMBERS = 1 << 20  # 4 MiB of float32


def draw_negatives(
    vectors: LabelledVectors, num_draws: int, *, seed: int, step: int, other_labels_only: bool
) -> Tensor:
    """Draw keys for each anchor, uniformly and with replacement, from all vectors or from those of other labels.

    Draws are a pure function of (seed, step, place of the anchor in the batch): the same on every device and however a
    batch is shared among processes.

    Args:
        vectors: vectors of the batch, with their classes.
        num_draws: number of keys drawn for each anchor.
        seed: non-negative int below 2**64.
        step: non-negative int below 2**32; each step has its own draws.
        other_labels_only: whether a vector of the anchor's label is never drawn.

    Returns:
        Places of the keys among all vectors, int64 (a, num_draws). A probability is off by less than 2**-32.
    """
    word_AK = words(seed, step, vectors.index_A, PURPOSE_NEGATIVES, num_draws)
    num_keys = len(vectors.all_MD)
    if not other_labels_only:
        # Words have 32 bits: the product fits int64, and its high half is uniform over the keys.
        return (word_AK * num_keys) >> 32
    # In the order of classes an anchor's own class is one stretch, which is stepped over.
    # Stable, so that ties, and with them the draws, are the same on every device.
    by_class_M = torch.argsort(vectors.class_M, stable=True)
    start_A1 = (vectors.counts_C.cumsum(0) - vectors.counts_C)[vectors.classes(), None]
    num_own_A1 = vectors.num_same()[:, None]
    rank_AK = (word_AK * (num_keys - num_own_A1)) >> 32
    return by_class_M[rank_AK + num_own_A1 * (rank_AK >= start_A1)]


def drawn_products(anchors_AD: Tensor, keys_MD: Tensor, index_AK: Tensor) -> Tensor:
    """Inner product of each anchor with its drawn keys, (a, k); differentiable to any order and in both modes."""
    # F is linear in g: its slope for g_iq is the product u_iq.
    return _Slope.apply(index_AK, len(keys_MD), None, anchors_AD, keys_MD)  # pyright: ignore[reportReturnType]


class _Slope(PerSlice):
    r"""Slope of :math:`F(g, a, k) = \sum_{iq} g_{iq} \langle a_i, k_{x(i,q)} \rangle` for the factor that is None.

    F is linear in each of its three factors: the products with drawn keys x and the two sums that pull them back are
    its slopes, made of the other two factors, and all orders of differentiation stay within the three. None holds more
    than A x K numbers and a strip of A x M.
    """

    @staticmethod
    def forward(index_AK: Tensor, num_keys: int, *factors: Tensor | None) -> Tensor:
        missing = [factor is None for factor in factors].index(True)
        plain_factors: Any = written_out(factors)
        g_AK, a_AD, k_MD = plain_factors
        if missing == 0:  # u_iq = <a_i, k_x(i,q)>
            slope = a_AD.new_empty(index_AK.shape)
        elif missing == 1:  # sum_q g_iq k_x(i,q) for each anchor
            slope = k_MD.new_empty(len(index_AK), k_MD.shape[1])
        else:  # sum_iq g_iq a_i over the draws x(i, q) = j, for each key j
            slope = a_AD.new_zeros(num_keys, a_AD.shape[1])

        def compute(rows: slice) -> Tensor:
            if missing == 0:
                # All products of a strip, then those drawn: gathering K keys per anchor first would take A K D numbers.
                return (a_AD[rows] @ k_MD.T).gather(1, index_AK[rows])
            # Weights become a matrix at the keys, so that a sum over draws is a product of matrices.
            g_HK = g_AK[rows]
            weight_HM = g_HK.new_zeros(len(g_HK), num_keys).scatter_add_(1, index_AK[rows], g_HK)
            return weight_HM if missing == 2 else weight_HM @ k_MD

        def add(rows: slice, strip: Tensor) -> None:
            # All strips may add to the same keys: in a fixed order, so that the bits do not depend on the number of
            # threads.
            slope.addmm_(strip.T, a_AD[rows]) if missing == 2 else slope[rows].copy_(strip)

        height = max(1, STRIP_NUMBERS // num_keys)
        strips = (slice(top, top + height) for top in range(0, len(index_AK), height))  # the last may reach too far
        ordered_map(strips, compute, add, is_parallel=can_read(index_AK) and not is_transformed())
        return slope

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        index_AK, ctx.num_keys, *factors = inputs
        ctx.save_for_backward(index_AK, *factors)
        ctx.save_for_forward(index_AK, *factors)

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> Any:
        index_AK, *factors = ctx.saved_tensors
        filled = [upstream[0] if factor is None else factor for factor in factors]  # F itself is linear in what comes
        slopes = [
            None if factor is None else _Slope.apply(index_AK, ctx.num_keys, *_replaced(filled, place, None))
            for place, factor in enumerate(factors)
        ]
        return None, None, *slopes

    @staticmethod
    def jvp(ctx: Any, *tangents: Tensor | None) -> Any:
        index_AK, *factors = ctx.saved_tensors
        changes = [
            # The product rule: the slope is linear in either of the two factors that are given.
            _Slope.apply(index_AK, ctx.num_keys, *_replaced(factors, place, move))
            for place, move in enumerate(tangents[2:])
            if move is not None
        ]
        return sum(changes[1:], changes[0]) if changes else None


def _replaced(factors: Sequence[Tensor | None], place: int, factor: Tensor | None) -> list[Tensor | None]:
    """Return all factors, with another one in one place."""
    return [factor if at == place else unchanged for at, unchanged in enumerate(factors)]


Lengths = Literal["sphere", "ball", "none"]
LENGTHS: Mapping[str, str] = {
    "sphere": "unit vectors",
    "ball": "vectors longer than 1 shortened to 1",
    "none": "vectors as they are",
}


class GeneralizedContrastive(Loss):
    r"""InfoNCE with the mean over negatives inside and the mean over all positives outside.

    .. math:: L = \frac{1}{2n} \sum_{i=1}^{2n} \frac{1}{|P(i)|} \sum_{j \in P(i)} \log\Big(1 + \frac1k \sum_{q=1}^k
        e^{\langle z_i, z_{x(i,q)} - z_j \rangle/\tau}\Big)

    The N samples of the paper's batch are all 2n vectors: each is an anchor. The positives P(i) are all vectors with
    the anchor's label, *the anchor itself* and its other view among them, as Eq. 20 has it. The k negatives x(i, q) are
    drawn with replacement once for each anchor and shared by its positives: with ``supervised`` from the vectors of
    other labels (SCL), otherwise from all 2n vectors (UCL), where they may share the anchor's label or be the anchor.
    ``num_negatives=None`` takes all these negatives with equal weight, which puts the exact expectation of the sum over
    draws inside the logarithm (the limit of large k, Eq. 9, for the empirical distribution of the batch). Without
    labels each sample is its own class.

    Positives are averaged for each anchor first, so that a class weighs as its share of the samples. Where all vectors
    of a class are at its mean, on the unit sphere, the loss with ``num_negatives=None`` is exactly the class-level risk
    of Eq. 10 for the proportions of the batch, which ``theory`` minimises.

    Use it for classes of different size, and to compare a run with the geometry that ``theory`` computes for this loss.

    Source: imbalanced2026, Eq. 20, with Eq. 9 and 10 for k = infinity; A5 for the ball. Differs from the paper in the
        temperature, which is 1 there, and in having two views, each of which counts as a sample.

    Args:
        num_negatives: number of negatives k drawn for each anchor; None takes all.
        supervised: whether negatives are of other labels only; needs labels.
        normalize: ``sphere`` (unit vectors), ``ball`` (only vectors longer than 1 are shortened, as the paper allows)
            or ``none``.
        temperature: tau > 0.
        seed: seed of the draws, 0 to 2**64 - 1. The same seed and step draw the same places of the batch again: give
            each call its ``step``, as training does.

    Raises:
        ValueError: num_negatives < 1 or not whole, temperature <= 0, an unknown ``normalize``, a seed out of range;
            when called, supervised without labels, or with labels of one class only, which leaves no negative.

    Unchanged by renaming labels in their order and rotating all vectors and, unless negatives are drawn, by permuting
    samples and swapping views: draws belong to places in the batch. Memory is linear in n, or n times k.

    >>> z = torch.eye(2)  # two classes, orthogonal: all negatives at 0, all positives at 1
    >>> loss = GeneralizedContrastive(supervised=True)
    >>> round(float(loss(z, z, torch.tensor([0, 1]))), 6) == round(math.log(1 + 1 / math.e), 6)
    True
    """

    uses_labels = True

    def __init__(
        self,
        num_negatives: int | None = None,
        supervised: bool = False,
        normalize: Lengths = "sphere",
        temperature: float = 1.0,
        seed: int = 0,
    ) -> None:
        super().__init__()
        check_temperature(temperature)
        check_choice(normalize, "normalize", LENGTHS)
        if num_negatives is not None:
            check_whole(num_negatives, "num_negatives", 1, 2**31, "None takes all negatives of the batch")
        check_whole(seed, "seed", 0, 2**64, "0 is as good as any")
        self.num_draws, self.supervised, self.seed = num_negatives, supervised, seed
        self.draws_by_step = num_negatives is not None
        self.normalize: Lengths = normalize
        self.temperature = temperature
        pool = "vectors of other labels" if self.supervised else "all 2n vectors, the anchor too"
        drawn = "all" if self.num_draws is None else f"{self.num_draws} per anchor drawn with replacement"
        self.card = LossCard(
            name="GeneralizedContrastive",
            phi="mean over positives p of log(1 + x / (k exp(<z_i, z_p> / tau)))",
            psi=f"exp(<z_i, z_j> / {self.temperature:g})",
            alpha="softmax_j(<z_i, z_j> / tau) mean_p sigmoid(h_i - <z_i, z_p> / tau) / tau",
            negatives=f"{drawn}, of {pool}; anchors are all 2n vectors",
            normalization=f"{LENGTHS[self.normalize]}; mean over positives (the anchor too), then over anchors",
            source="imbalanced2026, Eq. 20",
            fused="CPU, CUDA" if self.num_draws is None else "CPU, CUDA (positives); drawn negatives are n x k",
        )

    def forward(
        self, z0: Tensor, z1: Tensor, labels: Tensor | None = None, *, part: Part | None = None, step: int = 0
    ) -> Tensor:
        """See ``Loss.forward``; ``step`` (0 to 2**32 - 1) numbers the draws."""
        vectors = self._vectors(z0, z1, labels, part)
        # Eq. 20: the anchor counts as its own positive, and 1/k is part of h_i.
        # log(1 + e^(h_i - s_ij)) over the positives j, h_i being the log-mean-exp over the negatives
        scores = vectors.scores(-1.0 / self.temperature, vectors.same_label(itself=True), self._level(vectors, step))
        return (reduce(scores, SOFTPLUS).rows_N / vectors.num_same()).mean()

    def importance(self, z0: Tensor, z1: Tensor, labels: Tensor | None = None, *, step: int = 0) -> Tensor:
        r"""Weight with which each vector repels each anchor as a negative, dense.

        With s = <z_i, z_j> / tau and h_i the log-mean-exp over negatives, positives pull by :math:`\beta_{ij} =
        \sigma(h_i - s_{ij}) / (\tau |P(i)|)`, and negatives share the same in proportion to their exponentials,
        :math:`\alpha_{ij} = \mathrm{softmax}_j(s_{ij}) \sum_p \beta_{ip}`. The loss has the gradient of
        :math:`\frac{1}{2n} \sum_{ij} (\alpha_{ij} - \beta_{ij}) \langle z_i, z_j \rangle` with both held fixed.
        """
        vectors = self._vectors(z0.detach(), z1.detach(), labels, None)
        level_M = self._level(vectors, step)
        s_MM = dense.row_scores(vectors.scores(1.0 / self.temperature, PairMask()))
        # Slope of log(1 + e^(h_i - s_ij)): what pulls a positive pushes h_i, and with it the negatives, as strongly.
        pull_MM = torch.sigmoid(level_M[:, None] - s_MM).masked_fill(~vectors.is_same(), 0.0)
        pull_M = pull_MM.sum(1) / self.temperature / vectors.num_same()
        if self.num_draws is not None:
            index_MK = self._draws(vectors, step)
            # A key that was drawn several times gets the sum of its shares.
            share_MK = torch.softmax(s_MM.gather(1, index_MK), dim=1)
            return pull_M[:, None] * torch.zeros_like(s_MM).scatter_add(1, index_MK, share_MK)
        negatives_MM = s_MM.masked_fill(vectors.is_same(), -math.inf) if self.supervised else s_MM
        return pull_M[:, None] * torch.softmax(negatives_MM, dim=1)

    def chance(self, n: int) -> float:
        """Loss when all pairs look alike (nothing learned, or full collapse), whatever the labels: log 2."""
        Pairing().num_negatives(n)  # refuses n < 2
        return math.log(2)

    def floor(self, n: int, *, nonnegative: bool = False) -> float:
        r"""A value that no embedding of n samples can go below, whatever their labels and the draws.

        The logarithm is convex, so that by Jensen's inequality the mean gap g (negatives less positives) puts L at or
        above :math:`\log(1 + e^{g/\tau})`. Products of vectors in the unit ball are within [-1, 1] (non-negative:
        [0, 1]), hence g >= -2 (-1), attained by two opposite classes. With all 2n vectors as negatives the mean
        negative is the squared length of the mean vector, hence g >= -1; for non-negative vectors it is at least 1/n of
        the mean positive, as the anchor and its other view are among them, hence g >= -(n-1)/n. Vectors of any
        length: 0.
        """
        Pairing().num_negatives(n)  # refuses n < 2
        if self.normalize == "none":
            return 0.0
        takes_all = self.num_draws is None and not self.supervised
        gap = -1.0 if nonnegative or takes_all else -2.0
        if nonnegative and takes_all:
            gap = -(n - 1) / n
        return math.log1p(math.exp(gap / self.temperature))

    def class_level(self) -> LogOfSum:
        """See ``Loss.class_level``; k and the pool of negatives are the loss's own.

        Lemma 1 of imbalanced2026 applies here: each positive's term is convex in the gaps and increasing in each, so
        that Jensen's inequality puts the means of the gaps into it, and no product with a positive exceeds 1; the mean
        over positives keeps both.
        """
        if self.normalize == "none":
            raise not_covered(self.card.name, "its vectors have no fixed length (normalize='none')")
        return LogOfSum(
            self.card.name,
            scale=1.0 / self.temperature,
            is_mean=True,
            num_negatives=self.num_draws,
            supervised=self.supervised,
        )

    def _vectors(self, z0: Tensor, z1: Tensor, labels: Tensor | None, part: Part | None) -> LabelledVectors:
        """Both views at the length asked for, with classes that leave every anchor a negative."""
        z0, z1 = prepare_views(z0, z1, labels, normalize=self.normalize == "sphere")
        if self.normalize == "ball":
            # A5: the ball, not the sphere; vectors inside it stay.
            z0, z1 = into_ball(z0, 1.0), into_ball(z1, 1.0)
        if self.supervised and labels is None:
            raise ValueError(
                "labels must be given, got None: supervised=True takes negatives from other labels; pass labels, or "
                "use supervised=False"
            )
        vectors = label_vectors(z0, z1, labels, part)
        if self.supervised:
            vectors.check_other_label("GeneralizedContrastive(supervised=True)")
        return vectors

    def _level(self, vectors: LabelledVectors, step: int) -> Tensor:
        """Log of the mean of exp(<z_i, z_q> / tau) over the negatives of each anchor."""
        scale = 1.0 / self.temperature
        # Finite k: the mean over the draws, Eq. 20.
        if self.num_draws is not None:
            u_AK = scale * drawn_products(vectors.anchors(), vectors.all_MD, self._draws(vectors, step))
            return torch.logsumexp(u_AK, dim=1) - math.log(self.num_draws)
        # k = infinity, Eq. 9 for the distribution of the batch: UCL here, SCL below.
        if not self.supervised:
            return reduce(vectors.scores(scale, PairMask()), EXPONENTIAL).rows_N - math.log(len(vectors.all_MD))
        num_negatives_A = (len(vectors.all_MD) - vectors.num_same()).to(vectors.all_MD.dtype)
        return reduce(vectors.scores(scale, vectors.other_label()), EXPONENTIAL).rows_N - num_negatives_A.log()

    def _draws(self, vectors: LabelledVectors, step: int) -> Tensor:
        check_whole(step, "step", 0, 2**32, "number the calls from 0")
        assert self.num_draws is not None
        return draw_negatives(vectors, self.num_draws, seed=self.seed, step=step, other_labels_only=self.supervised)


CATALOGUE: Mapping[str, type[GeneralizedContrastive]] = {"generalized-contrastive": GeneralizedContrastive}
