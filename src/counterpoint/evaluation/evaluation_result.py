"""What an evaluation found: rows of figures beside the split they were measured on, as text and as tables."""

import json
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from counterpoint.core.metric import Metric, in_condition, is_apart, loaded_metrics, metric_under
from counterpoint.core.notebook import NUMBER, paragraph, table, view
from counterpoint.core.run_records import BASELINE, EvaluationRecord, EvaluationRow, EvaluationSplit, corruption_means
from counterpoint.core.terminal_text import shown
from counterpoint.core.written_tables import csv_table, in_markdown, markdown_table
from counterpoint.evaluation.named_protocols import chosen_protocols
from counterpoint.nn.layer_outputs import REPRESENTATION

CATALOGUE = loaded_metrics("evaluation")
KNN, PROBE = "knn", "linear probe"
LEAST_WIDTH = 15  # of the names of protocols in a table
INTERVALS = "Figures with their 95 % interval, where they have one."
MOST_LISTED = 2  # metrics; of more, a table has features in columns
MOST_CORRUPTED, MOST_SIZES = 4, 9  # features and sizes of a curve in columns
CONDITION, WIDE_CELL = 22, 19  # places of a name of a corruption, and of a column beside it
WIDTH, NAME, CELL, COLUMNS = 100, 20, 16, 5  # places of a line, of a name, of a column, and how many of these


@dataclass(frozen=True)
class Evaluation:
    """All rows of one subject, and on which samples.

    Attributes:
        record: what is written: the figures, metric by metric, features by features, and the split.
        path: the file that it was written to.
        name: of the subject.
    """

    record: EvaluationRecord
    path: Path | None = None
    name: str = ""

    @property
    def rows(self) -> tuple[EvaluationRow, ...]:
        """The figures."""
        return self.record.rows

    @property
    def split(self) -> EvaluationSplit:
        """The samples."""
        return self.record.split

    def accuracy(self, features: str, protocol: str = KNN) -> float:
        """The figure of one row.

        Raises:
            KeyError: no such row.
        """
        row = self.record.row(features, protocol)
        if row is None or row.figure is None:
            raise KeyError(f"no row for {features!r} with {protocol!r}")
        return row.figure

    def to_dict(self) -> dict[str, Any]:
        """Plain values, as in ``evaluation.json``."""
        return self.record.written()

    def seed_table(self) -> list[list[str]]:
        """One run has no figures over seeds."""
        return []

    def to_csv(self) -> str:
        """A line for each figure."""
        head = ("features", "metric", "unit", "figure", "low", "high", "correct", "total", "settings")
        return csv_table(head, map(_csv_cells, self.rows))

    def to_markdown(self) -> str:
        """A table with features in columns, and what is said beside it."""
        head, cells = _with_features_in_columns(self.rows)
        written = markdown_table(head, cells, "l" + "r" * (len(head) - 1))
        title = f"{in_markdown(self.samples)}. {INTERVALS}"
        return "\n\n".join([title, written, *map(in_markdown, self.remarks())]) + "\n"

    def _repr_html_(self) -> str:
        """In a notebook; figures under corruptions and along curves are counted only."""
        plain = [row for row in self.rows if not is_apart(row.protocol)]
        apart = len(self.rows) - len(plain)
        more = f"and {apart} figures under corruptions or along curves, in to_csv()" if apart else ""
        said = [paragraph(text) for text in (more, *self.remarks()) if text]
        return view(self.samples, table(*_with_features_in_columns(plain), figures=NUMBER), paragraph(INTERVALS), said)

    @property
    def samples(self) -> str:
        """Which samples the figures are about, in words."""
        split = self.split
        counts = f"{split.num_queries} queries, {split.num_bank} labelled samples, {split.num_classes} classes"
        rest = f"; {split.num_unlabelled:,} samples without a label take no part" if split.num_unlabelled else ""
        return f"{shown(split.source)}: {counts} ({split.how}){rest}"

    def __str__(self) -> str:
        # Hundreds of figures under corruptions and along curves have tables of their own.
        plain = [row for row in self.rows if not is_apart(row.protocol)]
        lines = _listed(plain) if len({row.protocol for row in plain}) <= MOST_LISTED else _in_columns(plain)
        lines += _wrapped(self._paired())
        apart = [row for row in self.rows if is_apart(row.protocol)]
        conditions = [*corruption_lines(apart), *curve_lines(apart)]
        tables = _wrapped(self._tables())
        return "\n".join([*textwrap.wrap(self.samples, WIDTH), *lines, *conditions, *[""][: len(tables)], *tables])

    def remarks(self) -> list[str]:
        """What stands beside the figures: differences in pairs, and published tables that they can be held against."""
        return [*self._paired(), *self._tables()]

    def _tables(self) -> list[str]:
        """What published tables the figures can be held against, and what is not alike."""
        found = []
        measured = {row.protocol for row in self.rows}
        for protocol in chosen_protocols(self.record.protocol):
            if not measured & set(protocol.metrics):
                continue  # left out, which was said
            figures = f"{', '.join(protocol.metrics)} of {', '.join(protocol.layers)}"
            text = f"{protocol.name}: {figures}. {protocol.table}{'; ' * bool(protocol.remark)}{protocol.remark}"
            found.append(text)
        return found

    def _paired(self) -> list[str]:
        """What the representation has more than each encoder that the user named, in pairs on the same queries."""
        rows = [row for row in self.rows if not is_apart(row.protocol)]
        own = {row.protocol: row for row in rows if row.features == REPRESENTATION}
        found: dict[str, list[str]] = {}
        for row in rows:
            gain = own[row.protocol].minus(row) if BASELINE in row.settings and row.protocol in own else None
            if gain is not None:
                ends = f"{100 * gain.low:+.1f} to {100 * gain.high:+.1f}"
                words = f"{row.protocol} {100 * gain.value:+.1f} points ({ends}), p {gain.p:.2g}"
                found.setdefault(row.features, []).append(words)
        return [f"{REPRESENTATION} minus {name}, in pairs: {'; '.join(words)}" for name, words in found.items()]


def _with_features_in_columns(rows: Sequence[EvaluationRow]) -> tuple[list[str], list[list[str]]]:
    """Head and lines of a table with a line for each metric."""
    features = list(dict.fromkeys(row.features for row in rows))
    known = {(row.protocol, row.features): row for row in rows}
    cells = [
        [protocol, *(with_interval(known[key]) if (key := (protocol, name)) in known else "" for name in features)]
        for protocol in dict.fromkeys(row.protocol for row in rows)
    ]
    return ["metric", *features], cells


def _metric_and_figure(row: EvaluationRow) -> tuple[Metric, float]:
    """The record of a row's metric, and its figure."""
    metric, figure = metric_under(CATALOGUE, row.protocol), row.figure
    assert metric is not None
    assert figure is not None
    return metric, figure


def with_interval(row: EvaluationRow) -> str:
    """The figure with its interval, where it has one."""
    metric, figure = _metric_and_figure(row)
    ends = [metric.written(end) for end in (row.low, row.high) if end is not None]
    return f"{metric.written(figure)} {f'({ends[0]} to {ends[1]})' if len(ends) == 2 else ''}".rstrip()


def _cell(row: EvaluationRow) -> str:
    """The figure in a table with columns, with half its interval."""
    metric, figure = _metric_and_figure(row)
    is_share = metric.unit == "share"
    # Smaller ones have an exponent, and places are few.
    written = metric.written(figure) if is_share else f"{figure:.{3 if abs(figure) >= 0.01 else 2}g}"
    if row.low is None or row.high is None:
        return written
    half = (row.high - row.low) / 2
    return f"{written} ±{f'{100 * half:.1f}' if is_share else f'{half:.1g}'}"


def _listed(rows: Sequence[EvaluationRow]) -> list[str]:
    """A line for each figure."""
    names = "accuracy" if all(row.accuracy is not None for row in rows) else "value"
    width = max([LEAST_WIDTH, *(len(row.protocol) + 2 for row in rows)])
    lines = [f"{'features':<22}{'protocol':<{width}}{names:>9}   95 % interval"]
    for row in rows:
        metric, figure = _metric_and_figure(row)
        ends = [metric.written(end) for end in (row.low, row.high) if end is not None]
        written = f"{metric.written(figure):>9}   {' to '.join(ends)}"
        lines.append(f"{row.features:<21} {row.protocol:<{width}}{written}".rstrip())
    return lines


def _in_columns(rows: Sequence[EvaluationRow]) -> list[str]:
    """A line for each metric, with features in columns, several tables below each other where they are many."""
    features = list(dict.fromkeys(row.features for row in rows))
    known = {(row.protocol, row.features): row for row in rows}
    lines: list[str] = []
    for first in range(0, len(features), COLUMNS):
        own = features[first : first + COLUMNS]
        upper, lower = zip(*(_two_lines(name) for name in own), strict=True)
        lines += ["" for _ in lines[:1]]
        lines += [_line("", upper)] if any(upper) else []
        lines.append(_line("protocol", lower))
        for protocol in dict.fromkeys(row.protocol for row in rows):
            cells = [known.get((protocol, name)) for name in own]
            if any(cells):
                lines.append(_line(protocol, ["" if cell is None else _cell(cell) for cell in cells]))
    return [*lines, "figures with half their 95 % interval, where they have one"]


def _line(name: str, cells: Sequence[str]) -> str:
    """A line of a table with columns; a long name stands in a line of its own."""
    head, name = (f"{name}\n", "") if len(name) > NAME else ("", name)
    return f"{head}{name:<{NAME}}{''.join(f'{cell:>{CELL}}' for cell in cells)}".rstrip()


def _two_lines(name: str) -> tuple[str, str]:
    """A name in at most two lines of a column, the first perhaps empty."""
    if len(name) < CELL:
        return "", name
    upper, lower = ["", "", *textwrap.wrap(name, CELL - 2)][-2:]
    return upper, lower


def _wrapped(texts: Sequence[str]) -> list[str]:
    """Texts as lines."""
    return [line for text in texts for line in textwrap.wrap(text, WIDTH, subsequent_indent="  ")]


def _csv_cells(row: EvaluationRow) -> list[object]:
    """The cells of one figure."""
    metric, figure = _metric_and_figure(row)
    known = [row.features, row.protocol, metric.unit, figure, row.low, row.high]
    return [*known, row.correct, row.total, json.dumps(dict(row.settings))]


def corruption_lines(rows: Sequence[EvaluationRow]) -> list[str]:
    """A line for each corruption: mean accuracy over severities, features in columns."""
    lines: list[str] = []
    for classifier, by_corruption in corruption_means(rows).items():
        features = list(dict.fromkeys(name for each in by_corruption.values() for name in each))[:MOST_CORRUPTED]
        head = "".join(f"{name[: WIDE_CELL - 2]:>{WIDE_CELL}}" for name in features)
        lines += ["", f"{classifier} fitted to clean samples, under corruptions: accuracy, mean over severities"]
        lines.append(f"{'corruption':<{CONDITION}}{head}")
        for corruption, by_features in by_corruption.items():
            shares = (f"{by_features[name]:.1%}" if name in by_features else "" for name in features)
            lines.append(f"{corruption:<{CONDITION}}{''.join(f'{share:>{WIDE_CELL}}' for share in shares)}".rstrip())
    return lines


def curve_lines(rows: Sequence[EvaluationRow]) -> list[str]:
    """A line for each order of the features: a metric with the first k of them, some k in columns."""
    curves: dict[tuple[str, str], dict[str, dict[int, float]]] = {}
    for row in rows:
        kept, order = row.settings.get("kept"), row.settings.get("order")
        if isinstance(kept, int) and row.figure is not None:
            curve = curves.setdefault((in_condition(row.protocol)[0], row.features), {})
            curve.setdefault(str(order), {})[kept] = row.figure
    lines: list[str] = []
    for (metric, features), by_order in curves.items():
        sizes = sorted({size for curve in by_order.values() for size in curve})
        shown = [sizes[round(place * (len(sizes) - 1) / (MOST_SIZES - 1))] for place in range(MOST_SIZES)]
        columns = list(dict.fromkeys(shown)) if len(sizes) > MOST_SIZES else sizes
        lines += ["", f"{metric} of the {features}, with the first features of an order"]
        lines.append(f"{'features kept':<34}{''.join(f'{size:>7,}' for size in columns)}")
        for order, curve in by_order.items():
            lines.append(f"{order:<34}{''.join(f'{curve[size]:>7.3f}' for size in columns)}")
    return lines
