"""Where do its classes lie? Class means beside the optimum that theory states for the run's loss and class counts.

One record fills this section, the page of ``counterpoint geometry --run``, and its text.
"""

from collections.abc import Sequence

from counterpoint.diagnostics.evidence import ClassRecord, ClassRow
from counterpoint.report.charts.figures import data_table, missing, readings, run_title
from counterpoint.report.markup import Markup, element, join
from counterpoint.report.run_reading import RunRecord
from counterpoint.report.sections import Section
from counterpoint.report.wording import count, listing, number, percent


def _fill(runs: Sequence[RunRecord]) -> Markup:
    records = [(run, run.diagnosis.classes) for run in runs if run.diagnosis and run.diagnosis.classes]
    tables = []
    for run, record in records:
        head, rows = class_rows(record)
        rest = f"and {count(len(rows) - MAX_ROWS, 'class', 'classes')} more" if len(rows) > MAX_ROWS else ""
        notes = [*filter(None, [rest]), *(record.optimum.notes if record.optimum else ())]
        table = data_table("Classes", head, rows[:MAX_ROWS])
        tables.append(join(run_title(run, len(runs)), table, [element("p", note, class_="note") for note in notes]))
    absent = [
        missing(run, f"{run.name} has no comparison of classes yet.", "diagnose")
        if run.diagnosis is None
        else element("p", f"{run.name} has no labels, or none with two classes.", class_="missing")
        for run in runs
        if run.diagnosis is None or run.diagnosis.classes is None
    ]
    words = {run.order: " ".join(class_words(record)) for run, record in records}
    return join(readings(runs, lambda run: words.get(run.order, "")), tables, absent)


MAX_ROWS = 40  # classes of a table
MAX_NAMED = 6


def class_words(record: ClassRecord) -> list[str]:
    """Put the record into sentences, the answer first.

    >>> class_words(ClassRecord(within_share=0.25, why_no_optimum="VICReg is not covered"))[1]
    'No optimum to compare with: VICReg is not covered.'
    """
    words, optimum = [], record.optimum
    if optimum is not None:
        ends = "" if optimum.low is None else f" (95 % interval {number(optimum.low)} to {number(optimum.high)})"
        held_out = "" if optimum.held_out is None else f"; of held-out samples {number(optimum.held_out)}"
        words.append(
            f"The cosines of class means are {number(optimum.distance)}{ends} from those at the optimum of the run's "
            f"own loss, as the root mean square over pairs of classes{held_out}."
        )
        if not optimum.is_certified:
            words.append(f"The optimum is not certified: {optimum.status}.")
        words += [f"At the optimum {listing(group)} merge into one vector." for group in optimum.merged]
    if record.within_share is not None:
        tail = "" if optimum is None else "; at the optimum none does"
        words.append(f"{percent(record.within_share)} of the variance lies within classes{tail}.")
    words += _rare_words(record)
    if record.num_unlabelled:
        words.append(f"{count(record.num_unlabelled, 'sample')} without a class are left out.")
    if record.why_no_optimum:
        words.append(f"No optimum to compare with: {record.why_no_optimum.split('; covered are')[0]}.")
    return words


def class_rows(record: ClassRecord) -> tuple[list[str], list[list[str]]]:
    """Head and rows of the table of classes: samples, spread, and mean cosine with the other classes."""
    head = ["class", "samples", "spread", "mean cosine", "at the optimum", "largest difference"]
    if record.optimum is None:
        return head[:3], [_cells(record, row) for row in record.rows]
    compared = zip(record.rows, record.optimum.measured, record.optimum.optimum, strict=False)
    return head, [
        [*_cells(record, row), number(_mean_but(a, place), 3), number(_mean_but(b, place), 3), _largest(record, a, b)]
        for place, (row, a, b) in enumerate(compared)
    ]


def _rare_words(record: ClassRecord) -> list[str]:
    rare = [row.name for row in record.rows if row.is_rare]
    if record.rare_cosine is None or not record.is_imbalanced:
        return []
    ends = "" if record.low is None else f" (95 % interval {number(record.low)} to {number(record.high)})"
    beside = [
        f"{number(value)} {where}"
        for value, where in (
            (record.optimum.rare_cosine if record.optimum else None, "at the optimum"),
            (record.frequent_cosine, "between frequent classes"),
        )
        if value is not None
    ]
    named = listing([*rare[:MAX_NAMED], *([f"{len(rare) - MAX_NAMED} more"] if len(rare) > MAX_NAMED else [])])
    tail = f"; it is {listing(beside)}" if beside else ""
    return [f"Centred means of the rare classes ({named}) have cosine {number(record.rare_cosine)}{ends}{tail}."]


def _cells(record: ClassRecord, row: ClassRow) -> list[str]:
    return [
        f"{row.name}{' (rare)' if row.is_rare and record.is_imbalanced else ''}",
        number(row.count),
        number(row.spread),
    ]


def _mean_but(row: Sequence[float | None], place: int) -> float | None:
    """Mean of a row without its diagonal entry; None if no other value is known."""
    others = [value for at, value in enumerate(row) if at != place and value is not None]
    return sum(others) / len(others) if others else None


def _largest(record: ClassRecord, measured: Sequence[float | None], optimum: Sequence[float | None]) -> str:
    """The largest difference of a row, with its sign and class."""
    pairs = zip(measured, optimum, record.rows, strict=False)
    differences = [(a - b, row.name) for a, b, row in pairs if a is not None and b is not None]
    value, name = max(differences, key=lambda pair: abs(pair[0]), default=(0.0, ""))
    return f"{'+' if value > 0 else ''}{number(value, 2)} with {name}" if name else "–"


def _answer(run: RunRecord) -> str:
    record = run.diagnosis.classes if run.diagnosis else None
    if record is None:
        return ""
    within = "" if record.within_share is None else f"{percent(record.within_share)} of the variance lies within them"
    far = "" if record.optimum is None else f"{number(record.optimum.distance)} from the optimum in cosine"
    return ", ".join(filter(None, [within, far])) or count(len(record.rows), "class", "classes")


SECTION = Section(
    55, "classes", "Classes", "Where do its classes lie?", _fill, _answer,
    lambda run: bool(run.diagnosis and run.diagnosis.classes and _rare_words(run.diagnosis.classes)),
)  # fmt: skip
