"""The page of an evaluation: figures with their intervals, drawn, listed, and how they were measured; no script."""

from typing import Protocol

from counterpoint.core.markup import Markup, element, hide_folders, join, printable
from counterpoint.core.run_records import EvaluationRecord, RunStatus
from counterpoint.report.charts.figures import data_table
from counterpoint.report.document import PageKind, PageSection, document, plain_header
from counterpoint.report.run_record import Arrays, RunRecord, fit
from counterpoint.report.sections.evaluation_section import evaluation_section

EVALUATION_PAGE = PageKind(
    "page of an evaluation", "evaluation.html", Markup('<meta name="generator" content="counterpoint evaluate">')
)


class Evaluated(Protocol):
    """What ``evaluate`` and ``evaluate_seeds`` return; their modules load torch, and this page must not."""

    @property
    def name(self) -> str:
        """Of what was evaluated."""
        ...

    @property
    def samples(self) -> str:
        """Which samples the figures are about, in words."""
        ...

    @property
    def record(self) -> EvaluationRecord:
        """The figures."""
        ...

    def remarks(self) -> list[str]:
        """What stands beside the figures."""
        ...

    def seed_table(self) -> list[list[str]]:
        """Titles and rows of a table with the figures of each seed; empty of one run."""
        ...


def render_evaluation(found: Evaluated) -> Markup:
    """Render the page."""
    run = _as_run(found.name, found.record)
    parts = [PageSection("figures", "Figures", "What is it good for?", evaluation_section([run]))]
    if seeds := found.seed_table():
        words = "Intervals are Student's over the seeds, in the drawing, too. A figure that all have alike has none."
        content = join(element("p", words, class_="note"), data_table("Figures of each seed", seeds[0], seeds[1:]))
        parts.append(PageSection("seeds", "Seeds", "How much depends on the seed?", content))
    if found.remarks():
        said = [element("li", hide_folders(words)) for words in found.remarks()]
        parts.append(PageSection("beside", "Beside", "What can it be held against?", element("ul", said)))
    header = plain_header("Counterpoint evaluates", run.name, hide_folders(found.samples))
    return document(EVALUATION_PAGE, f"Counterpoint: {run.name}", header, parts)


def _as_run(name: str, record: EvaluationRecord) -> RunRecord:
    """What sections take, of which an evaluation knows its figures only."""
    return RunRecord(
        name=printable(name),
        order=0,
        card=RunStatus(status="finished"),
        settings={},
        asked=None,
        reasons={},
        epochs=(),
        evaluation=EvaluationRecord.model_validate(fit(record.model_dump())),
        other_evaluations=(),
        diagnosis=None,
        arrays=Arrays({}, None, None),
        gaps={},
    )
