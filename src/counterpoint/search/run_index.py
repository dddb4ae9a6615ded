"""The index of a run's embeddings: kept in the run folder, built when first asked, refused where it does not fit."""

import hashlib
import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Annotated, Any

from counterpoint.core import __version__
from counterpoint.core.data_settings import LookSettings, option
from counterpoint.core.errors import DataError, RunError
from counterpoint.core.files import TEMPORARY, new_folder, read_sealed, write_sealed
from counterpoint.core.run import Run, as_run
from counterpoint.core.run_files import INDEX_FILES
from counterpoint.core.run_lock import lock_run
from counterpoint.core.run_records import Listed, Record, read_record
from counterpoint.core.stored_rows import taken, whole
from counterpoint.core.validation import build
from counterpoint.data.manifest import stamp_of_files
from counterpoint.data.order import random_order
from counterpoint.engine.progress import Reporter
from counterpoint.evaluation.feature_tables import key_of
from counterpoint.evaluation.features import extract, num_pieces
from counterpoint.evaluation.load_subject import Samples, one_checkpoint, open_subject
from counterpoint.evaluation.subject import Subject
from counterpoint.evaluation.trained_run import files_of_samples
from counterpoint.nn.layer_outputs import EMBEDDING, REPRESENTATION, check_layers
from counterpoint.search.vector_index import CARD, VectorIndex, build_index, open_index

SPARSE = 0.5  # share of zeros from which a non-negative code has dimensions that are active on few samples
LOOKED_AT = 4096  # rows by which a code is known


class IndexedRun(Record):
    """What an index is of; its card's ``about``.

    Attributes:
        version: of Counterpoint.
        run: name of the run's folder.
        weights_sha256: hash of the run's weights.
        checkpoint: step of the encoder; None for the last state.
        layer: that was indexed.
        data: name of the samples.
        fingerprint: hash of the samples.
        files: that hold the samples; empty where they are unknown, or for arrays.
        stamp: hash of the states that these files had.
        has_concepts: whether two samples are alike because of single dimensions that few samples activate.
    """

    version: str
    run: str
    weights_sha256: str
    checkpoint: str | None = None
    layer: str
    data: str
    fingerprint: str
    files: Annotated[tuple[str, ...], Listed] = ()
    stamp: str | None = None
    has_concepts: bool = False


class SearchSettings(LookSettings):
    """What is searched, and how."""

    layer: str = option("which layer is compared", "auto")
    rebuild: bool = option("make the index again", False)


@dataclass
class RunIndex:
    """An index of a run that is at hand.

    Attributes:
        run: name of the run's folder, as it is now.
        about: what is indexed.
        index: the vectors.
        opened: opens encoder and samples.
        reporter: shows progress.
    """

    run: str
    about: IndexedRun
    index: VectorIndex
    opened: Callable[[], Subject]
    reporter: Reporter

    @cached_property
    def subject(self) -> Subject:
        """Encoder and samples, opened when first needed; both must be those that were indexed."""
        subject = self.opened()
        if subject.source.fingerprint != self.about.fingerprint:
            raise RunError(f"the samples of {self.about.data} changed while they were searched; search them again")
        return subject

    def facts(self) -> dict[str, str]:
        """What is searched, and how."""
        about, card = self.about, self.index.card
        facts = {
            "collection": f"{card.num_rows:,} samples of {about.data}",
            "layer": f"{about.layer} ({card.width} dimensions)",
        }
        if about.checkpoint:
            facts["checkpoint"] = f"checkpoint {about.checkpoint}"
        return {**facts, "method": "every row compared"}


def open_run_index(run: Run | str | Path, data: Any, options: dict[str, Any], verb: str, *, quiet: bool) -> RunIndex:
    """The index that is meant, built where there is none, or where the samples are not those of the one that is there.

    Args:
        run: the run or its folder.
        data: other samples than the run's own; None for these.
        options: see ``SearchSettings``.
        verb: who asks.
        quiet: show no progress.

    Raises:
        UsageError: an option is wrong.
        RunError: the run has no encoder yet, is deleted or retrained meanwhile, or is in use where the index must be
            built; or the index that is there is damaged, or of another run, checkpoint, layer or version; named.
        DataError: fewer than two samples.
    """
    settings, known, reporter = build(SearchSettings, options, verb), as_run(run), Reporter(quiet=quiet)
    weights = weights_hash(known)

    @cache
    def opened() -> Subject:
        with same_run(known, weights):
            return one_checkpoint(open_subject(known, Samples(data), settings, reporter), settings.checkpoint)

    # Before the samples are read: files that change meanwhile have another stamp at the next search.
    with same_run(known, weights):
        files = files_of_samples(known, data, settings.part)
    asked = IndexedRun(
        version=__version__,
        run=known.path.resolve().name,
        weights_sha256=weights,
        checkpoint=settings.checkpoint,
        layer=_layer(known) if settings.layer == "auto" else settings.layer,
        data="",
        fingerprint="",
        files=files or (),
        stamp=None if files is None else stamp_of_files(files),
    )
    if files is not None and not settings.rebuild:  # where no file was touched, nothing is opened
        folder = _folder(known, asked, data, settings)
        if (index := _kept(folder, asked)) is not None:
            return RunIndex(asked.run, _about(index), index, opened, reporter)
    source = opened().source
    if len(source) < 2:
        raise DataError(f"{source.name} holds 1 sample; a search needs 2 or more, one of which is the query")
    asked = asked.model_copy(update={"data": source.name, "fingerprint": source.fingerprint})
    folder = _folder(known, asked, data, settings)
    index = None if settings.rebuild else _kept(folder, asked)
    if index is None:
        with lock_run(known.path) as note:  # prevents that others delete the run, train it again or build an index
            if note:
                reporter.say(note)
            with same_run(known, weights):
                pass
            # Another process may have built it meanwhile.
            index = None if settings.rebuild else _kept(folder, asked)
            index = index or _built(folder, asked, opened(), settings, reporter)
    elif (_about(index).files, _about(index).stamp) != (asked.files, asked.stamp):
        with suppress(RunError), lock_run(known.path):  # a run in use is searched all the same
            # The samples are the same though their files were touched.
            about = _about(index).model_copy(update={"files": asked.files, "stamp": asked.stamp})
            card = index.card.model_copy(update={"about": about.model_dump()})
            write_sealed(index.folder / CARD, card.model_dump())
            index = replace(index, card=card)
    return RunIndex(asked.run, _about(index), index, opened, reporter)


def _about(index: VectorIndex) -> IndexedRun:
    return read_record(IndexedRun, dict(index.card.about), str(index.folder / CARD))


def _layer(run: Run) -> str:
    """The embedding where its dimensions have a meaning or pairs were trained, else the representation."""
    has_meaning = read_sealed(run.folder.encoder_card).get("nonnegative", "none") != "none"
    return EMBEDDING if has_meaning or run.folder.second.encoder_card.exists() else REPRESENTATION


def _kept(folder: Path, asked: IndexedRun) -> VectorIndex | None:
    """The index that is there; None where it is of other samples, or where this is unknown without a fingerprint.

    Raises:
        RunError: it does not fit; named.
    """
    index = open_index(folder)
    if index is None:
        return None
    about = _about(index)
    for name in ("version", "weights_sha256", "checkpoint", "layer"):
        if (found := getattr(about, name)) != (wanted := getattr(asked, name)):
            raise RunError(
                f"the index {folder} does not match: its {name} is {found}, that of the run {wanted}; rebuild it with "
                "--rebuild"
            )
    # A run that was copied with its data names other files.
    alike = ("fingerprint",) if asked.fingerprint else ("files", "stamp")
    return index if all(getattr(about, name) == getattr(asked, name) for name in alike) else None


def _built(
    folder: Path, about: IndexedRun, subject: Subject, settings: SearchSettings, reporter: Reporter
) -> VectorIndex:
    """A new index of all samples, in the place of the one that is there, if any."""
    source, encoder, layer = subject.source, subject.encoder, about.layer
    for left in folder.parent.glob(f".*{TEMPORARY}"):  # by builds that were killed: the lock is this process's
        shutil.rmtree(left, ignore_errors=True)
    others = [path.name for path in folder.glob("*") if path.name not in INDEX_FILES and TEMPORARY not in path.name]
    if others:
        raise RunError(f"{folder} holds {others[0]}, which search did not write, so it will not be replaced; move it")
    if (folder / CARD).exists() and not settings.rebuild:
        reporter.say(f"the samples of {source.name} are not those of the index {folder}: it is rebuilt")
    check_layers(encoder, [layer])
    with reporter.bar(f"embedding {len(source):,} samples", num_pieces(source)) as advance:
        key = key_of(encoder) if settings.cache else None
        rows_ND = extract(encoder, source, [layer], key=key, advance=advance).layers[layer]
    looked = whole(taken(rows_ND, random_order(0, 3, len(rows_ND))[:LOOKED_AT]))
    has_concepts = bool((looked >= 0).all()) and float((looked == 0).double().mean()) >= SPARSE
    about = about.model_copy(update={"has_concepts": has_concepts})
    reporter.say(f"building the index of {len(rows_ND):,} {layer}s")
    try:
        folder.parent.mkdir(exist_ok=True)
    except OSError as error:
        raise RunError(f"cannot make {folder.parent}: {error.strerror or error}") from None
    with new_folder(folder, folder.exists(), flush=False) as made:
        index = build_index(rows_ND, made, names=source.sample_names, labels=source.classes(), about=about.model_dump())
    return replace(index, folder=folder)


def weights_hash(run: Run) -> str:
    """Hash of a run's weights, as its card has it.

    Raises:
        RunError: nothing is trained yet.
    """
    folder = run.folder
    if not folder.encoder_card.exists():
        raise RunError(f"{run.path} has no encoder yet; its training has not ended (counterpoint resume continues it)")
    return str(read_sealed(folder.encoder_card).get("weights_sha256", ""))


@contextmanager
def same_run(run: Run, weights: str) -> Iterator[None]:
    """Within, a run is read that may be deleted or retrained meanwhile: what was read of it is then discarded.

    Raises:
        RunError: that happened.
    """
    problem = None
    try:
        yield
    except (OSError, RuntimeError) as error:
        problem = error
    # A file that was there a moment ago: others may still be.
    if isinstance(problem, FileNotFoundError) or weights_hash(run) != weights:
        raise RunError(f"{run.path} was deleted or trained again while it was searched; search it again") from problem
    if problem is not None:
        raise problem


def _folder(run: Run, about: IndexedRun, data: Any, settings: SearchSettings) -> Path:
    """Where an index lies: by layer, checkpoint, and of other data their name and a hash of what is taken."""
    part = settings.part
    parts = [about.layer] + ([f"step-{about.checkpoint}"] if about.checkpoint else [])
    if data is not None or part:
        if data is not None and not isinstance(data, str | Path):
            stem, what = "memory", about.fingerprint
        else:
            stem = "own" if data is None else Path(data).stem
            what = os.path.abspath(data) if data is not None and os.path.exists(data) else str(data)
        parts += [stem, hashlib.sha256(os.fsencode(f"{what} {sorted(part.items())}")).hexdigest()[:8]]
    return run.folder.indexes / re.sub(r"[^A-Za-z0-9._-]+", "-", "-".join(parts))
