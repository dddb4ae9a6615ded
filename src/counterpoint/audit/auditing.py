"""Look at data before anything is trained on them: ``counterpoint.audit``."""

# N samples

import base64
import hashlib
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import PIL
import torch

from counterpoint.audit.audit_record import MOST_NAMED, Audit, Observation, Passport, amount
from counterpoint.audit.audited_data import AuditedData, collect
from counterpoint.audit.data_checks import PICTURE_CHECKS, SET_CHECKS
from counterpoint.audit.picture_copies import GREY
from counterpoint.audit.picture_pass import NUM_COLUMNS, Seen, end_to_end, load_seen, look_through, save_seen, thumbnail
from counterpoint.audit.set_evidence import Check, SetEvidence, of_pictures, warned
from counterpoint.core import __version__
from counterpoint.core.errors import DataError, RunError, UsageError
from counterpoint.core.ranks import HERE, PieceEngine
from counterpoint.core.settings import SourceSettings
from counterpoint.core.table_columns import UNUSABLE
from counterpoint.core.torch_state import usual_modes
from counterpoint.core.user_files import as_path, shown_name
from counterpoint.core.validation import build
from counterpoint.data.sources import ARRAY
from counterpoint.diagnostics.finding import LEVELS
from counterpoint.engine.progress import Reporter
from counterpoint.evaluation.shard_files import ShardFolder, TablePlan, make_shards

THUMBNAIL, MOST_THUMBNAILS, PER_OBSERVATION = 96, 144, 12  # pixels, and how many a page shows
PIECE = 64  # blocks of pictures that a worker gets at once
QUANTILES = (0.0, 0.25, 0.5, 0.75, 1.0)


@usual_modes()
def audit(
    data: Any,
    *,
    labels: Any = None,
    against: Any = None,
    engine: PieceEngine = HERE,
    pieces: str | Path | None = None,
    quiet: bool = False,
    **source: Any,
) -> Audit:
    """Report what data contain, and what is wrong with them, before training.

    Data that training would reject get a report, too: broken files and folders without any usable picture are findings.

    Args:
        data: whatever ``train`` takes: a folder, a file, a named set, an array. Of a folder with ``train`` beside
            ``val`` or ``test``, all parts are looked at.
        labels: one per sample for arrays; a file of them for named data, as ``source.labels``.
        against: other data, such as a test set, in which copies of these are looked for.
        engine: engine whose workers look at pictures; each opens the data by itself.
        pieces: folder that keeps the figures of pictures, piece by piece, so that an audit that was killed continues
            (extra ``search``); None keeps nothing.
        quiet: show no progress.
        source: settings of ``source``: ``labels``, ``split``, ``root``, ``image_column``, ``label_column``,
            ``drop_columns``.

    Raises:
        UsageError: no such data, or a setting is wrong.
        DataError: no samples at all.
        RunError: ``pieces`` holds something else or pieces of other data, or cannot be written.
    """
    started = time.perf_counter()
    reporter = Reporter(quiet=quiet)
    if isinstance(labels, str | Path):
        labels, source = None, {**source, "labels": str(labels)}
    settings = build(SourceSettings, {"drop_columns": UNUSABLE, **source}, "source")  # told, and not refused
    begin = partial(collect, data, settings, labels=labels, against=against)
    collection = begin(quiet=quiet)
    if collection.kind != "images" and (engine is not HERE or pieces is not None):
        raise UsageError("--engine ray and --pieces are for pictures; vectors are audited by one process as a whole")
    seen = None
    if collection.kind == "images":
        shards = None
        if pieces is not None:
            versions = {"counterpoint": __version__, "torch": torch.__version__, "Pillow": PIL.__version__}
            plan = TablePlan(
                num_rows=len(collection.blocks),
                shard_rows=PIECE,
                layer="looks",
                encoder="audit",
                data=collection.content_hash,
                software=", ".join(f"{name} {own}" for name, own in versions.items()),
                has_labels=False,
            )
            shards = make_shards(as_path(pieces), plan)
        seen = _look_at_pictures(collection, begin, engine, shards, reporter)
    record = _audit_vectors(collection) if seen is None else _audit_pictures(collection, seen)
    columns = [
        Observation(
            code="columns",
            title="how the columns of the table are taken",
            text=f"{note}.".replace("left out: ", "left out (training asks for --source.drop-columns unusable): "),
            remedy="--source.label-column NAME and --source.drop-columns NAME,NAME choose otherwise",
            count=1,
        )
        for note in collection.columns
    ]
    return record.model_copy(
        update={
            "observations": (*record.observations, *columns),
            "name": _name_of(data),
            "against": "" if against is None else _name_of(against),
            "seconds": round(time.perf_counter() - started, 2),
        }
    )


def _look_at_pictures(
    collection: AuditedData,
    begin: Callable[[], AuditedData],
    engine: PieceEngine,
    shards: ShardFolder | None,
    reporter: Reporter,
) -> Seen:
    """Look at all pictures, in this process or by workers that open the same data."""
    number = amount(len(collection), "pictures")
    started = time.perf_counter()
    if engine is HERE and shards is None:
        with reporter.bar(f"looking at {number}", len(collection.blocks)) as advance:
            seen = look_through(collection, collection.blocks, advance)
    else:
        pieces = range(-(-len(collection.blocks) // PIECE))
        missing = pieces if shards is None else shards.unfinished(pieces, reporter.say)
        begin = (lambda: collection) if engine is HERE else begin
        look = partial(_look, size=PIECE, listing=collection.listing, shards=shards)
        title = f"looking at {number}: {len(missing)} of {len(pieces)} pieces"
        with engine.opened(begin) as workers, reporter.bar(title, len(missing)) as advance:
            parts = dict[int, Seen | None]()
            for piece, part in workers.each(look, missing):
                parts[piece] = part
                advance()
        seen = end_to_end([parts.get(piece) or _read_piece(shards, piece) for piece in pieces])
    seconds = time.perf_counter() - started
    reporter.say(f"looked at {number} in {seconds:.1f} s ({len(collection) / seconds:,.0f} per second)")
    return seen


@usual_modes()
def _look(collection: AuditedData, piece: int, *, size: int, listing: bytes, shards: ShardFolder | None) -> Seen | None:
    """Look at one piece in a worker; return None if a folder keeps the result."""
    if collection.listing != listing:
        raise DataError(f"node {socket.gethostname()} finds other samples; all nodes need the same data")
    blocks = collection.blocks[piece * size : (piece + 1) * size]
    if shards is None:
        return look_through(collection, blocks)
    # A worker that died may have finished it.
    if shards.complaint(piece):
        shards.write_file(piece, partial(save_seen, look_through(collection, blocks)), NUM_COLUMNS)
    return None


def _read_piece(shards: ShardFolder | None, piece: int) -> Seen:
    assert shards is not None
    if complaint := shards.complaint(piece):
        raise RunError(f"{complaint}; run the command again, on machines that share this folder")
    return load_seen(shards.file(piece))


def _audit_pictures(collection: AuditedData, seen: Seen) -> Audit:
    evidence = of_pictures(collection, seen)
    headers = [seen.headers[place] for place in evidence.good]
    bad = [part for part, header in zip(collection.part_of, seen.headers, strict=True) if header.reason]
    record = _run_checks(
        evidence,
        PICTURE_CHECKS,
        num_bytes=sum(header.num_bytes for header in seen.headers) or None,
        bad=dict(Counter(collection.shares[part].name for part in bad)),
        formats=dict(Counter(header.format for header in headers)),
        modes=dict(Counter(header.mode for header in headers)),
        widths=_quantiles([header.width for header in headers]),
        heights=_quantiles([header.height for header in headers]),
        grey_share=float((seen.looks.colourfulness_N[evidence.good] < GREY).mean()) if headers else None,
    )
    pictures = {"cues": evidence.cues[0], "pictures": _thumbnails(evidence, record.observations)}
    return record.model_copy(update=pictures)


def _name_of(data: Any) -> str:
    return shown_name(str(data)) if isinstance(data, str | Path) else ARRAY


def _audit_vectors(collection: AuditedData) -> Audit:
    values_ND = np.ascontiguousarray(collection.samples)
    is_good_N = np.asarray(np.isfinite(values_ND).all(1))
    digests = tuple(
        hashlib.sha256(row.tobytes()).digest()[:16] if is_good else b""
        for row, is_good in zip(values_ND, is_good_N, strict=True)
    )
    evidence = SetEvidence(collection, digests, is_good_N, np.zeros(len(values_ND), bool))
    return _run_checks(evidence, VECTOR_CHECKS, shape=values_ND.shape[1:])


def _run_checks(evidence: SetEvidence, checks: tuple[Check, ...], **passport_fields: Any) -> Audit:
    """Count the samples and run the checks; observations are sorted, the worst first."""
    collection = evidence.collection
    observations = [observation for check in (*SET_CHECKS, *checks) if (observation := check(evidence)) is not None]
    passport = Passport(
        num_found=len(collection),
        num_good=len(evidence.good),
        splits={share.name: len(share) for share in collection.shares} if len(collection.shares) > 1 else {},
        classes=evidence.class_counts,
        num_unlabelled=None if evidence.labels is None else int((evidence.labels < 0).sum()),
        num_unique=len(evidence.unique),
        **passport_fields,
    )
    return Audit(
        kind=collection.kind,
        passport=passport,
        observations=tuple(sorted(observations, key=lambda observation: -LEVELS.index(observation.level))),
    )


def _quantiles(values: list[int]) -> tuple[float, ...]:
    return tuple(float(value) for value in np.quantile(values, QUANTILES)) if values else ()


def _thumbnails(evidence: SetEvidence, observations: Iterable[Observation]) -> dict[str, str]:
    wanted: dict[str, None] = {}
    for observation in observations:
        # These name other things than samples that can be shown.
        if observation.code not in ("unreadable", "uneven-classes", "class-shortcut", "class-cue", "alike-classes"):
            groups = [name for group in observation.groups[: 2 * PER_OBSERVATION] for name in group.names[:4]]
            wanted.update(dict.fromkeys(groups or observation.names[:PER_OBSERVATION]))
    place_of = {name: place for place, name in enumerate(evidence.names)}
    addresses = {}
    for name in list(wanted)[:MOST_THUMBNAILS]:
        image = thumbnail(*evidence.collection.located(place_of[name]), THUMBNAIL)
        if image is not None:
            stream = BytesIO()
            image.save(stream, "JPEG", quality=80)
            addresses[name] = f"data:image/jpeg;base64,{base64.b64encode(stream.getvalue()).decode('ascii')}"
    return addresses


def check_finite(evidence: SetEvidence) -> Observation | None:
    """Report rows with NaN or infinity."""
    bad = np.flatnonzero(~evidence.is_good_N).tolist()
    return evidence.observed(
        bad,
        "NaN or infinity in float32",
        f" of {len(evidence.names):,}",
        code="not-finite",
        level="severe",
        text="Training refuses them: one such number makes every weight NaN.",
        remedy="leave these rows out, fill the gaps with the median of the column, or scale too large numbers down",
    )


def check_constant(evidence: SetEvidence) -> Observation | None:
    """Report columns with one value."""
    values_ND = evidence.collection.samples[evidence.is_good_N]
    if len(values_ND) < 2:
        return None
    places = np.flatnonzero(values_ND.max(0) == values_ND.min(0)).tolist()
    return warned(
        places,
        code="constant-columns",
        level="warning" if len(places) == values_ND.shape[1] else "note",
        title=f"one value only: {amount(len(places), 'column')} of {values_ND.shape[1]:,}",
        text="They tell no sample from another.",
        remedy="leave them out",
        names=tuple(f"column {place}" for place in places[:MOST_NAMED]),
    )


VECTOR_CHECKS: tuple[Check, ...] = (check_finite, check_constant)
