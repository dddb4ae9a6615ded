"""Warm start: the weights that an encoder begins with, from a run or a file, and what a run records of them."""

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from counterpoint.core.errors import DataError, RunError, UsageError
from counterpoint.core.files import sha256_of
from counterpoint.core.run import Run
from counterpoint.core.rundir import RunFolder, open_run
from counterpoint.core.settings import TrainSettings
from counterpoint.data.source import Source, source_side
from counterpoint.engine.checkpoint import newest_memory
from counterpoint.evaluation.trained_run import read_resolved
from counterpoint.nn.encoders import has_stem
from counterpoint.nn.foreign import WEIGHT_SUFFIXES, best_plan, fill_known, habit_of
from counterpoint.nn.foreign_weights import fit_weights, read_weights
from counterpoint.nn.trained import Encoder, EncoderCard, load, part_of, read_saved
from counterpoint.runs.resolve import Resolution
from counterpoint.runs.resuming import readable_status
from counterpoint.runs.untrained_encoder import Statistics, initial_backbone

RECORD = "init"  # key in run.json and in the facts of a checkpoint
FORMS = "a run folder, or a file of weights (.safetensors, .pth, .ckpt)"


@dataclass(frozen=True)
class WarmStart:
    """Weights that an encoder begins with.

    Attributes:
        name: name or path as the user gave it.
        sha256: hash of the file that holds the weights.
        tensors: the weights by the names of the file; None if a checkpoint holds the weights trained from them.
        card: card of the run they come from; None for other files.
        statistics: mean and deviation of the input that the weights are used to; None if unknown.
        parts: parts of the encoder that began with these weights.
        remarks: lines on the weights of another program's file that were used, and on those left out.
    """

    name: str
    sha256: str
    tensors: Mapping[str, Tensor] | None
    card: EncoderCard | None = None
    statistics: Statistics | None = None
    parts: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()

    @property
    def side(self) -> int | None:
        """Side in pixels of the images that the weights are used to; None if it is not known."""
        return None if self.card is None or self.card.kind == "vectors" else source_side(self.card.in_shape)

    def check_columns(self, source: Source) -> None:
        """Refuse a table that became other numbers than the one of these weights.

        Raises:
            DataError: the columns differ in names, categories, means or deviations.
        """
        table = None if self.card is None else self.card.table
        if table is not None and source.table not in (None, table):
            run = Path(self.name) if Path(self.name).is_dir() else Path(self.name).parent
            raise DataError(
                f"{source.name} would become other numbers than the table of --init {self.name}; take its columns as "
                f"that run did with --source.columns {shlex.quote(str(run))}"
            )

    def choose_encoder(self, resolution: Resolution, in_shape: tuple[int, ...]) -> None:
        """Fill in the encoder that these weights belong to, if it is known, and its stem."""
        reason = f"as {Path(self.name).name} has it"
        if self.card is not None:
            architecture = self.card.architecture
            resolution.fill("encoder", lambda: (architecture, reason))
        encoder = resolution.settings.encoder
        if has_stem(encoder) and self.tensors is not None:
            card, tensors = self.card, self.tensors
            resolution.fill("stem", lambda: (card.stem if card else best_plan(encoder, in_shape, tensors).stem, reason))

    def statistics_for(self, source: Source, encoder: str) -> Statistics | None:
        """Mean and deviation with which to prepare samples; None takes those of the samples themselves."""
        habit = habit_of(encoder)
        statistics = self.statistics or (habit.mean or (), habit.std or ())
        return statistics if len(statistics[0]) == source.shape[0] else None

    def load_into(self, encoder: Encoder) -> "WarmStart":
        """Load these weights into an encoder, and into its projector if they fit it.

        Returns:
            The same record with the parts that the weights were loaded into, and without the weights.

        Raises:
            UsageError: they do not fit the encoder; the message has the first names.
        """
        if self.tensors is None:  # a checkpoint follows
            return self
        card, origin = encoder.card, f"init {self.name}"
        warm_start = replace(self, tensors=None, parts=("backbone",), statistics=(card.mean, card.std))
        if self.card is None:
            stem = card.stem if has_stem(card.architecture) else ""
            remarks = fill_known(encoder.backbone, card.architecture, self.tensors, origin, stem)
            return replace(warm_start, remarks=remarks)
        fit_weights(encoder.backbone, part_of(self.tensors, "backbone"), origin, card.architecture)
        try:
            fit_weights(encoder.projector, part_of(self.tensors, "projector"), origin)
        except UsageError:  # of another shape, or none: it starts untrained
            return warm_start
        return replace(warm_start, parts=("backbone", "projector"))

    def record(self) -> dict[str, Any]:
        """Plain values for ``run.json`` and the facts of a checkpoint: enough to continue without the weights."""
        assert self.statistics is not None
        mean, std = map(list, self.statistics)
        # Names only: a run folder may be given away.
        return {
            "name": Path(self.name).name,
            "sha256": self.sha256,
            "parts": list(self.parts),
            "mean": mean,
            "std": std,
            **({"remarks": list(self.remarks)} if self.remarks else {}),
        }


def initial_weights(settings: TrainSettings) -> WarmStart | None:
    """Read the weights that the settings name; None if they name none.

    Raises:
        UsageError: nothing has the name.
        RunError: a run without an encoder, or a damaged one; a file that cannot be read.
    """
    name = settings.init
    if name is None:
        return None
    path = Path(name).expanduser()
    if path.is_dir():
        return _weights_of_run(name, open_run(path))
    beside = RunFolder(path.parent)
    if path.name == beside.weights.name and beside.encoder_card.exists():
        return _weights_of_run(name, beside)
    if not path.exists():
        raise UsageError(f"init {name} does not exist; give {FORMS}")
    return WarmStart(name, sha256_of(path), read_weights(path))


def names_weights(name: str) -> bool:
    """Tell whether the name is that of weights and not of a run folder."""
    path = Path(name)
    return path.is_file() or (path.suffix in WEIGHT_SUFFIXES and not path.is_dir())


def initial_encoder_of(run: Run) -> Encoder:
    """The representation that a run's training began with; its input is prepared as the run's."""
    card, settings = load(run).card, read_resolved(run.folder)
    card = replace(card, projector="none", nonnegative="none", d0=None)
    encoder = Encoder(card, initial_backbone(settings, card.in_shape, run.encoder), nn.Identity())
    if start := initial_weights(settings):
        start.load_into(encoder)
    return encoder


def weights_of_begun(folder: RunFolder, settings: TrainSettings) -> WarmStart | None:
    """Return the record of a resumed run's first weights; before its first checkpoint, the weights themselves.

    Args:
        folder: folder of the run.
        settings: the run's own settings.

    Raises:
        RunError: there is no checkpoint yet, and the weights are not those that the run began with.
        UsageError: a reason that ``initial_weights`` has.
    """
    if settings.init is None:
        return None
    memory, status = newest_memory(folder.checkpoints), readable_status(folder)
    if memory is not None and memory.facts.get(RECORD):
        record = memory.facts[RECORD]
        statistics = tuple(record["mean"]), tuple(record["std"])
        parts, remarks = tuple(record["parts"]), tuple(record.get("remarks", ()))
        return WarmStart(settings.init, record["sha256"], None, statistics=statistics, parts=parts, remarks=remarks)
    weights = initial_weights(settings)
    began = None if status is None else status.init.get("sha256")
    if weights is not None and began not in (None, weights.sha256):
        raise RunError(
            f"init {settings.init} changed since {folder.path} began, and no checkpoint was saved yet; put it back, or "
            "start again with --overwrite"
        )
    return weights


def _weights_of_run(name: str, folder: RunFolder) -> WarmStart:
    saved = read_saved(folder)
    return WarmStart(name, saved.sha256, saved.tensors, saved.card, (saved.card.mean, saved.card.std))
