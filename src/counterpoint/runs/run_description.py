"""Describe a run that begins or goes on: `run.json`, `config.yaml`, `resolved.yaml`, and a few lines for people."""

import contextlib
import datetime
import platform
import sys
from pathlib import Path
from typing import Any

import torch

from counterpoint.core import __version__
from counterpoint.core.dist import world_size
from counterpoint.core.errors import CounterpointError, UsageError
from counterpoint.core.files import sealed_text, with_run, write_text
from counterpoint.core.process_setup import thread_remark, thread_waiting
from counterpoint.core.processor_routines import product_library
from counterpoint.core.rundir import RunFolder
from counterpoint.core.schemas import Named, RunStatus
from counterpoint.core.settings import TrainSettings
from counterpoint.core.validation import dump_yaml, leaves, read_yaml_mapping
from counterpoint.data.order import is_thinned
from counterpoint.evaluation.trained_run import read_resolved
from counterpoint.methods.target_branch import QueueContrast
from counterpoint.runs.active_settings import without_idle
from counterpoint.runs.assembly import Assembled
from counterpoint.runs.recipes import reasons_of, recipe_named
from counterpoint.runs.resolve import Resolution
from counterpoint.runs.warm_start import RECORD


def first_status(assembled: Assembled) -> RunStatus:
    """First content of ``run.json``; ``launch`` tells a restart which run is its own."""
    settings, source = assembled.resolution.settings, assembled.source
    origins: dict[str, Any] = {name: dict(origin) for name, origin in assembled.inputs.origins.items()}
    if (loss := assembled.inputs.loss) is not None:  # a flag names its origin, Python passes the object
        origins.setdefault("own_loss", {"name": repr(loss)})
    if assembled.start is not None:
        origins[RECORD] = assembled.start.record()
    return RunStatus(
        status="running",
        method=settings.method,
        data=Path(source.name).name,  # names only: a run folder may be given away
        seed=settings.seed,
        version=__version__,
        torch=torch.__version__.split("+")[0],
        python=platform.python_version(),
        command=command_line(),
        data_fingerprint=source.fingerprint,
        num_samples=len(source),
        num_train=assembled.num_train,
        class_counts=tuple(assembled.part.counts),
        split_fingerprint=assembled.part.split.fingerprint,
        skipped=tuple(Named(name=item.name, reason=item.reason) for item in source.skipped),
        device=settings.engine.device,
        precision=settings.engine.precision,
        world_size=world_size(),
        launch=assembled.placement.ranks.launch,
        num_threads=torch.get_num_threads(),
        thread_waiting=thread_waiting(),
        products=product_library(),
        num_parameters=assembled.num_parameters,
        negatives_per_anchor=assembled.num_negatives,
        pair_kernels=tuple(Named(name=choice.name, reason=choice.reason) for choice in assembled.kernels),
        width=assembled.encoder.card.width,
        embedding_dims=assembled.encoder.embedding_dims,
        started=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        **origins,
    )


def command_line() -> str:
    """The command that was typed, without the folders of absolute paths."""
    return " ".join(["counterpoint", *(Path(word).name if Path(word).is_absolute() else word for word in sys.argv[1:])])


def describe(folder: RunFolder, settings: TrainSettings, resolution: Resolution, status: RunStatus) -> None:
    """Write the settings and the status of a run before its first step."""
    comment = "" if settings.recipe is None else recipe_named(settings.recipe).comment
    config_text = comment + dump_yaml(settings.model_dump(mode="json", exclude_unset=True))
    write_text(folder.config, sealed_text(with_run(config_text, status.run_id)))
    from_recipe = {path: why for path, why in reasons_of(settings).items() if path not in resolution.idle}
    resolution.reasons.update(from_recipe)
    _write_resolved(folder, resolution, status.run_id)
    folder.write_status(status)


def keep_changes(folder: RunFolder, settings: TrainSettings, resolution: Resolution) -> None:
    """Write the settings again if they were changed since the run began, or cannot be read any more.

    Args:
        folder: folder of the run, which continues.
        settings: the settings with which it continues.
        resolution: resolution of these settings.
    """
    try:
        is_recorded = settings == read_resolved(folder)
    except CounterpointError:
        is_recorded = False
    if not is_recorded:
        _write_resolved(folder, resolution, folder.run_id)


def _write_resolved(folder: RunFolder, resolution: Resolution, run_id: str | None) -> None:
    """Write every setting that has an effect; reasons that are known from before are kept."""
    resolved = without_idle(resolution.settings, resolution.idle)
    reasons = resolution.reasons
    with contextlib.suppress(UsageError, TypeError):  # there is none yet, or none that can be read
        # A setting that is filled in already gives no reason when the run continues.
        reasons = {**dict(leaves(read_yaml_mapping(folder.resolved).get("reasons", {}))), **reasons}
    # Sorted by name: a run that continues has its reasons in another order than one that begins.
    text = dump_yaml({**resolved, "reasons": dict(sorted(reasons.items()))})
    write_text(folder.resolved, sealed_text(with_run(text, run_id)))


def banner(assembled: Assembled) -> list[str]:
    """Describe a run in a few lines.

    Args:
        assembled: parts of the run.
    """
    settings, card, start = assembled.settings, assembled.encoder.card, assembled.start
    lines = [_samples_line(assembled)]
    if assembled.source.kind == "images":
        lines.append(f"views: preset {settings.views.preset}")
    ranks = assembled.placement.world_size
    stem = "large stem, " if card.stem == "large" else ""
    where = f", {ranks} ranks ({settings.engine.strategy})" if ranks > 1 else ""
    lines.append(
        f"encoder {card.architecture} ({stem}width {card.width}), embedding {assembled.encoder.embedding_dims}, "
        f"{assembled.num_parameters:,} parameters; device {settings.engine.device}{where}, precision "
        f"{settings.engine.precision}"
    )
    if remark := thread_remark(torch.get_num_threads()):
        lines.append(remark)
    if start is not None:
        projector = "" if settings.projector.kind == "none" else "; the projector starts untrained"
        rest = "; the projector, too" if projector and "projector" in start.parts else projector
        lines.append(f"begins with the encoder of {start.name} (sha256 {start.sha256[:8]}){rest}")
    lines.append(_pairs_line(assembled))
    return lines


def _samples_line(assembled: Assembled) -> str:
    source, settings = assembled.source, assembled.settings
    samples = f"{len(source):,} {source.kind} {'x'.join(map(str, source.shape))}"
    held_out = f", {len(assembled.part.split.held_out):,} held out" if len(assembled.part.split.held_out) else ""
    use = "" if assembled.loss.uses_labels else " (used in evaluation only)"
    labels = f"{len(source.class_names)} classes{use}" if source.labels is not None else "none"
    tail = ""
    if is_thinned(settings.source):
        sizes = assembled.part.counts
        unknown = 0 if source.labels is None else int((source.labels[assembled.part.split.train] < 0).sum())
        without = f"; {unknown:,} without label left out" if unknown else ""
        tail = f" (classes cut to {max(sizes):,} ... {min(sizes):,} samples{without})"
    return (
        f"{settings.method} on {source.name}: {samples}; {assembled.num_train:,} to train on{tail}{held_out}; "
        f"labels: {labels}"
    )


def _pairs_line(assembled: Assembled) -> str:
    settings, loss, size = assembled.settings, assembled.loss, assembled.order.batch_size
    epochs = "1 epoch" if settings.epochs == 1 else f"{settings.epochs} epochs"
    length = f"{epochs} of {assembled.order.batches_per_epoch} steps"
    if "temperature" in assembled.resolution.idle:
        temperature = f"{loss.card.name} takes no temperature"
    else:
        temperature = f"temperature {settings.temperature:g}"
    if assembled.num_negatives is None:
        return f"{loss.card.name}: {loss.card.negatives} (batch {size}); {temperature}; {length}"
    kind = "from a queue" if isinstance(loss, QueueContrast) else settings.loss.negatives
    return f"each anchor sees {assembled.num_negatives} negatives (batch {size}, {kind}); {temperature}; {length}"
