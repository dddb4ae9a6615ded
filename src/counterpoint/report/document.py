"""The page as one HTML document: head with its content policy, masthead, numbered sections."""

import base64
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import resources

from counterpoint.report.markup import Markup, element, join
from counterpoint.report.run_record import RunRecord
from counterpoint.report.sections.configuration_section import configuration_section
from counterpoint.report.sections.evaluation_section import evaluation_section
from counterpoint.report.sections.findings_section import findings_section
from counterpoint.report.sections.gallery import gallery_section
from counterpoint.report.sections.glossary import glossary_section
from counterpoint.report.sections.masthead import masthead
from counterpoint.report.sections.plane_section import plane_section
from counterpoint.report.sections.spectrum_section import spectrum_section
from counterpoint.report.sections.thumbnails import GalleryPlan
from counterpoint.report.sections.training_section import training_section
from counterpoint.report.sections.verdict_section import verdict_section

GENERATOR = '<meta name="generator" content="counterpoint report">'
ICON = """<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 16 16">
<g fill="none" stroke-width="2.4" stroke-linecap="round">
<path stroke="#0072B2" d="M2 10c4-9 8 3 12-6"/><path stroke="#D55E00" d="M2 6c4 9 8-3 12 6"/>
</g></svg>"""


@dataclass(frozen=True)
class Section:
    """One section: its anchor, short title and question, and what fills it."""

    name: str
    title: str
    question: str
    fill: Callable[[Sequence[RunRecord]], Markup]


def sections(plan: GalleryPlan) -> tuple[Section, ...]:
    """List the sections in their order; only the gallery bends to the size of the page."""
    return (
        Section("verdict", "Verdict", "Is it good?", verdict_section),
        Section("findings", "Findings", "Why, and what to try?", findings_section),
        Section("training", "Training", "Did it learn?", training_section),
        Section("spectra", "Spectra", "How many dimensions does it use?", spectrum_section),
        Section("pairs", "Pairs", "Does it tell same from different?", plane_section),
        Section("concepts", "Concepts", "What does each feature mean?", partial(gallery_section, plan=plan)),
        Section("evaluation", "Evaluation", "What is it good for?", evaluation_section),
        Section("configuration", "Configuration", "How was it made?", configuration_section),
        Section("glossary", "Glossary", "How to read this page", glossary_section),
    )


def document(runs: Sequence[RunRecord], plan: GalleryPlan) -> Markup:
    """Assemble the whole page.

    Args:
        runs: one to six runs.
        plan: how much of the gallery to show.

    Returns:
        The HTML document.
    """
    style, script, listed = _asset("style.css"), _asset("page.js"), sections(plan)
    main = element("main", [_section(place, item, runs) for place, item in enumerate(listed, start=1)], id="content")
    top = masthead(runs, [(item.name, item.title) for item in listed])
    body = element("body", top, main, element("script", script))
    return join(Markup("<!DOCTYPE html>\n"), element("html", _head(runs, style, script), body, lang="en"), "\n")


def content_hash(content: str) -> str:
    """Hash inline content as a content security policy wants it."""
    return f"sha256-{_base64(hashlib.sha256(content.encode()).digest())}"


def _head(runs: Sequence[RunRecord], style: Markup, script: Markup) -> Markup:
    """Write the head: the policy that forbids every request stands before anything it governs."""
    policy = (
        f"default-src 'none'; img-src data:; style-src '{content_hash(style)}'; script-src '{content_hash(script)}'; "
        "base-uri 'none'; form-action 'none'"
    )
    return element(
        "head",
        element("meta", charset="utf-8"),
        Markup(GENERATOR),
        element("meta", http_equiv="Content-Security-Policy", content=policy),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("title", f"Counterpoint report: {', '.join(run.name for run in runs)}"),
        element("link", rel="icon", href=f"data:image/svg+xml;base64,{_base64(ICON.encode())}"),
        element("style", style),
    )


def _section(place: int, item: Section, runs: Sequence[RunRecord]) -> Markup:
    """Write one section under its number and question."""
    kicker = element("span", f"{place} · {item.title}", class_="kicker")
    heading = element("h2", kicker, " ", item.question, id=f"{item.name}-title")
    return element("section", heading, item.fill(runs), id=item.name, aria_labelledby=f"{item.name}-title")


def _asset(name: str) -> Markup:
    """Read a file of this package that goes into the page as it is."""
    content = resources.files("counterpoint.report").joinpath(name).read_text(encoding="utf-8")
    assert "</" not in content  # it would end the element that holds it
    return Markup(content)


def _base64(content: bytes) -> str:
    return base64.b64encode(content).decode("ascii")
