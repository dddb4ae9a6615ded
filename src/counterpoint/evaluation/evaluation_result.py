"""The result of an evaluation: figures with the split they were measured on, as text, as tables and as a file."""

import hashlib
import re
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import Field
from torch import Tensor

from counterpoint.core.derived_files import read_derived, write_derived
from counterpoint.core.errors import StaleFileError, UsageError
from counterpoint.core.metric import is_apart, loaded_metrics, metric_under
from counterpoint.core.schemas import (
    EvaluationRecord,
    EvaluationRow,
    EvaluationSplit,
    corruption_means,
    read_record,
)
from counterpoint.core.terminal_text import WIDTH, Printed, TextTable, shown
from counterpoint.core.user_objects import CUSTOM
from counterpoint.data.source import Source
from counterpoint.engine.progress import Reporter
from counterpoint.evaluation.evaluation_settings import EvaluationSettings
from counterpoint.evaluation.subject import DEFAULT_HOLDOUT, Subject
from counterpoint.methods.catalogue import CATALOGUE as METHODS

CATALOGUE = loaded_metrics("evaluation")
OWN_ONLY = "; evaluation.json is about the run's own samples and labels only"
KNN, PROBE = "knn", "linear probe"
MOST_CORRUPTED = 4  # features in columns


class Evaluation(EvaluationRecord, Printed):
    """All figures of one subject, metric by metric, features by features, with the split that they were measured on.

    Attributes:
        path: file that the record was written to; None if it was not written. Not written itself.
        name: name of the subject; not written.
    """

    path: Path | None = Field(default=None, exclude=True)
    name: str = Field(default="", exclude=True)

    def accuracy(self, features: str, protocol: str = KNN) -> float:
        """The figure of one row.

        Raises:
            KeyError: no such row.
        """
        row = self.row(features, protocol)
        if row.figure is None:
            raise KeyError(f"no figure for {features!r} with {protocol!r}")
        return row.figure

    def row(self, features: str, protocol: str = KNN) -> EvaluationRow:
        """One row with its interval.

        Raises:
            KeyError: no such row.
        """
        row = self.find_row(features, protocol)
        if row is None:
            raise KeyError(f"no row for {features!r} with {protocol!r}")
        return row

    def to_dict(self) -> dict[str, Any]:
        """Plain values, as in ``evaluation.json``."""
        return self.written()

    @property
    def samples(self) -> str:
        """Description of the samples that the figures are about."""
        split = self.split
        counts = f"{split.num_queries} queries, {split.num_bank} labelled samples, {split.num_classes} classes"
        rest = f"; {split.num_unlabelled:,} samples without a label take no part" if split.num_unlabelled else ""
        return f"{shown(split.source)}: {counts} ({split.how}){rest}"

    @property
    def table(self) -> TextTable:
        """A line for each figure; corruptions and curves have tables of their own."""
        rows = [row for row in self.rows if not is_apart(row.protocol)]
        cells = []
        for row in rows:
            written = metric_under(CATALOGUE, row.protocol).written
            assert row.figure is not None
            interval = " to ".join(written(end) for end in (row.low, row.high) if end is not None)
            cells.append([row.features, row.protocol, written(row.figure), interval])
        value = "accuracy" if all(row.accuracy is not None for row in rows) else "value"
        return TextTable(["features", "protocol", value, "95 % interval"], cells, "llrl")

    def __str__(self) -> str:
        num_curves = sum("kept" in row.settings for row in self.rows)
        curves = ["", f"{num_curves} figures along curves: in JSON and in the report."] if num_curves else []
        return "\n".join(
            [*textwrap.wrap(self.samples, WIDTH), *self.table.lines, *corruption_lines(self.rows), *curves]
        )


def corruption_lines(rows: Sequence[EvaluationRow]) -> list[str]:
    """A line for each corruption: mean accuracy over severities, features in columns."""
    lines: list[str] = []
    for classifier, by_corruption in corruption_means(rows).items():
        features = list(dict.fromkeys(name for means in by_corruption.values() for name in means))[:MOST_CORRUPTED]
        lines += ["", f"{classifier} fitted to clean samples, under corruptions: accuracy, mean over severities"]
        cells = [
            [corruption, *(f"{means[name]:.1%}" if name in means else "" for name in features)]
            for corruption, means in by_corruption.items()
        ]
        lines += TextTable(["corruption", *features], cells, "l" + "r" * len(features)).lines
    return lines


def write_evaluation(
    record: EvaluationRecord, subject: Subject, settings: EvaluationSettings, reporter: Reporter
) -> Path | None:
    """Write an evaluation of a run, or one whose file was named; rows of an earlier one of the same samples stay."""
    path = _record_path(subject, settings)
    if path is None:
        return None
    rows = (*record.rows, *_earlier_rows(record, path, subject, settings, reporter))
    write_derived(subject.folder, path, record.model_copy(update={"rows": rows}).written())
    if subject.folder is None or path != subject.folder.evaluation:
        rest = "" if subject.folder is None or settings.out is not None else OWN_ONLY
        reporter.say(f"wrote {path}{rest}")
    return path


def _record_path(subject: Subject, settings: EvaluationSettings) -> Path | None:
    """Path to write an evaluation to, whose folder is made; None without a run folder and without ``out``."""
    checkpoint = settings.checkpoint
    if settings.out is not None:
        path = Path(settings.out)
        if path.suffix != ".json":
            raise UsageError(f"out must end in .json, got {path}")
    elif subject.folder is None:
        return None
    elif subject.is_own_record and checkpoint is None:
        return subject.folder.evaluation
    else:
        # Names come from the user and may be paths; the fingerprint distinguishes data of equal names.
        name = Path((subject.queries or subject.source).name).stem
        parts = [name, f"step-{checkpoint}" if checkpoint else ""]
        stem = re.sub(r"[^A-Za-z0-9_.-]+", "-", "-".join(filter(None, parts)))[:60] or "data"
        path = subject.folder.other_evaluations / f"{stem}-{subject.source.fingerprint[:8]}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def _earlier_rows(
    record: EvaluationRecord, path: Path, subject: Subject, settings: EvaluationSettings, reporter: Reporter
) -> list[EvaluationRow]:
    """Rows of an earlier record that stay: of the same encoder and split, whose metric was not requested."""
    try:
        values = read_derived(subject.folder, path) if path.exists() else {}
    except StaleFileError as error:  # it is of another run, or of other weights
        reporter.say(f"{str(error).partition(';')[0]}; it is replaced")
        values = {}
    earlier = read_record(EvaluationRecord, values, str(path))
    measured = {(row.features, row.protocol) for row in record.rows}
    # A record of an earlier version has no fingerprint of all samples, or none at all.
    unknown = {"data_fingerprint": None}, {"data_fingerprint": None, "query_fingerprint": None}
    is_same = earlier.split in (record.split, *(record.split.model_copy(update=missing) for missing in unknown))
    # A run's own folder has records of it alone; a file that the user names may be of another run.
    if subject.facts is None:
        is_same &= settings.out is None
    else:  # two modules of one name may be different ones
        is_same &= subject.encoder.card.architecture != CUSTOM and earlier.encoder == dict(subject.facts)
    return [row for row in earlier.rows if is_same and (row.features, row.protocol) not in measured]


def described_split(subject: Subject, bank: Tensor, queries: Tensor) -> EvaluationSplit:
    """The record of the samples: their numbers and classes, how they were split, and their fingerprints."""
    names, labels = subject.source.class_names, subject.source.labels
    assert labels is not None
    query_classes = set(labels[queries].tolist())
    return EvaluationSplit(
        source=Path(subject.source.name).name,
        num_unlabelled=int((labels < 0).sum()),
        num_bank=len(bank),
        num_queries=len(queries),
        num_classes=len(names),
        class_names=names,
        absent_classes=tuple(names[number] for number in labels[bank].unique().tolist() if number not in query_classes),
        how=_description_of_queries(subject),
        query_fingerprint=query_fingerprint(subject.source, queries, is_features=subject.is_features),
        data_fingerprint=subject.source.fingerprint,
    )


def _description_of_queries(subject: Subject) -> str:
    """Say what the queries are, and whether the encoder has seen them."""
    if subject.queries is not None:
        how = f"queries are {shown(Path(subject.queries.name).name)}, the bank all of {Path(subject.source.name).name}"
        return f"{how}, on which the encoder was trained" if subject.is_own_data else how
    if subject.settings is None or subject.folder is None:
        return f"{DEFAULT_HOLDOUT:.0%} of each class are queries"
    held_out, status = float(subject.settings.source.holdout), subject.folder.read_status()
    share = f"{held_out or DEFAULT_HOLDOUT:.0%} of each class"
    if not subject.is_own_data:
        return f"not the data of training; {share} are queries"
    if held_out == 0:
        learned = "with" if METHODS[subject.settings.method].needs_labels else "without"
        return f"{share} are queries; the encoder has seen them in training, {learned} labels"
    seen = (status.split_fingerprint, status.data_fingerprint)
    # Other labels give another split, whose held-out part may have been trained on; the record must not hide it.
    if seen != (subject.split.fingerprint, subject.source.fingerprint):
        return f"{share} are queries; data or labels are not those of training: the encoder may have seen some of them"
    return f"{share}, held out of training"


def query_fingerprint(source: Source, queries: Tensor, *, is_features: bool = False) -> str:
    """Short hash of the names and classes of the queries: if two are equal, figures can be compared in pairs.

    Args:
        source: samples, among which are the queries.
        queries: positions of the queries in the source.
        is_features: True if the samples are features, which differ between two encoders for the same samples: without
            names these are identified by their places and classes.
    """
    assert source.labels is not None
    # Samples without names of their own are identified by their places in this very content.
    has_names = source.sample_names != tuple(map(str, range(len(source))))
    identity = "" if has_names else str(len(source)) if is_features else source.fingerprint
    digest = hashlib.sha256(identity.encode())
    for place, label in zip(queries.tolist(), source.labels[queries].tolist(), strict=True):
        digest.update(f"{source.sample_names[place]}\0{source.class_names[label]}\0".encode(errors="surrogateescape"))
    return digest.hexdigest()[:16]
