"""Look at the pairs of a run: its own loss in batches of its own size, other temperatures, and the closest samples."""

# N samples looked at, D features

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor

from counterpoint.core.own_parts import CUSTOM
from counterpoint.core.settings import TrainSettings
from counterpoint.diagnostics.near_samples import NearSamples, near_samples
from counterpoint.diagnostics.pair_attention import (
    BatchAttention,
    PairBatch,
    Spread,
    WeighingLoss,
    batch_attention,
    drawn_batches,
    over_batches,
    temperature_table,
)
from counterpoint.diagnostics.pair_look import NearPair, PairLook
from counterpoint.engine.checkpoint import list_checkpoints, load_checkpoint
from counterpoint.engine.checkpoint_format import step_of
from counterpoint.evaluation.checkpoints import ALL, steps_asked
from counterpoint.evaluation.subject import Subject
from counterpoint.losses.build import shared_settings
from counterpoint.losses.loss import Loss
from counterpoint.losses.wrappers import SparsityPenalty
from counterpoint.methods.catalogue import method_named
from counterpoint.methods.wiring import loss_of

LOSS = "loss."  # before the names of what a loss learns, within a method
FEWEST_BATCHES, MOST_BATCHES = 8, 64  # that are looked at, where there are enough samples
SOME_SAMPLES = 512  # of small batches so many samples are taken
QUEUE_WHY = "its negatives are a queue of earlier keys, which is not looked at"
OWN_WHY = "the run's loss is your own and not at hand; pass Run(path, loss=...)"


@dataclass(frozen=True)
class SeenPairs:
    """Samples whose pairs are looked at.

    Attributes:
        judged: the run.
        views: embeddings of both views.
        plain_ND: embeddings of the samples themselves.
        positions_N: of the samples in the source.
    """

    judged: Subject
    views: tuple[Tensor, Tensor]
    plain_ND: Tensor
    positions_N: Tensor

    def batches(self, near: NearSamples, size: int, seed: int) -> list[PairBatch]:
        """Random batches of distinct samples."""
        labels, (z0_ND, z1_ND) = self.judged.source.labels, (view.double() for view in self.views)
        labels_N = None if labels is None else labels[self.positions_N]
        at_most = min(MOST_BATCHES, max(FEWEST_BATCHES, SOME_SAMPLES // size))
        drawn = drawn_batches(len(z0_ND), size, at_most=at_most, generator=torch.Generator().manual_seed(seed))
        return [
            PairBatch(z0_ND[at], z1_ND[at], None if labels_N is None else labels_N[at], near.is_copy_NN[at][:, at])
            for at in drawn
        ]


def look_at_pairs(seen: SeenPairs, checkpoint: str | None = None) -> PairLook | None:
    """What the run's loss does to the pairs of its samples, and which samples lie nearest to each other.

    Thumbnails are places among the samples; ``with_thumbnails`` makes them places among the pictures that are kept.

    Args:
        seen: embeddings of at most 2048 samples.
        checkpoint: the step whose loss is taken, where the loss learns something; None takes the newest.

    Returns:
        The record; None without settings of a run, and for two kinds of data, which have no views of one sample.
    """
    settings = seen.judged.settings
    if settings is None or method_named(settings.method).wiring == "cross-modal":
        return None
    near = near_samples(*seen.views, seen.plain_ND)
    known = {"closer_share": near.closer_share, "copy_share": near.copy_share, "nearest": _named(seen, near)}
    loss, why = _weighing_loss(seen.judged, checkpoint)
    if loss is None:
        return PairLook(why=why, **known)
    run_batch = int(settings.batch_size) // settings.engine.accumulate
    batches = seen.batches(near, run_batch, settings.seed)
    at_temperature = _temperature(settings, loss)
    table = ()
    if at_temperature is not None:
        is_nonnegative = seen.judged.encoder.card.nonnegative != "none"

        def loss_at(temperature: float) -> WeighingLoss:
            return _weighing(_built(seen.judged, settings.model_copy(update={"temperature": temperature})))

        table = temperature_table(loss_at, at_temperature, batches, nonnegative=is_nonnegative)
    return PairLook(
        loss=loss.card.name,
        temperature=at_temperature,
        run_batch=run_batch,
        batch_size=len(batches[0].z0_ND),
        num_batches=len(batches),
        temperatures=table,
        **_figures([batch_attention(_weighing(loss), batch) for batch in batches]),  # pyright: ignore[reportArgumentType]
        **known,
    )


def with_thumbnails(look: PairLook, shown: Sequence[int]) -> tuple[PairLook, list[int]]:
    """Number the pictures of pairs behind those that are kept already.

    Args:
        look: from ``look_at_pairs``.
        shown: samples whose pictures are kept.

    Returns:
        The record, and all samples whose pictures are kept.
    """
    kept = list(
        dict.fromkeys([*shown, *(int(at) for pair in look.nearest for at in pair.thumbnails if at is not None)])
    )
    place_of = {position: place for place, position in enumerate(kept)}
    nearest = tuple(
        pair.model_copy(update={"thumbnails": tuple(place_of[int(at)] for at in pair.thumbnails if at is not None)})
        for pair in look.nearest
    )
    return look.model_copy(update={"nearest": nearest}), kept


def _weighing_loss(judged: Subject, checkpoint: str | None) -> tuple[Loss | None, str]:
    """The run's loss as it was trained; or None, and why it is not looked at."""
    settings = judged.settings
    assert settings is not None
    if method_named(settings.method).wiring == "queue":
        return None, QUEUE_WHY
    if settings.loss.name == CUSTOM and judged.own_loss is None:
        return None, OWN_WHY
    loss = _built(judged, settings)
    if loss.state_dict():
        loss.load_state_dict(_learned(judged, checkpoint))
    loss = _inner(loss).cpu()
    if not hasattr(loss, "importance"):
        return None, f"this loss weighs no pairs ({loss.card.name})"
    return loss, ""


def _built(judged: Subject, settings: TrainSettings) -> Loss:
    """The loss of some settings."""
    labels = judged.source.labels
    num_classes = 0 if labels is None else len(judged.source.class_names)
    # A classifier is as wide as the embedding; its loss weighs no pairs, and is only named.
    sizes = {"num_classes": num_classes, "num_features": judged.encoder.embedding_dims}
    is_classifier = method_named(settings.method).wiring == "classification"
    return loss_of(settings, judged.own_loss, num_classes=num_classes, further=sizes if is_classifier else None)


def _inner(loss: Loss) -> Loss:
    """The loss within a penalty, which weighs no pairs."""
    return loss.loss if isinstance(loss, SparsityPenalty) else loss


def _weighing(loss: Loss) -> WeighingLoss:
    """A loss, within a penalty or not, that is known to weigh pairs."""
    return cast(WeighingLoss, _inner(loss))


def _learned(judged: Subject, checkpoint: str | None) -> dict[str, Tensor]:
    """What the loss has learned, from a checkpoint."""
    assert judged.folder is not None
    step = max(steps_asked(judged.folder, ALL if checkpoint is None else checkpoint))
    path = next(path for path in list_checkpoints(judged.folder.checkpoints) if step_of(path) == step)
    snapshot = load_checkpoint(path)
    weights = {**snapshot.state.model, **snapshot.average}
    return {name.removeprefix(LOSS): value for name, value in weights.items() if name.startswith(LOSS)}


def _temperature(settings: TrainSettings, loss: Loss) -> float | None:
    """The temperature that the settings give the loss; None where it takes none, or learns it."""
    name = settings.loss.name
    if name == CUSTOM or "temperature" not in shared_settings(name, settings.loss.options) or list(loss.parameters()):
        return None
    return float(settings.temperature)


def _named(seen: SeenPairs, near: NearSamples) -> tuple[NearPair, ...]:
    """The closest pairs with names, classes and pictures."""
    source, found = seen.judged.source, []
    for (first, second), cosine, own in zip(near.pairs_P2.tolist(), near.cosine_P, near.own_P, strict=True):
        both = [int(seen.positions_N[at]) for at in (first, second)]
        numbers = [] if source.labels is None else [int(source.labels[at]) for at in both]
        pair = NearPair(
            cosine=float(cosine),
            own=float(own),
            names=tuple(source.sample_names[at] for at in both),
            classes=tuple(source.class_names[number] for number in numbers) if min(numbers, default=-1) >= 0 else (),
            thumbnails=tuple(both) if source.kind == "images" else (),
            is_copy=bool(near.is_copy_NN[first, second]),
        )
        found.append(pair)
    return tuple(found)


def _figures(found: Sequence[BatchAttention]) -> dict[str, float | None]:
    """Means and intervals over batches, by their names in the record."""

    def over(name: str) -> Spread:
        return over_batches([getattr(each, name) for each in found])

    plain = ("entropy", "hardest_share", "hardest_cosine", "copy_chance", "class_mass", "class_chance")
    effective, copies = over("effective_negatives"), over("copy_mass")
    return {
        "num_negatives": float(found[0].num_negatives),
        "effective_negatives": effective.mean,
        "effective_low": effective.low,
        "effective_high": effective.high,
        "copy_mass": copies.mean,
        "copy_low": copies.low,
        "copy_high": copies.high,
        **{name: over(name).mean for name in plain},
    }
