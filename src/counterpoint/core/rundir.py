"""The run folder: the names of its files, how it is opened, its status record, and its lines of figures.

The logs of JSON lines grow: each checkpoint, and the record of a finished run, has the hash of their content. A line
that a kill tore off while it was written is the last and has no end.
"""

import hashlib
import json
import os
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from counterpoint.core.errors import RunError, StaleFileError
from counterpoint.core.files import (
    EXPORT_RECORD,
    finite_or_null,
    flush_to_disk,
    read_json,
    read_sealed,
    run_named_in,
    write_atomically,
    write_file,
    write_sealed,
)
from counterpoint.core.operating_system import open_unlinked
from counterpoint.core.run_lock import LOCK, is_locked
from counterpoint.core.user_files import MAX_TEXT_BYTES, read_regular, read_text

if TYPE_CHECKING:
    from counterpoint.core.schemas import RunStatus, SeedsRecord

FORMAT_VERSION = 1
EXPORT_WEIGHTS = "model.safetensors"
RUN = "run"  # key of a run's id in what its files say of themselves


@dataclass(frozen=True)
class LogLine:
    """One line as it is in the file, and the values in it."""

    content: bytes
    values: dict[str, Any]

    @property
    def step(self) -> float:
        """Number of updates done; 0 if the line does not say."""
        step = self.values.get("step")
        return step if isinstance(step, int | float) else 0


@dataclass(frozen=True)
class Lines:
    """The lines of a log.

    Attributes:
        good: the lines from the first on that hold named values.
        problem: fault of the line after them; empty if all are good but perhaps a last one without an end.
    """

    good: tuple[LogLine, ...]
    problem: str

    def up_to(self, step: int) -> list[bytes]:
        """The lines up to a step, each with its end."""
        return [line.content + b"\n" for line in self.good if line.step <= step]


def append_line(path: Path, values: dict[str, Any]) -> None:
    """Append one line, flushed to disk.

    Raises:
        RunError: the disk refuses, or the path is a link.
    """
    try:
        with os.fdopen(open_unlinked(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT), "wb") as stream:
            stream.write(json.dumps(finite_or_null(values), allow_nan=False).encode() + b"\n")
        flush_to_disk(path)  # before the checkpoint that these lines belong to
    except OSError as error:
        raise RunError(f"cannot write {path}: {error.strerror or error}") from error


def log_hash(path: Path) -> str:
    """SHA-256 of a log; a missing log counts as an empty one; raises as ``read_lines``."""
    return hashlib.sha256(_content(path)).hexdigest()


def read_lines(path: Path) -> Lines:
    """Read a log.

    Raises:
        RunError: it cannot be read.
    """
    *lines, rest = _content(path).split(b"\n")
    good: list[LogLine] = []
    for number, line in enumerate([*lines, rest] if rest else lines, 1):
        try:
            values = json.loads(line)
        except (ValueError, RecursionError):
            values = None
        if not isinstance(values, dict):
            return Lines(tuple(good), f"line {number} holds no named values" if number <= len(lines) else "")
        for name in ("seal", "run"):  # of version 0.2.0
            values.pop(name, None)
        good.append(LogLine(line, values))
    return Lines(tuple(good), "")


class Inside:
    """The path of a file or folder of a run, by its name in the run folder."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, folder: "RunFolder", kind: type) -> Path:
        return folder.path / self._name


@dataclass(frozen=True)
class RunFolder:
    """Paths of one run; every layer writes and reads through it.

    Attributes:
        path: the folder.
        weights_name: name of the file of the encoder's weights; an exported folder has the name other programs use.
    """

    path: Path
    weights_name: str = "encoder.safetensors"

    lock = Inside(LOCK)
    marker = Inside(".counterpoint")  # written first and by nothing else: the folder is ours (0.1.0 wrote none)
    config = Inside("config.yaml")  # what the user asked for
    resolved = Inside("resolved.yaml")  # every setting filled in, with the reason of each ``auto``
    status = Inside("run.json")  # status, seed, version, device, times, data fingerprint, sealed with a hash
    # One JSON line per epoch: a function of settings and data alone, so that runs can be compared bit by bit.
    metrics = Inside("metrics.jsonl")
    timings = Inside("timings.jsonl")  # one JSON line per epoch with what the clock said
    checkpoints = Inside("checkpoints")  # folder of ``step-*`` checkpoints
    encoder_card = Inside("encoder.json")  # how to rebuild the encoder and prepare its input
    classifier_weights = Inside("classifier.safetensors")  # that a supervised method trained with the encoder
    classifier_card = Inside("classifier.json")  # its classes, and the hash of its weights
    evaluation = Inside("evaluation.json")  # accuracy table with intervals and protocol
    other_evaluations = Inside("evaluations")  # folder of such tables on other samples, or by other labels
    findings = Inside("findings.json")  # diagnosis in numbers and words
    arrays = Inside("arrays.npz")  # arrays behind the diagnosis (spectra, histograms of cosines)
    collection = Inside("collection.npz")  # samples for the map and the dimensions (``evaluation.map_samples``)
    map_layout = Inside("map.json")  # positions on the map, made from ``collection`` by ``report``
    spectrum = Inside("spectrum.json")  # curvature of the loss: what is known of the eigenvalues of its Hessian
    report = Inside("report.html")  # default place of the report
    seeds = Inside("seeds.json")  # in a folder of the runs of several seeds, which is not a run itself

    @property
    def weights(self) -> Path:
        """The encoder's weights, which ``cp.load`` reads with ``encoder_card``."""
        return self.path / self.weights_name

    @property
    def second(self) -> "RunFolder":
        """Folder of the encoder of the second kind of sample, in runs that have one."""
        return RunFolder(self.path / "second")

    @property
    def holds_seeds(self) -> bool:
        """True if it is a folder of ours with the runs of several seeds."""
        return self.seeds.is_file() and self.marker.is_file() and not self.status.exists()

    def of_seed(self, seed: int) -> "RunFolder":
        """The run of one seed in a folder of several."""
        return RunFolder(self.path / f"seed-{seed}")

    @property
    def files(self) -> tuple[Path, ...]:
        """Every file that a run writes."""
        described = (self.config, self.resolved, self.status, self.metrics, self.timings, self.weights)
        classifier = (self.classifier_weights, self.classifier_card)
        results = (self.evaluation, self.findings, self.arrays, self.collection, self.map_layout)
        return (*described, self.encoder_card, *classifier, *results, self.spectrum, self.report)

    @property
    def home(self) -> "RunFolder":
        """The folder of the run itself, also if this is the folder of its second encoder."""
        return RunFolder(self.path.parent) if self.path.name == "second" and not self.status.exists() else self

    @property
    def run_id(self) -> str | None:
        """Id of the run, which all its files carry; None for a run of an earlier version, and if there is no run.

        Raises:
            RunError: ``run.json`` is damaged.
        """
        home = self.home
        if not home.status.exists():
            return None
        run_id = read_sealed(home.status, must_be_sealed=home.marker.is_file()).get("run_id")
        if not isinstance(run_id, str | None):
            raise RunError(f"{home.status} is damaged: run_id must be text")
        return run_id

    @property
    def is_ours(self) -> bool:
        """True if we made it: it has the marker, or the record of a run of 0.1.0, which wrote no marker."""
        if self.marker.is_file():
            return True
        try:
            record = read_sealed(self.status)
        except RunError:
            return False
        # No other process writes these names.
        return record.get("format") == FORMAT_VERSION and {"status", "data_fingerprint"} <= set(record)

    def read_status(self) -> "RunStatus":
        """Read ``run.json``.

        Raises:
            RunError: it is missing, damaged, or a field is of the wrong type.
        """
        # deferred: pydantic takes 0.1 s to import, and what is not a run is answered without it
        from counterpoint.core.schemas import RunStatus, read_record  # deferred: see above

        return read_record(RunStatus, read_sealed(self.status, must_be_sealed=self.marker.is_file()), str(self.status))

    def write_status(self, status: "RunStatus") -> None:
        """Write ``run.json`` atomically."""
        write_sealed(self.status, {"format": FORMAT_VERSION, **status.written()})

    def update_status(self, **changes: Any) -> None:
        """Change fields of ``run.json`` atomically."""
        from counterpoint.core.schemas import RunStatus  # deferred: see `read_status`

        # What another version wrote stays: fields are laid over those that are there.
        before = self.read_status().written() if self.status.exists() else {}
        # Through the record: a value of a wrong type fails here, and not when someone reads it.
        self.write_status(RunStatus.model_validate({**before, **changes}))

    def read_seeds(self) -> "SeedsRecord":
        """Read ``seeds.json``.

        Raises:
            RunError: it is missing, damaged, or a field is of the wrong type.
        """
        from counterpoint.core.schemas import SeedsRecord, read_record  # deferred: see `read_status`

        try:
            return read_record(SeedsRecord, read_sealed(self.seeds, must_be_sealed=True), str(self.seeds))
        except RunError as error:
            raise RunError(f"{error}; the runs of its seeds can be used one by one") from None

    def write_seeds(self, record: "SeedsRecord") -> None:
        """Write ``seeds.json`` atomically."""
        write_sealed(self.seeds, {**record.written(), "format": FORMAT_VERSION})

    def is_killed(self, status: "RunStatus") -> bool:
        """Tell whether ``run.json`` says "running" but no process trains: it was killed, or its disk failed."""
        return status.status == "running" and not is_locked(self.path)

    def read_metrics(self) -> list[dict[str, Any]]:
        """All lines of ``metrics.jsonl``, each with the timings of its step; a torn last line is left out.

        Raises:
            RunError: a line is damaged, or a finished run had others at its end.
        """
        # By step, not by line: the two files are written one after the other, and a kill may leave one line
        # more in one.
        timings = {line.step: line.values for line in self._lines(self.timings)}
        return [{**timings.get(line.step, {}), **line.values} for line in self._lines(self.metrics)]

    def truncate_metrics(self, last_step: int) -> None:
        """Drop the lines after a step, so that a resumed run logs each epoch once.

        Raises:
            RunError: a line is damaged; nothing is dropped then.
        """
        logs = {path: read_lines(path) for path in (self.metrics, self.timings)}
        for path, lines in logs.items():
            if lines.problem:
                raise RunError(f"{path} is damaged: {lines.problem}")
        for path, lines in logs.items():
            write_atomically(path, lambda temporary, lines=lines: write_file(temporary, lines.up_to(last_step)))

    def change_since_end(self, path: Path) -> str:
        """Say how one of the two logs differs from its state when the run was finished; empty if it does not."""
        status = self.read_status() if self.status.exists() else None
        if status is None or status.status != "finished":
            return ""
        if path.name in status.figures:
            return "" if log_hash(path) == status.figures[path.name] else "it was changed after the run was finished"
        # Of an earlier version, which kept the number of epochs alone.
        num_lines, num_epochs = len(read_lines(self.metrics).good), status.num_epochs or 0
        return f"it holds {num_lines} of {num_epochs} epochs" if path == self.metrics and num_lines < num_epochs else ""

    def _lines(self, path: Path) -> tuple[LogLine, ...]:
        lines = read_lines(path)
        # Those of times may be missing: nothing is computed from them.
        problem = lines.problem or (self.change_since_end(path) if path.exists() or path == self.metrics else "")
        if problem:
            raise RunError(f"{path} is damaged: {problem}")
        return lines.good


def exported_folder(path: Any) -> RunFolder | None:
    """The files of an encoder in a folder that ``counterpoint export`` wrote; None for any other folder."""
    if not isinstance(path, str | Path) or not (Path(path) / EXPORT_RECORD).is_file():
        return None
    return RunFolder(Path(path), EXPORT_WEIGHTS)


def open_run(path: Path, *, needs_status: bool = True, may_be_mixed: bool = False) -> RunFolder:
    """Open an existing run folder.

    Args:
        path: the folder.
        needs_status: whether its ``run.json`` must be sound; False to repair it.
        may_be_mixed: whether its ``run.json`` and ``resolved.yaml`` may be of two runs, which the caller tells apart.

    Raises:
        RunError: the path does not exist, is not a run, is damaged, or is one of another version.
    """
    folder = RunFolder(path)
    if not path.exists():
        raise RunError(f"{path} does not exist; give a run folder, or a file where the verb takes one")
    if folder.holds_seeds:
        first = next(iter(seed_folders(path)), path / "seed-0")
        raise RunError(
            f"{path} holds the runs of several seeds and is not a run; name one of them, such as {first} (train, "
            "resume, evaluate and compare take all of them)"
        )
    is_marked, makes = folder.marker.is_file(), f"`counterpoint train --out {path.name}` makes one"
    if not is_marked and not folder.status.is_file():
        raise RunError(f"{path} is not a run folder (it has no run.json); {makes}")
    if is_marked and not needs_status:
        return folder
    # As plain JSON: another version's record need not fit ours, and its number is reported.
    try:
        record = read_sealed(folder.status, must_be_sealed=True) if is_marked else read_json(folder.status)
    except RunError as error:
        remedy = f"; repair it with: counterpoint resume {shlex.quote(str(path))}" if is_marked else ""
        raise RunError(f"{error}{remedy}") from None
    if not isinstance(record, dict) or "status" not in record:
        raise RunError(f"{path} is not a run folder (its run.json is not a run's); {makes}")
    if record.get("format") != FORMAT_VERSION:
        raise RunError(f"{folder.status} has format {record.get('format')}; this version reads {FORMAT_VERSION}")
    if not may_be_mixed and record["status"] != "created":  # else nothing of it counts yet
        _check_one_run(folder, record.get("run_id"))
    return folder


def _check_one_run(folder: RunFolder, run_id: str | None) -> None:
    """Require that ``run.json`` and ``resolved.yaml`` are of one run."""
    try:
        resolved_id = run_named_in(read_text(folder.resolved))
    except (OSError, ValueError):  # missing or unreadable: code that needs the settings reports it
        return
    if resolved_id != run_id:
        place = shlex.quote(str(folder.path))
        raise StaleFileError(
            f"{folder.status} and {folder.resolved} are of two runs ({run_id or 'no id'}, {resolved_id or 'no id'}); "
            f"`counterpoint verify {place}` says which one is not of this run, `counterpoint resume {place}` writes a "
            "foreign run.json again"
        )


def seed_folders(path: Path) -> list[Path]:
    """The runs of one method with several seeds, ``seed-*`` of a folder, in the order of their numbers; none in a run.

    Raises:
        RunError: the record of the folder is damaged.

    >>> seed_folders(Path("no/such/folder"))
    []
    """
    folder = RunFolder(path)
    if folder.status.exists():
        return []
    if folder.holds_seeds:
        return [folder.of_seed(seed).path for seed in folder.read_seeds().seeds]
    return sorted(path.glob("seed-*"), key=lambda run: (len(run.name), run.name))  # seed-10 behind seed-9


def _content(path: Path) -> bytes:
    try:
        return read_regular(path, MAX_TEXT_BYTES) if path.exists() else b""
    except OSError as error:
        raise RunError(f"{path} cannot be read: {error.strerror or error}") from None
