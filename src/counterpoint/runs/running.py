"""Carry a run out: under a lock, with a status that stays honest whatever happens."""

import contextlib
import datetime
import platform
import resource
import sys
import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from counterpoint.core.dist import barrier, is_first_rank, is_lost_contact, world_size
from counterpoint.core.errors import InterruptedRunError, LoneTrainingError, TrainingError, first_line
from counterpoint.core.files import remove_leftovers
from counterpoint.core.first_rank import on_first_rank
from counterpoint.core.run_lock import lock_run
from counterpoint.core.run_records import Named, RunStatus
from counterpoint.core.rundir import Run, RunFolder
from counterpoint.core.version import __version__
from counterpoint.engine.job import TrainingJob
from counterpoint.engine.loop import run_training
from counterpoint.engine.progress import Reporter
from counterpoint.nn.trained import save_encoder
from counterpoint.runs.assembled import Assembled
from counterpoint.runs.banner import banner
from counterpoint.runs.given import Given


def execute(
    job: TrainingJob, given: Given, assembled: Assembled, reporter: Reporter, *, is_resumed: bool = False
) -> Run:
    """Train, and save the encoder. Every rank calls it.

    Args:
        job: what to train; its run folder exists.
        given: what is in memory.
        assembled: what the job was made of.
        reporter: shows progress.
        is_resumed: go on from the newest checkpoint.

    Raises:
        RunError: the run is in use, or something cannot be written or read.
        TrainingError: a step cannot be taken.
        InterruptedRunError: stopped by a signal, after saving.
    """
    folder = job.folder
    with contextlib.ExitStack() as held:
        on_first_rank(lambda: _take(folder, held, reporter))
        reporter.say(banner(assembled))
        seconds = _train(job, assembled, reporter, is_resumed=is_resumed)
    reporter.say(f"trained in {seconds:.1f} s; run folder {folder.path}")
    return given.run_at(folder.path)


def _take(folder: RunFolder, held: contextlib.ExitStack, reporter: Reporter) -> None:
    """Lock the run for this process and clear away what a killed one left."""
    if note := held.enter_context(lock_run(folder.path)):
        reporter.say(note)
    remove_leftovers(folder.path, [path.name for path in folder.files])


def first_status(assembled: Assembled, given: Given) -> RunStatus:
    """First content of ``run.json``; ``launch`` tells a restart which run is its own."""
    settings, source = assembled.resolution.settings, assembled.source
    blank = assembled.resolution.blank_views
    origins: dict[str, Any] = {name: dict(origin) for name, origin in given.origins.items()}
    return RunStatus(
        status="running",
        method=settings.method,
        data=Path(source.name).name,
        seed=settings.seed,
        version=__version__,
        torch=torch.__version__.split("+")[0],
        python=platform.python_version(),
        command=" ".join(
            ["counterpoint", *(Path(word).name if Path(word).is_absolute() else word for word in sys.argv[1:])]
        ),
        data_fingerprint=source.fingerprint,
        num_samples=len(source),
        num_train=assembled.num_train,
        class_counts=tuple(assembled.class_counts),
        split_fingerprint=assembled.split.fingerprint,
        skipped=tuple(Named(name=item.name, reason=item.reason) for item in source.skipped),
        blank_views=None if blank is None else round(blank.share, 4),
        device=settings.engine.device,
        precision=settings.engine.precision,
        world_size=world_size(),
        launch=assembled.placement.ranks.launch,
        num_threads=torch.get_num_threads(),
        num_parameters=assembled.num_parameters,
        negatives_per_anchor=assembled.num_negatives,
        pair_kernels=tuple(Named(name=choice.name, reason=choice.reason) for choice in assembled.kernels),
        width=assembled.encoder.card.width,
        embedding_dims=assembled.encoder.embedding_dims,
        started=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        **origins,
    )


def _train(job: TrainingJob, assembled: Assembled, reporter: Reporter, *, is_resumed: bool) -> float:
    """Train and keep the record; returns the seconds that the run has taken so far."""
    folder = job.folder
    before = folder.read_status()
    started, seconds_before = time.perf_counter(), (before.seconds or 0.0) if is_resumed else 0.0
    status = before.status if is_resumed else "failed"  # kept if resuming cannot begin
    barrier()  # all have read the status before it changes
    on_first_rank(lambda: folder.update_status(status="running", loader=dict(job.loader.notes)))
    try:
        weights = run_training(job, reporter, resume=is_resumed)
        on_first_rank(lambda: _save_encoders(folder, assembled, weights))
        status = "finished"
    except (InterruptedRunError, KeyboardInterrupt):
        status = "interrupted"
        raise
    except TrainingError:
        status = "failed"
        raise
    except RuntimeError as error:
        status = "failed"
        if world_size() == 1 or not is_lost_contact(error):
            raise
        raise LoneTrainingError(
            f"lost contact with another rank, whose own message may say why ({first_line(error)}); torchrun "
            "--max-restarts N starts all again"
        ) from None
    finally:
        seconds = round(seconds_before + time.perf_counter() - started, 2)
        _update_alone(folder, status=status, seconds=seconds, peak_memory_mb=_peak_memory_mb())
    return seconds


def _save_encoders(folder: RunFolder, assembled: Assembled, weights: dict[str, Tensor]) -> None:
    """Save what users load."""
    if (second := assembled.second_encoder) is not None:
        folder.second.path.mkdir(exist_ok=True)
        own = {name.removeprefix("second_"): value for name, value in weights.items() if name.startswith("second_")}
        save_encoder(folder.second, second, own)
    save_encoder(folder, assembled.encoder, weights)


def _update_alone(folder: RunFolder, **changes: Any) -> None:
    """Change the status from the first rank without waiting for the others, which may be gone."""
    if is_first_rank():
        folder.update_status(**changes)


def _peak_memory_mb() -> float:
    """Largest resident size of this process, or of the GPU's allocations, in MB."""
    if torch.cuda.is_available() and torch.cuda.max_memory_allocated():
        return round(torch.cuda.max_memory_allocated() / 1e6, 1)
    unit = 1 if sys.platform == "darwin" else 1024  # bytes there, kilobytes elsewhere
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6, 1)
