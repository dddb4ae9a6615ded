"""Why a hit is alike: the dimensions that make up the similarity where they have a meaning, beside random pairs."""

# N rows, D features, H hits, P pairs

import json
from dataclasses import dataclass

import torch
from torch import Tensor

from counterpoint.core.search_records import SharedConcept
from counterpoint.data.order import random_order
from counterpoint.diagnostics.concepts import class_purity
from counterpoint.search.run_index import IndexedRun
from counterpoint.search.vector_index import VectorIndex

NUM_PAIRS = 20_000
NUM_ROWS = 4096  # from which pairs and names of dimensions are found
MOST_CONCEPTS = 3
LEAST_SHARE = 0.05  # of the similarity, below which a dimension is not named
DENSE = (
    "No dimension of this {layer} has a meaning of its own (entries have both signs, or most are active), so that no "
    "part of a similarity can be named; methods with --output.nonnegative (such as ncl) give such parts."
)
SPARSE = (
    "why: dimensions that query and hit share, with their share of the cosine, and the class that the dimension is "
    "named after where its samples are of that class by more than chance."
)
RANDOM = (
    "Of {num:,} random pairs of this collection the median cosine is {median:.3f}, and 1 % are above {high:.3f}; "
    "random below: the share of them that is less similar than the hit."
)
_LAST: dict[str, "Background"] = {}  # by the hashes of its index


@dataclass(frozen=True)
class Background:
    """What similarities of this collection are held against.

    Attributes:
        pairs_P: cosines of random pairs of different rows, ascending.
        has_concepts: whether dimensions have a meaning.
        names: class that a dimension is named after, by its number.
        layer: that is searched.
    """

    pairs_P: Tensor
    has_concepts: bool
    names: dict[int, str]
    layer: str

    def below(self, similarity: float) -> float:
        """Share of random pairs that are less similar."""
        return float(torch.searchsorted(self.pairs_P, torch.tensor(similarity, dtype=torch.float64))) / len(
            self.pairs_P
        )

    def reading(self) -> tuple[str, ...]:
        """How to read the numbers."""
        median, high = self.pairs_P.quantile(torch.tensor([0.5, 0.99], dtype=torch.float64)).tolist()
        random = RANDOM.format(num=len(self.pairs_P), median=median, high=high)
        return (random, SPARSE if self.has_concepts else DENSE.format(layer=self.layer))

    def concepts(self, query_D: Tensor, hit_D: Tensor) -> tuple[SharedConcept, ...]:
        """The dimensions that contribute most to a cosine; of non-negative vectors their shares add up to 1.

        >>> code = Background(torch.zeros(1), True, {2: "cat"}, "embedding")
        >>> print(*code.concepts(torch.tensor([0.6, 0.0, 0.8]), torch.tensor([0.0, 0.0, 1.0])))
        d2 100% cat
        """
        if not self.has_concepts:
            return ()
        product_D = (query_D * hit_D).double()
        total = float(product_D.sum())
        if total <= 0:
            return ()
        best = product_D.sort(descending=True, stable=True)
        found = zip(best.indices[:MOST_CONCEPTS].tolist(), best.values[:MOST_CONCEPTS].tolist(), strict=True)
        shares = [(dim, value / total) for dim, value in found]
        return tuple(SharedConcept(dim, share, self.names.get(dim)) for dim, share in shares if share >= LEAST_SHARE)


def background_of(index: VectorIndex, about: IndexedRun) -> Background:
    """Random pairs of a collection, and what its dimensions are named after.

    The same index gives the same pairs: those of the last one are kept, as they take four fifths of a search's time.
    """
    key = json.dumps([dict(index.card.files), about.has_concepts, about.layer])
    if key not in _LAST:
        _LAST.clear()
        _LAST[key] = _drawn(index, about)
    return _LAST[key]


def _drawn(index: VectorIndex, about: IndexedRun) -> Background:
    rows = random_order(0, 4, len(index))[:NUM_ROWS].sort().values
    vectors_ND = index.vectors(rows)
    return Background(
        random_pairs(vectors_ND),
        about.has_concepts,
        _names(index, rows, vectors_ND) if about.has_concepts else {},
        about.layer,
    )


def random_pairs(vectors_ND: Tensor) -> Tensor:
    """Cosines of random pairs of different rows at unit length, ascending, float64; all pairs where there are few."""
    num_rows = len(vectors_ND)
    if num_rows * (num_rows - 1) // 2 <= NUM_PAIRS:
        first, second = torch.triu_indices(num_rows, num_rows, 1)
    else:
        generator = torch.Generator().manual_seed(0)
        first = torch.randint(num_rows, (NUM_PAIRS,), generator=generator)
        second = (first + torch.randint(1, num_rows, (NUM_PAIRS,), generator=generator)) % num_rows
    return (vectors_ND[first].double() * vectors_ND[second].double()).sum(dim=1).sort().values


def _names(index: VectorIndex, rows: Tensor, vectors_ND: Tensor) -> dict[int, str]:
    """Class of each dimension that can be named after one."""
    if index.labels is None:
        return {}
    own = [index.labels[row] for row in rows.tolist()]
    classes = sorted({label for label in own if label is not None})
    number_of = {label: number for number, label in enumerate(classes)}
    labels_N = torch.tensor([-1 if label is None else number_of[label] for label in own])
    purity = class_purity(vectors_ND, labels_N)
    named = purity.is_named_D.nonzero()[:, 0].tolist()
    return {dim: classes[int(purity.class_D[dim])] for dim in named}
