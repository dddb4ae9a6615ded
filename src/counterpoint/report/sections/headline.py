"""The headline numbers of runs, and the table that sets them side by side and says who is ahead.

A lead is what a test in pairs supports, and nothing else.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

from counterpoint.core.metric import Metric, Unit, described_metrics, metric_under
from counterpoint.core.paired_shares import Difference, corrected, written_p
from counterpoint.core.schemas import BASELINES, EvaluationRow
from counterpoint.diagnostics.gain import CLASSIFIERS, UNTRAINED_ENCODER, commonest
from counterpoint.report.charts.figures import data_table, run_tag
from counterpoint.report.markup import Child, Markup, element, join, prose
from counterpoint.report.run_reading import EMBEDDING, REPRESENTATION, RunRecord
from counterpoint.report.wording import figure_of, interval, listing, percent, sized

SHORT_NAMES = {UNTRAINED_ENCODER: "untrained encoder"}  # any other baseline is the raw input
SAME_WITHIN = 0.01  # relative difference below which numbers without an interval count as equal
NO_SHARE = "not a share of the queries, so it has no paired test"
NOT_KEPT = "which queries were right is not known, so no paired test; evaluate again"
OTHER_QUERIES = "on other queries, so no paired test"


@dataclass(frozen=True)
class RunPair:
    """The best run beside another one; without a difference ``why_not`` says why they cannot be compared in pairs."""

    other: RunRecord
    difference: Difference | None
    why_not: str


@dataclass(frozen=True)
class Headline:
    """One headline number: a figure of the evaluation, or a measurement of the diagnosis."""

    metric: Metric
    is_evaluated: bool

    def row(self, run: RunRecord) -> EvaluationRow | None:
        """The figure of a run's evaluation; None if it has none."""
        return evaluated(run, self.metric.name, self.metric.headline) if self.is_evaluated else None

    def value(self, run: RunRecord) -> float | None:
        """The number of a run; None if it was not measured."""
        row = self.row(run)
        if row is not None or self.is_evaluated:
            return row.figure if row else None
        return run.measured(self.metric.headline, self.metric.name)


@dataclass(frozen=True)
class Outcome:
    """The run that is ahead, if one is, and how to say it; the words are empty if there is nothing to compare.

    Ahead is a run that a test in pairs tells apart from every other run.
    """

    ahead: RunRecord | None
    words: str


def evaluated(run: RunRecord, protocol: str, features: str = REPRESENTATION) -> EvaluationRow | None:
    """Find a figure of a run's evaluation; None if it has none."""
    return run.evaluation.find_row(features, protocol) if run.evaluation else None


def best_baseline(run: RunRecord, metric: Metric) -> EvaluationRow | None:
    """The baseline with the best figure of a metric."""
    rows = [row for name in BASELINES if (row := evaluated(run, metric.name, name)) and row.figure is not None]
    # None describes without judging; it is ordered as if more were better.
    choose = min if metric.is_higher_better is False else max
    return choose(rows, key=lambda row: (row.figure or 0.0, row.features), default=None)


def chance_of(run: RunRecord) -> float | None:
    """Share of the queries that naming the commonest class gets right; None if the classes are not known."""
    rows = [row for protocol in CLASSIFIERS if (row := evaluated(run, protocol)) and row.classes]
    return commonest(rows[0]) if rows else None


def baselines(run: RunRecord, protocol: str) -> list[tuple[str, EvaluationRow]]:
    """List the baselines, which need no training, each with its figure by a protocol."""
    rows = [(SHORT_NAMES.get(name, "raw input"), evaluated(run, protocol, name)) for name in reversed(BASELINES)]
    return [(name, row) for name, row in rows if row is not None and row.figure is not None]


def metric_of(protocol: str) -> Metric:
    """Find the metric of an evaluation by its name; an unknown one is described by its name alone."""
    return metric_under(EVALUATION, protocol)


EVALUATION, DIAGNOSTICS = described_metrics("evaluation"), described_metrics("diagnostics")
HEADLINES = tuple(
    Headline(metric, is_evaluated)
    for metrics, is_evaluated in ((EVALUATION, True), (DIAGNOSTICS, False))
    for metric in metrics.values()
    if metric.headline and metric.is_shown
)


def compare(headline: Headline, runs: Sequence[RunRecord]) -> Outcome:
    """Find the run that is ahead in one headline number, and say whether a test in pairs supports that."""
    metric, measured = headline.metric, [run for run in runs if headline.value(run) is not None]
    if len(measured) < 2:
        return Outcome(None, "")
    # A run without a record of its data does not count as a run on other data.
    if len({run.card.data_fingerprint for run in measured} - {"", None}) > 1:
        return Outcome(None, "not compared: other data")
    is_higher = metric.is_higher_better is not False
    best, *others = sorted(measured, key=lambda run: headline.value(run) or 0.0, reverse=is_higher)
    # Equality comes before tests: two equal numbers have no leader. Figures with queries are equal only if they are the
    # same; the test judges any difference.
    tolerance, top = 0.0 if headline.is_evaluated else SAME_WITHIN, headline.value(best) or 0.0
    equal = [run for run in others if math.isclose(top, headline.value(run) or 0.0, rel_tol=tolerance)]
    if equal:
        return Outcome(None, f"{listing([best.name, *(run.name for run in equal)])} are practically equal")
    # No interval, no lead: which number is larger is all that can be said.
    if not headline.is_evaluated:
        return Outcome(None, f"{best.name} {metric.leads}; no interval")
    pairs = _pairs(headline, [best, *others])
    ahead = best if all(pair.difference and pair.difference.is_told_apart for pair in pairs) else None
    return Outcome(ahead, f"{best.name} {metric.leads}{_lead_words(metric, pairs)}")


def _lead_words(metric: Metric, pairs: Sequence[RunPair]) -> str:
    untested = [pair for pair in pairs if pair.difference is None]
    if len(pairs) == 1 and (difference := pairs[0].difference):
        # The lead of the better run is written as positive, also if less is better.
        lead = difference if difference.value > 0 else difference.reversed
        words = f" by {sized(metric.unit, lead.value)} ({difference_words(lead, metric.unit)})"
        return words if lead.is_told_apart else f"{words}: not told apart"
    apart = [pair.other.name for pair in pairs if pair.difference and pair.difference.is_told_apart]
    alike = [pair.other.name for pair in pairs if pair.difference and not pair.difference.is_told_apart]
    parts = [
        f"told apart from {'all others' if len(apart) == len(pairs) else listing(apart)}" if apart else "",
        f"not told apart from {listing(alike)}" if alike else "",
        f"not compared with {listing([pair.other.name for pair in untested])} ({untested[0].why_not})"
        if untested
        else "",
    ]
    return "".join(f", {part}" for part in parts if part)


def side_by_side(runs: Sequence[RunRecord]) -> Markup:
    """Set the headline numbers in rows and the runs in columns."""
    # Metrics of single dimensions say something only if the dimensions are meant to be read.
    can_be_read = any(run.is_readable for run in runs)
    headlines = [headline for headline in HEADLINES if can_be_read or headline.metric.headline != EMBEDDING]
    rows = [_row(headline, runs) for headline in headlines]
    head = ["", *(run_tag(run) for run in runs), "in words"]
    table = element("div", data_table("Headline numbers of the runs", head, rows), class_="headline")
    seeds = sorted({str(run.card.seed) for run in runs if run.card.seed is not None})
    here = f" ({'seed' if len(seeds) == 1 else 'seeds'} {listing(seeds)} here)" if seeds else ""
    titles = [headline.metric.title for headline in HEADLINES if headline.metric.is_higher_better is None]
    described = listing([titles[0], *(title.lower() for title in titles[1:])])
    caveat = (
        "▲ marks a lead: a run that is told apart from every other one on the same queries (exact McNemar test, 5 %, "
        "corrected by Holm where there are more than two runs). Overlapping intervals prove nothing. They are 95 % "
        f"Wilson intervals over the queries; neither they nor the test cover what another seed would change{here}; "
        f"counterpoint compare does, given several seeds. {described} describe a run: more is not always better."
    )
    basis = element("p", prose(caveat), class_="note")
    how = element("details", element("summary", "What the answer is based on"), basis, class_="more")
    fingerprints = {run.card.data_fingerprint for run in runs if run.card.data_fingerprint}
    queries = {run.evaluation.split.num_queries for run in runs if run.evaluation}
    notice = ""
    if len(fingerprints) > 1:
        names = listing(sorted({run.card.data or run.name for run in runs}))
        notice = f"These runs used different data ({names}): their accuracies do not compare."
    elif len(queries) > 1:
        notice = "These runs were tested on different numbers of queries: compare with care."
    return join(element("p", notice, class_="notice") if notice else None, table, how)


def _row(headline: Headline, runs: Sequence[RunRecord]) -> list[Child]:
    outcome, metric = compare(headline, runs), headline.metric
    chance = {percent(share) for run in runs if headline.row(run) and (share := chance_of(run)) is not None}
    where = f"chance {listing(sorted(chance))}" if chance else metric.headline
    title = join(metric.title, element("span", where, class_="of-what"))
    return [title, *(_cell(headline, run, outcome.ahead) for run in runs), outcome.words or "–"]


def _cell(headline: Headline, run: RunRecord, ahead: RunRecord | None) -> Child:
    unit, row = headline.metric.unit, headline.row(run)
    words: Child = figure_of(unit, headline.value(run))
    if ahead is run:
        words = element("strong", words, element("span", " ▲", aria_hidden="true", class_="lead-mark"))
    beside = baselines(run, headline.metric.name) if row else []
    details = [interval(row.low, row.high, unit)] if row else []
    details += [f"{name} {figure_of(unit, baseline.figure)}" for name, baseline in beside]
    return join(words, [element("span", text, class_="of-what") for text in details if text])


def _pairs(headline: Headline, runs: Sequence[RunRecord]) -> list[RunPair]:
    """Compare the first run with each of the others; p is corrected (Holm) for the pairs of all runs."""
    pairs = list(combinations([(run, row) for run in runs if (row := headline.row(run))], 2))
    differences, reasons = [], []
    for (run, row), (other, beside) in pairs:
        difference = row.minus(beside)
        queries = {each.evaluation.split.query_fingerprint for each in (run, other) if each.evaluation}
        is_same = len(queries) == 1 and None not in queries
        reasons.append(why_unpaired(row, beside) if difference is None else "" if is_same else OTHER_QUERIES)
        differences.append(None if reasons[-1] else difference)
    compared = zip(pairs, corrected(differences), reasons, strict=True)
    return [RunPair(other, difference, why) for ((run, _), (other, _)), difference, why in compared if run is runs[0]]


def why_unpaired(row: EvaluationRow, other: EvaluationRow) -> str:
    """Say why two figures of the same queries cannot be compared in pairs."""
    return NO_SHARE if row.accuracy is None or other.accuracy is None else NOT_KEPT


def difference_words(difference: Difference, unit: Unit) -> str:
    """Write interval and p of a difference.

    >>> from counterpoint.report.wording import NO_BREAK
    >>> difference_words(Difference(-0.02, -0.03, -0.01, 0.004, "exact McNemar test"), "share").replace(NO_BREAK, " ")
    '95 % interval −3.0 to −1.0 points, p = 0.004'
    """
    low, high = sized(unit, difference.low), sized(unit, difference.high)
    return f"95 % interval {low.removesuffix(' points')} to {high}, p {written_p(difference.p)}"
