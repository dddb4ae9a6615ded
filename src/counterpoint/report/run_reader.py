"""Read a run folder into a type-checked record. Only ``run.json`` must exist."""

import zipfile
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from counterpoint.core.errors import CounterpointError, RunError
from counterpoint.core.files import read_json
from counterpoint.core.metric import described_metrics
from counterpoint.core.rundir import RunFolder, open_run
from counterpoint.core.validation import parse_yaml
from counterpoint.diagnostics.evidence import Measurements
from counterpoint.report.judgement import judged_anew
from counterpoint.report.plain_text import printable
from counterpoint.report.record_fields import Fields, fields_of, fill
from counterpoint.report.run_record import (
    PLACES,
    Arrays,
    Concept,
    Diagnosis,
    Epoch,
    Evaluation,
    EvaluationRow,
    Finding,
    Histogram,
    RunCard,
    RunRecord,
    Split,
    Verdict,
)

DIAGNOSTICS = described_metrics("diagnostics")


def read_run(path: Path, *, name: str, order: int, gaps: Mapping[str, str] = MappingProxyType({})) -> RunRecord:
    """Read a run folder.

    Args:
        path: the run folder.
        name: what the page calls the run.
        order: place of the run among the runs of the page, from 0; it picks the colour.
        gaps: by verb, why what it makes could not be made.

    Returns:
        The record.

    Raises:
        RunError: not a run folder, or one of its files is damaged or holds a value of the wrong type.
    """
    folder = open_run(path)
    resolved = _read_settings(folder.resolved)
    reasons = resolved.pop("reasons", None)
    resolved.pop("out", None)  # the name of the run says it, and it always differs
    evaluation, diagnosis = _read_evaluation(folder.evaluation), _read_diagnosis(folder.findings)
    return RunRecord(
        name=printable(name),
        order=order,
        card=fill(RunCard, fields_of(folder.read_status(), "run.json")),
        settings=flatten(resolved),
        asked=frozenset(flatten(_read_settings(folder.config))),
        reasons=flatten(reasons if isinstance(reasons, dict) else {}),
        epochs=_read_epochs(folder),
        evaluation=evaluation,
        diagnosis=judged_anew(diagnosis, evaluation) if diagnosis else None,
        arrays=_read_arrays(folder.arrays),
        gaps={verb: printable(why) for verb, why in gaps.items()},
    )


def flatten(settings: Mapping[Any, Any], prefix: str = "") -> dict[str, str]:
    """Turn nested settings into dotted names and values as text.

    >>> flatten({"seed": 0, "optim": {"name": "adamw", "momentum": None}, "scale": [0.2, 1.0]})
    {'seed': '0', 'optim.name': 'adamw', 'optim.momentum': 'none', 'scale': '0.2, 1.0'}
    """
    flat: dict[str, str] = {}
    for key, value in settings.items():
        if isinstance(value, Mapping):
            flat |= flatten(value, f"{prefix}{key}.")
        else:
            flat[printable(f"{prefix}{key}")] = _value_text(value)
    return flat


def _value_text(value: Any) -> str:
    """Write a setting as a person would type it."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return printable(", ".join(_value_text(item) for item in value))
    return printable(str(value))


def _read_settings(path: Path) -> dict[str, Any]:
    """Read a YAML mapping; a missing file is empty."""
    if not path.exists():
        return {}
    try:
        value = parse_yaml(path.read_text(encoding="utf-8"), path.name)
    except (OSError, UnicodeDecodeError, CounterpointError) as error:
        raise RunError(f"{path} is damaged: {error}") from None
    return dict(fields_of({} if value is None else value, path.name).values)


def _read_epochs(folder: RunFolder) -> tuple[Epoch, ...]:
    """Read the metrics, in the order they were written."""
    try:
        records = folder.read_metrics()
    except (OSError, UnicodeDecodeError) as error:
        raise RunError(f"{folder.metrics} is damaged: {error}") from None
    return tuple(fill(Epoch, fields_of(record, "metrics.jsonl")) for record in records)


def _read_evaluation(path: Path) -> Evaluation | None:
    if not path.exists():
        return None
    fields = fields_of(read_json(path), path.name)
    rows = tuple(_read_row(row) for row in fields.sections("rows"))
    return Evaluation(split=fill(Split, fields.section("split")), rows=rows)


def _read_row(fields: Fields) -> EvaluationRow:
    """Read one accuracy; its settings are free-form."""
    numbers = {name: fields.number(name) for name in ("correct", "total", "low", "high")}
    numbers["value"] = fields.number("accuracy" if "accuracy" in fields.values else "value")
    settings = flatten(fields.section("settings").values)
    return EvaluationRow(fields.text("features"), fields.text("protocol"), settings=settings, **numbers)


def _read_diagnosis(path: Path) -> Diagnosis | None:
    if not path.exists():
        return None
    fields = fields_of(read_json(path), path.name)
    places = fields.section("places")
    return Diagnosis(
        verdict=fill(Verdict, fields.section("verdict")),
        findings=tuple(fill(Finding, finding) for finding in fields.sections("findings")),
        places={printable(name): _read_place(places.section(name)) for name in places.values},
        concepts=tuple(fill(Concept, concept) for concept in fields.sections("concepts")),
        num_samples=fields.section("settings").number("num_samples"),
        sparsity_threshold=fields.section("settings").number("sparsity_threshold"),
    )


def _read_place(fields: Fields) -> Measurements:
    """Read the figures of one place; those of metrics that were not there when it was measured are None."""
    figures = {printable(name): fields.number(name) for name in {**DIAGNOSTICS, **fields.values}}
    num_samples, num_dims = (figures.pop(name, None) for name in ("num_samples", "num_dims"))
    return Measurements(int(num_samples or 0), int(num_dims or 0), figures)


def _read_arrays(path: Path) -> Arrays:
    """Read the arrays; a missing file, or a missing array in it, is no error."""
    if not path.exists():
        return Arrays({}, None, None)
    try:
        with np.load(path, allow_pickle=False) as stored:
            arrays = {name: stored[name] for name in stored.files}
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise RunError(f"{path} is damaged: {error}") from None
    spectra = {place: _spectrum(arrays[f"spectrum/{place}"]) for place in PLACES if f"spectrum/{place}" in arrays}
    return Arrays(spectra, _thumbnails(arrays.get("thumbnails")), _histogram(arrays))


def _spectrum(values: NDArray[Any]) -> NDArray[np.float64]:
    """Check singular values and put them in descending order."""
    if values.ndim != 1 or values.dtype.kind not in "fiu":
        raise RunError(f"arrays.npz: a spectrum must be one row of numbers, got {values.dtype} {values.shape}")
    finite = values.astype(np.float64)[np.isfinite(values)]
    return np.sort(np.maximum(finite, 0.0))[::-1]


def _thumbnails(images: NDArray[Any] | None) -> NDArray[np.uint8] | None:
    """Check thumbnails: (m, h, w) grey or (m, h, w, 3) colour."""
    if images is None or images.size == 0:
        return None
    is_grey, is_colour = images.ndim == 3, images.ndim == 4 and images.shape[3] == 3
    if images.dtype != np.uint8 or not (is_grey or is_colour):
        expected = "uint8 of shape (m, h, w) or (m, h, w, 3)"
        raise RunError(f"arrays.npz: thumbnails must be {expected}, got {images.dtype} {images.shape}")
    return images


def _histogram(arrays: Mapping[str, NDArray[Any]]) -> Histogram | None:
    """Check the histogram of cosines: one more edge than bins."""
    names = ("cosines/edges", "cosines/positive", "cosines/negative")
    if any(name not in arrays for name in names):
        return None
    edges, positive, negative = (arrays[name].astype(np.float64) for name in names)
    if not (edges.ndim == 1 and positive.shape == negative.shape == (len(edges) - 1,)):
        raise RunError(f"arrays.npz: cosines need one more edge than bins, got {edges.shape} and {positive.shape}")
    return Histogram(edges, positive, negative)
