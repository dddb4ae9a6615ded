"""Where an evaluation is written, what of an earlier one stays there, and what it says about its samples."""

import hashlib
import re
from pathlib import Path

from torch import Tensor

from counterpoint.core.derived_files import read_earlier, write_derived
from counterpoint.core.errors import UsageError
from counterpoint.core.run_records import EvaluationRecord, EvaluationRow, EvaluationSplit, read_record
from counterpoint.core.terminal_text import shown
from counterpoint.core.user_objects import CUSTOM
from counterpoint.data.source import Source
from counterpoint.engine.progress import Reporter
from counterpoint.evaluation.evaluation_settings import EvaluationSettings
from counterpoint.evaluation.subject import DEFAULT_HOLDOUT, Subject
from counterpoint.methods.catalogue import CATALOGUE as METHODS

OWN_ONLY = "; evaluation.json is about the run's own samples and labels only"


def write_evaluation(record: EvaluationRecord, subject: Subject, asked: EvaluationSettings, reporter: Reporter) -> Path:
    """Write an evaluation; rows of an earlier one stay where it is about the same samples."""
    path = _place_of(subject, asked)
    rows = (*record.rows, *_earlier_rows(record, path, subject, asked, reporter))
    write_derived(subject.folder, path, record.model_copy(update={"rows": rows}).written())
    if subject.folder is None or path != subject.folder.evaluation:
        rest = "" if subject.folder is None or asked.out is not None else OWN_ONLY
        reporter.say(f"wrote {path}{rest}")
    return path


def _place_of(subject: Subject, asked: EvaluationSettings) -> Path:
    """Where an evaluation is written; its folder is made."""
    checkpoint = asked.checkpoint
    if asked.out is not None:
        path = Path(asked.out)
        if path.suffix != ".json":
            raise UsageError(f"out must end in .json, got {path}")
    elif subject.folder is not None and subject.is_own_record and checkpoint is None:
        return subject.folder.evaluation
    else:
        # Names come from the user and may be paths; the fingerprint keeps apart what is called alike.
        folder = Path("evaluations") if subject.folder is None else subject.folder.other_evaluations
        name = Path((subject.queries or subject.source).name).stem
        parts = [subject.name if subject.folder is None else "", name, f"step-{checkpoint}" if checkpoint else ""]
        stem = re.sub(r"[^A-Za-z0-9_.-]+", "-", "-".join(filter(None, parts)))[:60] or "data"
        path = folder / f"{stem}-{subject.source.fingerprint[:8]}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def _earlier_rows(
    record: EvaluationRecord, path: Path, subject: Subject, asked: EvaluationSettings, reporter: Reporter
) -> list[EvaluationRow]:
    """Rows of an earlier record that stay: of the same encoder and split, where their metric was not asked for."""
    earlier = read_record(EvaluationRecord, read_earlier(subject.folder, path, reporter.say), str(path))
    measured = {(row.features, row.protocol) for row in record.rows}
    # A record of an earlier version has no fingerprint of all samples, or none at all.
    unknown = {"data_fingerprint": None}, {"data_fingerprint": None, "query_fingerprint": None}
    is_same = earlier.split in (record.split, *(record.split.model_copy(update=each) for each in unknown))
    # A run's own folder has records of it alone; a file that the user names may be of another run.
    if subject.facts is None:
        is_same &= asked.out is None
    else:  # two modules of one name may be different ones
        is_same &= subject.encoder.card.architecture != CUSTOM and earlier.encoder == dict(subject.facts)
    return [row for row in earlier.rows if is_same and (row.features, row.protocol) not in measured]


def described_split(subject: Subject, bank: Tensor, queries: Tensor) -> EvaluationSplit:
    """What a reader must know about the samples."""
    names, labels = subject.source.class_names, subject.source.labels
    assert labels is not None
    asked = set(labels[queries].tolist())
    return EvaluationSplit(
        source=Path(subject.source.name).name,
        num_unlabelled=int((labels < 0).sum()),
        num_bank=len(bank),
        num_queries=len(queries),
        num_classes=len(names),
        class_names=names,
        absent_classes=tuple(names[number] for number in labels[bank].unique().tolist() if number not in asked),
        how=_how(subject),
        query_fingerprint=query_fingerprint(subject.source, queries),
        data_fingerprint=subject.source.fingerprint,
    )


def _how(subject: Subject) -> str:
    """In words: what the queries are, and whether the encoder has seen them."""
    if subject.queries is not None:
        how = f"queries are {shown(Path(subject.queries.name).name)}, the bank all of {Path(subject.source.name).name}"
        return f"{how}, on which the encoder was trained" if subject.is_own_data else how
    if subject.settings is None or subject.folder is None:
        return f"{DEFAULT_HOLDOUT:.0%} of each class are queries"
    held_out, status = float(subject.settings.source.holdout), subject.folder.read_status()
    share = f"{held_out or DEFAULT_HOLDOUT:.0%} of each class"
    if not subject.is_own_data:
        return f"other data than trained on; {share} are queries"
    if held_out == 0:
        learned = "with" if METHODS[subject.settings.method].needs_labels else "without"
        return f"{share} are queries; the encoder has seen them in training, {learned} labels"
    seen = (status.split_fingerprint, status.data_fingerprint)
    # Other labels give another split, whose held-out part may have been trained on; the record must not hide it.
    if seen != (subject.split.fingerprint, subject.source.fingerprint):
        return f"{share} are queries; data or labels are not those of training: the encoder may have seen some of them"
    return f"{share}, held out of training"


def query_fingerprint(source: Source, queries: Tensor) -> str:
    """Short hash of the names and classes of the queries: where it is the same, figures can be compared in pairs."""
    assert source.labels is not None
    # Samples without names of their own are known by their places in this very content.
    has_names = source.sample_names != tuple(map(str, range(len(source))))
    digest = hashlib.sha256(b"" if has_names else source.fingerprint.encode())
    for place, label in zip(queries.tolist(), source.labels[queries].tolist(), strict=True):
        digest.update(f"{source.sample_names[place]}\0{source.class_names[label]}\0".encode(errors="surrogateescape"))
    return digest.hexdigest()[:16]
