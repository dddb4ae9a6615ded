r"""Which vectors are anchors, which repel them, and the scores between the two.

For unit vectors the gap :math:`d_i^2 - d_{ij}^2` is :math:`\cos_{ij} - \cos_{ii'}`. For vectors as they are it is
:math:`\langle z_i, z_j\rangle - |z_j|^2/2 + |z_i'|^2/2 - \langle z_i, z_i'\rangle`; distances do not change when all
vectors move together, so their mean is taken off first, which keeps the products small, and scores are float64.
"""

# N samples, A anchors, M keys, D features

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from counterpoint.core.checks import check_choice
from counterpoint.core.numerics import row_dots
from counterpoint.kernels.contract import PairMask, PairScores, ScoreTerms
from counterpoint.losses.loss import Part
from counterpoint.losses.pairs import Psi

Negatives = Literal["two-view", "cross-view", "same-view"]
Anchors = Literal["both", "first"]
NEGATIVES: Mapping[str, str] = {
    "two-view": "both views of every other sample",
    "cross-view": "the other view of every other sample",
    "same-view": "the same view of every other sample",
}
ANCHORS: Mapping[str, str] = {"both": "all 2n vectors", "first": "the n vectors of the first view"}


@dataclass(frozen=True)
class Pairing:
    """How a loss pairs the vectors of a batch.

    Attributes:
        negatives: which vectors repel an anchor.
        anchors: which vectors are anchors.
        normalize: vectors are of unit length (or zero).
    """

    negatives: Negatives = "two-view"
    anchors: Anchors = "both"
    normalize: bool = True

    def __post_init__(self) -> None:
        """Check the names.

        Raises:
            ValueError: an unknown one.
        """
        check_choice(self.negatives, "negatives", NEGATIVES)
        check_choice(self.anchors, "anchors", ANCHORS)

    def num_negatives(self, n: int) -> int:
        """Number of vectors that repel each anchor in a batch of n samples, n >= 2."""
        if n < 2:
            raise ValueError(f"a contrastive loss needs at least 2 samples, got {n}")
        return 2 * (n - 1) if self.negatives == "two-view" else n - 1

    def least_mean_gap(self, n: int, *, nonnegative: bool) -> float:
        """The mean over a unit-length batch of d_i^2 - d_ij^2 cannot be less.

        The sum of all vectors has a length >= 0, so the mean cosine of distinct samples is at least -1/(n-1); with
        equal views the gap is then -n/(n-1). For first-view anchors against both views no such bound holds beyond -2.
        """
        if nonnegative:
            return -1.0
        return -2.0 if self.anchors == "first" and self.negatives == "two-view" else -n / (n - 1)

    def explain(self) -> str:
        """The pairing in words."""
        return f"{NEGATIVES[self.negatives]}; anchors are {ANCHORS[self.anchors]}"


@dataclass(frozen=True)
class ScoreBlock:
    """Scores of some anchors against some keys.

    Attributes:
        scores: what kernels take. Own biases are in it.
        part: which columns are this process's anchors, where scores are read both ways and keys are shared.
    """

    scores: PairScores
    part: Part | None = None


def own_sample(n: int, num_views: int, device: torch.device) -> Tensor:
    """Keys of an anchor's own sample: itself and its other view among 2n, or its place among n; (2n or n, e)."""
    sample_N = torch.arange(n, device=device)
    if num_views == 1:
        return sample_N[:, None]
    # Rows i and i + n, the two views of a sample, leave out the same two keys.
    return torch.stack([sample_N, sample_N + n], dim=1).repeat(2, 1)


def blocks_of(both_2ND: Tensor, pairing: Pairing, psi: Psi, part: Part | None = None) -> list[ScoreBlock]:
    """All anchors of a pairing, or of a part of the batch, against their keys.

    Args:
        both_2ND: first view above second, as ``prepare_both`` returns them.
        pairing: who meets whom.
        psi: how gaps become scores, by its scale and margin.
        part: samples whose vectors are anchors; None for all.

    Returns:
        Blocks whose rows (then columns) are the first-view anchors, then the second-view ones.
    """
    n = len(both_2ND) // 2
    if part is not None and part.last > n:
        raise ValueError(f"the part ends at sample {part.last}, but the batch has {n}")
    if not pairing.normalize:
        both_2ND = both_2ND.double()  # gaps are small differences of products as large as squared lengths
        # Gaps do not depend on the mean, so that its derivative is 0 with or without detach.
        both_2ND = both_2ND - both_2ND.detach().mean(0)
    z0, z1 = both_2ND.chunk(2)
    is_first, own = pairing.anchors == "first", slice(0, n) if part is None else slice(part.first, part.last)
    if pairing.negatives == "cross-view":
        return [_cross_view(z0, z1, pairing, psi, (own, part))]
    if pairing.negatives == "two-view":
        excluded = own_sample(n, 2, both_2ND.device)
        # Anchors and keys are one set: each product serves both of its vectors.
        if part is None and not is_first:
            return [_two_view(both_2ND, excluded, pairing, psi)]
        anchors, positives, rows = [z0[own]], [z1[own]], [excluded[own]]
        if not is_first:
            anchors.append(z1[own])
            positives.append(z0[own])
            rows.append(excluded[own])
        return [_block(torch.cat(anchors), torch.cat(positives), both_2ND, (torch.cat(rows), pairing, psi))]
    views = [(z0, z1)] if is_first else [(z0, z1), (z1, z0)]
    excluded = own_sample(n, 1, both_2ND.device)
    # Within one view, too, the keys are the anchors unless only a part of them is asked for.
    return [
        _block(None if part is None else z[own], other[own], z, (excluded[own], pairing, psi)) for z, other in views
    ]


def _two_view(both_2ND: Tensor, excluded: Tensor, pairing: Pairing, psi: Psi) -> ScoreBlock:
    """All 2n vectors against each other; the two of a sample are as far from each other in either direction."""
    z0, z1 = both_2ND.chunk(2)
    if pairing.normalize:
        own = _own(z0, z1, pairing, psi).repeat(2)
    else:
        # |z_i'|^2 / 2 is that of another vector in each direction.
        own = torch.cat([_own(z0, z1, pairing, psi), _own(z1, z0, pairing, psi)])
    scale = both_2ND.new_full((), psi.scale)
    return ScoreBlock(
        PairScores(ScoreTerms(both_2ND, None, scale, own, _other(both_2ND, pairing, psi)), PairMask(excluded))
    )


def _block(
    anchors_AD: Tensor | None, positives_AD: Tensor, keys_MD: Tensor, how: tuple[Tensor, Pairing, Psi]
) -> ScoreBlock:
    """One-way scores; without anchors the keys are the anchors."""
    excluded_AE, pairing, psi = how
    anchors = keys_MD if anchors_AD is None else anchors_AD
    terms = ScoreTerms(
        anchors,
        None if anchors_AD is None else keys_MD,
        keys_MD.new_full((), psi.scale),
        _own(anchors, positives_AD, pairing, psi),
        _other(keys_MD, pairing, psi),
    )
    return ScoreBlock(PairScores(terms, PairMask(excluded_AE)))


def _cross_view(z0: Tensor, z1: Tensor, pairing: Pairing, psi: Psi, where: tuple[slice, Part | None]) -> ScoreBlock:
    """First-view anchors along the rows, second-view anchors along the columns."""
    own, part = where
    is_two_way = pairing.anchors == "both"
    terms = ScoreTerms(
        z0[own],
        z1,
        z0.new_full((), psi.scale),
        _own(z0[own], z1[own], pairing, psi),
        _other(z1, pairing, psi),
        # Columns are all second-view anchors, also of a part: what it knows of each is merged later.
        _own(z1, z0, pairing, psi) if is_two_way else None,
        _other(z0[own], pairing, psi) if is_two_way else None,
    )
    return ScoreBlock(PairScores(terms, PairMask(own_sample(len(z0), 1, z0.device)[own]), is_two_way), part)


def _own(anchors_AD: Tensor, positives_AD: Tensor, pairing: Pairing, psi: Psi) -> Tensor:
    """What an anchor adds to its scores: minus the similarity to its positive, and the margin."""
    # gap_ij = (|p|^2 / 2 - <a, p>) + (<a, k> - |k|^2 / 2): |a|^2 / 2 cancels, and no distance is formed.
    own_A = row_dots(anchors_AD, positives_AD)
    if not pairing.normalize:
        own_A = own_A - 0.5 * positives_AD.square().sum(1)
    own_A = -psi.scale * own_A
    return own_A + psi.margin if psi.margin else own_A


def _other(keys_MD: Tensor, pairing: Pairing, psi: Psi) -> Tensor | None:
    return None if pairing.normalize else (-0.5 * psi.scale) * keys_MD.square().sum(1)
