"""What findings about an encoder are drawn from: measurements of its places, votes, its loss, and its settings."""

# N samples, D features

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from counterpoint.core.array_layout import to_unit_float
from counterpoint.core.derived_files import read_derived
from counterpoint.core.run_records import BASELINES, EvaluationRecord, EvaluationRow, read_record
from counterpoint.core.settings import TrainSettings
from counterpoint.core.validation import leaf_fields
from counterpoint.data.order import Split
from counterpoint.diagnostics.evidence import (
    EMBEDDING,
    GREY_INPUT,
    RAW_INPUT,
    REPRESENTATION,
    UNTRAINED,
    ColourShortcut,
    Evidence,
)
from counterpoint.diagnostics.measure import Place, measure_place
from counterpoint.diagnostics.pair_record import PairRecord
from counterpoint.diagnostics.shortcut import colour_statistics, shortcut
from counterpoint.evaluation.evaluation_result import CATALOGUE, KNN
from counterpoint.evaluation.feature_tables import key_of
from counterpoint.evaluation.features import blank_encoder, evenly_spaced, extract, view_pairs, with_norms_of
from counterpoint.evaluation.metric_types import Labelled, row_of
from counterpoint.evaluation.protocol import MIN_QUERIES
from counterpoint.evaluation.subject import Subject, untrained_backbone
from counterpoint.methods.catalogue import CATALOGUE as METHODS
from counterpoint.nn.trained import Encoder
from counterpoint.runs.active_settings import levers_of
from counterpoint.runs.class_comparison import judged_classes
from counterpoint.runs.curvature_record import run_sharpness
from counterpoint.runs.held_out import NUM_VIEW_SAMPLES, held_out_record
from counterpoint.runs.pair_inspection import SeenPairs, pairs_of_run

Pair = tuple[Tensor, Tensor]
COLOURS = "colours"  # of the views
FEWEST_COLOURED = 50


@dataclass(frozen=True)
class GatheredEvidence:
    """What is known of an encoder.

    Attributes:
        evidence: what findings are drawn from.
        places: measurements with the arrays behind them.
        embedding_ND: of all samples.
        representation_ND: of all samples.
    """

    evidence: Evidence
    places: dict[str, Place]
    embedding_ND: Tensor
    representation_ND: Tensor


def gather_evidence(
    judged: Subject, threshold: float, *, checkpoint: str | None = None, cache: bool
) -> GatheredEvidence:
    """Measure representation and embedding beside the untrained encoder, and read what the run's folder knows.

    Args:
        judged: an encoder beside samples.
        threshold: above which a feature of a unit-length vector counts as active.
        checkpoint: step of the state that is judged; None for the last.
        cache: whether features are kept, and taken from the cache.
    """
    # Before it is measured, which sets the statistics of its norms.
    backbone = untrained_backbone(judged)
    moved = _weight_change(judged, backbone)
    source, labels, encoder = judged.source, judged.source.labels, judged.encoder
    features = extract(encoder, source, key=key_of(encoder) if cache else None)
    seen = {REPRESENTATION: features.representation, EMBEDDING: features.embedding}
    views = _views(judged, encoder, (REPRESENTATION, EMBEDDING))
    told = _shortcut(views.pop(COLOURS, None), views.get(EMBEDDING))
    if backbone is not None:
        untrained = with_norms_of(blank_encoder(backbone, encoder), source, judged.split.train)
        # Its embedding is none: the baseline is a representation.
        own = extract(untrained, source, [REPRESENTATION], key=key_of(untrained) if cache else None)
        seen[UNTRAINED] = own.representation
        if views:
            views[UNTRAINED] = _views(judged, untrained, [REPRESENTATION])[REPRESENTATION]
    places = {
        name: measure_place(all_ND, views=views.get(name), labels=labels, threshold=threshold)
        for name, all_ND in seen.items()
    }
    evidence = replace(
        _from_folder(judged),
        places={name: place.figures for name, place in places.items()},
        votes=votes_of_subject(judged, seen),
        is_nonnegative=is_nonnegative(judged, features.embedding),
        weight_change=moved,
        shortcut=told,
        pairs=_pairs(judged, views.get(EMBEDDING), features.embedding, checkpoint),
        classes=judged_classes(judged, features.embedding),
        held_out=held_out_record(judged, features, views.get(EMBEDDING), threshold),
    )
    return GatheredEvidence(evidence, places, features.embedding, features.representation)


def is_rectified(z_ND: Tensor) -> bool:
    """Whether features of unknown origin look like those of a non-negative map: values of 0, and none below."""
    return float(z_ND.min()) == 0


def is_nonnegative(judged: Subject, embedding_ND: Tensor) -> bool:
    """Whether an embedding has no negative entries by design, or by its looks where the design is not known."""
    is_known = judged.folder is not None and judged.settings is not None
    return judged.encoder.card.nonnegative != "none" if is_known else is_rectified(embedding_ND)


def _views(judged: Subject, encoder: Encoder, layers: Sequence[str]) -> dict[str, Pair]:
    """Layers for two views of evenly spaced samples, and the colours of the views; none without the views."""
    if not judged.has_views:
        return {}
    also = {COLOURS: colour_statistics} if encoder.card.kind == "images" else {}
    return {**view_pairs(judged, encoder, layers, _chosen(judged), also)}


def _shortcut(colours: Pair | None, embedded: Pair | None) -> ColourShortcut | None:
    """What the colours of the views tell; None without pictures, or with too few."""
    if colours is None or embedded is None or len(colours[0]) < FEWEST_COLOURED:
        return None
    return shortcut(colours, embedded[0])


def _pairs(judged: Subject, views: Pair | None, embedding_ND: Tensor, checkpoint: str | None) -> PairRecord | None:
    """Whom the loss looks at; None without views."""
    if views is None:
        return None
    chosen_N = _chosen(judged)
    return pairs_of_run(SeenPairs(judged, views, embedding_ND[chosen_N], chosen_N), checkpoint)


def _chosen(judged: Subject) -> Tensor:
    """Samples whose two views are taken."""
    return evenly_spaced(torch.arange(len(judged.source)), NUM_VIEW_SAMPLES)


def _from_folder(judged: Subject) -> Evidence:
    """What the run folder knows: the loss, and the settings that can be changed."""
    if judged.folder is None or judged.settings is None:
        return Evidence({})
    metrics = judged.folder.read_metrics()
    last = metrics[-1] if metrics else {}
    return Evidence(
        {},
        loss=last.get("loss"),
        chance=last.get("chance"),
        floor=last.get("floor"),
        sharpness=run_sharpness(judged.folder, judged.settings),
        is_supervised=METHODS[judged.settings.method].needs_labels,
        levers=levers_of(judged.settings, judged.source.kind),
        values=values_of(judged.settings),
    )


def values_of(settings: TrainSettings) -> dict[str, Any]:
    """Every setting by its path."""
    found: dict[str, Any] = {}
    for path, _ in leaf_fields(TrainSettings):
        value: Any = settings
        for name in path.split("."):
            value = getattr(value, name)
        found[path] = value
    return found


def _weight_change(judged: Subject, backbone: nn.Module | None) -> float | None:
    """How far training has moved the encoder's weights, over their length before; None where that is not known."""
    is_known = judged.settings.init is None if judged.settings else not (judged.facts or {}).get("weights")
    if backbone is None or not is_known:
        return None
    before = {name: value.detach().double() for name, value in backbone.named_parameters()}
    now = {name: value.detach().double().cpu() for name, value in judged.encoder.backbone.named_parameters()}
    if before.keys() != now.keys():
        return None
    moved = sum(float((now[name] - value).square().sum()) for name, value in before.items())
    length = sum(float(value.square().sum()) for value in before.values())
    return (moved / length) ** 0.5 if length else None


MOST_BANK, MOST_QUERIES = 8000, 2000  # samples that vote, and that are asked about
NEAREST, TEMPERATURE = 20, 0.1
_, _, UNTRAINED_VOTE, _ = BASELINES

Votes = tuple[EvaluationRow, ...]


def votes_of_subject(judged: Subject, seen: Mapping[str, Tensor]) -> Votes:
    """KNN accuracies of a subject: those of its evaluation, or measured beside the raw input.

    Args:
        judged: an encoder beside samples; without labels there are no votes.
        seen: features of all samples by place.
    """
    source = judged.source
    if judged.folder is not None and judged.is_own_record and judged.folder.evaluation.exists():
        file = judged.folder.evaluation
        record = read_record(EvaluationRecord, read_derived(judged.folder, file), str(file))
        # Without labels they were given to `evaluate` alone; with them the samples may have changed since.
        if source.labels is None or record.split.data_fingerprint in (None, source.fingerprint):
            return record.rows
    if source.labels is None:
        return ()
    bank, queries = _asked(source.labels, judged.split)
    named = {UNTRAINED_VOTE if name == UNTRAINED else name: (z_ND[bank], z_ND[queries]) for name, z_ND in seen.items()}
    raw = [to_unit_float(source.store.fetch(part.tolist())) for part in (bank, queries)]
    named[RAW_INPUT] = (raw[0].flatten(1), raw[1].flatten(1))
    if source.kind == "images" and raw[0].shape[1] > 1:
        named[GREY_INPUT] = (raw[0].mean(dim=1).flatten(1), raw[1].mean(dim=1).flatten(1))
    return votes(named, (source.labels[bank], source.labels[queries]), source.class_names)


def votes_of_features(z_ND: Tensor, labels_N: Tensor, class_names: tuple[str, ...], split: Split) -> Votes:
    """The kNN accuracy of features from anywhere."""
    bank, queries = _asked(labels_N, split)
    return votes({REPRESENTATION: (z_ND[bank], z_ND[queries])}, (labels_N[bank], labels_N[queries]), class_names)


def votes(
    features: Mapping[str, tuple[Tensor, Tensor]], labels: tuple[Tensor, Tensor], class_names: tuple[str, ...]
) -> Votes:
    """One row for each set of features, all of the same queries.

    Args:
        features: of bank and queries, by name.
        labels: of bank and queries.
        class_names: of all classes.

    Returns:
        Nothing where there are fewer queries than ``MIN_QUERIES``, or fewer than two classes.
    """
    if len(labels[1]) < MIN_QUERIES or len(labels[0].unique()) < 2:
        return ()
    rows = []
    for name, (bank_ND, queries_QD) in features.items():
        k = min(NEAREST, len(bank_ND))
        asked = Labelled(bank_ND, labels[0], queries_QD, labels[1], k=k, temperature=TEMPERATURE)
        score = replace(CATALOGUE[KNN].measure(asked), settings={"k": k})
        rows.append(row_of(name, KNN, score, class_names))
    return tuple(rows)


def _asked(labels_N: Tensor, split: Split) -> tuple[Tensor, Tensor]:
    """Positions of labelled samples that vote and that are asked about, evenly spaced where there are many."""
    bank, queries = (part[labels_N[part] >= 0] for part in (split.train, split.held_out))
    return evenly_spaced(bank, MOST_BANK), evenly_spaced(queries, MOST_QUERIES)
