"""Classes that stand on one side only: among the queries without a labelled sample, or the other way round."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from counterpoint.core.checks import check_choice
from counterpoint.core.errors import DataError

ABSENT = ("count", "exclude", "refuse")
MOST_NAMED = 5  # classes that a sentence lists


@dataclass(frozen=True)
class Coverage:
    """Which queries can be right, and which classes have one side only.

    Attributes:
        is_answerable_Q: whether a query's class has a labelled sample.
        without_samples: classes of queries that no labelled sample has.
        without_queries: classes of labelled samples that no query has.
    """

    is_answerable_Q: Tensor
    without_samples: tuple[int, ...]
    without_queries: tuple[int, ...]

    def told(self, names: Sequence[str] = ()) -> str:
        """In words, with the first classes by their names; empty where every class has both.

        Args:
            names: of all classes; empty shows their numbers.
        """
        num_queries = int((~self.is_answerable_Q).sum())
        parts = []
        if self.without_samples:
            listed = _listed(self.without_samples, names)
            parts.append(f"no labelled sample of {listed}, for {num_queries:,} of the queries")
        if self.without_queries:
            parts.append(f"no query of {_listed(self.without_queries, names)}")
        return "; ".join(parts)


def coverage(labels_N: Tensor, labels_Q: Tensor) -> Coverage:
    """Compare the classes of labelled samples with those of queries.

    >>> coverage(torch.tensor([0, 1, 1]), torch.tensor([1, 2])).told(["cat", "dog", "owl"])
    'no labelled sample of owl, for 1 of the queries; no query of cat'
    """
    known, asked = (set(labels.unique().tolist()) for labels in (labels_N, labels_Q))
    return Coverage(torch.isin(labels_Q, labels_N), tuple(sorted(asked - known)), tuple(sorted(known - asked)))


def answerable(labels_N: Tensor, labels_Q: Tensor, *, absent: str, names: Sequence[str] = ()) -> Tensor:
    """Which queries to ask where some are of a class without a labelled sample, and so cannot be right.

    Args:
        labels_N: of the labelled samples.
        labels_Q: of the queries.
        absent: ``count`` them as wrong, ``exclude`` them, or ``refuse``.
        names: of all classes, for the error.

    Returns:
        True for those to ask, (q,).

    Raises:
        DataError: there are such queries and they are refused, or no other query is left.
        ValueError: another word for ``absent``.
    """
    check_choice(absent, "absent", ABSENT)
    found = coverage(labels_N, labels_Q)
    if found.without_samples and (absent == "refuse" or not bool(found.is_answerable_Q.any())):
        raise DataError(f"{found.told(names)}; label some, take these classes out, or choose absent='exclude'")
    return torch.ones_like(found.is_answerable_Q) if absent == "count" else found.is_answerable_Q


def _listed(classes: Sequence[int], names: Sequence[str]) -> str:
    """The first classes by name, and how many more there are."""
    shown = [names[label] if label < len(names) else f"class {label}" for label in classes[:MOST_NAMED]]
    rest = f" and {len(classes) - MOST_NAMED} more" if len(classes) > MOST_NAMED else ""
    return ", ".join(shown) + rest
