"""Build the training job of a run from its parts: optimiser, schedule, batches, views, levels of the loss, loggers."""

import json
import math

import torch

from counterpoint.core.dist import broadcast_text, is_first_rank, ranks_that_differ, world_size
from counterpoint.core.errors import DataError
from counterpoint.core.rundir import RunFolder
from counterpoint.data.loader import BatchLoader, Destination
from counterpoint.data.order import Split
from counterpoint.engine.engine import Engine
from counterpoint.engine.job import TrainingJob
from counterpoint.engine.loggers import build_loggers
from counterpoint.engine.optimisers import build_optimizer, build_schedule
from counterpoint.evaluation.online_knn import EpochKNN
from counterpoint.evaluation.subject import view_drawer
from counterpoint.losses.noncontrastive import BarlowTwins
from counterpoint.runs.assembly import Assembled
from counterpoint.runs.warm_start import RECORD


def training_job(assembled: Assembled, folder: RunFolder) -> TrainingJob:
    """Build the training job that will write to a run folder; nothing is written yet.

    Args:
        assembled: parts of the run.
        folder: the run's folder.

    Raises:
        UsageError: a logger is not installed, or the data do not allow what should be measured.
    """
    settings, engine = assembled.settings, assembled.settings.engine
    method, order, placement, source = assembled.method, assembled.order, assembled.placement, assembled.source
    method.to(placement.torch_device)
    loss = assembled.loss
    # Barlow Twins sums over features: its chance level depends on their number, not on the batch alone.
    sized = {"num_features": assembled.encoder.embedding_dims} if isinstance(loss, BarlowTwins) else {}
    chance = loss.chance(order.batch_size, **sized)
    floor = loss.floor(order.batch_size, nonnegative=settings.output.nonnegative != "none")
    # The neighbours are those that are trained on, thinned or not; the queries are held out.
    split = Split(assembled.part.positions, assembled.part.split.held_out)
    knn = None if engine.knn_every == "none" else EpochKNN(source, split, assembled.encoder, every=engine.knn_every)
    return TrainingJob(
        settings=settings,
        unit="images" if source.kind == "images" else "rows",
        method=method,
        optimizer=build_optimizer(method, settings.optim, is_sharded=engine.strategy == "fsdp"),
        schedule=build_schedule(
            settings.optim, num_epochs=int(settings.epochs), batches_per_epoch=order.batches_per_epoch
        ),
        loader=BatchLoader(
            source.store,
            order,
            # A loss that reads no labels is given none: they cannot have a say in its training.
            labels=source.labels if assembled.loss.uses_labels else None,
            second=source.second,
            num_workers=engine.workers,
            destination=Destination(placement.torch_device, placement.ranks.rank, placement.world_size),
        ),
        views=view_drawer(settings, assembled.encoder.card, assembled.inputs.views),
        engine=Engine(placement, compiles=engine.compile, shards=engine.strategy == "fsdp"),
        folder=folder,
        # If collapse is the lowest loss (BYOL, SimSiam), the loss of equal vectors is not its chance level.
        chance=chance if math.isfinite(chance) and chance > floor else None,
        floor=floor if math.isfinite(floor) else None,
        measure=knn,
        loggers=build_loggers(engine, folder) if is_first_rank() else (),
        facts={
            "seed": settings.seed,
            "torch": torch.__version__.split("+")[0],  # 2.9.0+cu128: the build is left out
            "num_threads": torch.get_num_threads(),
            "device": engine.device,
            "world_size": world_size(),
            # Without the folder: checkpoints of one run are the same bytes wherever it is.
            "resolved": settings.model_dump(mode="json", exclude={"out"}),
            "data": source.fingerprint,
            **({} if assembled.start is None else {RECORD: assembled.start.record()}),
        },
    )


def check_alike(job: TrainingJob, assembled: Assembled) -> None:
    """Require the same settings, samples and preparation on all ranks: machines may hold copies of different age."""
    facts, card = {**job.facts, "num_threads": None}, assembled.encoder.card  # machines may have other numbers of cores
    if odd := ranks_that_differ(json.dumps([facts, assembled.part.split.fingerprint, card.mean, card.std])):
        raise DataError(
            f"rank {', '.join(map(str, odd))} sees other data or settings than rank 0 (rank 0's data have the "
            f"fingerprint {broadcast_text(assembled.source.fingerprint)}); use one shared copy, and name engine.device "
            "and engine.precision where machines are unlike"
        )
