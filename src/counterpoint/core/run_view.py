"""What a notebook shows of a run: how far it is, on what, and its loss beside chance and floor."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from counterpoint.core.errors import RunError
from counterpoint.core.notebook import paragraph, table, view

if TYPE_CHECKING:
    from counterpoint.core.run_records import RunStatus
    from counterpoint.core.rundir import RunFolder


def run_view(folder: "RunFolder") -> str:
    """HTML of a run; of one that cannot be read, why.

    Args:
        folder: the run's.
    """
    title = f"Run {folder.path}"
    try:
        status, lines = folder.read_status(), folder.read_metrics()
    except RunError as error:
        return view(title, paragraph(str(error)))
    state = "killed" if folder.is_killed(status) else status.status
    facts = [("status", state), *_facts(status)]
    if lines:
        facts += [("loss", _loss(lines[-1])), ("epochs", f"{lines[-1]['epoch']:,}")]
    files = (folder.evaluation, folder.findings, folder.spectrum, folder.report)
    found = ", ".join(path.name for path in files if path.exists())
    return view(title, table([], [*facts, ("also there", found or "nothing yet")]))


def _loss(line: Mapping[str, Any]) -> str:
    """The loss of an epoch beside what it is read against."""
    beside = [f"{name} {line[name]:.4g}" for name in ("chance", "floor") if line.get(name) is not None]
    return " ".join([f"{line['loss']:.4g}", *[f"({', '.join(beside)})"][: len(beside)]])


def _facts(status: "RunStatus") -> list[tuple[str, str]]:
    """What is trained on what; an older version's record may lack some of it."""
    known = {
        "method": status.method,
        "data": status.data,
        "samples": None if status.num_train is None else f"{status.num_train:,} to train on",
        "representation": status.width,
        "embedding": status.embedding_dims,
        "seed": status.seed,
        "device": status.device,
        "seconds": status.seconds,
    }
    return [(name, str(value)) for name, value in known.items() if value is not None]
