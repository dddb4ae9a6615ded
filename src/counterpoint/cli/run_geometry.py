"""What `counterpoint geometry --run` does: the classes of a run beside their optimum, as text or as plain data."""

import json
import textwrap
from pathlib import Path

from counterpoint.cli.geometry_answer import TEXT_WIDTH, plain_record
from counterpoint.cli.geometry_flags import GeometryFlags
from counterpoint.core.files import finite_or_null
from counterpoint.core.terminal_text import shown_lines
from counterpoint.core.written_tables import aligned
from counterpoint.report.sections.classes_section import class_rows, class_words
from counterpoint.runs.class_comparison import compare_classes

MAX_PRINTED = 20  # classes


def answer_run(flags: GeometryFlags) -> int:
    """Measure the classes of a run, solve for those that its loss would have, and print both."""
    found = compare_classes(Path(str(flags.run)), tolerance=flags.tolerance, quiet=flags.quiet)
    record, optimum = found.record, found.record.optimum
    assert optimum is not None
    if flags.as_json:
        plain = {**record.model_dump(), "imbalance": record.imbalance, "geometry": plain_record(found.geometry)}
        print(json.dumps(finite_or_null(plain)))
        return 0
    head, rows = class_rows(record)
    cut = [[textwrap.shorten(name, 24, placeholder="…"), *cells] for name, *cells in rows[:MAX_PRINTED]]
    more = [f"... {MAX_PRINTED} of {len(rows)} classes; --json has all"] if len(rows) > MAX_PRINTED else []
    asked = "; ".join(f"{name} {value}" for name, value in optimum.question.items())
    ends = [f"risk {optimum.risk:.12g}, gap {found.geometry.duality_gap:.2g}: {optimum.status}", *optimum.notes]
    parts = [f"optimum asked for: {asked}", *class_words(record)], ends
    first, last = ([textwrap.fill(words, TEXT_WIDTH) for words in part] for part in parts)
    print(shown_lines("\n".join([*first, "", *aligned([head, *cut], "l" + "r" * (len(head) - 1)), *more, "", *last])))
    return 0
