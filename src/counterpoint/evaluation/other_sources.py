"""Another source of the same classes, for a classifier that was fitted to the first: sketches after photographs."""

# Q queries, C classes

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch

from counterpoint.core.errors import DataError
from counterpoint.core.metric import ON
from counterpoint.core.run_records import EvaluationRow
from counterpoint.data.source import Source
from counterpoint.evaluation.robustness import Asked, Frozen, Represent, frozen_scores
from counterpoint.evaluation.scoring import row_of

MOST_NAMED = 10  # classes that a sentence lists


@dataclass(frozen=True)
class Matched:
    """The samples of another source whose classes are known.

    Attributes:
        asked: these samples.
        left_out: how many samples each class has that is not known, by its name.
    """

    asked: Asked
    left_out: Mapping[str, int]

    def told(self) -> str:
        """In words, what was left out; empty where nothing was."""
        if not self.left_out:
            return ""
        names = ", ".join(list(self.left_out)[:MOST_NAMED]) + (", ..." if len(self.left_out) > MOST_NAMED else "")
        return f"{sum(self.left_out.values()):,} samples of {len(self.left_out)} classes left out: {names}"


def matched(other: Source, class_names: Sequence[str]) -> Matched:
    """Find the samples of another source whose classes have one of these names, whatever the case of the letters.

    Args:
        other: labelled.
        class_names: as the classifiers number them.

    Raises:
        DataError: no labels, or no class that is known.
    """
    if other.labels is None:
        raise DataError(f"{other.name} has no labels, and a classifier is judged by them")
    number_of = {name.casefold(): number for number, name in enumerate(class_names)}
    # The last place is that of -1, a sample without a label.
    numbers = torch.tensor([*(number_of.get(name.casefold(), -1) for name in other.class_names), -1])[other.labels]
    positions = (numbers >= 0).nonzero()[:, 0]
    if not len(positions):
        raise DataError(
            f"no class of {other.name} is known: it has {', '.join(other.class_names[:MOST_NAMED])}; the classifier "
            f"knows {', '.join(class_names[:MOST_NAMED])}"
        )
    counts_C = torch.bincount(other.labels[other.labels >= 0], minlength=len(other.class_names)).tolist()
    left_out = {
        name: count
        for name, count in zip(other.class_names, counts_C, strict=True)
        if count and name.casefold() not in number_of
    }
    return Matched(Asked(other.store, positions, numbers[positions]), left_out)


def other_figures(
    classifiers: Mapping[str, Frozen], represent: Represent, other: Matched, *, protocol: str, name: str
) -> list[EvaluationRow]:
    """Accuracies of frozen classifiers on another source.

    Args:
        classifiers: by the name of their features.
        represent: gives all these features of samples.
        other: its samples of known classes.
        protocol: of the classifiers.
        name: of the source.
    """
    num_classes = int(other.asked.labels_Q.unique().numel())
    settings = {"source": name, "classes": num_classes, "left out": other.told() or "nothing"}
    return [
        row_of(features, f"{protocol} {ON} {name}", replace(score, settings={**score.settings, **settings}))
        for features, score in frozen_scores(classifiers, represent, other.asked).items()
    ]
