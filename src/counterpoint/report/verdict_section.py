"""Section 1: is it good? The verdict in words, and the headline numbers."""

from collections.abc import Sequence

from counterpoint.report.figures import data_table
from counterpoint.report.headline import HEADLINES, Headline, accuracy_row, compare, measured
from counterpoint.report.levels import badge, severity
from counterpoint.report.markup import Child, Markup, element, join
from counterpoint.report.run_record import REPRESENTATION, UNTRAINED, Finding, RunRecord
from counterpoint.report.series_style import run_tag
from counterpoint.report.wording import interval, listing, number, percent

NUM_TOP_FINDINGS = 3
BASELINES = ("pixels (PCA)", "input (PCA)", "untrained encoder")


def verdict_section(runs: Sequence[RunRecord]) -> Markup:
    """State each run's verdict, then the headline numbers: tiles for one run, a comparison for several."""
    verdicts = columns([_verdict(run, len(runs)) for run in runs])
    return join(verdicts, _comparison(runs) if len(runs) > 1 else _tiles(runs[0]))


def finding_anchor(run: RunRecord, place: int) -> str:
    """Name the page's anchor of a finding."""
    return f"finding-{run.order + 1}-{place + 1}"


def by_severity(findings: Sequence[Finding]) -> list[tuple[int, Finding]]:
    """Order findings worst first, each with its place in the file."""
    return sorted(enumerate(findings), key=lambda item: severity(item[1].level))


def _verdict(run: RunRecord, num_runs: int) -> Markup:
    """State one run's verdict with links to the findings behind it."""
    tag = element("p", run_tag(run.name, run.order), class_="verdict-run") if num_runs > 1 else None
    return element("div", tag, _unfinished(run), _judgement(run), class_="verdict")


def _judgement(run: RunRecord) -> Markup:
    if run.diagnosis is None:
        return missing("No diagnosis yet.", f"counterpoint diagnose {run.name}")
    verdict = run.diagnosis.verdict
    words = element("p", badge(verdict.level), " ", element("span", verdict.sentence), class_="lede")
    problems = [item for item in by_severity(run.diagnosis.findings) if severity(item[1].level) < severity("good")]
    links = [_finding_link(run, place, finding) for place, finding in problems[:NUM_TOP_FINDINGS]]
    return join(words, element("ul", links, class_="top-findings") if links else None)


def _finding_link(run: RunRecord, place: int, finding: Finding) -> Markup:
    link = element("a", finding.title or finding.name, href=f"#{finding_anchor(run, place)}")
    return element("li", badge(finding.level), " ", link)


def _unfinished(run: RunRecord) -> Markup | None:
    """Say so when the run is not finished."""
    if run.card.status == "finished":
        return None
    planned = run.settings.get("epochs", "")
    of_planned = f" of {planned}" if planned.isdigit() else ""
    done = f"{len(run.epochs)}{of_planned} {'epoch' if of_planned == '' and len(run.epochs) == 1 else 'epochs'} so far"
    status = {"running": "This run is still going", "interrupted": "This run was interrupted"}.get(
        run.card.status, f"This run is not finished (status: {run.card.status or 'unknown'})"
    )
    return element("p", f"{status}: {done}. What follows describes an encoder in the making.", class_="notice")


def _tiles(run: RunRecord) -> Markup:
    """Show the headline numbers of a single run."""
    tiles = [_tile(headline, run) for headline in HEADLINES if headline.value(run) is not None]
    return element("dl", tiles, class_="tiles") if tiles else join()


def _tile(headline: Headline, run: RunRecord) -> Markup:
    title = element("dt", headline.title)
    value = element("dd", headline.show(headline.value(run)), class_="value")
    return element("div", title, value, element("dd", _tile_note(headline, run), class_="note"), class_="tile")


def _tile_note(headline: Headline, run: RunRecord) -> str:
    """Put a headline number into context."""
    if headline.row is not None:
        return _accuracy_note(headline, run)
    notes = {
        "Class consistency": "of the samples that activate an embedding dimension are of its commonest class",
        "Sparsity": "of the embedding’s entries are zero",
        "Effective rank": _rank_note(run),
        "Training time": f"on {run.card.device}" if run.card.device else "",
    }
    return notes[headline.title]


def _accuracy_note(headline: Headline, run: RunRecord) -> str:
    """Give the interval of an accuracy and the best baseline under the same protocol."""
    row = headline.row(run) if headline.row else None
    assert row is not None  # a headline without a value gets no tile
    baselines = [accuracy_row(run, row.protocol, features) for features in BASELINES]
    rated = [(found.accuracy, found.features) for found in baselines if found and found.accuracy is not None]
    ends = interval(row.low, row.high)
    best = f"{max(rated)[1]}: {percent(max(rated)[0])}" if rated else ""
    return "; ".join(part for part in (f"95 % interval {ends}" if ends else "", best) if part)


def _rank_note(run: RunRecord) -> str:
    ceiling, before = measured(run, REPRESENTATION, "rank_ceiling"), measured(run, UNTRAINED, "effective_rank")
    parts = [f"of at most {number(ceiling)} dimensions" if ceiling else "dimensions"]
    return "; ".join(parts + ([f"untrained: {number(before)}"] if before else []))


def _comparison(runs: Sequence[RunRecord]) -> Markup:
    """Set several runs side by side and say in words who is ahead."""
    outcomes = [compare(headline, runs) for headline in HEADLINES]
    rows = [
        [_row_title(headline), *(_cell(headline, run, outcome.ahead) for run in runs), outcome.words or "–"]
        for headline, outcome in zip(HEADLINES, outcomes, strict=True)
    ]
    head = ["", *(run_tag(run.name, run.order) for run in runs), "in words"]
    table = element("div", data_table("Headline numbers of the runs", head, rows), class_="headline")
    words = [outcome.words for outcome in outcomes if outcome.words]
    summary = element("p", "; ".join(words) + ".", class_="reading") if words else None
    return join(
        element("h3", "Side by side"), _comparability(runs), summary if len(runs) > 6 else None, table, _caveat(runs)
    )


def _row_title(headline: Headline) -> Markup:
    return join(headline.title, element("span", headline.of_what, class_="of-what") if headline.of_what else None)


def _cell(headline: Headline, run: RunRecord, ahead: RunRecord | None) -> Child:
    """Write a number, its interval, and whether it leads."""
    value = headline.value(run)
    words: Child = headline.show(value)
    if ahead is run:
        words = element("strong", words, element("span", " ▲", aria_hidden="true", class_="lead-mark"))
    row = headline.row(run) if headline.row else None
    ends = element("span", interval(row.low, row.high), class_="of-what") if row else None
    return join(words, ends)


def _comparability(runs: Sequence[RunRecord]) -> Markup | None:
    """Warn when the runs did not see the same data or were not tested on the same number of queries."""
    fingerprints = {run.card.data_fingerprint for run in runs if run.card.data_fingerprint}
    queries = {run.evaluation.split.num_queries for run in runs if run.evaluation}
    if len(fingerprints) > 1:
        names = listing(sorted({run.card.data or run.name for run in runs}))
        return element(
            "p", f"These runs used different data ({names}): their accuracies do not compare.", class_="notice"
        )
    if len(queries) > 1:
        return element(
            "p", "These runs were tested on different numbers of queries: compare with care.", class_="notice"
        )
    return None


def _caveat(runs: Sequence[RunRecord]) -> Markup:
    """Say what the table can and cannot show."""
    seeds = listing(sorted({run.card.seed for run in runs if run.card.seed}))
    words = (
        "▲ marks the lead. Intervals are 95 % Wilson intervals over the test queries; they do not cover "
        f"what another seed would change{f' (seed {seeds} here)' if seeds else ''}. Sparsity and effective rank "
        "describe a representation, more is not always better."
    )
    return element("p", words, class_="note")
