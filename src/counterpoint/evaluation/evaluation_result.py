"""What an evaluation found: rows of figures beside the split they were measured on, as text and as tables."""

import json
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from counterpoint.core.metric import Metric, is_apart, loaded_metrics, metric_under
from counterpoint.core.run_records import EvaluationRecord, EvaluationRow, EvaluationSplit, corruption_means
from counterpoint.core.terminal_text import shown
from counterpoint.core.written_tables import aligned, csv_table, in_markdown, markdown_table
from counterpoint.evaluation.named_protocols import chosen_protocols

CATALOGUE = loaded_metrics("evaluation")
KNN, PROBE = "knn", "linear probe"
LEAST_WIDTH = 15  # of the names of protocols in a table
MOST_CORRUPTED = 4  # features in columns
WIDTH = 100  # places of a line


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
        """A table with a line for each figure, and what is said beside it."""
        rows = [[row.features, row.protocol, *_figure_and_interval(row)] for row in self.rows]
        written = markdown_table(["features", "metric", "figure", "95 % interval"], rows, "llrr")
        return "\n\n".join([f"{in_markdown(self.samples)}.", written, *map(in_markdown, self.remarks())]) + "\n"

    @property
    def samples(self) -> str:
        """Which samples the figures are about, in words."""
        split = self.split
        counts = f"{split.num_queries} queries, {split.num_bank} labelled samples, {split.num_classes} classes"
        rest = f"; {split.num_unlabelled:,} samples without a label take no part" if split.num_unlabelled else ""
        return f"{shown(split.source)}: {counts} ({split.how}){rest}"

    def __str__(self) -> str:
        lines = _listed([row for row in self.rows if not is_apart(row.protocol)])
        said = [line for text in self.remarks() for line in textwrap.wrap(text, WIDTH, subsequent_indent="  ")]
        conditions = corruption_lines(self.rows)
        return "\n".join([*textwrap.wrap(self.samples, WIDTH), *lines, *conditions, *[""][: len(said)], *said])

    def remarks(self) -> list[str]:
        """What published tables the figures can be held against, what is not alike, and figures that have no line."""
        num_curves = sum("kept" in row.settings for row in self.rows)
        found = [f"{num_curves} figures along curves: in JSON, in CSV and on a page."] if num_curves else []
        measured = {row.protocol for row in self.rows}
        for protocol in chosen_protocols(self.record.protocol):
            if not measured & set(protocol.metrics):
                continue  # left out, which was said
            figures = f"{', '.join(protocol.metrics)} of {', '.join(protocol.layers)}"
            text = f"{protocol.name}: {figures}. {protocol.table}{'; ' * bool(protocol.remark)}{protocol.remark}"
            found.append(text)
        return found


def _metric_and_figure(row: EvaluationRow) -> tuple[Metric, float]:
    """The record of a row's metric, and its figure."""
    metric, figure = metric_under(CATALOGUE, row.protocol), row.figure
    assert metric is not None
    assert figure is not None
    return metric, figure


def _figure_and_interval(row: EvaluationRow) -> tuple[str, str]:
    """The figure, and its interval where it has one, as text."""
    metric, figure = _metric_and_figure(row)
    return metric.written(figure), " to ".join(metric.written(end) for end in (row.low, row.high) if end is not None)


def _listed(rows: Sequence[EvaluationRow]) -> list[str]:
    """A line for each figure."""
    names = "accuracy" if all(row.accuracy is not None for row in rows) else "value"
    width = max([LEAST_WIDTH, *(len(row.protocol) + 2 for row in rows)])
    lines = [f"{'features':<22}{'protocol':<{width}}{names:>9}   95 % interval"]
    for row in rows:
        figure, interval = _figure_and_interval(row)
        lines.append(f"{row.features:<21} {row.protocol:<{width}}{figure:>9}   {interval}".rstrip())
    return lines


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
        lines += ["", f"{classifier} fitted to clean samples, under corruptions: accuracy, mean over severities"]
        cells = [
            [corruption, *(f"{means[name]:.1%}" if name in means else "" for name in features)]
            for corruption, means in by_corruption.items()
        ]
        lines += aligned([["corruption", *features], *cells], "l" + "r" * len(features))
    return lines
