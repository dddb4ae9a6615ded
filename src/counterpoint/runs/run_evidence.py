"""Evidence for findings about an encoder: measurements of its places, votes, its loss, settings, and parts."""

# N samples, D features

from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor, nn

from counterpoint.core.numerics import evenly_spaced
from counterpoint.core.settings import TrainSettings
from counterpoint.core.validation import flat
from counterpoint.diagnostics.alignment import colour_statistics, shortcut
from counterpoint.diagnostics.concepts import consistency_interval
from counterpoint.diagnostics.evidence import EMBEDDING, REPRESENTATION, UNTRAINED, Evidence
from counterpoint.diagnostics.measure import Place, measure_place
from counterpoint.evaluation.features import (
    altered_pictures,
    blank_encoder,
    extract,
    view_pairs,
    with_norms_of,
)
from counterpoint.evaluation.subject import Subject, untrained_backbone
from counterpoint.methods.catalogue import CATALOGUE as METHODS
from counterpoint.nn.heads import SparseCode
from counterpoint.runs.active_settings import levers_of
from counterpoint.runs.class_comparison import judged_classes
from counterpoint.runs.code_figures import explained_by
from counterpoint.runs.feature_evidence import accuracies_of_subject, is_rectified, with_clusters
from counterpoint.runs.held_out_evidence import held_out_beside_training
from counterpoint.runs.pair_inspection import pairs_of_run

COLOURS = "colours"  # of the views
FEWEST_COLOURED = 50
NUM_VIEW_SAMPLES = 2048  # samples whose two views are compared, at most


@dataclass(frozen=True)
class GatheredEvidence:
    """The evidence about an encoder, with the arrays behind it.

    Attributes:
        evidence: the evidence from which findings are drawn.
        places: measurements with the arrays behind them.
        embedding_ND: embeddings of all samples.
        representation_ND: representations of all samples.
    """

    evidence: Evidence
    places: dict[str, Place]
    embedding_ND: Tensor
    representation_ND: Tensor


def gather_evidence(
    judged: Subject, threshold: float, *, checkpoint: str | None = None, cache: bool
) -> GatheredEvidence:
    """Measure representation and embedding beside the untrained encoder, and read the run's folder.

    Args:
        judged: an encoder beside samples.
        threshold: value above which a feature of a unit-length vector counts as active.
        checkpoint: step of the state that is judged; None for the last.
        cache: True reads features from the cache, and keeps them there.
    """
    # Before the backbone is measured, which sets the statistics of its norms.
    backbone = untrained_backbone(judged)
    change = weight_change(judged, backbone)
    source, labels, encoder = judged.source, judged.source.labels, judged.encoder
    chosen_N = evenly_spaced(torch.arange(len(source)), NUM_VIEW_SAMPLES)
    features = extract(encoder, source, cache=cache)
    features_of_places = {REPRESENTATION: features.representation, EMBEDDING: features.embedding}
    further = {COLOURS: colour_statistics} if encoder.card.kind == "images" else {}
    layers = (REPRESENTATION, EMBEDDING)
    views = view_pairs(judged, encoder, layers, chosen_N, further) if judged.has_views else {}
    colours, embedded = views.pop(COLOURS, None), views.get(EMBEDDING)
    colour_shortcut = None
    if colours is not None and embedded is not None and len(colours[0]) >= FEWEST_COLOURED:
        colour_shortcut = shortcut(colours, embedded[0])
    # Non-negative by design or, if the design is not known, by its values.
    is_known = judged.folder is not None and judged.settings is not None
    is_nonnegative = encoder.card.nonnegative != "none" if is_known else is_rectified(features.embedding)
    if backbone is not None:
        untrained = with_norms_of(blank_encoder(backbone, encoder), source, judged.split.train)
        # An untrained encoder has no embedding: the baseline is a representation.
        features_of_places[UNTRAINED] = extract(untrained, source, [REPRESENTATION], cache=cache).representation
        if views:
            views[UNTRAINED] = view_pairs(judged, untrained, [REPRESENTATION], chosen_N)[REPRESENTATION]
    folder_evidence = from_folder(judged)
    places = {
        name: measure_place(
            all_ND,
            views=views.get(name),
            labels=labels,
            threshold=threshold,
            is_directional=name == EMBEDDING and folder_evidence.gaussian_by == "theory",
        )
        for name, all_ND in features_of_places.items()
    }
    code = encoder.projector
    classes = judged_classes(judged, features.embedding)
    classes = with_clusters(classes, places[EMBEDDING].agreement, source.class_names)
    evidence = replace(
        folder_evidence,
        places={name: place.figures for name, place in places.items()},
        votes=accuracies_of_subject(judged, features_of_places),
        is_nonnegative=is_nonnegative,
        weight_change=change,
        shortcut=colour_shortcut,
        pairs=pairs_of_run(judged, views[EMBEDDING], features.embedding[chosen_N], chosen_N, checkpoint)
        if views
        else None,
        classes=classes,
        held_out=held_out_beside_training(judged, features, embedded, chosen_N, threshold),
        altered=altered_pictures(judged),
        reconstruction=explained_by(code, features.representation) if isinstance(code, SparseCode) else None,
        consistency=consistency_interval(features.embedding, labels, threshold=threshold)
        if isinstance(code, SparseCode) and labels is not None
        else None,
        suspects=places[EMBEDDING].suspect_names(source.sample_names),
    )
    return GatheredEvidence(evidence, places, features.embedding, features.representation)


def from_folder(judged: Subject) -> Evidence:
    """Read the loss, and the settings that can be changed, from the run folder."""
    if judged.folder is None or judged.settings is None:
        return Evidence({})
    metrics = judged.folder.read_metrics()
    last = metrics[-1] if metrics else {}
    return Evidence(
        {},
        loss=last.get("loss"),
        chance=last.get("chance"),
        floor=last.get("floor"),
        is_supervised=METHODS[judged.settings.method].needs_labels,
        gaussian_by=gaussian_by(judged.settings),
        levers=levers_of(judged.settings, judged.source.kind),
        values=flat(TrainSettings, judged.settings.model_dump()),
    )


def gaussian_by(settings: TrainSettings) -> Literal["", "loss", "theory"]:
    """The reason why the embedding of a run should be Gaussian in every direction; see ``Evidence.gaussian_by``."""
    if METHODS[settings.method].wiring not in ("joint", "queue") or settings.output.nonnegative != "none":
        return ""
    # DirectCLR's embedding is a part of the representation, after its ReLU.
    by_theory = settings.loss.name == "infonce" and settings.method != "directclr"
    return "loss" if settings.loss.name in ("sigreg", "visreg") else "theory" if by_theory else ""


def weight_change(judged: Subject, backbone: nn.Module | None) -> float | None:
    """Length of the change of the encoder's weights in training, over their length before; None if it is not known."""
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
