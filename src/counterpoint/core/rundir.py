"""The run folder: the names of its files, how it is created and opened, and its status record."""

import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from counterpoint.core.errors import RunError, UsageError
from counterpoint.core.files import finite_or_null, flush_to_disk, read_json, write_json, write_text

if TYPE_CHECKING:
    from counterpoint.core.run_records import RunStatus

FORMAT_VERSION = 1


@dataclass(frozen=True)
class RunFolder:
    """Paths of one run; every layer writes and reads through it."""

    path: Path

    @property
    def config(self) -> Path:
        """What the user asked for."""
        return self.path / "config.yaml"

    @property
    def resolved(self) -> Path:
        """Every setting filled in, with the reason of each ``auto``."""
        return self.path / "resolved.yaml"

    @property
    def status(self) -> Path:
        """Status, seed, version, device, times, data fingerprint; its presence marks a run."""
        return self.path / "run.json"

    @property
    def metrics(self) -> Path:
        """One JSON line per epoch: a function of settings and data alone, so that runs can be compared bit by bit."""
        return self.path / "metrics.jsonl"

    @property
    def timings(self) -> Path:
        """One JSON line per epoch with what the clock said."""
        return self.path / "timings.jsonl"

    @property
    def checkpoints(self) -> Path:
        """Folder of ``step-*`` checkpoints."""
        return self.path / "checkpoints"

    @property
    def weights(self) -> Path:
        """What ``cp.load`` reads, with ``encoder_card``."""
        return self.path / "encoder.safetensors"

    @property
    def encoder_card(self) -> Path:
        """How to rebuild the encoder and prepare its input."""
        return self.path / "encoder.json"

    @property
    def second(self) -> "RunFolder":
        """Where the encoder of the second kind of sample lies, in runs that have one."""
        return RunFolder(self.path / "second")

    @property
    def evaluation(self) -> Path:
        """Accuracy table with intervals and protocol."""
        return self.path / "evaluation.json"

    @property
    def other_evaluations(self) -> Path:
        """Folder of accuracy tables on other samples, or by other labels, than the run's own."""
        return self.path / "evaluations"

    @property
    def findings(self) -> Path:
        """Diagnosis in numbers and words."""
        return self.path / "findings.json"

    @property
    def arrays(self) -> Path:
        """Arrays behind the diagnosis (spectra, thumbnails)."""
        return self.path / "arrays.npz"

    @property
    def report(self) -> Path:
        """Default place of the report."""
        return self.path / "report.html"

    @property
    def files(self) -> tuple[Path, ...]:
        """Every file that a run writes."""
        described = (self.config, self.resolved, self.status, self.metrics, self.timings, self.weights)
        return (*described, self.encoder_card, self.evaluation, self.findings, self.arrays, self.report)

    def read_status(self) -> "RunStatus":
        """Read ``run.json``.

        Raises:
            RunError: it is missing, damaged, or a field is of the wrong type.
        """
        # deferred: pydantic takes 0.1 s to import, and what is no run is answered without it
        from counterpoint.core.run_records import RunStatus, read_record  # deferred: see above

        return read_record(RunStatus, read_json(self.status), str(self.status))

    def update_status(self, **changes: Any) -> None:
        """Change fields of ``run.json`` atomically."""
        from counterpoint.core.run_records import RunStatus  # deferred: see `read_status`

        # What another version wrote stays: fields are laid over those that are there.
        before = self.read_status().written() if self.status.exists() else {"format": FORMAT_VERSION}
        # Through the record: a value of a wrong type fails here, and not when someone reads it.
        write_json(self.status, RunStatus.model_validate({**before, **changes}).written())

    def append_metrics(self, record: dict[str, Any]) -> None:
        """Append one line to ``metrics.jsonl``."""
        _append(self.metrics, record)

    def append_timings(self, record: dict[str, Any]) -> None:
        """Append one line to ``timings.jsonl``."""
        _append(self.timings, record)

    def read_metrics(self) -> list[dict[str, Any]]:
        """All whole lines of ``metrics.jsonl``, each with the timings of its step; a torn last line is left out."""
        # By step, not by line: the two files are written one after the other, and a kill may leave one line
        # more in one.
        timings = {record.get("step"): record for record in _records(self.timings)}
        return [{**timings.get(record.get("step"), {}), **record} for record in _records(self.metrics)]

    def truncate_metrics(self, last_step: int) -> None:
        """Drop the lines after a step, so that a resumed run logs each epoch once."""
        for path in (self.metrics, self.timings):
            kept = [record for record in _records(path) if record["step"] <= last_step]
            write_text(path, "".join(json.dumps(record) + "\n" for record in kept))


def _append(path: Path, record: dict[str, Any]) -> None:
    """Append one JSON line."""
    line = json.dumps(finite_or_null(record), allow_nan=False) + "\n"
    try:
        with path.open("a", encoding="utf-8") as stream:
            stream.write(line)
        flush_to_disk(path)  # before the checkpoint that these lines belong to
    except OSError as error:
        raise RunError(f"cannot write {path}: {error.strerror or error}") from error


def _records(path: Path) -> Iterator[dict[str, Any]]:
    """The whole lines of a file of JSON lines, up to the first torn one."""
    if not path.exists():
        return
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():  # a line may be torn within a letter
        try:
            yield json.loads(line)
        except ValueError:
            return


def create_run(path: Path, *, overwrite: bool) -> RunFolder:
    """Create an empty run folder.

    Raises:
        RunError: something stands there already (``overwrite`` replaces only what is a run), or it cannot be created.
    """
    folder = RunFolder(path)
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        if not overwrite:
            raise RunError(
                f"{path} exists; continue it with --resume, replace it with --overwrite, or choose another --out"
            )
        if not folder.status.exists():
            raise RunError(f"{path} is not a run folder, so --overwrite will not delete it; choose another --out")
    try:
        if folder.status.exists():  # only with overwrite, see above
            shutil.rmtree(path)
        folder.checkpoints.mkdir(parents=True)
        folder.update_status(status="created")  # from here on it is known as a run, whatever happens
    except OSError as error:
        raise RunError(f"cannot create the run folder {path}: {error.strerror or error}") from None
    return folder


def open_run(path: Path) -> RunFolder:
    """Open an existing run folder.

    Raises:
        RunError: the path does not exist, is not a run, or is one of another version.
    """
    folder = RunFolder(path)
    if not path.exists():
        raise RunError(f"run folder {path} does not exist")
    if not folder.status.is_file():
        raise RunError(
            f"{path} is not a run folder (it has no run.json); `counterpoint train --out {path.name}` makes one"
        )
    # As plain JSON: another version's record need not fit ours, and its number is to be told.
    record = read_json(folder.status)
    if not isinstance(record, dict) or "status" not in record:
        raise RunError(f"{path} is not a run folder (its run.json is not a run's)")
    if record.get("format") != FORMAT_VERSION:
        raise RunError(f"{folder.status} has format {record.get('format')}; this version reads {FORMAT_VERSION}")
    return folder


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


def as_run(run: Any) -> Run:
    """Accept a run or the path of its folder.

    Raises:
        UsageError: it is something else.
        RunError: the path does not exist or is not a run.
    """
    if not isinstance(run, Run | str | Path):
        raise UsageError(
            f"run must be a run or the path of its folder, got {type(run).__name__}; cp.train(...) returns a run, and "
            "takes a module of your own as encoder="
        )
    found = run if isinstance(run, Run) else Run(Path(run))
    open_run(found.path)
    return found
