"""Where do its classes lie? Class means beside the optimum that theory states for the run's loss and class counts."""

from collections.abc import Sequence

from counterpoint.core.markup import Markup, element, join
from counterpoint.report.charts.figures import columns, missing, panel_width, readings
from counterpoint.report.charts.series_style import run_title
from counterpoint.report.class_panels import class_figures, class_words
from counterpoint.report.run_record import RunRecord
from counterpoint.report.sections import Section


def classes_section(runs: Sequence[RunRecord]) -> Markup:
    """Say how far the classes are from their optimum, and draw both."""
    known = [run for run in runs if run.diagnosis is not None and run.diagnosis.classes is not None]
    return join(
        readings(runs, _words), columns([_classes(run, len(runs)) for run in known]) if known else None, _absent(runs)
    )


def _words(run: RunRecord) -> str:
    record = run.diagnosis.classes if run.diagnosis else None
    return "" if record is None else " ".join(class_words(record))


def _classes(run: RunRecord, num_runs: int) -> Markup:
    """One run's matrices, below each other where several runs share the page."""
    assert run.diagnosis is not None
    assert run.diagnosis.classes is not None
    return join(
        run_title(run.name, run.order, num_runs), class_figures(run.diagnosis.classes, panel_width(max(num_runs, 2)))
    )


def _absent(runs: Sequence[RunRecord]) -> list[Markup]:
    """Why a run has no classes here: nobody diagnosed it, or there are no labels."""
    notes = []
    for run in runs:
        if run.diagnosis is None:
            notes.append(missing(run, f"{run.name} has no comparison of classes yet.", "diagnose"))
        elif run.diagnosis.classes is None:
            notes.append(element("p", f"{run.name} has no labels, or none with two classes.", class_="missing"))
    return notes


SECTION = Section(55, "classes", "Classes", "Where do its classes lie?", classes_section)
