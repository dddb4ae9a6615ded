r"""The 2n vectors of a batch and their classes, and SupCon over them with a gradient whose weights are formed by pairs.

.. math:: L = \sum_i g_i \Big( \log \sum_{a \ne i} e^{s \cos_{ia}} - \frac{s}{|P(i)|} \sum_{p \in P(i)} \cos_{ip} \Big)

A positive's weight is :math:`p_{ip} - 1/|P(i)|`, a small difference of large numbers in a trained batch. Multiplied
with vectors first, the two would leave their rounding errors behind, so they are subtracted before. In the order of
classes positives are next to each other, and most tiles hold none.

An only positive, the partner, is taken out of the sum over exponentials, as InfoNCE does with the other view: loss and
gradient then keep their digits however small they are.
"""

# N samples per view, A anchors, M = 2N keys (first view before second), V = M in the order of classes, C classes
# D features, H tile rows, W tile columns

from dataclasses import dataclass

import torch
from torch import Tensor

from counterpoint.core.numerics import is_transformed, row_dots
from counterpoint.core.processor_routines import add_product_
from counterpoint.kernels.contract import EXPONENTIAL, PairMask, PairScores, ScoreTerms, softplus
from counterpoint.kernels.cpu.one_operation import RouteResult, one_operation
from counterpoint.kernels.cpu.tiles import Tile, Tiles, common_reference, exponentials_, is_exact
from counterpoint.kernels.differentiable import reduce
from counterpoint.kernels.select import is_free
from counterpoint.losses.inputs import can_read, require
from counterpoint.losses.loss import Part


@dataclass(frozen=True)
class LabelledVectors:
    """All vectors of a batch, and which of them are anchors here.

    Attributes:
        all_MD: all vectors, (m, d): both views, or the only one.
        class_M: class of each vector, numbered from 0, (m,).
        counts_C: number of vectors of each class in the whole batch, both views counted; the last ones may be 0.
        labels_C: the label of each class; sample numbers where no labels were given.
        index_A: positions of the anchors among all vectors.
        is_whole: whether all vectors are anchors, in their order.
    """

    all_MD: Tensor
    class_M: Tensor
    counts_C: Tensor
    labels_C: Tensor
    index_A: Tensor
    is_whole: bool

    def anchors(self) -> Tensor:
        """The anchors, (a, d)."""
        return self.all_MD if self.is_whole else self.all_MD[self.index_A]

    def classes(self) -> Tensor:
        """Class of each anchor, (a,)."""
        return self.class_M if self.is_whole else self.class_M[self.index_A]

    def num_same(self) -> Tensor:
        """Vectors of each anchor's own class, itself counted, (a,)."""
        return self.counts_C[self.classes()]

    def is_same(self) -> Tensor:
        """Mark the vectors that share the anchor's label, dense, (a, m)."""
        return self.classes()[:, None] == self.class_M[None, :]

    def scores(self, scale: float, mask: PairMask, own_A: Tensor | None = None) -> PairScores:
        """Scores scale * <a_i, k_j> + own_i of the anchors against all vectors.

        Args:
            scale: factor of the inner products.
            mask: pairs that do not count.
            own_A: number that is added to all scores of each anchor, (a,); None for none.
        """
        keys_MD = None if self.is_whole else self.all_MD
        terms = ScoreTerms(self.anchors(), keys_MD, self.all_MD.new_full((), scale), row_own_N=own_A)
        return PairScores(terms, mask)

    def same_label(self, *, itself: bool) -> PairMask:
        """Keep vectors of the anchor's label; the anchor itself only if asked for."""
        excluded_A1 = None if itself else self.index_A[:, None]
        return PairMask(excluded_A1, self.classes(), self.class_M, keeps_same_label=True)

    def other_label(self) -> PairMask:
        """Keep vectors of another label."""
        return PairMask(None, self.classes(), self.class_M)

    def check_other_label(self, loss: str) -> None:
        """Require two labels: with one, no anchor has a negative.

        Raises:
            ValueError: all labels are the same; the only one is named.
        """

        def complain() -> None:
            raise ValueError(
                f"labels must hold at least 2 classes for {loss}, got label {int(self.labels_C[0])} only, which leaves "
                "its anchors without a negative; use larger batches, or batches drawn over several classes"
            )

        # Classes are numbered without gaps, and empty places come last: a second class has number 1.
        require((self.counts_C[1:] > 0).any(), complain, f"labels must hold at least 2 classes for {loss}")


def _label_places(labels_N: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Labels in ascending order, the place of each sample's label among them, and how often each occurs.

    Where no value can be looked at, their number is not known: there are n, the last of them empty.
    """
    if can_read(labels_N):
        return torch.unique(labels_N, return_inverse=True, return_counts=True)
    # How many numbers torch.unique returns depends on values: it would read them. Runs of the sorted labels do not.
    sorted_N, order_N = torch.sort(labels_N, stable=True)
    is_new_N = torch.cat([torch.ones_like(labels_N[:1], dtype=torch.bool), sorted_N[1:] != sorted_N[:-1]])
    place_N = is_new_N.long().cumsum(0) - 1  # number of the run
    class_N = torch.empty_like(place_N).scatter(0, order_N, place_N)  # back in the batch's order
    counts_C = torch.zeros_like(place_N).scatter_add(0, place_N, torch.ones_like(place_N))
    # All samples of a class write the same label to its place: their order does not matter.
    return torch.zeros_like(sorted_N).scatter(0, place_N, sorted_N), class_N, counts_C


def label_vectors(z0: Tensor, z1: Tensor | None, labels: Tensor | None, part: Part | None = None) -> LabelledVectors:
    """Put both views together with their classes.

    Args:
        z0: first view (n, d), prepared.
        z1: second view; None if there is one view only.
        labels: whole numbers (n,); None makes each sample its own class.
        part: samples whose vectors are anchors; None for all.
    """
    n = len(z0)
    sample_N = torch.arange(n, device=z0.device)
    label_N = sample_N if labels is None else labels
    labels_C, class_N, counts_C = _label_places(label_N)
    own_B = sample_N if part is None else sample_N[part.first : part.last]
    if z1 is None:
        return LabelledVectors(z0, class_N, counts_C, labels_C, own_B, is_whole=part is None)
    index_A = torch.cat([own_B, own_B + n])
    all_MD, class_M = torch.cat([z0, z1]), torch.cat([class_N, class_N])
    # Both views share their labels: every class has twice its samples.
    return LabelledVectors(all_MD, class_M, 2 * counts_C, labels_C, index_A, is_whole=part is None)


@dataclass(frozen=True)
class Classes:
    """The vectors that attract each other, in the order of classes.

    Attributes:
        class_V: class of each vector, rising.
        anchor_A: places of the anchors, rising; None if all vectors are.
        partner_A: place of each anchor's only positive; its own place if it has no positive or several.
        num_positives_A: number of positives of each anchor, |P(i)|.
        weight_A: weight of each anchor, g_i, 0 for anchors without a positive.
        scale: s, 1 / temperature.
        num_classes: C.
        has_pairs: whether there are classes of two; taken for granted where no value can be looked at.
    """

    class_V: Tensor
    anchor_A: Tensor | None
    partner_A: Tensor
    num_positives_A: Tensor
    weight_A: Tensor
    scale: float
    num_classes: int
    has_pairs: bool

    def of_anchors(self, values_V: Tensor) -> Tensor:
        """Select the values of the anchors."""
        return values_V if self.anchor_A is None else values_V.index_select(0, self.anchor_A)

    def erase(self, tile_HW: Tensor, rows: slice, columns: slice) -> Tensor:
        """Set an anchor's pairs with itself and with its only positive to zero, in place."""
        if not self._has_positives(rows, columns):
            return tile_HW
        # All are anchors: rows and columns of a diagonal tile are the same vectors.
        if self.anchor_A is None:
            if rows.start == columns.start:
                tile_HW.fill_diagonal_(0.0)
        else:
            place_W = torch.arange(columns.start, columns.stop)
            tile_HW.masked_fill_(self.anchor_A[rows, None] == place_W, 0.0)
        if not self.has_pairs:
            return tile_HW
        # Vectors of the class of an anchor with one positive are that positive, or the anchor itself.
        is_only_H1 = self.num_positives_A[rows, None] == 1
        return tile_HW.masked_fill_(self._is_same(rows, columns) & is_only_H1, 0.0)

    def subtract_pull(self, weight_HW: Tensor, rows: slice, columns: slice) -> Tensor:
        """Subtract g_i / |P(i)| at positives, for both readings where all are anchors, and ``erase``; in place."""
        if not self._has_positives(rows, columns):
            return weight_HW
        num_A = self.num_positives_A.clamp(min=1).to(weight_HW.dtype)
        # Both readings of a pair pull alike: g and |P| are those of its class.
        pull_A = (2 if self.anchor_A is None else 1) * self.weight_A / num_A
        weight_HW -= torch.where(self._is_same(rows, columns), pull_A[rows, None], 0.0)
        return self.erase(weight_HW, rows, columns)

    def _has_positives(self, rows: slice, columns: slice) -> bool:
        """Tell whether a tile may hold vectors of one class, itself counted."""
        if self.anchor_A is None and rows.start == columns.start:
            return True
        # Classes rise along rows and columns: their ranges overlap, or no class is in both.
        class_H, class_W = self.of_anchors(self.class_V)[rows], self.class_V[columns]
        return int(class_W[0]) <= int(class_H[-1]) and int(class_H[0]) <= int(class_W[-1])

    def _is_same(self, rows: slice, columns: slice) -> Tensor:
        return self.of_anchors(self.class_V)[rows, None] == self.class_V[columns]


def mean_over_positives(vectors: LabelledVectors, scale: float) -> Tensor:
    """Mean over the anchors that have a positive; 0 where none has one.

    Args:
        vectors: unit vectors, their classes, and which of them are anchors.
        scale: 1 / temperature.
    """
    # Stable: within a class the order of the batch is kept, and with it the order of sums.
    order_V = torch.argsort(vectors.class_M, stable=True)
    z_VD, classes = vectors.all_MD.index_select(0, order_V), _classes(vectors, order_V, scale)
    if is_transformed() or not can_read(z_VD):
        return _general(z_VD, classes)
    return one_operation(_InTiles(classes), z_VD)


def _classes(vectors: LabelledVectors, order_V: Tensor, scale: float) -> Classes:
    num_vectors, counts_C = len(order_V), vectors.counts_C
    class_V = vectors.class_M[order_V]
    place_V, last_C = torch.arange(num_vectors, device=order_V.device), counts_C.cumsum(0) - 1
    has_pairs = not can_read(class_V) or bool((counts_C == 2).any())
    # A class of two takes the places last - 1 and last: one's partner is their sum, 2 last - 1, less its own place.
    partner_V = torch.where(counts_C[class_V] == 2, 2 * last_C[class_V] - 1 - place_V, place_V)
    anchor_A, partner_A, class_A = None, partner_V, class_V
    if not vectors.is_whole:
        place_of_V = torch.empty_like(place_V).scatter(0, order_V, place_V)
        anchor_A = place_of_V[vectors.index_A].sort().values  # rising, as ``_has_positives`` asks
        partner_A, class_A = partner_V[anchor_A], class_V[anchor_A]
    num_positives_A = counts_C[class_A] - 1
    # A part's share of the mean over all anchors: the mean over equal parts is then that of the batch.
    num_counted = counts_C.masked_fill(counts_C == 1, 0).sum().clamp(min=1)
    weight_A = (num_positives_A > 0).to(vectors.all_MD.dtype) * (num_vectors / len(class_A)) / num_counted
    return Classes(class_V, anchor_A, partner_A, num_positives_A, weight_A, scale, len(counts_C), has_pairs)


def _general(z_VD: Tensor, classes: Classes) -> Tensor:
    """The value in differentiable operations, on any device and under any transform."""
    place_A = classes.of_anchors(torch.arange(len(z_VD), device=z_VD.device))
    # Anchors with several positives leave out themselves only: the mask is ragged.
    excluded_A2 = torch.stack([place_A, torch.where(classes.num_positives_A == 1, classes.partner_A, -1)], dim=1)
    # Log-sum-exp over all vectors but the anchor and its only positive, (a,).
    scores = PairScores(_terms(z_VD, classes), PairMask(excluded_A2, is_ragged=True))
    log_sum_A = reduce(scores, EXPONENTIAL).rows_N
    return _total(log_sum_A, z_VD, classes)


def _terms(z_VD: Tensor, classes: Classes) -> ScoreTerms:
    keys_VD = None if classes.anchor_A is None else z_VD
    return ScoreTerms(classes.of_anchors(z_VD), keys_VD, z_VD.new_full((), classes.scale))


def _total(log_sum_A: Tensor, z_VD: Tensor, classes: Classes) -> Tensor:
    """The value: per anchor softplus(log_sum_i - its only positive's score), or log_sum_i - mean of its positives'."""
    anchors_AD, num_A1 = classes.of_anchors(z_VD), classes.num_positives_A[:, None]
    sums_CD = z_VD.new_zeros(classes.num_classes, z_VD.shape[1]).index_add(0, classes.class_V, z_VD)
    # Indexing by repeated places would add their gradients in whichever order threads come.
    sums_AD = sums_CD.index_select(0, classes.of_anchors(classes.class_V))
    # The class's sum less the anchor: the sum over P(i) in linear time.
    mean_A = classes.scale * row_dots(anchors_AD, (sums_AD - anchors_AD) / num_A1.clamp(min=1))
    loss_A = log_sum_A - mean_A
    if classes.has_pairs:
        # log(1 + e^(rest - positive)): keeps its digits where it is small, as a difference of logarithms does not.
        only_A = softplus(log_sum_A - _partner_score(z_VD, classes))
        loss_A = torch.where(classes.num_positives_A == 1, only_A, loss_A)
    return (classes.weight_A * loss_A).sum()


def _partner_score(z_VD: Tensor, classes: Classes) -> Tensor:
    """Score of each anchor's only positive; with itself if it has no positive or several."""
    return classes.scale * row_dots(classes.of_anchors(z_VD), z_VD.index_select(0, classes.partner_A))


@dataclass(frozen=True)
class _InTiles:
    """The value and its first derivative tile by tile; see ``one_operation.Route``."""

    classes: Classes

    def general(self, z_VD: Tensor) -> Tensor:
        return _general(z_VD, self.classes)

    def find(self, *inputs: Tensor, wants_gradient: bool) -> RouteResult | None:
        (z_VD,), classes = inputs, self.classes
        reference = common_reference(classes.scale, z_VD.dtype)
        if reference is None or not is_free():
            return None
        sum_A = z_VD.new_zeros(len(classes.weight_A))

        def add(tile: Tile) -> None:
            exp_HW = classes.erase(exponentials_(tile.product_HW, reference), tile.rows, tile.columns)
            sum_A[tile.rows] += exp_HW.sum(1)
            # Each pair of blocks is visited once, and read both ways.
            if classes.anchor_A is None and not tile.is_on_diagonal:
                sum_A[tile.columns] += exp_HW.sum(0)

        Tiles(PairScores(_terms(z_VD, classes))).each(add)
        log_sum_A = sum_A.log()
        if reference and not is_exact(log_sum_A, len(z_VD)):
            return None
        value = _total(log_sum_A + reference, z_VD, classes)
        return RouteResult(value, (_gradient(z_VD, sum_A, reference, classes),) if wants_gradient else ())


def _gradient(z_VD: Tensor, sum_A: Tensor, reference: float, classes: Classes) -> Tensor:
    """Gradient for the vectors: each pair's weight first, then its product with both vectors."""
    anchors_AD, is_whole = classes.of_anchors(z_VD), classes.anchor_A is None
    is_only_A, pull_A = classes.num_positives_A == 1, None
    if classes.has_pairs:
        # The denominator of p_ip holds the only positive, which the sums leave out.
        total_A = torch.where(is_only_A, sum_A + (_partner_score(z_VD, classes) - reference).exp(), sum_A)
        # g_i (1 - p_ip), as the others' share with all its digits.
        pull_A = torch.where(is_only_A, classes.weight_A * (sum_A / total_A), 0.0)
        sum_A = total_A
    factor_A = classes.weight_A / sum_A  # what turns e^(score - c) into g_i p_ij
    gradient_AD = torch.zeros_like(anchors_AD)
    gradient_VD = gradient_AD if is_whole else torch.zeros_like(z_VD)  # one buffer for both readings

    def add(tile: Tile) -> None:
        rows, columns = tile.rows, tile.columns
        # One exponential serves both readings where all vectors are anchors.
        factor_HW = factor_A[rows, None] + factor_A[columns] if is_whole else factor_A[rows, None]
        weight_HW = exponentials_(tile.product_HW, reference).mul_(factor_HW)
        weight_HW = classes.subtract_pull(weight_HW, rows, columns)
        add_product_(gradient_AD[rows], weight_HW, z_VD[columns])
        # Where all are anchors, the weights of a diagonal tile hold both readings of its pairs already.
        if not is_whole or rows != columns:
            add_product_(gradient_VD[columns], weight_HW.mT, anchors_AD[rows])

    Tiles(PairScores(_terms(z_VD, classes))).each(add)
    if pull_A is not None:  # an only positive is left out by the tiles
        gradient_AD -= pull_A[:, None] * z_VD.index_select(0, classes.partner_A)
        gradient_VD.index_add_(0, classes.partner_A, pull_A[:, None] * anchors_AD, alpha=-1)
    if classes.anchor_A is not None:
        # Anchors of a part are vectors, too: their rows join what they got as keys.
        gradient_VD.index_add_(0, classes.anchor_A, gradient_AD)
    return gradient_VD.mul_(classes.scale)  # score = s cos
