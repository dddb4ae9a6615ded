"""What the caller holds in memory, and opening the data of a run with it."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from torch import nn

from counterpoint.core.errors import UsageError
from counterpoint.core.rundir import Run
from counterpoint.core.settings import TrainSettings
from counterpoint.core.validation import merge
from counterpoint.data.source import Source
from counterpoint.data.sources import ARRAY, open_source
from counterpoint.engine.progress import Reporter
from counterpoint.evaluation.trained_run import name_skipped
from counterpoint.losses.build import CUSTOM, as_loss, load_loss
from counterpoint.losses.loss import Loss


@dataclass(frozen=True)
class Given:
    """What a settings file cannot hold: arrays and modules.

    Attributes:
        data: an array; None where the data have a name.
        labels: given with it.
        encoder: the user's own module.
        loss: the user's own loss.
        loss_origin: where a loss came from that the user named, and the hash of that file; for the record.
    """

    data: Any = None
    labels: Any = None
    encoder: nn.Module | None = None
    loss: Loss | None = None
    loss_origin: Mapping[str, str] = field(default_factory=dict)

    @staticmethod
    def of(run: Run) -> "Given":
        """What was handed to ``Run(path, data=..., encoder=..., loss=...)``."""
        return Given(run.data, run.labels, run.encoder, None if run.loss is None else as_loss(run.loss))

    def run_at(self, path: Path) -> Run:
        """The run, with what its folder does not hold."""
        return Run(path, self.data, self.labels, self.encoder, self.loss)


def with_named_loss(asked: Mapping[str, Any], given: Given) -> tuple[Mapping[str, Any], Given]:
    """Import a loss that goes by ``package.module:name``; the settings, and so the run folder, say ``custom`` only.

    Raises:
        UsageError: there is none by that name.
    """
    chosen = asked.get("loss")
    if not isinstance(chosen, Mapping) or ":" not in str(chosen.get("name")):
        return asked, given
    name = str(chosen["name"])
    loaded = load_loss(name, chosen.get("options") or {})
    origin = {"name": loaded.origin, "sha256": loaded.sha256}
    return merge(asked, {"loss": {"name": CUSTOM}}), replace(given, loss=loaded.loss, loss_origin=origin)


def open_given(settings: TrainSettings, given: Given, reporter: Reporter) -> Source:
    """Open a run's data and say which files were left out.

    Raises:
        UsageError: the run needs an array that was not passed.
        DataError: the data cannot be used.
    """
    if settings.data == ARRAY and given.data is None:
        raise UsageError("this run was trained on an array in memory; pass it as data=")
    data = settings.data if given.data is None else given.data
    source = open_source(data, settings.source, labels=given.labels, progress=reporter.bar)
    name_skipped(source, reporter)
    return source
