"""The page of an evaluation: figures with their intervals, drawn, listed, and how they were measured; no script."""

from typing import TYPE_CHECKING

from counterpoint.core.markup import Markup, element, hide_folders, join, printable
from counterpoint.core.run_records import EvaluationRecord, RunStatus
from counterpoint.report.charts.figures import data_table
from counterpoint.report.document import PageKind, PageSection, document, plain_header
from counterpoint.report.run_record import RunRecord, fit
from counterpoint.report.sections.evaluation_section import evaluation_section

if TYPE_CHECKING:  # both load torch, and this page must not
    from counterpoint.evaluation.evaluation_result import Evaluation
    from counterpoint.runs.seed_evaluation import SeedEvaluation

EVALUATION_PAGE = PageKind(
    "page of an evaluation", "evaluation.html", Markup('<meta name="generator" content="counterpoint evaluate">')
)


def render_evaluation(found: "Evaluation | SeedEvaluation") -> Markup:
    """Render the page."""
    record = EvaluationRecord.model_validate(fit(found.record.model_dump()))
    run = RunRecord(name=printable(found.name), order=0, card=RunStatus(status="finished"), evaluation=record)
    parts = [PageSection("figures", "Figures", "How accurate is it?", evaluation_section([run]))]
    if seeds := found.seed_table():
        words = "Intervals are Student's over the seeds, in the drawing, too. A figure equal in all has none."
        content = join(element("p", words, class_="note"), data_table("Figures of each seed", seeds[0], seeds[1:]))
        parts.append(PageSection("seeds", "Seeds", "How much depends on the seed?", content))
    if found.remarks():
        said = [element("li", hide_folders(words)) for words in found.remarks()]
        parts.append(PageSection("beside", "Beside", "What can it be compared with?", element("ul", said)))
    header = plain_header("Counterpoint evaluates", run.name, hide_folders(found.samples))
    return document(EVALUATION_PAGE, f"Counterpoint: {run.name}", header, parts)
