"""Does it tell same from different? The cosines of pairs, and training samples beside held-out ones."""

from collections.abc import Sequence

import numpy as np

from counterpoint.diagnostics.evidence import HeldOutRecord
from counterpoint.report.charts.chart_frame import Axis, ChartText, linear_axis, percent_axis
from counterpoint.report.charts.drawings import histogram_drawing
from counterpoint.report.charts.figures import (
    absences,
    data_table,
    figure,
    panel_width,
    panels,
    readings,
    run_style,
    run_tag,
)
from counterpoint.report.markup import Markup, element, join
from counterpoint.report.run_reading import EMBEDDING, REPRESENTATION, UNTRAINED, Histogram, RunRecord
from counterpoint.report.sections import Section
from counterpoint.report.wording import NO_BREAK, cosine, count, number, percent

TITLE = "Cosines of pairs in the embedding"
LESS_OVERLAP = "The less the two overlap, the better pairs are told apart."
CHANCE = f"(chance: 50{NO_BREAK}%)"
POSITIVE, NEGATIVE = "two views of one sample", "different samples"


def _fill(runs: Sequence[RunRecord]) -> Markup:
    absent = absences([run for run in runs if not run.diagnosis], "diagnosis", "diagnose")
    figures = [_cosine_figure(run, run.cosines, len(runs)) for run in runs if run.cosines is not None]
    return join(readings(runs, _pair_words), panels(figures) if figures else None, absent)


def separation(histogram: Histogram | None) -> float | None:
    """The chance that a positive pair has a higher cosine than a negative one; None if there are no such pairs.

    A tie within a bin counts half: Mann and Whitney's statistic as a share of all pairs.
    """
    if histogram is None:
        return None
    total_positive, total_negative = histogram.positive.sum(), histogram.negative.sum()
    if total_positive <= 0 or total_negative <= 0:
        return None
    positive, negative = histogram.positive / total_positive, histogram.negative / total_negative
    below = np.cumsum(negative) - negative  # negatives in lower bins
    return float(np.sum(positive * (below + 0.5 * negative)))


def _pair_words(run: RunRecord) -> str:
    words = []
    positive, negative = run.measured(EMBEDDING, "positive_cosine"), run.measured(EMBEDDING, "negative_cosine")
    if positive is not None and negative is not None:
        words.append(
            f"In the embedding, two views of one sample have a mean cosine of {cosine(positive)}, "
            f"different samples {cosine(negative)}."
        )
    measured = separation(run.cosines)
    if measured is not None:
        words.append(
            f"A pair of views is closer than a pair of different samples in {percent(measured)} of draws {CHANCE}."
        )
    names = ("alignment", "uniformity")
    pairs = [(name, run.measured(UNTRAINED, name), run.measured(REPRESENTATION, name)) for name in names]
    changes = [
        f"{'improved' if new < old else 'worsened'} {name} from {number(old)} to {number(new)}"
        for name, old, new in pairs
        # Compared as written: a change beyond the digits shown would read "from 1.2 to 1.2".
        if old is not None and new is not None and number(old) != number(new)
    ]
    if changes:
        words.append(f"Training {' and '.join(changes)} in the representation (lower is better in both).")
    if run.diagnosis and run.diagnosis.held_out:
        words.append(held_out_words(run.diagnosis.held_out))
    return " ".join(filter(None, words))


def _cosine_figure(run: RunRecord, histogram: Histogram, num_runs: int) -> Markup:
    # An empty histogram stays at 0.
    shares = [counts / max(counts.sum(), 1.0) for counts in (histogram.positive, histogram.negative)]
    positive, negative = (share.tolist() for share in shares)
    colour = run_style(run.order).colour if num_runs > 1 else "c2"
    edges = histogram.edges.tolist()
    ticks = [tick for tick in linear_axis("", edges).ticks if edges[0] - 1e-9 <= tick[0] <= edges[-1] + 1e-9]
    x_axis = Axis("cosine between two embeddings", edges[0], edges[-1], tuple(ticks))
    y_axis = percent_axis("share of pairs", [0.0, *positive, *negative], num_ticks=4)
    words = ChartText(f"Cosines of pairs in {run.name}", _pair_words(run) or "Histogram of cosines.")
    areas = [(negative, "area muted"), (positive, f"area {colour}")]
    draw = histogram_drawing(words, 306, (x_axis, y_axis), edges, areas)
    title = join(run_tag(run) if num_runs > 1 else None, " ", TITLE)
    note = join(_swatch(colour, POSITIVE), _swatch("muted", NEGATIVE), LESS_OVERLAP)
    rows = [
        [f"{number(low, 2)} to {number(high, 2)}", percent(ours), percent(theirs)]
        for low, high, ours, theirs in zip(edges[:-1], edges[1:], positive, negative, strict=True)
        if ours or theirs
    ]
    table = data_table("Cosines of pairs", ["cosine", POSITIVE, NEGATIVE], rows)
    return figure(title, note, draw, panel_width(max(num_runs, 2)), table)


def _swatch(colour: str, words: str) -> Markup:
    return join(element("span", "■", class_=f"sign {colour}", aria_hidden="true"), f"{words}. ")


def held_out_words(record: HeldOutRecord) -> str:
    """Say how much better views of training samples agree, and how many held-out samples equal one of them.

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
        num_equal = record.num_either or 0
        total = count(record.num_held_out, "held-out sample")
        verb = "equals" if num_equal < 2 else "equal"
        words.append(f"Of {total} {number(num_equal) if num_equal else 'no one'} {verb} a training sample.")
    return " ".join(words)


def _answer(run: RunRecord) -> str:
    measured = separation(run.cosines)
    return "" if measured is None else f"Two views are closer than two samples in {percent(measured)} of draws {CHANCE}"


SECTION = Section(50, "pairs", "Pairs", "Does it tell same from different?", _fill, _answer)
