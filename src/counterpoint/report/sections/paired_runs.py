"""Runs compared in pairs, query by query, and what is said of the difference of two figures."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

from counterpoint.core.metric import Unit
from counterpoint.core.paired_shares import Difference, corrected, written_p
from counterpoint.core.run_records import EvaluationRow
from counterpoint.report.run_record import RunRecord
from counterpoint.report.wording import sized_interval

NO_SHARE = "not a share of the queries, so it has no paired test"
NOT_KEPT = "which queries were right is not known, so no paired test; evaluate again"
OTHER_QUERIES = "on other queries, so no paired test"


@dataclass(frozen=True)
class RunPair:
    """Two runs with a figure each; without a difference where they cannot be compared in pairs, and then why."""

    first: RunRecord
    second: RunRecord
    difference: Difference | None
    why_not: str


def run_pairs(runs: Sequence[RunRecord], protocol: str, features: str) -> tuple[RunPair, ...]:
    """All pairs of runs that have a figure, in their order; p is corrected (Holm) for the number of pairs."""
    rows = [(run, run.evaluation.row(features, protocol)) for run in runs if run.evaluation]
    known = [(run, row) for run, row in rows if row is not None and row.figure is not None]
    pairs = [
        (one, other, _compared(one, row, other, other_row)) for (one, row), (other, other_row) in combinations(known, 2)
    ]
    differences = corrected([difference for _, _, (difference, _) in pairs])
    return tuple(
        RunPair(one, other, difference, why_not)
        for (one, other, (_, why_not)), difference in zip(pairs, differences, strict=True)
    )


def why_unpaired(row: EvaluationRow, other: EvaluationRow) -> str:
    """Why two figures of the same queries cannot be compared in pairs."""
    return NO_SHARE if row.accuracy is None or other.accuracy is None else NOT_KEPT


def difference_words(difference: Difference, unit: Unit) -> str:
    """Write interval and p of a difference.

    >>> from counterpoint.report.wording import NO_BREAK
    >>> difference_words(Difference(-0.02, -0.03, -0.01, 0.004, "exact McNemar test"), "share").replace(NO_BREAK, " ")
    '95 % interval −3.0 to −1.0 points, p = 0.004'
    """
    return f"95 % interval {sized_interval(unit, difference.low, difference.high)}, p {written_p(difference.p)}"


def _compared(
    run: RunRecord, row: EvaluationRow, other: RunRecord, other_row: EvaluationRow
) -> tuple[Difference | None, str]:
    """The difference of two runs, or why there is none."""
    queries = {each.evaluation.split.query_fingerprint for each in (run, other) if each.evaluation}
    difference = row.minus(other_row)
    if difference is None:
        return None, why_unpaired(row, other_row)
    return (difference, "") if len(queries) == 1 and None not in queries else (None, OTHER_QUERIES)
