"""A run, or those of several seeds, as training gives them and the verbs take them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from counterpoint.core.errors import RunError, UsageError
from counterpoint.core.notebook import paragraph, table, view
from counterpoint.core.rundir import RunFolder, open_run

if TYPE_CHECKING:
    from counterpoint.core.run_records import RunStatus


@dataclass(frozen=True)
class Run:
    """A run, as ``cp.train`` returns it.

    Attributes:
        path: the run folder.
        data: what was trained on, when it was an array in memory (a run folder does not hold a copy of it).
        labels: labels given with it.
        encoder: the user's own module, if one was trained.
        loss: the user's own loss, if it was trained with one.
        views: the user's own views, if it was trained with them.
    """

    path: Path
    data: Any = field(default=None, repr=False)
    labels: Any = field(default=None, repr=False)
    encoder: Any = field(default=None, repr=False)
    loss: Any = field(default=None, repr=False)
    views: Any = field(default=None, repr=False)

    def __post_init__(self) -> None:
        """Accept the path as text."""
        object.__setattr__(self, "path", Path(self.path))  # the way into a frozen record

    @property
    def folder(self) -> RunFolder:
        """The files of the run."""
        return RunFolder(self.path)

    @property
    def metrics(self) -> list[dict[str, Any]]:
        """Records of ``metrics.jsonl``, one per epoch."""
        return self.folder.read_metrics()

    def _repr_html_(self) -> str:
        """In a notebook."""
        return _run_view(self.folder)


@dataclass(frozen=True)
class SeedRuns:
    """The runs of several seeds, as ``cp.train(..., seeds=5)`` returns them.

    Attributes:
        path: the folder that holds them.
        runs: one for each seed, in ``seed-<number>`` of the folder.
    """

    path: Path
    runs: tuple[Run, ...]


def as_run(run: Any, *, needs_status: bool = True, may_be_mixed: bool = False) -> Run:
    """Accept a run or the path of its folder; see ``open_run``.

    Raises:
        UsageError: it is something else.
        RunError: the path does not exist or is not a run.
    """
    if isinstance(run, SeedRuns):
        raise UsageError(
            "run must be one run, got those of several seeds; take one of .runs, or cp.evaluate_seeds(...)"
        )
    if not isinstance(run, Run | str | Path):
        raise UsageError(
            f"run must be a run or the path of its folder, got {type(run).__name__}; cp.train(...) returns a run, and "
            "takes a module of your own as encoder="
        )
    found = run if isinstance(run, Run) else Run(Path(run))
    open_run(found.path, needs_status=needs_status, may_be_mixed=may_be_mixed)
    return found


def _run_view(folder: RunFolder) -> str:
    """HTML of a run, how far it is, on what, and its loss beside chance and floor; of one that cannot be read, why."""
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
