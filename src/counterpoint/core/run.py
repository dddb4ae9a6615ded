"""A run, or the runs of several seeds, as training returns them and the verbs take them."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from counterpoint.core.errors import UsageError
from counterpoint.core.rundir import RunFolder, open_run


@dataclass(frozen=True)
class Run:
    """A run, as ``cp.train`` returns it.

    Attributes:
        path: the run folder.
        data: the training data, if they were an array in memory (a run folder does not hold a copy of it).
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
        object.__setattr__(self, "path", Path(self.path))  # the way into a frozen record

    @property
    def folder(self) -> RunFolder:
        """The files of the run."""
        return RunFolder(self.path)

    @property
    def metrics(self) -> list[dict[str, Any]]:
        """Records of ``metrics.jsonl``, one per epoch."""
        return self.folder.read_metrics()


@dataclass(frozen=True)
class SeedRuns:
    """The runs of several seeds, as ``cp.train(..., seeds=5)`` returns them.

    Attributes:
        path: the folder that holds them.
        runs: one for each seed, in ``seed-<number>`` of the folder.
    """

    path: Path
    runs: tuple[Run, ...]


def listed(runs: Sequence[Any]) -> list[Any]:
    """Runs that were passed one after the other, or as one list.

    >>> listed(("a", "b")), listed((["a", "b"],))
    (['a', 'b'], ['a', 'b'])
    """
    return list(runs[0]) if len(runs) == 1 and isinstance(runs[0], list | tuple) else list(runs)


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
    run = run if isinstance(run, Run) else Run(Path(run))
    open_run(run.path, needs_status=needs_status, may_be_mixed=may_be_mixed)
    return run


def display_names(folders: Sequence[Path]) -> list[str]:
    """Name each run by its folder; equal names get their parent folder in front, then a number.

    >>> display_names([Path("a/ncl"), Path("b/ncl"), Path("simclr")])
    ['a/ncl', 'b/ncl', 'simclr']
    """
    # Resolved: "." has no name of its own.
    paths = [folder.resolve() for folder in folders]
    shared = Counter(path.name for path in paths)
    names = [path.name if shared[path.name] == 1 else f"{path.parent.name}/{path.name}" for path in paths]
    # Runs of one folder name under parents of one name: only a number is left to tell them apart.
    return [
        name if names.count(name) == 1 else f"{name} ({names[:place].count(name) + 1})"
        for place, name in enumerate(names)
    ]
