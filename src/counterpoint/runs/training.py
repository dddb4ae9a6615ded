"""Train a run, or several, and go on with one: what `cp.train` and `cp.resume` do."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, overload

from torch import nn

from counterpoint.core.run import Run, SeedRuns, as_run
from counterpoint.core.settings import TrainSettings
from counterpoint.core.torch_state import only_training, usual_modes
from counterpoint.core.validation import build
from counterpoint.engine.placement import on_all_ranks, on_first_rank, place, ranks_joined
from counterpoint.engine.progress import Reporter
from counterpoint.runs.execution import Hold
from counterpoint.runs.one_run import Start, check_has_begun, go_on_with, train_one
from counterpoint.runs.resuming import recorded_settings
from counterpoint.runs.seeds import train_seeds
from counterpoint.runs.user_inputs import Given, out_folder, with_named_parts


@overload
def train(data: Any = None, *, seeds: int, **settings: Any) -> SeedRuns: ...


@overload
def train(data: Any = None, *, seeds: None = None, **settings: Any) -> Run: ...


def train(
    data: Any = None,
    *,
    labels: Any = None,
    encoder: str | nn.Module | None = None,
    resume: bool = False,
    overwrite: bool = False,
    quiet: bool = False,
    **settings: Any,
) -> Run | SeedRuns:
    """Train an encoder by contrast and write a run folder.

    Args:
        data: a named set, a path (folder, ``.npy``, ``.npz``, ``.tar``, ...), an array or a tensor.
        labels: one per sample, for arrays; evaluation and supervised methods use them.
        encoder: a name of the encoder catalogue, ``timm:NAME``, or your own module, which stays as it is:
            a copy is trained.
        resume: go on if the run folder holds a run already; of several seeds, with those that are not finished.
        overwrite: replace the run folder if it holds a run already.
        quiet: show no progress.
        settings: any field of ``TrainSettings``: ``method="ncl"``, ``out="runs/ncl"``, ``epochs=30``,
            ``optim={"name": "sgd"}`` or ``**{"optim.name": "sgd"}``. ``recipe`` names those of a published table,
            which the others win over. ``loss`` may also be a loss of your own, of which
            a copy is trained with: one of ``counterpoint.losses``, or any module called as ``loss(z0, z1)``; and
            ``views`` a function of your own, called as ``views(samples, draws)`` (see ``OwnViews``). And ``seeds``: how
            many runs to train, of ``seed``, ``seed + 1``, ..., each in a folder ``seed-<number>`` of ``out``, on the
            same samples.

    Returns:
        The run; with ``seeds`` the runs.

    Raises:
        UsageError: a setting is wrong.
        DataError: the data cannot be used.
        RunError: the run folder exists, is in use, or cannot be written.
        TrainingError: a step cannot be taken.
        InterruptedRunError: stopped by a signal, after saving.
    """
    if encoder is not None:
        settings["encoder"] = encoder
    seeds = settings.pop("seeds", None)
    # What has a name is recorded in the settings; an array, module or function is not, and must be given again.
    asked, given = Given.of_call(data, settings, labels)
    how: dict[str, Any] = {"resume": resume, "overwrite": overwrite, "reporter": Reporter(quiet=quiet)}
    if seeds is None:
        return train_from(asked, given, **how)
    return train_seeds(asked, given, seeds, **how)


@usual_modes()
@only_training()
def train_from(
    asked: Mapping[str, Any],
    given: Given,
    *,
    reporter: Reporter,
    resume: bool = False,
    overwrite: bool = False,
    allow_changed: bool = False,
) -> Run:
    """Train from a nested mapping of settings; see ``train``. Under torchrun every rank calls it.

    Args:
        asked: the settings.
        given: what is in memory.
        reporter: shows progress (on the first rank).
        resume: go on if there is a run.
        overwrite: replace a run that is there.
        allow_changed: when going on, take over settings that change no weight.
    """
    asked, given = with_named_parts(asked, given)
    settings = build(TrainSettings, asked, "settings")
    folder = out_folder(settings)
    placement = place(settings.engine.device, settings.engine.precision)
    start = Start(given, placement, reporter, resume=resume, overwrite=overwrite, allow_changed=allow_changed)
    with ranks_joined(placement):
        return train_one(folder, settings, start)


@usual_modes()
@only_training()
def resume(
    run: Run | str | Path, *, epochs: int | None = None, allow_changed: bool = False, quiet: bool = False
) -> Run:
    """Go on with an interrupted run from its newest valid checkpoint, or with any run to more epochs.

    Args:
        run: the run or its folder; ``Run(path, data=array, encoder=module)`` if it was trained on an array or with
            your own module.
        epochs: how many there shall be in all; None leaves that as it is. Weights and optimiser go on as they are; the
            learning rate follows its schedule over all of these epochs from there on, so that a finished run's rate
            rises again. The run is not the one that so many epochs at once would have given, and says so.
        allow_changed: go on where settings or lines of figures were changed that no weight depends on.
        quiet: show no progress.

    Raises:
        RunError: not a run, in use, no usable checkpoint, or the data changed since the run began.
        UsageError: its settings were changed, or it has more epochs than are asked for.
    """
    known = as_run(run, needs_status=False)
    folder = known.folder
    check_has_begun(folder)
    # Where the ranks meet depends on the device: read before they do, and again under the lock.
    settings = recorded_settings(folder, allow_changed=allow_changed)
    placement = place(settings.engine.device, settings.engine.precision)
    start = Start(Given.of(known), placement, Reporter(quiet=quiet), allow_changed=allow_changed, epochs=epochs)
    with ranks_joined(placement), Hold(folder, start.reporter) as hold:
        on_first_rank(hold.take)
        settings = on_all_ranks(lambda: recorded_settings(folder, allow_changed=allow_changed))
        return go_on_with(folder, settings, start)
