"""The encoder of a run as it was at a saved checkpoint."""

import copy
from collections.abc import Sequence

from counterpoint.core.errors import UsageError
from counterpoint.core.rundir import RunFolder
from counterpoint.engine.checkpoint import list_checkpoints, load_checkpoint
from counterpoint.engine.checkpoint_format import step_of
from counterpoint.nn.trained import Encoder, part_of

ALL = "all"


def steps_asked(folder: RunFolder, asked: str) -> Sequence[int]:
    """The steps of the checkpoints that are meant, ascending.

    Args:
        folder: of the run.
        asked: a step, or ``all``.

    Raises:
        UsageError: no checkpoint of that step is kept; those that are, are named.
    """
    kept = sorted(step for path in list_checkpoints(folder.checkpoints) if (step := step_of(path)) >= 0)
    if asked == ALL and kept:
        return kept
    if asked.isascii() and asked.isdigit() and int(asked) in kept:
        return [int(asked)]
    known = ", ".join(map(str, kept)) or "none"
    raise UsageError(
        f"checkpoint {asked} is not kept in {folder.path}; steps that are: {known} (train with --engine.keep to keep "
        "more)"
    )


def encoder_at(folder: RunFolder, encoder: Encoder, step: int) -> Encoder:
    """A copy of a run's encoder with the weights of a checkpoint: their moving average, where the run keeps one.

    Raises:
        RunError: the checkpoint is damaged.
    """
    path = next(path for path in list_checkpoints(folder.checkpoints) if step_of(path) == step)
    snapshot = load_checkpoint(path)
    weights = {**snapshot.state.model, **snapshot.average}
    changed = copy.deepcopy(encoder)
    changed.backbone.load_state_dict(part_of(weights, "backbone"))
    changed.projector.load_state_dict(part_of(weights, "projector"))
    changed.classifier = None  # it was trained with the last state
    return changed.eval()
