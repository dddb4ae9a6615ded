"""The headline numbers of several runs in one table that says in words who is ahead."""

from collections.abc import Sequence

from counterpoint.report.charts.figures import data_table
from counterpoint.report.charts.series_style import run_tag
from counterpoint.report.markup import Child, Markup, element, join
from counterpoint.report.run_record import RunRecord
from counterpoint.report.sections.headline import HEADLINES, Headline, compare
from counterpoint.report.wording import interval, listing


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
        "▲ marks a lead: an interval above that of every other run. Intervals are 95 % Wilson intervals over the test "
        f"queries; they do not cover what another seed would change{here}. {names} describe a run: more is not always "
        "better."
    )
    return element("p", words, class_="note")
