"""Why, and what to try? Every check as a card: measured beside its reference."""

from collections.abc import Sequence

from counterpoint.diagnostics.finding import LEVELS, Finding
from counterpoint.report.charts.figures import badge, columns, missing, run_title
from counterpoint.report.markup import Markup, element, join, prose
from counterpoint.report.run_reading import RunRecord
from counterpoint.report.sections import Section
from counterpoint.report.sections.verdict_section import by_severity, finding_anchor
from counterpoint.report.wording import count, listing, number

MAX_FINDINGS = 40
PLURALS = {"warning": "warnings", "note": "notes"}


def _fill(runs: Sequence[RunRecord]) -> Markup:
    items = []
    for run in runs:
        cards = missing(run, "No findings yet.", "diagnose")
        if run.diagnosis is not None:
            # place is that in the file, not in this order: anchors must not depend on the sorting.
            ordered = by_severity(run.diagnosis.findings)[:MAX_FINDINGS]
            drawn = [_card(run, place, finding, is_first=at == 0) for at, (place, finding) in enumerate(ordered)]
            cards = element("div", drawn, class_="cards" if len(runs) == 1 else "cards stacked")
        items.append(join(run_title(run, len(runs)), cards))
    return columns(items)


def tally(run: RunRecord) -> str:
    """Count the checks by the level of their findings."""
    if run.diagnosis is None:
        return ""
    levels = [finding.level for finding in run.diagnosis.findings]
    counts = [
        count(levels.count(level), level, PLURALS.get(level, level)) for level in reversed(LEVELS) if level in levels
    ]
    if not levels:
        return "No findings"
    return f"{count(len(levels), 'check')}: {listing(counts)}"


def _card(run: RunRecord, place: int, finding: Finding, *, is_first: bool) -> Markup:
    title = element("h3", badge(finding.level), " ", prose(finding.title or finding.name))
    is_good = finding.level == "good"
    parts = [("Otherwise, try: " if is_good else "Try: ", finding.remedy)]
    if not is_good:
        parts = [("To confirm: ", finding.confirm), *parts, ("Tried: ", finding.experience)]
        parts.append(("It cannot tell ", finding.cannot_tell))
    lines = [
        element("p", element("strong", name), prose(words, run.path), class_="remedy") for name, words in parts if words
    ]
    text = element("p", prose(finding.text, run.path)) if finding.text else None
    return element(
        "details",
        element("summary", title),
        _measurement(finding),
        text,
        lines,
        class_=f"card level-{finding.level}",
        id=finding_anchor(run, place),
        open=is_first and not is_good,
    )


def _measurement(finding: Finding) -> Markup | None:
    if finding.measured is None:
        return None
    ends = "" if finding.low is None or finding.high is None else f" ({number(finding.low)} to {number(finding.high)})"
    value = element("span", "measured ", element("strong", number(finding.measured)), ends)
    reference = None
    if finding.reference is not None:
        name = f" ({finding.reference_name})" if finding.reference_name else ""
        reference = element("span", "reference ", element("strong", number(finding.reference)), name)
    return element("p", value, reference, class_="measurement")


SECTION = Section(
    20, "findings", "Findings", "Why, and what to try?", _fill, tally,
    lambda run: run.diagnosis is not None and run.diagnosis.level in ("warning", "severe"),
)  # fmt: skip
