"""Why, and what to try? Every check as a card: measured beside its reference."""

from collections.abc import Sequence

from counterpoint.core.markup import Markup, element, join
from counterpoint.diagnostics.finding import Finding
from counterpoint.report.charts.figures import columns, missing, readings
from counterpoint.report.charts.series_style import LEVELS, badge, run_title
from counterpoint.report.run_record import RunRecord
from counterpoint.report.sections import Section
from counterpoint.report.sections.verdict_section import by_severity, finding_anchor
from counterpoint.report.wording import count, listing, number

MAX_FINDINGS = 40
PLURALS = {"warning": "warnings", "note": "notes"}


def findings_section(runs: Sequence[RunRecord]) -> Markup:
    """Tally the checks, and show each run's cards."""
    return join(
        readings(runs, _tally),
        columns([join(run_title(run.name, run.order, len(runs)), _cards(run, len(runs))) for run in runs]),
    )


def _tally(run: RunRecord) -> str:
    if run.diagnosis is None:
        return ""
    found = [finding.level for finding in run.diagnosis.findings]
    counts = [count(found.count(level), level, PLURALS.get(level, level)) for level in LEVELS if level in found]
    if not found:
        return "The diagnosis holds no findings."
    return f"{count(len(found), 'check')}: {listing(counts)}."


def _cards(run: RunRecord, num_runs: int) -> Markup:
    if run.diagnosis is None:
        return missing(run, "No findings yet.", "diagnose")
    ordered = by_severity(run.diagnosis.findings)[:MAX_FINDINGS]
    # place is that in the file, not in this order: anchors must not depend on the sorting.
    problems = [_card(run, place, finding) for place, finding in ordered if finding.level != "good"]
    good = [_folded_card(run, place, finding) for place, finding in ordered if finding.level == "good"]
    layout = "cards" if num_runs == 1 else "cards stacked"
    return join(element("div", problems, class_=layout), element("div", good, class_=layout))


def _card(run: RunRecord, place: int, finding: Finding) -> Markup:
    title, level = element("h4", finding.title or finding.name), finding.level
    anchor = finding_anchor(run, place)
    return element("article", badge(level), title, _card_body(finding), class_=f"card level-{level}", id=anchor)


def _folded_card(run: RunRecord, place: int, finding: Finding) -> Markup:
    summary = element("summary", badge(finding.level), " ", element("span", finding.title or finding.name))
    return element("details", summary, _card_body(finding), class_="card level-good", id=finding_anchor(run, place))


def _card_body(finding: Finding) -> Markup:
    is_good = finding.level == "good"
    parts = [("Otherwise, try: " if is_good else "Try: ", finding.remedy)]
    if not is_good:
        parts = [("To confirm: ", finding.confirm), *parts, ("Tried: ", finding.experience)]
        parts.append(("It cannot tell ", finding.cannot_tell))
    lines = [element("p", element("strong", name), words, class_="remedy") for name, words in parts if words]
    return join(_measurement(finding), element("p", finding.text) if finding.text else None, *lines)


def _measurement(finding: Finding) -> Markup | None:
    if finding.measured is None:
        return None
    ends = "" if finding.low is None or finding.high is None else f" ({number(finding.low)} to {number(finding.high)})"
    value = element("span", "measured ", element("strong", number(finding.measured)), ends)
    if finding.reference is None:
        return element("p", value, class_="measurement")
    name = f" ({finding.reference_name})" if finding.reference_name else ""
    reference = element("span", "reference ", element("strong", number(finding.reference)), name)
    return element("p", value, reference, class_="measurement")


SECTION = Section(20, "findings", "Findings", "Why, and what to try?", findings_section)
