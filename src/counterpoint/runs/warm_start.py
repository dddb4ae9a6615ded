"""Warm start: the weights that an encoder begins with, from a run or a file, and what a run records of them."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from counterpoint.core.errors import RunError, UsageError, first_line
from counterpoint.core.files import sha256_of
from counterpoint.core.rundir import RunFolder, open_run
from counterpoint.core.settings import TrainSettings
from counterpoint.data.source import Source, source_side
from counterpoint.engine.checkpoint import newest_memory
from counterpoint.nn.encoders import TIMM_PREFIX, Pooled, has_stem
from counterpoint.nn.trained import Encoder, EncoderCard, part_of, read_saved
from counterpoint.runs.repair import readable_status
from counterpoint.runs.resolve import Resolution

RECORD = "init"  # key in run.json and in the facts of a checkpoint
OWN_PARTS = ("backbone.", "projector.")  # what every name in a run's encoder.safetensors begins with
MOST_NAMED = 3  # tensors that a sentence lists
FORMS = "a run folder, FILE.safetensors, or timm:NAME"

Statistics = tuple[tuple[float, ...], tuple[float, ...]]


@dataclass(frozen=True)
class WarmStart:
    """Weights that an encoder begins with.

    Attributes:
        name: as the user gave it.
        sha256: of the file that holds the weights.
        tensors: by the names of the file; None where a checkpoint holds what became of them.
        card: of the run they come from; None for other files.
        statistics: mean and deviation of the input that the weights are used to; None where nobody knows.
        parts: of the encoder, that began with these weights.
    """

    name: str
    sha256: str
    tensors: Mapping[str, Tensor] | None
    card: EncoderCard | None = None
    statistics: Statistics | None = None
    parts: tuple[str, ...] = ()

    @property
    def side(self) -> int | None:
        """Side in pixels of the images that the weights are used to, where that is known."""
        return None if self.card is None or self.card.kind == "vectors" else source_side(self.card.in_shape)

    def choose_encoder(self, resolution: Resolution) -> None:
        """Fill in the encoder that these weights belong to, where that is known."""
        reason = f"as {Path(self.name).name} has it"
        if self.card is not None:
            card = self.card
            resolution.fill("encoder", lambda: (card.architecture, reason))
            if has_stem(resolution.settings.encoder):
                resolution.fill("stem", lambda: (card.stem, reason))
        elif self.name.startswith(TIMM_PREFIX):
            resolution.fill("encoder", lambda: (self.name, reason))

    def statistics_for(self, source: Source, backbone: nn.Module) -> Statistics | None:
        """Mean and deviation with which to prepare samples; None takes those of the samples themselves."""
        known = self.statistics
        if known is None and self.name.startswith(TIMM_PREFIX):
            about: Any = getattr(_body(backbone), "pretrained_cfg", {})
            known = (tuple(about.get("mean", ())), tuple(about.get("std", ())))
        return known if known is not None and len(known[0]) == source.shape[0] else None

    def load_into(self, encoder: Encoder) -> "WarmStart":
        """Give an encoder these weights; its projector where they fit it.

        Returns:
            The same with the parts that took them, and without the weights.

        Raises:
            UsageError: they do not fit the encoder; the first names are told.
        """
        if self.tensors is None:  # a checkpoint follows
            return self
        backbone, found = self._backbone(encoder.backbone)
        if problem := misfit(found, backbone):
            raise UsageError(f"init {self.name} does not fit the encoder {encoder.card.architecture}: {problem}")
        backbone.load_state_dict(found)
        head = part_of(self.tensors, "projector")
        takes_head = bool(head) and not misfit(head, encoder.projector)
        if takes_head:
            encoder.projector.load_state_dict(head)
        card = encoder.card
        parts = ("backbone", "projector") if takes_head else ("backbone",)
        return replace(self, tensors=None, parts=parts, statistics=(card.mean, card.std))

    def _backbone(self, backbone: nn.Module) -> tuple[nn.Module, Mapping[str, Tensor]]:
        """The module whose names the weights have, and those that are its own."""
        tensors = self.tensors or {}
        if all(name.startswith(OWN_PARTS) for name in tensors):
            return backbone, part_of(tensors, "backbone")
        body = _body(backbone)
        # The classifier in a file of timm's; an encoder has none.
        about: Any = getattr(body, "pretrained_cfg", {}) if self.name.startswith(TIMM_PREFIX) else {}
        heads = about.get("classifier") or ()
        starts = tuple(f"{head}." for head in ([heads] if isinstance(heads, str) else heads))
        return body, {name: value for name, value in tensors.items() if not name.startswith(starts)}

    def record(self) -> dict[str, Any]:
        """Plain values for ``run.json`` and the facts of a checkpoint: enough to go on without the weights."""
        assert self.statistics is not None
        mean, std = map(list, self.statistics)
        # Names only: a run folder may be given away.
        return {
            "name": Path(self.name).name,
            "sha256": self.sha256,
            "parts": list(self.parts),
            "mean": mean,
            "std": std,
        }


def initial_weights(settings: TrainSettings) -> WarmStart | None:
    """Read the weights that the settings name; None where they name none.

    Raises:
        UsageError: a name of another kind, another encoder than that of the weights, or a file that cannot be read.
        RunError: a run without an encoder, or a damaged one.
    """
    name = settings.init
    if name is None:
        return None
    if name.startswith(TIMM_PREFIX):
        if settings.encoder not in ("auto", name):
            raise UsageError(f"init {name} needs --encoder {name}, got {settings.encoder}")
        if settings.pretrained_weights is None:
            raise UsageError(f"init {name} needs --pretrained-weights FILE.safetensors: nothing is downloaded")
        return _of_file(name, "pretrained_weights", Path(settings.pretrained_weights).expanduser())
    path = Path(name).expanduser()
    if path.is_dir():
        return _of_run(name, open_run(path))
    beside = RunFolder(path.parent)
    if path.name == beside.weights.name and beside.encoder_card.exists():
        return _of_run(name, beside)
    if not path.exists():
        raise UsageError(f"init {name} does not exist; give {FORMS}")
    return _of_file(name, "init", path)


def weights_of_begun(folder: RunFolder, settings: TrainSettings) -> WarmStart | None:
    """What a run that goes on needs of the weights it began with: what it recorded, or before its first checkpoint all.

    Args:
        folder: the run.
        settings: its own.

    Raises:
        RunError: there is no checkpoint yet, and the weights are not those that the run began with.
        UsageError: as for ``initial_weights``.
    """
    if settings.init is None:
        return None
    memory, status = newest_memory(folder.checkpoints), readable_status(folder)
    if memory is not None and memory.facts.get(RECORD):
        return _recorded(settings.init, memory.facts[RECORD])
    found = initial_weights(settings)
    began = None if status is None else status.init.get("sha256")
    if found is not None and began not in (None, found.sha256):
        raise RunError(
            f"init {settings.init} changed since {folder.path} began, and no checkpoint was saved yet; put it back, or "
            "start again with --overwrite"
        )
    return found


def _recorded(name: str, record: Mapping[str, Any]) -> WarmStart:
    """A warm start from its record."""
    statistics = tuple(record["mean"]), tuple(record["std"])
    return WarmStart(name, record["sha256"], None, statistics=statistics, parts=tuple(record["parts"]))


def misfit(tensors: Mapping[str, Tensor], module: nn.Module) -> str:
    """Why tensors are not the state of a module: names or shapes that differ, the first of each; empty if they are.

    >>> misfit({"weight": nn.Linear(2, 3).weight}, nn.Linear(2, 3))
    '1 of 2 tensors is missing (bias)'
    """
    state = module.state_dict()
    missing = [name for name in state if name not in tensors]
    unknown = [name for name in tensors if name not in state]
    shapes = [
        f"{name} is {tuple(tensors[name].shape)} and not {tuple(value.shape)}"
        for name, value in state.items()
        if name in tensors and tensors[name].shape != value.shape
    ]
    parts = []
    if missing:
        parts.append(f"{_counted(missing, len(state))} missing ({_first(missing)})")
    if unknown:
        parts.append(f"{_counted(unknown, len(tensors))} unknown ({_first(unknown)})")
    return "; ".join([*parts, *([_first(shapes)] if shapes else [])])


def _counted(names: list[str], total: int) -> str:
    """How many tensors, of how many."""
    return f"{len(names)} of {total} tensors {'is' if len(names) == 1 else 'are'}"


def _first(names: list[str]) -> str:
    """The first of them."""
    return ", ".join(names[:MOST_NAMED]) + (", ..." if len(names) > MOST_NAMED else "")


def _of_run(name: str, folder: RunFolder) -> WarmStart:
    """The encoder that a run saved."""
    saved = read_saved(folder)
    return WarmStart(name, saved.sha256, saved.tensors, saved.card, (saved.card.mean, saved.card.std))


def _of_file(name: str, setting: str, path: Path) -> WarmStart:
    """Tensors by name in a file that holds nothing else."""
    if path.suffix != ".safetensors":
        taken = FORMS if setting == RECORD else "FILE.safetensors"
        raise UsageError(f"{setting} {path} is not what it takes: {taken}")
    try:
        return WarmStart(name, sha256_of(path), load_file(path))
    except (OSError, SafetensorError) as error:
        raise UsageError(f"{setting} {path} cannot be read: {first_line(error)}") from None


def _body(backbone: nn.Module) -> nn.Module:
    """The network itself, without the layer that averages its maps."""
    return backbone.body if isinstance(backbone, Pooled) else backbone
