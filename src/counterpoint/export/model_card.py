"""The model card: what the encoder is, what it was trained and judged on, what was found, and what is not known.

Its words are those of ``model_card.md.jinja``; what they say comes from the run's records. Jinja writes the text, as
for the cards of huggingface_hub, and PyYAML the front matter: both are there already, unlike the hub's package.
"""

import json
import shlex
from collections.abc import Iterator, Sequence
from importlib.resources import files
from typing import Any

import yaml
from jinja2 import Environment, StrictUndefined

from counterpoint.core.derived_files import read_derived
from counterpoint.core.metric import is_apart, loaded_metrics, metric_under
from counterpoint.core.paired_shares import Difference
from counterpoint.core.rundir import RunFolder
from counterpoint.core.schemas import EvaluationRecord, EvaluationRow, read_record
from counterpoint.core.table_columns import TableColumn
from counterpoint.core.terminal_text import TextTable, as_code, as_text, printable
from counterpoint.diagnostics.findings import Findings, judged_anew
from counterpoint.evaluation.trained_run import read_resolved
from counterpoint.export.export_record import FORMATS, SCALE, Exported
from counterpoint.nn.layer_outputs import REPRESENTATION
from counterpoint.nn.trained import Encoder

CARD_FILE, TEMPLATE = "README.md", "model_card.md.jinja"
MOST_ROWS = 40  # of an evaluation; further ones, as under corruptions, are counted
UNKNOWN = "unknown"


def model_card(folder: RunFolder, encoder: Encoder, exported: Exported, licence: str | None) -> str:
    """Return the card as Markdown, after its front matter in YAML.

    Args:
        folder: the run's folder.
        encoder: the exported encoder.
        exported: record of the files, with their hashes.
        licence: licence of the weights, if the user gave one.
    """
    status, settings, card = folder.read_status(), read_resolved(folder), encoder.card
    # An evaluation is of the last state; another state gets no figures.
    evaluation, findings = _evaluation_and_findings(folder) if exported.checkpoint is None else (None, None)
    rows = [row for row in evaluation.rows if row.figure is not None] if evaluation else []
    is_images, formats = card.kind == "images", {each.name: each for each in exported.formats}
    channels, *sides = card.in_shape
    front = {
        "library_name": "counterpoint",
        "license": licence or UNKNOWN,
        "pipeline_tag": "image-feature-extraction" if is_images else "feature-extraction",
        "tags": ["counterpoint", "contrastive-learning", "representation-learning", settings.method, card.architecture],
        "datasets": [printable(str(settings.data))],
        "metrics": list(dict.fromkeys(row.protocol for row in evaluation.rows))[:MOST_ROWS] if evaluation else [],
    }
    values = {
        "front_matter": yaml.safe_dump(
            {name: value for name, value in front.items() if value}, sort_keys=False, allow_unicode=True
        ),
        "axes": {"nhwc": (2, *sides, channels), "nchw": (2, channels, *sides)},
        "columns": [_column_cells(each) for each in card.table.columns] if card.table else [],
        "figures": [[row.features, row.protocol, share(row), "baseline" if row.is_baseline else ""] for row in rows],
        "is_corrupted": evaluation is not None and any(is_apart(row.protocol) for row in evaluation.rows),
        "not_better": list(not_better(evaluation)) if evaluation else [],
        "sizes": sorted({size for each in exported.formats for size in each.sizes}),
        "known_formats": FORMATS,
        "most_rows": MOST_ROWS,
        "scale": SCALE,
    }
    records = {"status": status, "settings": settings, "card": card, "evaluation": evaluation, "findings": findings}
    further = {"encoder": encoder, "exported": exported, "licence": licence, "formats": formats, "is_images": is_images}
    template = files("counterpoint.export").joinpath(TEMPLATE).read_text(encoding="utf-8")
    environment = Environment(
        trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True, undefined=StrictUndefined, autoescape=False
    )
    # These filters write text from outside.
    environment.filters |= {
        "text": as_text,
        "code": as_code,
        "quoted": shlex.quote,
        "json": json.dumps,
        "count": lambda number: UNKNOWN if number is None else f"{int(number):,}",
        "rounded": lambda numbers: [float(f"{number:.6g}") for number in numbers],
    }
    environment.globals["table"] = _table
    return environment.from_string(template).render(**records, **values, **further)


def _table(head: Sequence[str], rows: Sequence[Sequence[Any]], sides: str) -> str:
    cells = [[as_text(UNKNOWN if cell is None else str(cell)) for cell in row] for row in rows]
    return TextTable(head, cells, sides).to_markdown(is_markdown=True)


def _evaluation_and_findings(folder: RunFolder) -> tuple[EvaluationRecord | None, Findings | None]:
    """Read the results of ``evaluate`` and ``diagnose``; the findings are judged anew by the evaluation."""
    evaluation, path = None, folder.evaluation
    if path.exists():
        evaluation = read_record(EvaluationRecord, read_derived(folder, path), path.name)
    if not folder.findings.exists():
        return evaluation, None
    values = {name: value for name, value in read_derived(folder, folder.findings).items() if value is not None}
    findings = read_record(Findings, values, folder.findings.name)
    return evaluation, judged_anew(findings, evaluation.rows if evaluation else ())


def _column_cells(column: TableColumn) -> list[str]:
    scales = (column.median, column.mean, column.deviation)
    numbers = ["" if column.median is None else f"{number:.9g}" for number in scales]
    indicator = "yes" if column.has_missing else "no"
    return [column.name, str(len(column)), *numbers, ", ".join(map(json.dumps, column.categories)), indicator]


def not_better(evaluation: EvaluationRecord) -> Iterator[tuple[str, str, Difference]]:
    """Metrics by which the representation is not measurably better than the best baseline on the same queries.

    Yields:
        The metric, the baseline, and how far the representation is above it.
    """
    for own in evaluation.rows:
        if own.features != REPRESENTATION or own.accuracy is None or is_apart(own.protocol):
            continue
        rows = [row for row in evaluation.rows if row.protocol == own.protocol and row.is_baseline]
        best = max(rows, key=lambda row: row.accuracy or 0.0, default=None)
        gain = own.minus(best) if best is not None and best.accuracy is not None else None
        if best is not None and gain is not None and gain.low <= 0:
            yield own.protocol, best.features, gain


def share(row: EvaluationRow) -> str:
    """The figure of a row with its interval, as text."""
    written = metric_under(loaded_metrics("evaluation"), row.protocol).written
    assert row.figure is not None
    ends = "" if row.low is None or row.high is None else f" ({written(row.low)} to {written(row.high)})"
    return f"{written(row.figure)}{ends}"
