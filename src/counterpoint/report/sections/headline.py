"""The headline numbers of runs, and who is ahead in each: a lead is what the intervals support, and nothing else."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from counterpoint.report.run_record import EMBEDDING, REPRESENTATION, EvaluationRow, RunRecord
from counterpoint.report.wording import duration, listing, number, percent

BASELINES = ("pixels (PCA)", "input (PCA)", "untrained encoder")
SAME_WITHIN = 0.01  # relative difference below which numbers without an interval count as equal


Fact = tuple[str, Callable[["RunRecord"], object]]  # what it is called, how to get it
DATA: Fact = ("data", lambda run: run.card.data_fingerprint)
COST: tuple[Fact, ...] = (
    DATA,
    ("epochs", lambda run: len(run.epochs) or None),
    ("device", lambda run: run.card.device),
    ("precision", lambda run: run.card.precision),
    ("processes", lambda run: run.card.world_size),
    ("threads", lambda run: run.card.num_threads),
)


@dataclass(frozen=True)
class Headline:
    """One headline number: how to get it from a run, how to write it, and what having the most of it is called.

    ``alike`` are the facts that must be the same in all runs for the number to be compared.
    """

    title: str
    of_what: str
    leads: str
    value: Callable[[RunRecord], float | None]
    show: Callable[[float | None], str]
    is_higher: bool = True
    row: Callable[[RunRecord], EvaluationRow | None] | None = None
    alike: tuple[Fact, ...] = (DATA,)


@dataclass(frozen=True)
class Outcome:
    """Who is ahead, if anyone is, and how to say it; the words are empty when there is nothing to compare.

    Ahead is a run whose interval lies above that of every other run.
    """

    ahead: RunRecord | None
    words: str


def accuracy_row(run: RunRecord, protocol: str, features: str = REPRESENTATION) -> EvaluationRow | None:
    """Find an accuracy of a run."""
    return run.evaluation.row(features, protocol) if run.evaluation else None


def accuracy(run: RunRecord, protocol: str) -> float | None:
    """Accuracy of the representation under a protocol."""
    row = accuracy_row(run, protocol)
    return row.accuracy if row else None


def measured(run: RunRecord, place: str, name: str) -> float | None:
    """One measurement of a place."""
    found = run.place(place)
    return getattr(found, name) if found else None


HEADLINES = (
    Headline(
        "kNN accuracy",
        "representation",
        "is ahead",
        lambda run: accuracy(run, "knn"),
        percent,
        row=lambda run: accuracy_row(run, "knn"),
    ),
    Headline(
        "Linear probe",
        "representation",
        "is ahead",
        lambda run: accuracy(run, "linear probe"),
        percent,
        row=lambda run: accuracy_row(run, "linear probe"),
    ),
    Headline(
        "Class consistency",
        "embedding",
        "is the most consistent",
        lambda run: measured(run, EMBEDDING, "class_consistency"),
        percent,
    ),
    Headline("Sparsity", "embedding", "is the sparsest", lambda run: measured(run, EMBEDDING, "sparsity"), percent),
    Headline(
        "Effective rank",
        "representation",
        "uses the most dimensions",
        lambda run: measured(run, REPRESENTATION, "effective_rank"),
        number,
    ),
    Headline(
        "Training time", "", "took the least time", lambda run: run.card.seconds, duration, is_higher=False, alike=COST
    ),
)


def compare(headline: Headline, runs: Sequence[RunRecord]) -> Outcome:
    """Find who is ahead in one headline number, and say whether the intervals allow saying so."""
    known = [run for run in runs if headline.value(run) is not None]
    if len(known) < 2:
        return Outcome(None, "")
    if differing := [name for name, fact in headline.alike if len({fact(run) for run in known} - {"", None}) > 1]:
        return Outcome(None, f"not compared: the runs differ in {listing(differing)}")
    best, *others = sorted(known, key=lambda run: headline.value(run) or 0.0, reverse=headline.is_higher)
    equal = [run for run in others if _are_equal(headline, best, run)]
    if equal:
        return Outcome(None, f"{listing([best.name, *(run.name for run in equal)])} are practically equal")
    if headline.row is None:
        return Outcome(None, f"{best.name} {headline.leads}; no interval")
    apart = [run for run in others if _are_apart(headline.row(best), headline.row(run))]
    ahead = best if len(apart) == len(others) else None
    return Outcome(ahead, f"{best.name} {headline.leads}{_interval_words(others, apart)}")


def _interval_words(others: Sequence[RunRecord], apart: Sequence[RunRecord]) -> str:
    """Say from which of the other runs the best one is told apart."""
    if len(apart) == len(others):
        return "; the intervals do not overlap" if len(others) == 1 else ", clear of all others"
    if not apart:
        return ", but the intervals overlap: not told apart"
    overlapping = [run.name for run in others if run not in apart]
    return f", clear of {listing([run.name for run in apart])}, not told apart from {listing(overlapping)}"


def _are_apart(best: EvaluationRow | None, other: EvaluationRow | None) -> bool:
    """Whether the interval of the best lies above that of another."""
    if best is None or other is None or best.low is None or other.high is None:
        return False
    return best.low > other.high


def _are_equal(headline: Headline, one: RunRecord, other: RunRecord) -> bool:
    """Whether two numbers are the same; without an interval, about the same."""
    first, second = headline.value(one) or 0.0, headline.value(other) or 0.0
    tolerance = 0.0 if headline.row else SAME_WITHIN * max(abs(first), abs(second))
    return abs(first - second) <= tolerance
