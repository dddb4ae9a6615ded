"""Measure a trained arm of a study on the queries: figures and curves by name."""

# Q queries, D features

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

import numpy as np
import torch
from torch import Tensor, nn

from counterpoint.core.errors import unknown_name
from counterpoint.core.numerics import evenly_spaced, unit_rows
from counterpoint.core.run import Run
from counterpoint.core.stored_rows import load
from counterpoint.core.validation import build
from counterpoint.data.source import Source
from counterpoint.diagnostics.concepts import SPARSITY_THRESHOLD, expected_activation
from counterpoint.diagnostics.measure import CATALOGUE as DIAGNOSED
from counterpoint.diagnostics.measure import measure_place
from counterpoint.diagnostics.spectra import covariance_spectrum
from counterpoint.engine.progress import Reporter
from counterpoint.evaluation.evaluation_result import CATALOGUE as EVALUATED
from counterpoint.evaluation.evaluation_settings import EvaluationSettings
from counterpoint.evaluation.features import extract, view_pairs
from counterpoint.evaluation.load_subject import Samples, open_subject
from counterpoint.evaluation.protocol import evaluate
from counterpoint.evaluation.trained_run import open_trained, read_resolved, steps_asked
from counterpoint.nn.trained import load_encoder
from counterpoint.runs.fine_tuning import fine_tune
from counterpoint.runs.hessian_spectra import hessian_spectrum
from reproductions.ncl2024.disentanglement import factor_information
from reproductions.ncl2024.sepin import contrastive_sepin
from reproductions.probe_recipes import METRICS
from reproductions.study import Measures
from reproductions.study_data import StudyData, factors_of

MOST_POINTS = 64  # of a curve that is kept
QUIET = Reporter(quiet=True)
FLAT = 1.0  # mio2021, section 2.4: eigenvalues below it are called flat
FLOOR = 1e-12  # of singular values before their logarithm
NUM_VIEWED = 1000  # queries of which two views are taken, at most
MIG = "mig"
SEPIN: Mapping[str, int | None] = {"sepin@1": 1, "sepin@10": 10, "sepin@100": 100, "sepin": None}  # dimensions
PROBES = {metric.name: metric for metric in METRICS}


@dataclass(frozen=True)
class Measured:
    """Figures and curves of one trained arm.

    Attributes:
        figures: by ``features: metric``.
        curves: by ``features: curve``, at most ``MOST_POINTS`` values each.
    """

    figures: Mapping[str, float]
    curves: Mapping[str, tuple[float, ...]]


def _log_spectrum(z_QD: Tensor) -> Tensor:
    """Logarithms of the singular values of the covariance of unit vectors, descending (directclr2022, Eq. 1)."""
    return covariance_spectrum(unit_rows(z_QD.double())).clamp(min=FLOOR).log()


def _activation(z_QD: Tensor) -> Tensor:
    """Expected activation of each dimension, descending (ncl2024, section 5.1)."""
    return expected_activation(unit_rows(z_QD.double())).sort(descending=True).values


def _num_active(z_QD: Tensor) -> Tensor:
    """Number of dimensions that each sample activates, descending (ncl2024, Fig. 7)."""
    is_active_QD = unit_rows(z_QD.double()).abs() > SPARSITY_THRESHOLD
    return is_active_QD.sum(1).sort(descending=True).values.double()


CURVES: Mapping[str, Callable[[Tensor], Tensor]] = {
    "log spectrum": _log_spectrum,
    "expected activation": _activation,
    "active dimensions": _num_active,
}


def check_measures(measures: Measures) -> None:
    """Refuse metrics and curves that cannot be measured, before anything is trained.

    Raises:
        UsageError: an unknown metric or curve.
    """
    for name in measures.metrics:
        if name not in (metrics := (*EVALUATED, *PROBES, MIG, *SEPIN)):
            raise unknown_name("metric", name, metrics)
    for by_layer, catalogue, kind in ((measures.features, DIAGNOSED, "metric"), (measures.curves, CURVES, "curve")):
        for name in (entry for entries in by_layer.values() for entry in entries):
            if name not in catalogue:
                raise unknown_name(kind, name, catalogue)


def measure(run: Run, data: StudyData, measures: Measures, folder: Path) -> Measured:
    """Measure a trained arm.

    Args:
        run: of one seed.
        data: what it was trained on, and the queries.
        measures: what is asked for.
        folder: for files on the way.
    """
    figures: dict[str, float] = {}
    curves: dict[str, tuple[float, ...]] = {}
    if measures.metrics:
        figures |= _evaluation_figures(run, data, measures, folder)
    if measures.features or measures.curves:
        _add_features(run, data, measures, figures, curves)
    if measures.fine_tune:
        figures["fine-tuned: classifier"] = _fine_tuned_accuracy(run, data, measures, folder)
    if measures.curvature:
        _add_curvature(run, measures, figures, curves)
    return Measured(figures, curves)


def _evaluation_figures(run: Run, data: StudyData, measures: Measures, folder: Path) -> dict[str, float]:
    """Figures that ``evaluate`` measures, MIG and SEPIN, by features and metric."""
    figures = _dimension_figures(run, data, measures)
    if names := tuple(name for name in measures.metrics if name in (*EVALUATED, *PROBES)):
        test = {} if data.test is None else {"data": data.train, "test_data": data.test, **data.look}
        options = {**measures.evaluate, "metrics": names, "layers": measures.layers}
        options |= {"out": str(folder / "evaluation.json"), "ood": tuple(data.elsewhere.values())}
        for style, pairs in data.transfer.items():
            alone = {**options, "metrics": ("linear probe",), "layers": measures.layers[:1]}
            folds = [evaluate(run, data=own, test_data=other, **alone, quiet=True).rows for own, other in pairs]
            for rows in zip(*folds, strict=True):
                name, values = f"{rows[0].features} on {style}: {rows[0].protocol}", [row.figure for row in rows]
                figures[name] = float(np.mean(values))
        for epoch, checkpoint in [(None, None), *_checkpoints(run, measures.epochs)]:
            with patch.dict(EVALUATED, PROBES):
                rows = evaluate(run, **test, **options, checkpoint=checkpoint, quiet=True).rows
            for row in rows:
                features, at, _ = row.features.partition(" at step ")
                # What was compared with once, raw input and the untrained encoder, has no epoch.
                if row.figure is not None and bool(at) == (epoch is not None):
                    when = f" after {epoch} epochs" if at else ""
                    figures[f"{features}{when}: {row.protocol.removesuffix('.npz')}"] = float(row.figure)
    return figures


def _checkpoints(run: Run, epochs: Sequence[int]) -> list[tuple[int, str]]:
    """Pair each of some epochs with its step, in the form that ``evaluate`` takes."""
    if not epochs:
        return []
    num_steps, num_epochs = steps_asked(run.folder, "all")[-1], read_resolved(run.folder).epochs
    assert isinstance(num_epochs, int)  # resolved
    return [(epoch, str(num_steps * epoch // num_epochs)) for epoch in epochs]


def _dimension_figures(run: Run, data: StudyData, measures: Measures) -> dict[str, float]:
    """Measure MIG on all samples, and SEPIN on two views of queries."""
    names, layers = set(measures.metrics), measures.layers
    if not names & {MIG, *SEPIN}:
        return {}
    samples, look = (Samples(), {}) if data.test is None else (Samples(data.train, None, data.test, None), data.look)
    subject = open_subject(run, samples, build(EvaluationSettings, dict(look), "evaluate"), QUIET)
    figures: dict[str, float] = {}
    if MIG in names:
        codes, factors = extract(subject.encoder, subject.source, layers), factors_of(data)
        figures |= {f"{layer}: {MIG}": factor_information(load(codes.layers[layer]), factors).gap for layer in layers}
    if names & SEPIN.keys():
        queries = evenly_spaced(subject.split.held_out, NUM_VIEWED)
        for layer, views in view_pairs(subject, subject.encoder, layers, queries).items():
            separability = contrastive_sepin(*views)
            sizes = {name: k or views[0].shape[1] for name, k in SEPIN.items() if name in names}
            figures |= {f"{layer}: {name}": separability.at(k) for name, k in sizes.items()}
    return figures


@dataclass(frozen=True)
class QueryFeatures:
    """Features of the queries.

    Attributes:
        layers: by name, (q, d).
        source: where the queries are.
        positions: theirs in the source, (q,).
    """

    layers: Mapping[str, Tensor]
    source: Source
    positions: Tensor


def query_features(run: Run, data: StudyData, layers: Sequence[str]) -> QueryFeatures:
    """Pass the queries of an arm through its encoder."""
    opened = open_trained(run, data=data.test, part=dict(data.look), reporter=QUIET)
    features = extract(opened.encoder, opened.source, layers)
    # Without a set of queries a share of the run's own samples is held out.
    positions = opened.split.held_out if data.test is None else torch.arange(len(opened.source))
    chosen = {layer: torch.as_tensor(features.layers[layer])[positions] for layer in layers}
    return QueryFeatures(chosen, opened.source, positions)


def _add_features(
    run: Run, data: StudyData, measures: Measures, figures: dict[str, float], curves: dict[str, tuple[float, ...]]
) -> None:
    """Add metrics of diagnosis and curves of the queries' features to ``figures`` and ``curves``."""
    queries = query_features(run, data, list(dict.fromkeys([*measures.features, *measures.curves])))
    labels = queries.source.labels
    labels_Q = None if labels is None else labels[queries.positions]
    for layer, z_QD in queries.layers.items():
        if names := measures.features.get(layer, ()):
            diagnosis = measure_place(z_QD, labels=labels_Q, only=names).figures
            figures |= {
                f"{layer}: {name}": float(value) for name in names if (value := getattr(diagnosis, name)) is not None
            }
        for name in measures.curves.get(layer, ()):
            curves[f"{layer}: {name}"] = thinned(CURVES[name](z_QD))


def _fine_tuned_accuracy(run: Run, data: StudyData, measures: Measures, folder: Path) -> float:
    """Train an encoder on with labels, and return the accuracy of its classifier."""
    part = {"data": data.train, "source": dict(data.source), "test_data": data.test}
    settings = {"seed": run.folder.read_status().seed, **measures.fine_tune}
    subject: Run | nn.Module = run
    if measures.fine_tune_projector:
        encoder = load_encoder(run.folder)
        subject = nn.Sequential(encoder.backbone, encoder.projector)
    tuned = fine_tune(subject, **part, **settings, out=str(folder / "fine-tuned"), overwrite=True, quiet=True)
    return tuned.evaluation.accuracy("embedding", "classifier")


def _add_curvature(
    run: Run, measures: Measures, figures: dict[str, float], curves: dict[str, tuple[float, ...]]
) -> None:
    """Add counts of the Hessian's Ritz values and its largest eigenvalue, at the last and at the first checkpoint."""
    states = [state for state in hessian_spectrum(run, **measures.curvature, quiet=True).states if state.step]
    seen = {"curvature": states[-1]} if len(states) == 1 else {"first curvature": states[0], "curvature": states[-1]}
    for name, state in seen.items():
        values = sorted(state.found.ritz_values[0])
        figures[f"{name}: largest eigenvalue"] = float(state.found.largest[0].value)
        figures[f"{name}: negative Ritz values"] = float(sum(value < 0 for value in values))
        figures[f"{name}: flat Ritz values"] = float(sum(0 <= value < FLAT for value in values))
        curves[f"{name}: Ritz values"] = thinned(torch.tensor(values))


def thinned(values: Tensor | Sequence[float]) -> tuple[float, ...]:
    """Thin a curve to at most ``MOST_POINTS`` evenly spaced values with both ends, rounded to six digits.

    >>> thinned([1.0, 2.0])
    (1.0, 2.0)
    """
    points = torch.as_tensor(values, dtype=torch.float64)
    if len(points) > MOST_POINTS:
        points = points[torch.linspace(0, len(points) - 1, MOST_POINTS).long()]
    return tuple(float(f"{value:.6g}") for value in points.tolist())
