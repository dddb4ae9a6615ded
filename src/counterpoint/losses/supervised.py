"""Supervised contrastive losses: vectors that share a label attract each other."""

# N samples per view, A anchors, M = 2N vectors (first view before second), C classes, D features

import math
from collections.abc import Mapping
from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor

from counterpoint.kernels import dense
from counterpoint.kernels.contract import EXPONENTIAL, PairMask
from counterpoint.kernels.cpu.upper_pairs import supervised_loss
from counterpoint.kernels.differentiable import reduce
from counterpoint.losses.class_level import LogOfSum
from counterpoint.losses.infonce import InfoNCE
from counterpoint.losses.inputs import can_read, check_views, lift, prepare_views
from counterpoint.losses.labelled import LabelledVectors, label_vectors, mean_over_positives
from counterpoint.losses.loss import Loss, LossCard, Part


class SupCon(Loss):
    r"""Supervised contrastive loss: the mean over an anchor's positives is outside the logarithm.

    .. math:: L = \frac{1}{2n} \sum_{i=1}^{2n} \frac{-1}{|P(i)|} \sum_{p \in P(i)}
        \log \frac{e^{\cos_{ip}/\tau}}{\sum_{a \ne i} e^{\cos_{ia}/\tau}}

    All 2n vectors are anchors; the positives P(i) are all other vectors with the anchor's label, its own other view
    among them, and the denominator runs over all 2n - 1 others, positives too. Without labels each sample is its own
    class, and the loss is NT-Xent.

    One labelled set will do: ``loss(z, labels=labels)`` has its n vectors as anchors and as keys. Anchors without a
    positive, the only ones of their class, contribute nothing: the mean is over those that have one. They repel others
    all the same.

    Use it where all samples have labels: samples of one class attract each other (method ``supcon``).

    Source: khosla2020, Eq. 2 (the form L_out). Differs from Eq. 2 in the mean over anchors, where it has a sum. Equals
        pytorch-metric-learning's ``SupConLoss(temperature)`` on one labelled set, and on both views stacked, with the
        labels twice: no difference in normalisation, except that it gives 0 for a batch of one class, whose vectors
        here still repel each other, and leaves anchors of loss 0 out of the mean.

    Args:
        temperature: tau > 0.

    Raises:
        ValueError: temperature <= 0 or not finite.

    Unchanged by permuting samples, swapping views, renaming labels and rotating all vectors.

    >>> z = torch.eye(2)  # both samples of one class: 2 of 3 positives are orthogonal to their anchor
    >>> nt_xent = math.log(1 + 2 / math.e)
    >>> round(float(SupCon(1.0)(z, z, torch.tensor([7, 7]))), 5) == round(nt_xent + 2 / 3, 5)
    True
    """

    uses_labels = True

    def __init__(self, temperature: float = 0.1) -> None:
        super().__init__()
        self.nt_xent = InfoNCE(temperature)
        self.temperature = temperature
        self.card = LossCard(
            name="SupCon",
            phi="log(1 + x) + (cos_ii' - mean_p cos_ip) / tau",
            psi=self.nt_xent.card.psi,
            alpha="exp(cos_ij / tau) / (tau sum_(a != i) exp(cos_ia / tau))",
            negatives="all other vectors repel, those of the anchor's label also attract; anchors are all 2n vectors",
            normalization="unit vectors; mean over positives, then over anchors",
            source="khosla2020, Eq. 2",
            fused="CPU, CUDA",
        )

    def forward(
        self, z0: Tensor, z1: Tensor | None = None, labels: Tensor | None = None, *, part: Part | None = None
    ) -> Tensor:
        """See ``Loss.forward``; without labels each sample is its own class.

        Args:
            z0: first view (n, d), or the only one.
            z1: second view; None for one labelled set.
            labels: whole numbers (n,); needed where there is no second view.
            part: samples whose vectors are anchors here; None for all.

        Raises:
            ValueError: as every loss; one set without labels, in which no sample has a positive.
        """
        if labels is None and z1 is not None:
            # Each sample is its own class: one positive, and the kernels of InfoNCE take the pairs.
            return self.nt_xent(z0, z1, part=part)
        check_views(z0, z0 if z1 is None else z1, labels)
        scale = 1.0 / self.temperature
        # A small batch takes a few calls. One set without labels is refused by the general route.
        loss = None
        if part is None and labels is not None and can_read(z0):
            x_MD = lift(z0) if z1 is None else torch.cat([lift(z0), lift(z1)])

            def general(x_MD: Tensor) -> Tensor:
                first, second = (x_MD, None) if z1 is None else x_MD.chunk(2)
                return mean_over_positives(_vectors(first, second, labels), scale)

            loss = supervised_loss(x_MD, labels if z1 is None else torch.cat([labels, labels]), scale, general)
        return mean_over_positives(_vectors(z0, z1, labels, part), scale) if loss is None else loss

    def importance(self, z0: Tensor, z1: Tensor | None = None, labels: Tensor | None = None) -> Tensor:
        r"""Weight with which vectors of other labels repel each anchor, dense.

        :math:`\alpha_{ij} = p_{ij} / \tau` with p_i the softmax over all vectors but i. The loss has the
        gradient of :math:`\frac{1}{2n} \sum_i \big( \sum_j \alpha_{ij} \cos_{ij} + \frac{1}{\tau} \sum_{p \in P(i)}
        (p_{ip} - 1/|P(i)|) \cos_{ip} \big)` with all weights held fixed.
        """
        return _repulsion(_vectors(z0.detach(), None if z1 is None else z1.detach(), labels), self.temperature)

    def chance(self, n: int) -> float:
        """Loss when all pairs look alike (nothing learned, or full collapse), whatever the labels: log(2n - 1)."""
        return self.nt_xent.chance(n)

    def floor(self, n: int, *, nonnegative: bool = False) -> float:
        r"""A value that no embedding of n samples can go below, whatever their labels: that of NT-Xent.

        Split an anchor's 2n - 1 others into one that represents the mean m_i of its positives and the rest. By Jensen's
        inequality :math:`L_i \ge \log(1 + (2n-2) e^{R_i - m_i})`, where R_i is the mean over the rest, and again over
        anchors. The mean of m_i is at most 1/tau; the sum of all vectors has a length >= 0, so that the mean of
        R_i - m_i is at least -n/(n-1)/tau. Non-negative vectors have R_i >= 0, and it is at least -1/tau.
        """
        return self.nt_xent.floor(n, nonnegative=nonnegative)

    def class_level(self) -> LogOfSum:
        r"""See ``Loss.class_level``: that of NT-Xent, vectors of the anchor's class being in its denominator.

        An anchor's term is log sum exp of all its cosines less the mean over positives: convex, so that Jensen's
        inequality puts mean cosines into it, given the classes. Once more, over the exponentials of the P positives, it
        leaves at least :math:`\log(P + \sum_j e^{(a_{ij} - c)/\tau})`, where c is their mean cosine, at most 1.
        """
        phi = self.nt_xent.class_level()
        assert isinstance(phi, LogOfSum)
        return replace(phi, name=self.card.name)


class MultiPositive(Loss):
    r"""Several positives per anchor, summed inside the logarithm: one good positive is enough.

    .. math:: L = \frac{1}{2n} \sum_{i=1}^{2n} -\log \frac{\sum_{p \in P(i)} e^{\cos_{ip}/\tau}}
        {\sum_{a \ne i} e^{\cos_{ia}/\tau}}

    All 2n vectors are anchors; the positives P(i) are all other vectors with the anchor's label, its own other view
    among them, and the denominator runs over all 2n - 1 others. With S_P and S_N the log-sum-exp over positives and
    over the other labels it is the mean of :math:`\log(1 + e^{S_N - S_P})`. Without labels it is NT-Xent.

    Use it where some of an anchor's positives may be wrong, such as other clips of one video.

    Source: miech2020, Eq. 1 (MIL-NCE: several positives of one clip). khosla2020, Eq. 3 (the form L_in) also divides by
        ``|P(i)|`` inside the logarithm: it is larger by the mean of ``log |P(i)|``, and has the same gradient.

    Args:
        temperature: tau > 0.

    Raises:
        ValueError: temperature <= 0 or not finite; when called, a batch of one class, whose anchors have no negative.

    Unchanged by permuting samples, swapping views, renaming labels and rotating all vectors.

    >>> z = torch.eye(3)  # anchors of class 0: 1 and 2 orthogonal positives, 2 negatives; of class 1: 1 and 4
    >>> expected = (2 * math.log(1 + 2 / (math.e + 2)) + math.log(1 + 4 / math.e)) / 3
    >>> round(float(MultiPositive(1.0)(z, z, torch.tensor([0, 0, 1]))), 5) == round(expected, 5)
    True
    """

    uses_labels = True
    why_no_class_level = "positives are summed inside its logarithm, in numbers that the batch decides"

    def __init__(self, temperature: float = 0.1) -> None:
        super().__init__()
        self.temperature = temperature
        self.nt_xent = InfoNCE(temperature)
        self.card = LossCard(
            name="MultiPositive",
            phi="log(1 + x / sum_p exp(cos_ip / tau))",
            psi=self.nt_xent.card.psi,
            alpha="exp(cos_ij / tau) / (tau sum_(a != i) exp(cos_ia / tau))",
            negatives="both views of samples of other labels; anchors are all 2n vectors",
            normalization="unit vectors; mean over anchors",
            source="miech2020, Eq. 1; khosla2020, Eq. 3",
            fused="CPU, CUDA",
        )

    def forward(self, z0: Tensor, z1: Tensor, labels: Tensor | None = None, *, part: Part | None = None) -> Tensor:
        """See ``Loss.forward``; without labels each sample is its own class."""
        z0, z1 = prepare_views(z0, z1, labels, normalize=True)
        if labels is None:
            return self.nt_xent(z0, z1, part=part)
        vectors = label_vectors(z0, z1, labels, part)
        vectors.check_other_label("MultiPositive")
        scale = 1.0 / self.temperature
        # miech2020, Eq. 1: -log(P / (P + N)) = log(1 + e^(S_N - S_P)).
        negatives_A = reduce(vectors.scores(scale, vectors.other_label()), EXPONENTIAL).rows_N
        positives_A = reduce(vectors.scores(scale, vectors.same_label(itself=False)), EXPONENTIAL).rows_N
        # log(1 + e^x) = -logsigmoid(-x), exact in both tails
        return -F.logsigmoid(positives_A - negatives_A).mean()

    def importance(self, z0: Tensor, z1: Tensor, labels: Tensor | None = None) -> Tensor:
        r"""Weight with which vectors of other labels repel each anchor, dense.

        :math:`\alpha_{ij} = p_{ij} / \tau` with p_i the softmax over all vectors but i. The loss has the gradient of
        :math:`\frac{1}{2n} \sum_{ij} \alpha_{ij} (\cos_{ij} - \sum_{p \in P(i)} q_{ip} \cos_{ip})` with alpha and q
        held fixed, q_i being the softmax over the positives.
        """
        return _repulsion(_vectors(z0.detach(), z1.detach(), labels), self.temperature)

    def chance(self, n: int) -> float:
        """Loss of n classes of one sample when all pairs look alike, log(2n - 1); of c samples, log((2n-1)/(2c-1))."""
        return self.nt_xent.chance(n)

    def floor(self, n: int, *, nonnegative: bool = False) -> float:
        """A value that no embedding of n samples can go below, whatever their labels.

        An anchor has K >= 2 negatives and 2n - 1 - K positives, and no gap is below -2 (non-negative: -1), which leaves
        log(1 + K / (2n - 1 - K) e^(-2 / tau)), least for K = 2.
        """
        self.nt_xent.num_negatives(n)
        gap = -1.0 if nonnegative else -2.0
        # K = 2: all other vectors, 2n - 3, are positives.
        return math.log1p(2 / (2 * n - 3) * math.exp(gap / self.temperature))


def _vectors(z0: Tensor, z1: Tensor | None, labels: Tensor | None, part: Part | None = None) -> LabelledVectors:
    """Unit vectors of two views, or of one labelled set, with their classes."""
    if z1 is None and labels is None:
        raise ValueError("labels must be given with a single set of vectors: without them no anchor has a positive")
    first, second = prepare_views(z0, z0 if z1 is None else z1, labels, normalize=True)
    return label_vectors(first, None if z1 is None else second, labels, part)


def _repulsion(vectors: LabelledVectors, temperature: float) -> Tensor:
    """Softmax over all others, divided by the temperature, where labels differ; (a, m)."""
    u_AM = dense.row_scores(vectors.scores(1.0 / temperature, PairMask(vectors.index_A[:, None])))
    # Positives stay in the denominator: they are erased after the softmax.
    return torch.softmax(u_AM, dim=1).masked_fill(vectors.is_same(), 0.0) / temperature


CATALOGUE: Mapping[str, type[SupCon] | type[MultiPositive]] = {"supcon": SupCon, "multi-positive": MultiPositive}
