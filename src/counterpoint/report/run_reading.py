"""A run as one frozen record, all that the page knows about it, and the reading of it from the run's folder.

Only ``run.json`` must exist. What another command has not made yet is None or empty, and its section says which command
makes it.
"""

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from counterpoint.core.derived_files import check_run, read_derived
from counterpoint.core.errors import CounterpointError, RunError, first_line
from counterpoint.core.files import is_unchanged, read_sealed, run_named_in, sha256_of
from counterpoint.core.rundir import RunFolder, open_run
from counterpoint.core.schemas import EpochRecord, EvaluationRecord, EvaluationRow, Model, RunStatus, read_record
from counterpoint.core.terminal_text import printable
from counterpoint.core.user_files import open_regular, read_text
from counterpoint.core.validation import parse_yaml
from counterpoint.diagnostics.evidence import EMBEDDING, REPRESENTATION, UNTRAINED, Measurements
from counterpoint.diagnostics.findings import Findings, judged_anew
from counterpoint.evaluation.map_samples import Collection, read_collection
from counterpoint.report.map_layout import MapRecord, read_map
from counterpoint.runs.curvature_record import HessianSpectrum

PLACES = (REPRESENTATION, EMBEDDING, UNTRAINED)


@dataclass(frozen=True)
class Histogram:
    """Counts of positive and of negative cosines in shared bins."""

    edges: NDArray[np.float64]
    positive: NDArray[np.float64]
    negative: NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class RunRecord:
    """Everything the page knows about one run; two records are equal only when they are the same one.

    ``other_evaluations`` are on other samples, or by other labels, than the run's own. ``spectra`` are by place and
    descending, ``cosines`` are those of the embedding's pairs, and ``band`` is the range (2, k) of isotropic
    features of the embedding's shape. ``gaps`` says for each verb why its result could not be made.
    """

    name: str
    order: int
    card: RunStatus
    settings: Mapping[str, str] = field(default_factory=dict)
    config_names: frozenset[str] | None = None  # None: config.yaml is missing
    reasons: Mapping[str, str] = field(default_factory=dict)
    epochs: tuple[EpochRecord, ...] = ()
    evaluation: EvaluationRecord | None = None
    other_evaluations: tuple[EvaluationRecord, ...] = ()
    diagnosis: Findings | None = None
    spectra: Mapping[str, NDArray[np.float64]] = field(default_factory=dict)
    cosines: Histogram | None = None
    band: NDArray[np.float64] | None = None
    gaps: Mapping[str, str] = field(default_factory=dict)
    curvature: HessianSpectrum | None = None
    collection: Collection | None = None
    layouts: MapRecord | None = None
    path: str = ""  # the run as a command names it; its name alone if it lies outside the working folder

    @property
    def is_readable(self) -> bool:
        """Tell whether dimensions of the embedding are meant to be read: whether it is non-negative."""
        if self.collection is not None:
            return len(self.collection.dominant_N) > 0
        return self.settings.get("output.nonnegative", "none") != "none"

    @property
    def rows(self) -> tuple[EvaluationRow, ...]:
        """The figures of its evaluation; none if it has none."""
        return self.evaluation.rows if self.evaluation else ()

    @property
    def samples(self) -> Collection:
        """The collection of a run that is known to have one."""
        assert self.collection is not None
        return self.collection

    def place(self, name: str) -> Measurements | None:
        """The measurements of a place; None if they were not made."""
        return self.diagnosis.places.get(name) if self.diagnosis else None

    def measured(self, place: str, name: str) -> float | None:
        """One measurement of a place; None if it was not made."""
        measurements = self.place(place)
        return measurements.figures.get(name) if measurements else None


def read_run(path: Path, *, name: str, order: int, gaps: Mapping[str, str] = MappingProxyType({})) -> RunRecord:
    """Read a run folder.

    Args:
        path: the run folder.
        name: name of the run on the page.
        order: place of the run among the runs of the page, from 0; it picks the colour.
        gaps: reasons why a result could not be made, by verb.

    Returns:
        The record.

    Raises:
        RunError: not a run folder, or one of its files is damaged or holds a value of the wrong type.
    """
    folder = open_run(path)
    collection = read_collection(folder)
    resolved = _read_settings(folder, folder.resolved)
    reasons = resolved.pop("reasons", None)
    resolved.pop("out", None)  # the name of the run says it, and it always differs
    config = _read_settings(folder, folder.config) if folder.config.exists() else None
    evaluation = _read_if_there(EvaluationRecord, folder, folder.evaluation)
    diagnosis = _read_if_there(Findings, folder, folder.findings)
    others = sorted(folder.other_evaluations.glob("*.json"))
    spectrum = folder.spectrum
    return RunRecord(
        name=printable(name),
        order=order,
        card=_read_card(folder),
        # resolved.yaml has defaults and automatic choices, too; config.yaml only what was asked for.
        settings=flatten(resolved),
        config_names=None if config is None else frozenset(flatten(config)),
        reasons=flatten(reasons if isinstance(reasons, dict) else {}),
        epochs=tuple(read_record(EpochRecord, fit(record), folder.metrics.name) for record in folder.read_metrics()),
        evaluation=evaluation,
        other_evaluations=tuple(
            read_record(EvaluationRecord, fit(read_derived(folder, file)), f"{file.parent.name}/{file.name}")
            for file in others
        ),
        # The findings rest in part on the evaluation, which may be newer.
        diagnosis=judged_anew(diagnosis, evaluation.rows if evaluation else ()) if diagnosis else None,
        **_read_arrays(folder),
        gaps={verb: printable(why) for verb, why in gaps.items()},
        curvature=read_record(HessianSpectrum, read_derived(folder, spectrum), spectrum.name)
        if spectrum.exists()
        else None,
        collection=None if collection is None else _with_printable_names(collection),
        layouts=read_map(folder, collection),
        path=_path_for_commands(folder.path),
    )


def _path_for_commands(path: Path) -> str:
    """Write a run folder as a command in the working folder names it, without the user's folders above that one."""
    if not path.is_absolute():
        return shlex.quote(str(path))
    here = Path.cwd()
    return shlex.quote(str(path.relative_to(here)) if path.is_relative_to(here) and path != here else path.name)


def fit(value: Any) -> Any:
    """Make plain values from outside fit for a page: texts can be printed, numbers are finite; null is left out.

    >>> fit({"data": "/vol/ada/photos", "loss": [float("nan"), 2.5], "floor": None})
    {'data': '…/photos', 'loss': [None, 2.5]}
    """
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, Mapping):
        # Hits are bits, long and in no words; their record checks them.
        fitted = {printable(str(key)): child if key == "hits" else fit(child) for key, child in value.items()}
        # Without nulls a missing key and a null read alike.
        return {key: child for key, child in fitted.items() if child is not None}
    if isinstance(value, list):
        return [fit(child) for child in value]
    if isinstance(value, float):
        # Beyond these sizes no measurement is meant, and the arithmetic of axes would break down.
        if not abs(value) < 1e300:  # so written, NaN is caught too
            return None
        return value if abs(value) > 1e-300 else 0.0
    return value


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
    if value is None:
        return "none"
    # Before the text of other values: str(True) is Python's spelling.
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return printable(", ".join(_value_text(item) for item in value))
    return printable(str(value))


def _read_settings(folder: RunFolder, path: Path) -> dict[str, Any]:
    if not path.exists():
        return {}
    try:
        text = read_text(path)
        value = parse_yaml(text, path.name)
    except (OSError, ValueError, CounterpointError) as error:
        raise RunError(f"{path} is damaged: {error}") from None
    # A run of version 0.1.0, which sealed nothing, has no marker.
    if not is_unchanged(text, must_be_sealed=folder.marker.is_file()):
        raise RunError(f"{path} was changed after it was written")
    check_run(folder, path, run_named_in(text))
    if not isinstance(value, dict | None):
        raise RunError(f"{path.name} must hold named values, got {type(value).__name__}")
    return value or {}


def _read_card(folder: RunFolder) -> RunStatus:
    """Read ``run.json``; a run that was killed is shown as interrupted, whatever it says."""
    values = read_sealed(folder.status, must_be_sealed=folder.marker.is_file())
    status = read_record(RunStatus, fit(values), folder.status.name)
    return status.model_copy(update={"status": "interrupted"}) if folder.is_killed(status) else status


def _read_if_there(kind: type[Model], folder: RunFolder, path: Path) -> Model | None:
    return read_record(kind, fit(read_derived(folder, path)), path.name) if path.exists() else None


def _with_printable_names(samples: Collection) -> Collection:
    names, classes = (
        tuple(printable(" ".join(text.split())) for text in texts) for texts in (samples.names, samples.class_names)
    )
    return replace(samples, names=names, class_names=classes)


def _read_arrays(folder: RunFolder) -> dict[str, Any]:
    """Read the fields of the record that are arrays; a missing file, or a missing array in it, is not an error."""
    path = folder.arrays
    if not path.exists():
        return {}
    try:
        # Findings of version 0.1.0 have no seal of the arrays.
        seal = read_derived(folder, folder.findings).get("arrays") if folder.findings.exists() else None
        if (seal is not None or folder.run_id is not None) and seal != {"sha256": sha256_of(path)}:
            raise RunError(f"{path} was changed after it was written; counterpoint diagnose writes it again")
        # A pickle could run code of the folder's author. Members are read, and found damaged, within this block.
        with open_regular(path) as stream, np.load(stream, allow_pickle=False) as stored:
            arrays = {name: stored[name] for name in stored.files}
    except RunError:
        raise
    except Exception as error:  # what NumPy's and zipfile's readers raise on damaged bytes is not documented
        raise RunError(f"{path} is damaged: {first_line(error)}") from None
    spectra = {}
    for place in PLACES:
        if f"spectrum/{place}" in arrays:
            values = _numbers(arrays[f"spectrum/{place}"], 1)
            # Variances: below 0 is rounding.
            spectra[place] = np.sort(np.maximum(values[np.isfinite(values)], 0.0))[::-1]
    band = arrays.get(f"band/{EMBEDDING}")
    return {
        "spectra": spectra,
        "cosines": _histogram(arrays),
        "band": None if band is None or len(band) != 2 else np.nan_to_num(_numbers(band, 2), posinf=0.0, neginf=0.0),
    }


def _numbers(values: NDArray[Any], num_axes: int) -> NDArray[np.float64]:
    if values.ndim != num_axes or values.dtype.kind not in "fiu":
        raise RunError(f"arrays.npz must hold numbers with {num_axes} axes, got {values.dtype} {values.shape}")
    return values.astype(np.float64)


def _histogram(arrays: Mapping[str, NDArray[Any]]) -> Histogram | None:
    # All three or none: a histogram without its edges says nothing.
    names = ("cosines/edges", "cosines/positive", "cosines/negative")
    if any(name not in arrays for name in names):
        return None
    edges, positive, negative = (_numbers(arrays[name], 1) for name in names)
    if not positive.shape == negative.shape == (len(edges) - 1,):
        raise RunError(f"arrays.npz: cosines need one more edge than bins, got {edges.shape} and {positive.shape}")
    return Histogram(edges, positive, negative)
