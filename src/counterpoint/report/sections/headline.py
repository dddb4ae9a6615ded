"""The headline numbers of runs, and the table that sets them side by side and says who is ahead.

A lead is what a test in pairs supports, and nothing else.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations

from counterpoint.core.markup import Child, Markup, element, join
from counterpoint.core.metric import Metric, Unit, described_metrics, metric_under
from counterpoint.core.paired_shares import Difference, corrected, written_p
from counterpoint.core.run_records import BASELINES, EvaluationRow
from counterpoint.report.charts.figures import data_table
from counterpoint.report.charts.series_style import run_tag
from counterpoint.report.run_record import REPRESENTATION, RunRecord
from counterpoint.report.wording import duration, figure_of, interval, listing, sized, sized_interval

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
    metric: Metric | None = None
    is_higher: bool = True
    row: Callable[[RunRecord], EvaluationRow | None] | None = None
    alike: tuple[Fact, ...] = (DATA,)


@dataclass(frozen=True)
class Outcome:
    """Who is ahead, if anyone is, and how to say it; the words are empty when there is nothing to compare.

    Ahead is a run that a test in pairs tells apart from every other run.
    """

    ahead: RunRecord | None
    words: str


def evaluated(run: RunRecord, protocol: str, features: str = REPRESENTATION) -> EvaluationRow | None:
    """Find a figure of a run's evaluation."""
    return run.evaluation.row(features, protocol) if run.evaluation else None


def best_baseline(run: RunRecord, metric: Metric) -> EvaluationRow | None:
    """The baseline with the best figure of a metric."""
    rows = [row for name in BASELINES if (row := evaluated(run, metric.name, name)) and row.figure is not None]
    # None describes without judging; it is ordered as if more were better.
    choose = min if metric.is_higher_better is False else max
    return choose(rows, key=lambda row: (row.figure or 0.0, row.features), default=None)


def metric_of(protocol: str) -> Metric:
    """The metric of an evaluation by its name; of one that is not known here, what its name says."""
    return metric_under(EVALUATION, protocol) or Metric(protocol, protocol, protocol, "", "")


def _evaluation_headline(metric: Metric) -> Headline:
    """The headline number of a metric of the evaluation."""

    def row(run: RunRecord) -> EvaluationRow | None:
        return evaluated(run, metric.name, metric.headline)

    def value(run: RunRecord) -> float | None:
        found = row(run)
        return found.figure if found else None

    return _headline(metric, value, row)


def _diagnostic_headline(metric: Metric) -> Headline:
    """The headline number of a diagnostic metric."""
    return _headline(metric, lambda run: run.measured(metric.headline, metric.name), None)


def _headline(
    metric: Metric,
    value: Callable[[RunRecord], float | None],
    row: Callable[[RunRecord], EvaluationRow | None] | None,
) -> Headline:
    """The headline number of a metric."""
    show = partial(figure_of, metric.unit)
    is_higher = metric.is_higher_better is not False
    return Headline(metric.title, metric.headline, metric.leads, value, show, metric, is_higher, row)


EVALUATION, DIAGNOSTICS = described_metrics("evaluation"), described_metrics("diagnostics")
HEADLINES = (
    *(_evaluation_headline(metric) for metric in EVALUATION.values() if metric.headline and metric.is_shown),
    *(_diagnostic_headline(metric) for metric in DIAGNOSTICS.values() if metric.headline and metric.is_shown),
    Headline(
        "Training time", "", "took the least time", lambda run: run.card.seconds, duration, is_higher=False, alike=COST
    ),
)


def compare(headline: Headline, runs: Sequence[RunRecord]) -> Outcome:
    """Find who is ahead in one headline number, and say whether a test in pairs allows saying so."""
    known = [run for run in runs if headline.value(run) is not None]
    if len(known) < 2:
        return Outcome(None, "")
    # What a run does not tell is no difference.
    if differing := [name for name, fact in headline.alike if len({fact(run) for run in known} - {"", None}) > 1]:
        return Outcome(None, f"not compared: the runs differ in {listing(differing)}")
    best, *others = sorted(known, key=lambda run: headline.value(run) or 0.0, reverse=headline.is_higher)
    # Equality comes before tests: two equal numbers have no leader.
    equal = [run for run in others if _are_equal(headline, best, run)]
    if equal:
        return Outcome(None, f"{listing([best.name, *(run.name for run in equal)])} are practically equal")
    # No interval, no lead: which number is larger is all that can be said.
    if headline.row is None or headline.metric is None:
        return Outcome(None, f"{best.name} {headline.leads}; no interval")
    pairs = run_pairs([best, *others], headline.metric.name, headline.of_what)
    own = [pair for pair in pairs if pair.first is best]
    ahead = best if all(pair.difference and pair.difference.is_told_apart for pair in own) else None
    return Outcome(ahead, f"{best.name} {headline.leads}{_lead_words(headline.metric, own)}")


def _lead_words(metric: Metric, pairs: Sequence[RunPair]) -> str:
    """Say from which of the other runs the best one is told apart."""
    untested = [pair for pair in pairs if pair.difference is None]
    if len(pairs) == 1 and not untested:
        return _lead_over_one(metric, pairs[0])
    apart = [pair.second.name for pair in pairs if pair.difference and pair.difference.is_told_apart]
    alike = [pair.second.name for pair in pairs if pair.difference and not pair.difference.is_told_apart]
    parts = [
        f"told apart from {'all others' if len(apart) == len(pairs) else listing(apart)}" if apart else "",
        f"not told apart from {listing(alike)}" if alike else "",
        f"not compared with {listing([pair.second.name for pair in untested])} ({untested[0].why_not})"
        if untested
        else "",
    ]
    return "".join(f", {part}" for part in parts if part)


def _lead_over_one(metric: Metric, pair: RunPair) -> str:
    """Say by how much the better of two runs is ahead, and whether that is told from chance."""
    assert pair.difference is not None
    # As much as it is ahead, also where less is better.
    lead = pair.difference if pair.difference.value > 0 else pair.difference.reversed
    words = f" by {sized(metric.unit, lead.value)} ({difference_words(lead, metric.unit)})"
    return words if lead.is_told_apart else f"{words}: not told apart"


def _are_equal(headline: Headline, one: RunRecord, other: RunRecord) -> bool:
    """Whether two numbers are the same; without an interval, about the same."""
    first, second = headline.value(one) or 0.0, headline.value(other) or 0.0
    # Of figures with queries only the very same are equal; the rest is for the test to judge.
    tolerance = 0.0 if headline.row else SAME_WITHIN * max(abs(first), abs(second))
    return abs(first - second) <= tolerance


def side_by_side(runs: Sequence[RunRecord]) -> Markup:
    """Set the headline numbers in rows and the runs in columns."""
    outcomes = [compare(headline, runs) for headline in HEADLINES]
    rows = [
        [_row_title(headline), *(_cell(headline, run, outcome.ahead) for run in runs), outcome.words or "–"]
        for headline, outcome in zip(HEADLINES, outcomes, strict=True)
    ]
    head = ["", *(run_tag(run.name, run.order) for run in runs), "in words"]
    table = element("div", data_table("Headline numbers of the runs", head, rows), class_="headline")
    return join(element("h3", "Side by side"), _comparability(runs), table, _caveat(runs))


def _row_title(headline: Headline) -> Markup:
    return join(headline.title, element("span", headline.of_what, class_="of-what") if headline.of_what else None)


def _cell(headline: Headline, run: RunRecord, ahead: RunRecord | None) -> Child:
    """Write a number, its interval, and whether it leads."""
    words: Child = headline.show(headline.value(run))
    if ahead is run:
        words = element("strong", words, element("span", " ▲", aria_hidden="true", class_="lead-mark"))
    row = headline.row(run) if headline.row else None
    unit = headline.metric.unit if headline.metric else "number"
    return join(words, element("span", interval(row.low, row.high, unit), class_="of-what") if row else None)


def _comparability(runs: Sequence[RunRecord]) -> Markup | None:
    """Warn when the runs did not see the same data or were not tested on the same number of queries."""
    fingerprints = {run.card.data_fingerprint for run in runs if run.card.data_fingerprint}
    queries = {run.evaluation.split.num_queries for run in runs if run.evaluation}
    words = ""
    if len(fingerprints) > 1:
        names = listing(sorted({run.card.data or run.name for run in runs}))
        words = f"These runs used different data ({names}): their accuracies do not compare."
    elif len(queries) > 1:
        words = "These runs were tested on different numbers of queries: compare with care."
    return element("p", words, class_="notice") if words else None


def _caveat(runs: Sequence[RunRecord]) -> Markup:
    """Say what the table can and cannot show."""
    seeds = sorted({str(run.card.seed) for run in runs if run.card.seed is not None})
    here = f" ({'seed' if len(seeds) == 1 else 'seeds'} {listing(seeds)} here)" if seeds else ""
    described = [each.title for each in HEADLINES if each.metric and each.metric.is_higher_better is None]
    names = listing([described[0], *(name.lower() for name in described[1:])])
    words = (
        "▲ marks a lead: a run that is told apart from every other one on the same queries (exact McNemar test, 5 %, "
        "corrected by Holm where there are more than two runs). Overlapping intervals are no test. Intervals are 95 % "
        f"Wilson intervals over the queries; neither they nor the test cover what another seed would change{here}; "
        f"counterpoint compare does, given several seeds. {names} describe a run: more is not always better."
    )
    return element("p", words, class_="note")


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
