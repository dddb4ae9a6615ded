"""What `counterpoint geometry --run` does: classes of a run beside their optimum, as text, as plain data, as a page."""

import argparse
import json
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from counterpoint.cli.geometry_answer import check_drawing
from counterpoint.core.files import finite_or_null
from counterpoint.core.markup import element, join
from counterpoint.core.terminal_text import shown, shown_lines
from counterpoint.core.written_tables import aligned
from counterpoint.data.formats.npz_files import read_npy
from counterpoint.report.document import PageSection
from counterpoint.report.sections.classes_section import class_figures, class_rows, class_words
from counterpoint.report.theory_pages.geometry_drawing import Remarks, write_geometry
from counterpoint.runs.class_comparison import ClassComparison, compare_classes

TEXT_WIDTH = 100
NAME_WIDTH = 24
MAX_PRINTED = 20  # classes


def answer_run(flags: argparse.Namespace, target: Path | None) -> int:
    """Measure, solve, print, and draw into ``target``."""
    if target is not None:
        check_drawing(target)
    found = compare_classes(
        flags.run,
        data=_given(flags.data),
        labels=_given(flags.labels),
        tolerance=flags.tolerance,
        checkpoint=flags.checkpoint,
        quiet=flags.quiet,
    )
    if target is not None:
        _draw(found, target)
    if flags.json:
        print(json.dumps(finite_or_null(comparison_record(found)), indent=1))
        return 0
    print(shown_lines(comparison_text(found)))
    print(f"Drawn in {shown(target)}.")
    return 0


def _given(text: str | None) -> Any:
    """An array where a .npy was named, else the text as it is."""
    return read_npy(Path(text)) if text is not None and Path(text).suffix == ".npy" else text


def comparison_text(found: ClassComparison) -> str:
    """What was measured, a table of classes, and the certificate, in at most 100 columns.

    Args:
        found: classes beside their optimum.
    """
    record, optimum = found.record, found.record.optimum
    assert optimum is not None
    asked = "; ".join(f"{name} {value}" for name, value in optimum.question.items())
    head, rows = class_rows(record)
    more = f"... {MAX_PRINTED} of {len(rows)} classes; --json has all"
    lines = [
        *_filled([f"optimum asked for: {asked}"]),
        "",
        *_filled(class_words(record)),
        "",
        *_table(head, rows[:MAX_PRINTED]),
        *([more] if len(rows) > MAX_PRINTED else []),
        "",
        f"risk         {optimum.risk:.12g}",
        f"lower bound  {found.geometry.lower_bound:.12g}",
        f"duality gap  {found.geometry.duality_gap:.2g}",
        *textwrap.wrap(f"status       {optimum.status}", TEXT_WIDTH, subsequent_indent=" " * 13),
        *_filled(optimum.notes),
    ]
    return "\n".join(lines)


def comparison_record(found: ClassComparison) -> dict[str, Any]:
    """Everything as plain data."""
    geometry = found.geometry
    return {
        **found.record.model_dump(),
        "imbalance": found.record.imbalance,
        "certificate": {
            "risk": geometry.risk,
            "lower_bound": geometry.lower_bound,
            "duality_gap": geometry.duality_gap,
            "relative_gap": geometry.relative_gap,
            "is_certified": geometry.is_certified,
            "is_collapse_optimal": geometry.is_collapse_optimal,
            "rank": geometry.rank,
            "status": geometry.status,
        },
    }


def _draw(found: ClassComparison, target: Path) -> None:
    """The page of the optimum, with what was measured beside it."""
    words = [element("p", sentence, class_="reading") for sentence in class_words(found.record)]
    beside = PageSection("measured", "Measured", "How far is the run?", join(words, class_figures(found.record)))
    optimum = found.record.optimum
    assert optimum is not None
    remarks = Remarks(notes=optimum.notes)
    write_geometry(found.geometry, target, question=optimum.question, more=[beside], remarks=remarks)


def _filled(sentences: Sequence[str]) -> list[str]:
    return [textwrap.fill(sentence, TEXT_WIDTH) for sentence in sentences]


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Columns as wide as their longest cell; names of classes are cut."""
    cut = [[row[0] if len(row[0]) <= NAME_WIDTH else f"{row[0][: NAME_WIDTH - 1]}…", *row[1:]] for row in rows]
    return [line[:TEXT_WIDTH].rstrip() for line in aligned([head, *cut], "l" + "r" * (len(head) - 1))]
