"""Look at the pairs of a run: its own loss in batches of its own size, and the closest samples."""

# N samples looked at, D features

import math
from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor

from counterpoint.core.array_layout import to_unit_float
from counterpoint.core.settings import TrainSettings
from counterpoint.core.user_objects import CUSTOM
from counterpoint.data.formats.labels import Labels
from counterpoint.data.source import Source
from counterpoint.diagnostics.pair_attention import (
    NearSamples,
    PairBatch,
    WeighingLoss,
    batch_attention,
    drawn_batches,
    near_samples,
)
from counterpoint.diagnostics.pair_record import NearPair, PairRecord
from counterpoint.engine.checkpoint import checkpoints_by_step, load_checkpoint
from counterpoint.evaluation.metric_types import t_interval
from counterpoint.evaluation.subject import Subject
from counterpoint.evaluation.trained_run import ALL, steps_asked
from counterpoint.losses.build import shared_settings
from counterpoint.losses.loss import Loss
from counterpoint.losses.wrappers import SparsityPenalty
from counterpoint.methods.catalogue import method_named
from counterpoint.methods.wiring import loss_of

SMALL_SIDE = 8  # pixels of pictures that are compared as they came
PIECE = 256  # samples that are read at once
LOSS = "loss."  # before the names of what a loss learns, within a method
FEWEST_BATCHES, MOST_BATCHES = 8, 64  # that are measured, if there are enough samples
SOME_SAMPLES = 512  # samples that are measured in all, if batches are small


def pairs_of_run(
    judged: Subject,
    views: tuple[Tensor, Tensor],
    plain_ND: Tensor,
    positions_N: Tensor,
    checkpoint: str | None = None,
) -> PairRecord | None:
    """Measure what the run's loss does to the pairs of its samples, and find the samples nearest to each other.

    Args:
        judged: run, with its samples.
        views: embeddings of both views of at most 2048 samples.
        plain_ND: embeddings of the samples themselves.
        positions_N: positions of the samples in the source.
        checkpoint: the step whose loss is taken, if the loss learns something; None takes the newest.

    Returns:
        The record; None if there are no settings, or two kinds of data, which have no views of one sample.
    """
    settings, source = judged.settings, judged.source
    if settings is None or method_named(settings.method).wiring == "cross-modal":
        return None
    near = near_samples(*views, plain_ND, _comparable_vectors(source, positions_N))
    labels_N = None if source.labels is None else source.labels[positions_N]
    labels = None if labels_N is None else Labels(labels_N, source.class_names)
    names = [str(source.sample_names[position]) for position in positions_N.tolist()]
    nearest = _nearest(near, names, labels)
    loss, why = _weighing_loss(judged, checkpoint)
    if loss is None:
        return PairRecord(why=why, copy_share=near.copy_share, nearest=nearest)
    run_batch = int(settings.batch_size)
    z0_ND, z1_ND = (view.double() for view in views)
    at_most = min(MOST_BATCHES, max(FEWEST_BATCHES, SOME_SAMPLES // run_batch))
    generator = torch.Generator().manual_seed(settings.seed)
    # None if the loss takes no temperature, or learns it.
    name, is_fixed = settings.loss.name, not list(loss.parameters())
    has_temperature = is_fixed and name != CUSTOM and "temperature" in shared_settings(name, settings.loss.options)
    batches = [
        PairBatch(z0_ND[at], z1_ND[at], None if labels_N is None else labels_N[at], near.is_copy_NN[at][:, at])
        for at in drawn_batches(len(z0_ND), run_batch, at_most=at_most, generator=generator)
    ]
    return PairRecord(
        loss=loss.card.name,
        temperature=float(settings.temperature) if has_temperature else None,
        run_batch=run_batch,
        batch_size=len(batches[0].z0_ND),
        copy_share=near.copy_share,
        nearest=nearest,
        **_mean_figures([batch_attention(cast(WeighingLoss, loss), batch) for batch in batches]),  # pyright: ignore[reportArgumentType]
    )


def _comparable_vectors(source: Source, positions_N: Tensor) -> Tensor:
    """Vectors by which samples are compared: pictures of 8 x 8 pixels, or features divided by their deviations."""
    parts = []
    for positions in positions_N.split(PIECE):
        samples = source.store.fetch(positions.tolist())
        if samples.ndim == 4:
            samples = torch.nn.functional.adaptive_avg_pool2d(to_unit_float(samples), SMALL_SIDE)
        parts.append(samples.flatten(1).float())
    raw_NF = torch.cat(parts)
    return raw_NF if source.kind == "images" else raw_NF / raw_NF.std(dim=0).clamp(min=1e-12)


def _weighing_loss(judged: Subject, checkpoint: str | None) -> tuple[Loss | None, str]:
    """Return the run's loss as it was trained; or None, and the reason why it is not measured."""
    settings = judged.settings
    assert settings is not None
    if method_named(settings.method).wiring == "queue":
        return None, "its negatives are a queue of earlier keys, which is not measured"
    if settings.loss.name == CUSTOM and judged.own_loss is None:
        return None, "the run's loss is your own and not available; pass Run(path, loss=...)"
    loss = settings_loss(judged, settings)
    if loss.state_dict():
        loss.load_state_dict(learned_weights(judged, checkpoint))
    loss = (loss.loss if isinstance(loss, SparsityPenalty) else loss).cpu()  # a penalty weighs no pairs
    if not hasattr(loss, "importance"):
        return None, f"this loss weighs no pairs ({loss.card.name})"
    return loss, ""


def settings_loss(judged: Subject, settings: TrainSettings) -> Loss:
    """Build the loss of the settings for a run, as it was before training."""
    labels = judged.source.labels
    num_classes = 0 if labels is None else len(judged.source.class_names)
    # A classifier is as wide as the embedding; its loss weighs no pairs, and is only named.
    sizes = {"num_classes": num_classes, "num_features": judged.encoder.embedding_dims}
    is_classifier = method_named(settings.method).wiring == "classification"
    return loss_of(settings, judged.own_loss, num_classes=num_classes, further=sizes if is_classifier else None)


def learned_weights(judged: Subject, checkpoint: str | None = None) -> dict[str, Tensor]:
    """Weights that the loss of a run has learned, from the named checkpoint or else from the newest."""
    assert judged.folder is not None
    step = max(steps_asked(judged.folder, ALL if checkpoint is None else checkpoint))
    snapshot = load_checkpoint(checkpoints_by_step(judged.folder.checkpoints)[step])
    weights = {**snapshot.state.model, **snapshot.average}
    return {name.removeprefix(LOSS): value for name, value in weights.items() if name.startswith(LOSS)}


def _nearest(near: NearSamples, names: Sequence[str], labels: Labels | None) -> tuple[NearPair, ...]:
    pairs = []
    for rows, cosine, own in zip(near.pairs_P2.tolist(), near.cosine_P, near.own_P, strict=True):
        numbers = [] if labels is None else labels.numbers[rows].tolist()
        pair = NearPair(
            cosine=float(cosine),
            own=float(own),
            names=tuple(str(names[at]) for at in rows),
            classes=tuple(labels.class_names[each] for each in numbers) if labels and min(numbers) >= 0 else (),
            is_copy=bool(near.is_copy_NN[rows[0], rows[1]]),
        )
        pairs.append(pair)
    return tuple(pairs)


def _mean_figures(records: Sequence[PairRecord]) -> dict[str, float | None]:
    figures = {"num_negatives": records[0].num_negatives}
    names = {"effective_negatives": "effective", "copy_mass": "copy"}  # of figures with an interval
    for name in (*names, "hardest_share", "copy_chance", "class_mass", "class_chance"):
        values = [value for record in records if (value := getattr(record, name)) is not None and math.isfinite(value)]
        mean = t_interval(values) if values else None
        figures[name] = None if mean is None else mean.value
        if name in names and mean is not None:
            figures |= {f"{names[name]}_low": mean.low, f"{names[name]}_high": mean.high}
    return figures
