"""Look at data before anything is trained on them: ``counterpoint.audit``."""

# N samples

import base64
import time
from collections import Counter
from collections.abc import Iterable
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np

from counterpoint.audit.audit_record import Audit, Observation, Passport
from counterpoint.audit.file_checks import CATALOGUE as FILES
from counterpoint.audit.gathering import Collection, collect
from counterpoint.audit.picture_pass import BLOCK, look_through, thumbnail
from counterpoint.audit.set_checks import CATALOGUE as SETS
from counterpoint.audit.set_checks import PICTURES, class_counts
from counterpoint.audit.set_evidence import PictureEvidence, SetEvidence, of_pictures
from counterpoint.audit.telling_apart import precision_of
from counterpoint.audit.vector_checks import CATALOGUE as VECTORS
from counterpoint.audit.vector_checks import of_vectors, read_vectors, vector_evidence
from counterpoint.core.data_settings import SourceSettings
from counterpoint.core.torch_state import usual_modes
from counterpoint.core.user_files import shown_name
from counterpoint.core.validation import build
from counterpoint.data.sources import ARRAY
from counterpoint.diagnostics.finding import LEVELS
from counterpoint.engine.progress import Reporter

GREY = 6.0  # levels between the colours of a pixel, on average, below which a picture has none
THUMBNAIL, MOST_THUMBNAILS, PER_OBSERVATION = 96, 96, 12  # pixels, and how many a page shows
QUANTILES = (0.0, 0.25, 0.5, 0.75, 1.0)


@usual_modes()
def audit(data: Any, *, labels: Any = None, against: Any = None, quiet: bool = False, **source: Any) -> Audit:
    """Say what data hold, and what is wrong with them, before anything is trained.

    Nothing is refused that can be told: broken files, copies, and folders without any usable picture are findings.

    Args:
        data: whatever ``train`` takes: a folder, a file, a named set, an array. Of a folder with ``train`` beside
            ``val`` or ``test``, all parts are looked at.
        labels: one per sample for arrays; a file of them for named data, as ``source.labels``.
        against: other data, such as a test set, in which copies of these are looked for.
        quiet: show no progress.
        source: settings of ``source``: ``labels``, ``split``, ``root``, ``image_column``, ``label_column``.

    Raises:
        UsageError: no such data, or a setting is wrong.
        DataError: no samples at all.
    """
    started = time.perf_counter()
    reporter = Reporter(quiet=quiet)
    if isinstance(labels, str | Path):
        labels, source = None, {**source, "labels": str(labels)}
    settings = build(SourceSettings, source, "source")
    table = read_vectors(data, labels) if against is None else None
    if table is not None:
        found = _of_vectors(of_vectors(_name_of(data), *table, asked=settings.labels))
    else:
        collection = collect(data, settings, labels=labels, against=against, progress=reporter.bar)
        is_images = collection.kind == "images"
        found = _of_pictures(collection, reporter) if is_images else _of_vectors(vector_evidence(collection))
    return found.model_copy(
        update={
            "name": shown_name(found.name),
            "against": ""
            if against is None
            else shown_name(str(against))
            if isinstance(against, str | Path)
            else ARRAY,
            "seconds": round(time.perf_counter() - started, 2),
        }
    )


def _of_pictures(collection: Collection, reporter: Reporter) -> Audit:
    """Audit pictures."""
    blocks = sum(-(-len(share) // BLOCK) for share in collection.shares)
    started = time.perf_counter()
    with reporter.bar(f"looking at {len(collection):,} pictures", blocks) as advance:
        seen = look_through(collection, advance)
    seconds = time.perf_counter() - started
    reporter.say(
        f"looked at {len(collection):,} pictures in {seconds:.1f} s ({len(collection) / seconds:,.0f} per second)"
    )
    evidence = of_pictures(collection, seen)
    checks = [check(evidence) for check in (*FILES.values(), *PICTURES.values())]
    observations = _ordered([*(check(evidence.known) for check in SETS.values()), *checks])
    return Audit(
        name=collection.name,
        kind=collection.kind,
        passport=_passport(evidence),
        observations=observations,
        cues=evidence.cues,
        precision=precision_of(_good_labels(evidence.known), evidence.known.is_test[evidence.known.good]),
        pictures=_thumbnails(evidence.known, observations),
    )


def _name_of(data: Any) -> str:
    """What data are called."""
    return shown_name(str(data)) if isinstance(data, str | Path) else ARRAY


def _of_vectors(evidence: SetEvidence) -> Audit:
    """Audit vectors."""
    checks = [check(evidence) for check in (*SETS.values(), *VECTORS.values())]
    return Audit(
        name=evidence.collection.name,
        kind="vectors",
        passport=_counts(evidence).model_copy(update={"shape": evidence.collection.held.shape[1:]}),
        observations=_ordered(checks),
        precision=precision_of(_good_labels(evidence), evidence.is_test[evidence.good]),
    )


def _ordered(found: Iterable[Observation | None]) -> tuple[Observation, ...]:
    """Worst first, otherwise as they come."""
    kept = [each for each in found if each is not None]
    return tuple(sorted(kept, key=lambda each: -LEVELS.index(each.level)))


def _good_labels(evidence: SetEvidence) -> np.ndarray | None:
    labels_N = evidence.collection.labels_N
    return None if labels_N is None else labels_N[evidence.good]


def _counts(evidence: SetEvidence) -> Passport:
    """What any samples have."""
    collection = evidence.collection
    parts = {share.name: len(share) for share in collection.shares} if len(collection.shares) > 1 else {}
    labels_N = _good_labels(evidence)
    return Passport(
        num_found=len(collection),
        num_good=len(evidence.good),
        splits=parts,
        classes=class_counts(evidence),
        num_unlabelled=None if labels_N is None else int((labels_N < 0).sum()),
        num_unique=len(evidence.unique),
    )


def _passport(evidence: PictureEvidence) -> Passport:
    """What pictures have."""
    headers = [evidence.seen.headers[place] for place in evidence.known.good]
    grey_share = float((evidence.seen.looks.colourfulness_N[evidence.known.good] < GREY).mean()) if headers else None
    return _counts(evidence.known).model_copy(
        update={
            "num_bytes": sum(header.num_bytes for header in evidence.seen.headers) or None,
            "formats": dict(Counter(header.format for header in headers)),
            "modes": dict(Counter(header.mode for header in headers)),
            "widths": _quantiles([header.width for header in headers]),
            "heights": _quantiles([header.height for header in headers]),
            "grey_share": grey_share,
        }
    )


def _quantiles(values: list[int]) -> tuple[float, ...]:
    return tuple(float(value) for value in np.quantile(values, QUANTILES)) if values else ()


def _thumbnails(evidence: SetEvidence, observations: Iterable[Observation]) -> dict[str, str]:
    """Small pictures of what observations name, the worst first."""
    wanted: dict[str, None] = {}
    for each in observations:
        groups = [name for group in each.groups[: PER_OBSERVATION // 2] for name in group.names[:4]]
        if each.code not in ("unreadable", "no-pictures", "uneven-classes", "class-shortcut", "parts-as-classes"):
            wanted.update(dict.fromkeys(groups or each.names[:PER_OBSERVATION]))
    place_of = {name: place for place, name in enumerate(evidence.names)}
    starts = np.cumsum([0, *(len(share) for share in evidence.collection.shares)])
    found = {}
    for name in list(wanted)[:MOST_THUMBNAILS]:
        part = int(evidence.collection.part_of[place_of[name]])
        share = evidence.collection.shares[part]
        image = thumbnail(share.content, place_of[name] - int(starts[part]), THUMBNAIL)
        if image is not None:
            stream = BytesIO()
            image.save(stream, "JPEG", quality=80)
            found[name] = f"data:image/jpeg;base64,{base64.b64encode(stream.getvalue()).decode('ascii')}"
    return found
