"""TensorBoard and Weights & Biases: optional, imported in no other module, beside ``metrics.jsonl`` and not instead."""

import os
from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any

from counterpoint.core.errors import RunError, UsageError, first_line
from counterpoint.core.rundir import RunFolder
from counterpoint.core.settings import EngineSettings
from counterpoint.core.validation import read_yaml_mapping
from counterpoint.engine.job import Logger

PROJECT = "counterpoint"

Record = Mapping[str, float | int | None]


def build_loggers(settings: EngineSettings, folder: RunFolder) -> tuple[Logger, ...]:
    """The loggers that a run asks for; on rank 0 only. Nothing is written before the first record.

    Args:
        settings: settings of the engine, in which each logger is switched on by its name.
        folder: folder of the run, in which the loggers write.

    Raises:
        UsageError: the package of a logger is not installed.
    """
    names = [name for name in CATALOGUE if getattr(settings, name)]
    for name in names:
        spec = find_spec(name)
        # A plain folder of its name, such as those we write to, is a namespace package, which has no origin.
        if spec is None or spec.origin is None:
            raise UsageError(
                f"engine.{name} is true, but {name} is not installed; pip install {name}, or leave it "
                "out (metrics.jsonl is always written)"
            )
    return tuple(CATALOGUE[name](folder) for name in names)


class TensorBoardLogger:
    """Writes each figure of an epoch as a curve over updates, in ``RUN/tensorboard``.

    TensorBoard is told to forget what earlier processes logged from the first record's update on: a run that was
    killed after its last checkpoint shows no epoch twice.

    Args:
        folder: folder of the run.
    """

    def __init__(self, folder: RunFolder) -> None:
        self._path = folder.path / "tensorboard"
        self._writer: Any = None

    def __call__(self, record: Record) -> None:
        """Log one record and flush it: a killed run loses nothing."""
        step = int(record["step"] or 0)
        try:
            if self._writer is None:
                from torch.utils.tensorboard import SummaryWriter  # deferred: optional, and takes a second

                self._writer = SummaryWriter(str(self._path), purge_step=step)  # hides what others logged from it on
            for name, value in record.items():
                if value is not None and name != "step":  # chance and floor may be None
                    self._writer.add_scalar(name, value, step)
            self._writer.flush()
        except OSError as error:
            raise RunError(f"cannot write {self._path}: {error.strerror or error}") from error

    def close(self) -> None:
        """Flush what is left."""
        if self._writer is not None:
            self._writer.close()


class WandbLogger:
    """Sends each record to Weights & Biases, without an account: offline, unless ``WANDB_MODE`` says otherwise.

    A resumed run continues under the id of the run. Runs that were offline are sent by ``wandb sync --append``.

    Args:
        folder: folder of the run.
    """

    def __init__(self, folder: RunFolder) -> None:
        self._folder = folder
        self._run: Any = None

    def __call__(self, record: Record) -> None:
        """Log one record."""
        if self._run is None:
            self._run = _wandb_run(self._folder)
        self._run.log({name: value for name, value in record.items() if value is not None}, step=record["step"])

    def close(self) -> None:
        """Flush what is left."""
        if self._run is not None:
            self._run.finish()


def _wandb_run(folder: RunFolder) -> Any:
    """A run of Weights & Biases, new or continued, that shows our settings."""
    import wandb  # deferred: only where it is asked for  # pyright: ignore[reportMissingImports]

    config = read_yaml_mapping(folder.resolved) if folder.resolved.exists() else {}
    try:
        return wandb.init(
            project=os.environ.get("WANDB_PROJECT", PROJECT),
            dir=str(folder.path),
            id=folder.run_id,
            name=folder.path.name,
            config=config,
            mode=os.environ.get("WANDB_MODE", "offline"),  # pyright: ignore[reportArgumentType]
            resume="allow",  # continues under an id that is known, else begins
            settings=wandb.Settings(silent=True, console="off", disable_git=True, disable_code=True),
        )
    except (wandb.Error, ValueError) as error:
        raise RunError(f"wandb cannot start: {first_line(error)}; WANDB_MODE=offline needs no account") from error


CATALOGUE = {"tensorboard": TensorBoardLogger, "wandb": WandbLogger}  # settings, extras and packages have these names
