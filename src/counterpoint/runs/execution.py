"""Carry a run out: hold its folder, train, and keep a status that stays honest whatever happens."""

import contextlib
import time
from dataclasses import replace
from typing import Any, cast

import torch
from torch import Tensor, nn

from counterpoint.core.dist import barrier, is_first_rank
from counterpoint.core.errors import InterruptedRunError, RunError, TrainingError
from counterpoint.core.files import remove_leftovers
from counterpoint.core.operating_system import peak_memory
from counterpoint.core.run import Run
from counterpoint.core.run_lock import lock_run
from counterpoint.core.rundir import RunFolder, log_hash
from counterpoint.core.schemas import SeedsRecord
from counterpoint.engine.checkpoint import remove_unfinished
from counterpoint.engine.job import TrainingJob
from counterpoint.engine.loop import run_training
from counterpoint.engine.placement import on_first_rank
from counterpoint.engine.progress import Reporter
from counterpoint.methods.joint import Classification, TwoTowers
from counterpoint.nn.classifier import save_classifier
from counterpoint.nn.trained import Encoder, part_of, save_encoder
from counterpoint.runs.assembly import Assembled
from counterpoint.runs.run_description import banner
from counterpoint.runs.run_files import create_run, create_seeds, foreign_names


class Hold(contextlib.ExitStack):
    """The lock of a run folder, taken at most once and given back at the end of the block; on the first rank alone.

    Args:
        folder: folder of the run.
        reporter: shows what was out of the ordinary.
    """

    def __init__(self, folder: RunFolder, reporter: Reporter) -> None:
        super().__init__()
        self._folder, self._reporter = folder, reporter
        self._is_locked = False

    def take(self) -> None:
        """Lock the folder, which must exist, and clear away what killed processes left unfinished.

        Raises:
            RunError: another process holds it, or the lock cannot be written.
        """
        if self._is_locked:
            return
        folder = self._folder
        if note := self.enter_context(lock_run(folder.path)):
            self._reporter.say(note)
        self._is_locked = True
        if folder.is_ours:
            remove_leftovers(folder.path, [path.name for path in (*folder.files, folder.marker, folder.seeds)])
            remove_unfinished(folder.checkpoints)

    def create(self, *, overwrite: bool) -> None:
        """Make the folder (see ``create_run``), and name files in it that Counterpoint did not write."""
        folder = self._folder
        self._make_and_lock()
        create_run(folder.path, overwrite=overwrite)
        if names := foreign_names(folder):
            self._reporter.say(f"{folder.path} keeps what Counterpoint did not write: {', '.join(names)}")

    def create_seeds(self, record: SeedsRecord) -> None:
        """Make a folder for the runs of several seeds; see ``run_files.create_seeds``."""
        self._make_and_lock()
        create_seeds(self._folder.path, record)

    def _make_and_lock(self) -> None:
        path = self._folder.path
        try:
            path.mkdir(parents=True, exist_ok=True)
        except FileExistsError:
            raise RunError(f"{path} is a file; choose another --out") from None
        except OSError as error:
            raise RunError(f"cannot create the run folder {path}: {error.strerror or error}") from None
        self.take()


def execute(job: TrainingJob, assembled: Assembled, reporter: Reporter, *, is_resumed: bool = False) -> Run:
    """Train, and save the encoder. Every rank calls it.

    Args:
        job: training to be done; its run folder exists and is held by the first rank.
        assembled: parts of the run, of which the job was made.
        reporter: shows progress.
        is_resumed: True continues from the newest checkpoint.

    Raises:
        RunError: something cannot be written or read.
        TrainingError: a step cannot be taken.
        InterruptedRunError: stopped by a signal, after saving.
    """
    folder = job.folder
    for line in banner(assembled):
        reporter.say(line)
    before = folder.read_status()
    started, seconds_before = time.perf_counter(), (before.seconds or 0.0) if is_resumed else 0.0
    # Kept if resuming cannot begin; one that was killed says "running", which it is not.
    status = ("interrupted" if before.status == "running" else before.status) if is_resumed else "failed"
    is_done = False
    try:
        barrier()  # all have read the status before it changes
        on_first_rank(lambda: folder.update_status(status="running", loader=dict(job.loader.notes)))
        weights = run_training(job, reporter, resume=is_resumed)
        on_first_rank(lambda: _save_encoders(folder, assembled, weights))
        status, is_done = "finished", True  # only now: a finished run has its encoder
    except (InterruptedRunError, KeyboardInterrupt):
        status = "interrupted"
        raise
    # A resumed run keeps its old status if it cannot begin; a step that fails makes it a failed one.
    except (TrainingError, RuntimeError):
        status = "failed"
        raise
    finally:
        seconds = round(seconds_before + time.perf_counter() - started, 2)
        # Whatever happened: a run that no longer runs must not say that it does.
        _update_alone(job, reporter, is_done=is_done, status=status, seconds=seconds)
    reporter.say(f"trained in {seconds:.1f} s; run folder {folder.path}")
    return assembled.inputs.run_at(folder.path)


def _save_encoders(folder: RunFolder, assembled: Assembled, weights: dict[str, Tensor]) -> None:
    if isinstance(assembled.method, TwoTowers):
        second = _second_encoder(assembled, assembled.method)
        folder.second.path.mkdir(exist_ok=True)
        # The second tower's names, as an encoder of its own has them.
        own = {name.removeprefix("second_"): value for name, value in weights.items() if name.startswith("second_")}
        save_encoder(folder.second, second, own)
    if isinstance(assembled.method, Classification):
        nonnegative = getattr(assembled.method.loss, "is_nonnegative", False)
        save_classifier(folder, part_of(weights, "loss"), assembled.source.class_names, is_nonnegative=nonnegative)
    # Last: with its card a run counts as saved.
    save_encoder(folder, assembled.encoder, weights)


def _second_encoder(assembled: Assembled, method: TwoTowers) -> Encoder:
    """Return the encoder of the second kind of sample, with a card of its own."""
    own, shape = assembled.encoder.card, cast(tuple[int, ...], assembled.source.second_shape)
    is_same, size = shape == assembled.source.shape, shape[0]
    card = replace(
        own,
        architecture=own.architecture if len(shape) > 1 else "mlp",
        kind="images" if len(shape) > 1 else "vectors",
        in_shape=shape,
        # Prepared like the first if both are of one shape; otherwise left as it is, mean 0 and deviation 1.
        mean=own.mean if is_same else (0.0,) * size,
        std=own.std if is_same else (1.0,) * size,
        width=cast(nn.Linear, method.second_projector).in_features,
        projector="linear",
        features=own.projected_width,
    )
    return Encoder(card, method.second_backbone, method.second_projector)


def _update_alone(job: TrainingJob, reporter: Reporter, *, is_done: bool, **changes: Any) -> None:
    """Change the status from the first rank without waiting for the others, which may be gone."""
    if not is_first_rank():
        return
    folder = job.folder
    try:
        if is_done:
            figures = {path.name: log_hash(path) for path in (folder.metrics, folder.timings)}
            changes |= {"num_epochs": job.num_epochs, "figures": figures}
        # Of the GPU's allocations, or of this process if the run was on the CPU; None if the system does not say.
        peak = torch.cuda.max_memory_allocated() or peak_memory()
        folder.update_status(**changes, peak_memory_mb=None if peak is None else round(peak / 1e6, 1))
    except RunError as error:
        # The disk that failed before fails again: what the user must hear is the first cause, which is on its way.
        if is_done:
            raise
        reporter.say(f"{error}; it may still say that the run continues")
