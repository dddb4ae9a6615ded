"""Is it good? The verdict in words, and the headline numbers."""

from collections.abc import Sequence

from counterpoint.core.markup import Markup, element, join
from counterpoint.core.metric import Metric
from counterpoint.diagnostics.finding import Finding
from counterpoint.report.charts.figures import columns, missing
from counterpoint.report.charts.series_style import badge, run_tag, severity
from counterpoint.report.run_record import REPRESENTATION, UNTRAINED, RunRecord
from counterpoint.report.sections import Section
from counterpoint.report.sections.headline import HEADLINES, Headline, best_baseline, side_by_side
from counterpoint.report.wording import count, figure_of, interval

NUM_TOP_FINDINGS = 3
UNFINISHED = {
    "created": "This run has not begun",
    "running": "This run is still going",
    "interrupted": "This run was interrupted",
}


def verdict_section(runs: Sequence[RunRecord]) -> Markup:
    """State each run's verdict, then the headline numbers: tiles for one run, a comparison for several."""
    verdicts = columns([_verdict(run, len(runs)) for run in runs])
    if len(runs) > 1:
        return join(verdicts, side_by_side(runs))
    tiles = [_tile(headline, runs[0]) for headline in HEADLINES if headline.value(runs[0]) is not None]
    return join(verdicts, element("dl", tiles, class_="tiles") if tiles else None)


def finding_anchor(run: RunRecord, place: int) -> str:
    """Name the page's anchor of a finding."""
    return f"finding-{run.order + 1}-{place + 1}"


def by_severity(findings: Sequence[Finding]) -> list[tuple[int, Finding]]:
    """Order findings worst first, each with its place in the file."""
    return sorted(enumerate(findings), key=lambda item: severity(item[1].level))


def _verdict(run: RunRecord, num_runs: int) -> Markup:
    tag = element("p", run_tag(run.name, run.order), class_="verdict-run") if num_runs > 1 else None
    return element("div", tag, _unfinished(run), _judgement(run), class_="verdict")


def _judgement(run: RunRecord) -> Markup:
    if run.diagnosis is None:
        return missing(run, "No diagnosis yet.", "diagnose")
    words = element("p", badge(run.diagnosis.level), " ", run.diagnosis.verdict, class_="lede")
    problems = [item for item in by_severity(run.diagnosis.findings) if severity(item[1].level) < severity("good")]
    links = []
    for place, finding in problems[:NUM_TOP_FINDINGS]:
        link = element("a", finding.title or finding.name, href=f"#{finding_anchor(run, place)}")
        links.append(element("li", badge(finding.level), " ", link))
    limits = element("p", run.diagnosis.limits, class_="of-what") if run.diagnosis.limits else None
    return join(words, limits, element("ul", links, class_="top-findings") if links else None)


def _unfinished(run: RunRecord) -> Markup | None:
    if run.card.status == "finished":
        return None
    # What was planned is known only where the settings are.
    planned = run.settings.get("epochs", "")
    num_epochs = count(len(run.epochs), "epoch")
    done = f"{len(run.epochs)} of {planned} epochs" if planned.isdigit() else num_epochs
    status = UNFINISHED.get(run.card.status, f"This run is not finished (status: {run.card.status or 'unknown'})")
    return element("p", f"{status}: {done} so far. What follows describes an encoder in the making.", class_="notice")


def _tile(headline: Headline, run: RunRecord) -> Markup:
    metric, row = headline.metric, headline.row(run)
    if row is None:
        told = _measurement_notes(metric, run)
    else:
        best, ends = best_baseline(run, metric), interval(row.low, row.high, metric.unit)
        beside = f"{best.features}: {figure_of(metric.unit, best.figure)}" if best else ""
        told = list(filter(None, [ends, beside]))
    value = element("dd", figure_of(metric.unit, headline.value(run)), class_="value")
    notes = [element("dd", note, class_="of-what") for note in told]
    return element("div", element("dt", metric.title), value, notes, class_="tile")


def _measurement_notes(metric: Metric, run: RunRecord) -> list[str]:
    """Say what a measurement is of, what it is to be compared with, and what it was before training."""
    reference, before = run.measured(metric.headline, metric.reference), run.measured(UNTRAINED, metric.name)
    beside = f"of at most {figure_of(metric.unit, reference)} " if reference else ""
    notes = [f"{beside}{metric.wording}"] if beside or metric.wording else []
    # What is untrained is the representation: an embedding has nothing beside it.
    is_comparable = metric.headline == REPRESENTATION and before
    return [*notes, *([f"untrained: {figure_of(metric.unit, before)}"] if is_comparable else [])]


SECTION = Section(10, "verdict", "Verdict", "Is it good?", verdict_section)
