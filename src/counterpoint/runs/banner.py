"""What a user should know before the first step: samples, encoder, device, and what the loss contrasts."""

from counterpoint.data.long_tail import is_thinned
from counterpoint.methods.queue import QueueContrast
from counterpoint.runs.assembled import Assembled


def banner(assembled: Assembled) -> str:
    """A few lines about a run.

    Args:
        assembled: its parts.
    """
    lines = [_samples(assembled), *_views(assembled), _encoder(assembled), _pairs(assembled)]
    if assembled.settings.engine.accumulate > 1:
        lines.append(
            f"gradients of {assembled.settings.engine.accumulate} sub-batches are added up per step: each is a batch "
            f"of {assembled.loss_batch} to the loss, so this adds no negatives (--engine.chunk-size does)"
        )
    return "\n".join(lines)


def _samples(assembled: Assembled) -> str:
    """What is trained on."""
    source, settings = assembled.source, assembled.settings
    samples = f"{len(source):,} {source.kind} {'x'.join(map(str, source.shape))}"
    held_out = f", {len(assembled.split.held_out):,} held out" if len(assembled.split.held_out) else ""
    use = "" if assembled.loss.uses_labels else " (used in evaluation only)"
    labels = f"{len(source.class_names)} classes{use}" if source.labels is not None else "none"
    tail = ""
    if is_thinned(settings.source):
        sizes = assembled.class_counts
        unknown = 0 if source.labels is None else int((source.labels[assembled.split.train] < 0).sum())
        without = f"; {unknown:,} without label left out" if unknown else ""
        tail = f" (classes cut to {max(sizes):,} ... {min(sizes):,} samples{without})"
    return (
        f"{settings.method} on {source.name}: {samples}; {assembled.num_train:,} to train on{tail}{held_out}; "
        f"labels: {labels}"
    )


def _views(assembled: Assembled) -> list[str]:
    """What is drawn of pictures, and how many views show nothing."""
    blank = assembled.resolution.blank_views
    return [] if blank is None else [f"views: preset {assembled.settings.views.preset}; {blank}"]


def _encoder(assembled: Assembled) -> str:
    """What is trained, and where."""
    settings, card = assembled.settings, assembled.encoder.card
    ranks = assembled.placement.world_size
    stem = "large stem, " if card.stem == "large" else ""
    where = f", {ranks} ranks ({settings.engine.strategy})" if ranks > 1 else ""
    return (
        f"encoder {card.architecture} ({stem}width {card.width}), embedding {assembled.encoder.embedding_dims}, "
        f"{assembled.num_parameters:,} parameters; device {settings.engine.device}{where}, precision "
        f"{settings.engine.precision}"
    )


def _pairs(assembled: Assembled) -> str:
    """What the loss contrasts, and how long."""
    settings, loss, size = assembled.settings, assembled.loss, assembled.order.batch_size
    epochs = "1 epoch" if settings.epochs == 1 else f"{settings.epochs} epochs"
    length = f"{epochs} of {assembled.order.batches_per_epoch} steps"
    if "temperature" in assembled.resolution.idle:
        heat = f"{loss.card.name} takes no temperature"
    else:
        heat = f"temperature {settings.temperature:g}"
    if assembled.num_negatives is None:
        return f"{loss.card.name}: {loss.card.negatives} (batch {size}); {heat}; {length}"
    kind = "from a queue" if isinstance(loss, QueueContrast) else settings.loss.negatives
    return (
        f"each anchor sees {assembled.num_negatives} negatives (batch {assembled.loss_batch}, {kind}); {heat}; {length}"
    )
