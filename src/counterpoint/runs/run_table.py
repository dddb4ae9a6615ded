"""The runs under a folder as a table: one line each, from the small files of their folders. Loads without torch."""

import contextlib
import json
import os
import re
import shutil
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from rich.filesize import decimal

from counterpoint.core.derived_files import OF, check_origin
from counterpoint.core.errors import RunError, StaleFileError, UsageError, unknown_name
from counterpoint.core.files import read_json, read_sealed
from counterpoint.core.run_lock import holder_of, is_locked
from counterpoint.core.rundir import RunFolder, open_run
from counterpoint.core.schemas import EvaluationRecord, read_record
from counterpoint.core.terminal_text import Printed, TextTable
from counterpoint.core.user_files import open_regular, read_text
from counterpoint.diagnostics.findings import Findings, judged_anew

MOST_OF_A_LOSS = 60  # characters of its call
DEPTH = 4  # folders below the one that is listed
TAIL_BYTES = 1 << 14  # of a log; its last line lies within
DONE, RUNNING, STOPPED, FAILED, DAMAGED = "done", "running", "stopped", "failed", "damaged"
WORDS = {"finished": DONE, "interrupted": STOPPED, "created": STOPPED, "failed": FAILED}
LEAST_ASKED = ("size", "date", "encoder", "epochs", "data", "method")  # left out first where the terminal is narrow
PROTOCOLS = {"knn": "knn", "linear probe": "probe"}  # columns


@dataclass(frozen=True)
class RunLine:
    """One run; a field is None if it is not known.

    Attributes:
        name: path below the folder that is listed.
        status: done, running, stopped (resume continues), failed or damaged.
        pid: id of the process that trains it.
        method: method that it learns by.
        data: name of its data.
        encoder: name of its encoder.
        epochs: number of epochs that are done.
        knn: kNN accuracy of the representation, with the ends of its 95 % interval.
        knn_low: lower end of the interval of ``knn``.
        knn_high: upper end of the interval of ``knn``.
        probe: accuracy of the linear probe on it, with the ends of its 95 % interval.
        probe_low: lower end of the interval of ``probe``.
        probe_high: upper end of the interval of ``probe``.
        level: level of the worst finding.
        finding: title of that finding.
        verdict: the answer in words, as `diagnose` and the report have it.
        bytes: size on disk in bytes.
        started: time when it began, ISO 8601.
        problem: reason why it is damaged, with the name of the file.
    """

    name: str
    status: str
    pid: int | None = None
    method: str | None = None
    data: str | None = None
    encoder: str | None = None
    epochs: int | None = None
    knn: float | None = None
    knn_low: float | None = None
    knn_high: float | None = None
    probe: float | None = None
    probe_low: float | None = None
    probe_high: float | None = None
    level: str | None = None
    finding: str | None = None
    verdict: str | None = None
    bytes: int = 0
    started: str | None = None
    problem: str | None = None

    def cells(self) -> dict[str, str]:
        """The text of each column."""
        running = f" ({self.pid})" if self.pid is not None else ""
        return {
            "name": self.name,
            "status": f"{self.status}{running}",
            "method": self.method or "",
            "data": self.data or "",
            "encoder": self.encoder or "",
            "epochs": "" if self.epochs is None else str(self.epochs),
            "knn": _share(self.knn, self.knn_low, self.knn_high),
            "probe": _share(self.probe, self.probe_low, self.probe_high),
            "size": decimal(self.bytes),
            "date": (self.started or "")[:16].replace("T", " "),
            "verdict": self.verdict or "",
        }


COLUMNS = tuple(field.name for field in fields(RunLine))
ALIASES = {"size": "bytes", "date": "started"}


@dataclass(frozen=True)
class RunTable(Printed):
    """The runs under a folder, in the order asked for."""

    folder: Path
    lines: tuple[RunLine, ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        return {"folder": str(self.folder), "runs": [asdict(line) for line in self.lines]}

    @property
    def table(self) -> TextTable:
        """A line for each run; an empty column takes no room."""
        rows = [line.cells() for line in self.lines]
        return _table([head for head in rows[0] if any(row[head] for row in rows)] if rows else [], rows)

    def __str__(self) -> str:
        if not self.lines:
            return f"no runs in {self.folder}"
        table, rows = self.table, [line.cells() for line in self.lines]
        width = shutil.get_terminal_size((10_000, 0)).columns  # other programs read whole lines
        if max(map(len, table.lines)) <= width:
            return str(table)
        heads = [head for head in table.head if head != "verdict"]
        for head in LEAST_ASKED:
            if max(map(len, _table(heads, rows).lines)) > width and head in heads:
                heads.remove(head)
        first, *lines = _table(heads, rows).lines
        fill = textwrap.TextWrapper(width, initial_indent="  ", subsequent_indent="  ").fill
        pairs = zip(lines, rows, strict=True)
        return "\n".join([first, *(text for line, row in pairs for text in (line, fill(row["verdict"])) if text)])


def _table(heads: Sequence[str], rows: Sequence[Mapping[str, str]]) -> TextTable:
    return TextTable(heads, [[row[head] for head in heads] for row in rows], "l" * len(heads))


def list_runs(folder: Path, *, sort: str = "name", reverse: bool = False) -> RunTable:
    """List the runs under a folder, at most ``DEPTH`` folders below it; links are not followed.

    Args:
        folder: folder that holds runs, or a run.
        sort: name of the column to sort by; runs without a value come last.
        reverse: True puts the largest first.

    Raises:
        UsageError: ``folder`` is not a folder, or the column is unknown.
    """
    if not folder.is_dir():
        raise UsageError(f"{folder} is not a folder; name the one that holds your runs (default: runs)")
    column = ALIASES.get(sort, sort)
    if column not in COLUMNS:
        raise unknown_name("column", sort, [*COLUMNS, *ALIASES])
    lines = [_run_line(path, folder) for path in _runs_below(folder, DEPTH)]
    with_value = [line for line in lines if getattr(line, column) is not None]
    with_value.sort(key=lambda line: getattr(line, column), reverse=reverse)
    return RunTable(folder, (*with_value, *(line for line in lines if getattr(line, column) is None)))


def _run_line(path: Path, top: Path) -> RunLine:
    """Read the files of a run; damaged ones are left out, and one of another run makes the run a damaged one."""
    folder = RunFolder(path)
    name = str(path.relative_to(top)) if path != top else path.name or str(path)
    size = size_on_disk(path)
    try:
        open_run(path)
        status = folder.read_status()
        figures = _figures(folder)
    except RunError as error:
        return RunLine(name, DAMAGED, bytes=size, problem=str(error))
    encoder = None
    with contextlib.suppress(OSError, ValueError):
        # Reading YAML takes milliseconds, and there may be thousands of runs.
        encoder = re.search(r"^encoder: (\S+)$", read_text(folder.resolved), flags=re.MULTILINE)
    is_held = is_locked(path)
    holder = holder_of(path) if is_held else None
    return RunLine(
        name=name,
        status=RUNNING if is_held else WORDS.get(status.status, STOPPED),
        pid=None if holder is None else holder.pid,
        method=" by ".join(filter(None, (status.method, str(status.own_loss.get("name") or "")[:MOST_OF_A_LOSS]))),
        data=status.data,
        encoder=encoder[1] if encoder else None,
        epochs=status.num_epochs if status.status == "finished" else _epochs_done(folder),
        **figures,
        bytes=size,
        started=status.started,
    )


def size_on_disk(path: Path) -> int:
    """Bytes of the files below a folder; links are not followed."""
    total = 0
    for parent, _, names in os.walk(path):
        for name in names:
            try:
                total += os.lstat(os.path.join(parent, name)).st_size
            except OSError:  # a run that continues drops its old checkpoints
                continue
    return total


def _runs_below(folder: Path, depth: int) -> Iterator[Path]:
    """Yield the runs at a folder or below it; a folder within a run is no run."""
    run_folder = RunFolder(folder)
    if (run_folder.marker.is_file() or run_folder.status.is_file()) and not run_folder.holds_seeds:
        yield folder
        return
    if depth == 0:
        return
    try:
        with os.scandir(folder) as entries:
            names = sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=False))
    except OSError:  # not readable for this user
        return
    for name in names:
        if not name.startswith("."):
            yield from _runs_below(folder / name, depth - 1)


def _epochs_done(folder: RunFolder) -> int | None:
    """Read the epoch of the last whole line of the log, without reading the others."""
    try:
        with open_regular(folder.metrics) as stream:
            stream.seek(max(0, os.fstat(stream.fileno()).st_size - TAIL_BYTES))
            lines = stream.read(TAIL_BYTES).split(b"\n")[:-1]
        return int(json.loads(lines[-1])["epoch"]) if lines else 0
    except FileNotFoundError:
        return 0
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _figures(folder: RunFolder) -> dict[str, Any]:
    """Read the accuracies, the worst finding and the verdict."""
    contents = _read_values(folder, folder.evaluation)
    values = {name: contents[name] for name in ("rows",) if name in contents}
    rows = read_record(EvaluationRecord, values, folder.evaluation.name).rows
    figures: dict[str, Any] = {}
    for row in rows:
        column = PROTOCOLS.get(row.protocol)
        if column and row.features == "representation":
            figures |= {column: row.accuracy, f"{column}_low": row.low, f"{column}_high": row.high}
    contents = _read_values(folder, folder.findings, is_sealed=False)
    values = {name: contents[name] for name in ("findings", "answer", "unjudged") if contents.get(name)}
    if values:
        findings = judged_anew(read_record(Findings, values, folder.findings.name), rows)
        figures["verdict"] = findings.verdict
        for worst in findings.findings[:1]:
            figures |= {"level": worst.level, "finding": worst.title}
    return figures


def _read_values(folder: RunFolder, path: Path, *, is_sealed: bool = True) -> Mapping[str, Any]:
    """Read a JSON file; empty if it is missing or damaged, an error if it is of another run or state."""
    try:
        values = read_sealed(path) if is_sealed else read_json(path)  # of a large file the hash would take long
        if not isinstance(values, dict):
            return {}
        check_origin(folder, path, values.get(OF))
    except StaleFileError:
        raise
    except RunError:
        return {}
    return values


def _share(value: float | None, low: float | None, high: float | None) -> str:
    if value is None:
        return ""
    ends = "" if low is None or high is None else f" ({100 * low:.1f} to {100 * high:.1f})"
    return f"{100 * value:.1f} %{ends}"
