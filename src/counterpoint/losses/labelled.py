"""The 2n vectors of a batch and their classes: which vectors share a label."""

# N samples per view, A anchors, M = 2N vectors (first view before second), C classes, D features

from dataclasses import dataclass

import torch
from torch import Tensor

from counterpoint.kernels.contract import PairMask, PairScores, ScoreTerms
from counterpoint.losses.inputs import can_read, require
from counterpoint.losses.loss import Part


@dataclass(frozen=True)
class LabelledVectors:
    """All vectors of a batch, and which of them are anchors here.

    Attributes:
        all_MD: both views.
        class_M: class of each vector, numbered from 0.
        counts_C: vectors of each class in the whole batch, both views counted; there may be empty ones at the end.
        labels_C: the label of each class; sample numbers where no labels were given.
        index_A: positions of the anchors among all vectors.
        is_whole: all vectors are anchors, in their order.
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
        """Which vectors share the anchor's label, dense, (a, m)."""
        return self.classes()[:, None] == self.class_M[None, :]

    def scores(self, scale: float, mask: PairMask, own_A: Tensor | None = None) -> PairScores:
        """Scores scale * <a_i, k_j> + own_i of the anchors against all vectors.

        Args:
            scale: factor of the inner products.
            mask: pairs that do not count.
            own_A: what each anchor adds to its scores.
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
            ValueError: naming the only label.
        """

        def complain() -> None:
            raise ValueError(
                f"labels must hold at least 2 classes for {loss}, got label {int(self.labels_C[0])} only, which leaves "
                "its anchors without a negative; use larger batches, or batches drawn over several classes"
            )

        # Classes are numbered without gaps, and empty places come last: a second class has number 1.
        require((self.counts_C[1:] > 0).any(), complain, f"labels must hold at least 2 classes for {loss}")


def _classes(labels_N: Tensor) -> tuple[Tensor, Tensor, Tensor]:
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
        z1: second view; None where there is one view only.
        labels: whole numbers (n,); None makes each sample its own class.
        part: samples whose vectors are anchors; None for all.
    """
    n = len(z0)
    sample_N = torch.arange(n, device=z0.device)
    given_N = sample_N if labels is None else labels
    labels_C, class_N, counts_C = _classes(given_N)
    own_B = sample_N if part is None else sample_N[part.first : part.last]
    if z1 is None:
        return LabelledVectors(z0, class_N, counts_C, labels_C, own_B, is_whole=part is None)
    index_A = torch.cat([own_B, own_B + n])
    all_MD, class_M = torch.cat([z0, z1]), torch.cat([class_N, class_N])
    # Both views share their labels: every class has twice its samples.
    return LabelledVectors(all_MD, class_M, 2 * counts_C, labels_C, index_A, is_whole=part is None)
