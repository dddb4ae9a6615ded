"""One sentence on how good features are: kNN and linear probe beside chance, raw input and the untrained encoder.

Loads without torch, so that a report can draw the sentence again from an evaluation.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from counterpoint.core.paired_shares import Z_95, Difference, corrected, queries_to_tell
from counterpoint.core.schemas import BASELINES, EvaluationRow

KNN, PROBE = "knn", "linear probe"
CLASSIFIERS = {KNN: "kNN", PROBE: "the probe"}
UNTRAINED_ENCODER = BASELINES[2]
LEARNED = "representation"
SMALLEST = 0.01  # smallest difference for which the number of queries needed is stated; 5 points for a smaller one
USUAL_DIFFERENCE = 0.05
RAW_ROWS = "nothing says that learning pays on these rows: take the raw columns, for instance with gradient boosting"


@dataclass(frozen=True)
class Gain:
    """Accuracy that one classifier has on the features, beside the best baseline.

    Attributes:
        classifier: name of the classifier, kNN or the probe.
        learned: accuracy of the features.
        baseline: accuracy of the best features that training did not make; None if none was measured.
        difference: difference of both on the same queries, p corrected for both classifiers; None if it is not known.
    """

    classifier: str
    learned: EvaluationRow
    baseline: EvaluationRow | None = None
    difference: Difference | None = None

    @property
    def is_better(self) -> bool:
        """Tell whether the features are significantly better than the baseline."""
        return self.difference is not None and self.difference.is_told_apart and self.difference.value > 0

    @property
    def is_worse(self) -> bool:
        """Tell whether the features are significantly worse than the baseline."""
        return self.difference is not None and self.difference.is_told_apart and self.difference.value < 0

    @property
    def is_above_chance(self) -> bool:
        """Tell whether more is right than by naming the commonest class or, in the mean over classes, one at random."""
        _, low = balanced(self.learned)
        return (self.learned.low or 0.0) > commonest(self.learned) or low > 1 / max(len(self.learned.classes), 1)


def gains(votes: Sequence[EvaluationRow]) -> tuple[Gain, ...]:
    """Gains of the features by classifier, kNN first; empty without an accuracy of the features.

    Args:
        votes: rows of an evaluation, or of the diagnosis itself.
    """
    uncorrected = []
    for protocol, name in CLASSIFIERS.items():
        rows = {row.features: row for row in votes if row.protocol == protocol and row.accuracy is not None}
        learned = rows.get(LEARNED)
        if learned is None:
            continue
        baselines = [row for features, row in rows.items() if features in BASELINES]
        baseline = max(baselines, key=lambda row: row.accuracy or 0.0, default=None)
        uncorrected.append(Gain(name, learned, baseline, learned.minus(baseline) if baseline else None))
    pairs = zip(uncorrected, corrected([gain.difference for gain in uncorrected]), strict=True)
    return tuple(replace(gain, difference=difference) for gain, difference in pairs)


def answer(votes: Sequence[EvaluationRow], *, is_rows: bool = False) -> str:
    """Say in one sentence whether the features beat the baselines, by which classifier, and what is chance.

    Args:
        votes: rows of an evaluation, or of the diagnosis itself.
        is_rows: whether the samples are rows of numbers; if nothing is gained, the sentence says what to do instead.

    >>> answer([])
    'whether the features are good was not measured'
    """
    all_gains = gains(votes)
    remedy = RAW_ROWS if is_rows and not any(gain.is_better for gain in all_gains) else ""
    if not all_gains:
        return "whether the features are good was not measured"
    by_name = {name_of(gain.baseline) for gain in all_gains if gain.baseline}
    chance = f"chance {commonest(all_gains[0].learned):.1%}" if all_gains[0].learned.classes else ""
    if not by_name:
        above = [gain for gain in all_gains if gain.is_above_chance]
        words = " and ".join(_shares(gain, "") for gain in above or all_gains)
        standing = f"above chance by {words}" if above else f"at chance by {words}"
        return "; ".join(filter(None, [standing, chance, "whether that is better than raw input was not measured"]))
    shared = by_name.pop() if len(by_name) == 1 else ""
    comparison = f"better than {shared or 'its baselines'}"
    if all(gain.difference is None for gain in all_gains):
        accuracies = " and ".join([_shares(gain, shared) for gain in all_gains])
        return f"{comparison}: not known, as it was not kept which queries were right, {accuracies}"
    groups = {
        "yes": [gain for gain in all_gains if gain.is_better],
        "no, worse": [gain for gain in all_gains if gain.is_worse],
        "not told apart": [gain for gain in all_gains if not gain.is_better and not gain.is_worse],
    }
    parts = [
        f"{word} by " + " and ".join(_shares(gain, shared) for gain in group) for word, group in groups.items() if group
    ]
    undecided = groups["not told apart"]
    closest = max(undecided, key=lambda gain: abs(gain.difference.value) if gain.difference else 0.0, default=None)
    hint = f" ({_queries_needed(closest)})" if closest and len(undecided) == len(all_gains) else ""
    sentence = f"{comparison}: {', '.join(parts)}{hint}"
    return "; ".join(filter(None, [sentence, remedy, chance]))


def _shares(gain: Gain, shared: str) -> str:
    """Write both accuracies, with the name of the baseline if it is not that of the whole sentence."""
    if gain.baseline is None:
        return f"{gain.classifier} ({gain.learned.accuracy:.1%})"
    whose = "" if shared else f" of {name_of(gain.baseline)}"
    return f"{gain.classifier} ({gain.learned.accuracy:.1%} against {gain.baseline.accuracy:.1%}{whose})"


def _queries_needed(gain: Gain) -> str:
    queries = f"{gain.learned.total:,.0f} queries"
    difference = gain.difference
    if difference is None:
        return queries
    size = abs(difference.value) if abs(difference.value) >= SMALLEST else USUAL_DIFFERENCE
    num_queries = queries_to_tell(size, difference.apart or 0.0)
    size_words = "such a difference" if size == abs(difference.value) else f"{100 * size:.0f} points"
    return f"{queries}; about {float(f'{num_queries:.1g}'):,.0f} would tell {size_words}"


def name_of(row: EvaluationRow) -> str:
    """The name of a baseline in a sentence."""
    return "the untrained encoder" if row.features == UNTRAINED_ENCODER else "raw input"


def balanced(row: EvaluationRow) -> tuple[float, float]:
    """Mean over the classes of the share of right queries, and the lower end of its 95 % interval."""
    shares = [share for share in row.classes.values() if share.total]
    means = [(share.correct or 0) / (share.total or 1) for share in shares]
    # One query is added to both kinds, so that a class without a right one has a variance, too.
    smooth = [((share.correct or 0) + 1) / ((share.total or 0) + 2) for share in shares]
    variance = sum(p * (1 - p) / (share.total or 1) for p, share in zip(smooth, shares, strict=True))
    mean = sum(means) / max(len(means), 1)
    return mean, mean - Z_95 * math.sqrt(variance) / max(len(means), 1)


def commonest(row: EvaluationRow) -> float:
    """Share of the commonest class among the queries; 0 if the classes are not known."""
    totals = [share.total or 0 for share in row.classes.values()]
    return max(totals, default=0) / max(sum(totals), 1)
