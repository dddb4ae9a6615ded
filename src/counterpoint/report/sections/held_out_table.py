"""Figures of training samples beside those of samples that were held out, and what is in both parts."""

from collections.abc import Sequence

from counterpoint.core.markup import Markup, element, join
from counterpoint.diagnostics.evidence import HELD_OUT, TRAINING, HeldOutRecord
from counterpoint.report.charts.figures import columns, data_table
from counterpoint.report.charts.series_style import run_title
from counterpoint.report.run_record import RunRecord
from counterpoint.report.sections.headline import DIAGNOSTICS
from counterpoint.report.wording import count, figure_of, number


def held_out_tables(runs: Sequence[RunRecord]) -> Markup | None:
    """A table for each run whose parts were measured; None where none were."""
    known = [(run, run.diagnosis.held_out) for run in runs if run.diagnosis and run.diagnosis.held_out]
    if not known:
        return None
    tables = [join(run_title(run.name, run.order, len(runs)), _table(record)) for run, record in known]
    return join(element("h3", "Training samples beside held-out ones"), columns(tables))


def held_out_words(record: HeldOutRecord) -> str:
    """How much better views of training samples agree, and how many held-out samples were trained on.

    >>> held_out_words(HeldOutRecord(gap=0.125, low=0.1, high=0.15, num_held_out=80, num_either=2))[:59]
    'Views of training samples agree by 0.125 more in cosine (95'
    """
    words = []
    if record.gap is not None:
        more = "more" if record.gap >= 0 else "less"
        words.append(
            f"Views of training samples agree by {number(abs(record.gap))} {more} in cosine (95 % interval of the "
            f"difference {number(record.low)} to {number(record.high)})."
        )
    if record.num_held_out:
        found = record.num_either or 0
        whole = count(record.num_held_out, "held-out sample")
        words.append(
            f"Of {whole} {number(found) if found else 'no one'} equal{'s' if found < 2 else ''} a training sample."
        )
    return " ".join(words)


def _table(record: HeldOutRecord) -> Markup:
    """Metrics in rows, both parts in columns; of as many samples of either."""
    parts = [record.parts[name] for name in (TRAINING, HELD_OUT) if name in record.parts]
    rows = [
        [metric.short, *(figure_of(metric.unit, part.figures.get(metric.name)) for part in parts)]
        for metric in DIAGNOSTICS.values()
        if parts and all(part.figures.get(metric.name) is not None for part in parts)
    ]
    sizes = f"Of {count(parts[0].num_samples, 'sample')} of either part, evenly spaced." if parts else ""
    return join(
        element("p", held_out_words(record), class_="reading"),
        data_table("Training samples beside held-out ones", ["embedding", "training", "held out"], rows)
        if rows
        else None,
        element("p", sizes, class_="note") if rows else None,
    )
