"""The index of a run's embeddings: kept in the run folder, built when first asked, refused where it does not fit."""

import contextlib
import hashlib
import os
import re
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field
from torch import Tensor

from counterpoint.core import __version__
from counterpoint.core.data_settings import LookSettings
from counterpoint.core.errors import DataError, RunError, UsageError
from counterpoint.core.files import TEMPORARY, read_sealed, write_sealed
from counterpoint.core.new_folder import new_folder
from counterpoint.core.run import Run, as_run
from counterpoint.core.run_files import INDEX_FILES
from counterpoint.core.run_lock import Holder, lock_run
from counterpoint.core.run_records import Listed, Record, read_record
from counterpoint.core.stored_rows import Rows, taken, whole
from counterpoint.core.validation import build
from counterpoint.data.manifest import stamp_of_files
from counterpoint.data.order import random_order
from counterpoint.diagnostics.concepts import expected_activation
from counterpoint.engine.progress import Reporter
from counterpoint.evaluation.feature_tables import key_of
from counterpoint.evaluation.features import extract, num_pieces
from counterpoint.evaluation.load_subject import Samples, one_checkpoint, open_subject
from counterpoint.evaluation.subject import Subject
from counterpoint.evaluation.trained_run import files_of_samples
from counterpoint.nn.layer_outputs import EMBEDDING, REPRESENTATION, check_layers
from counterpoint.search.embedding_shards import SHARD_ROWS, plan_of
from counterpoint.search.shard_merge import rows_of_shards, shards_of
from counterpoint.search.vector_index import CARD, VectorIndex, build_index, open_index, read_card

SPARSE = 0.5  # share of zeros from which a non-negative code has dimensions that are active on few samples
LOOKED_AT, RANKED_ON = 4096, 20_000  # rows by which a code is known, and by which its dimensions are ranked
WAIT_SECONDS, MOST_SECONDS = 0.1, 10  # between two looks at a run that another process holds, and of all


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
        files: and folders in which they lie.
        stamp: of these files when the samples were read; while it stays the same, so do the samples. None where the
            files are not known: then the samples themselves are looked at.
        is_own_data: whether the run was trained on them.
        has_concepts: whether two samples are alike because of single dimensions that few samples activate.
        dims: dimensions that were kept, the first one first; empty where all were.
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
    is_own_data: bool = True
    has_concepts: bool = False
    dims: Annotated[tuple[int, ...], Listed] = ()

    def kept(self, vectors_ND: Tensor) -> Tensor:
        """The dimensions that are indexed."""
        return vectors_ND[:, list(self.dims)] if self.dims else vectors_ND


class SearchSettings(LookSettings):
    """What is searched, and how."""

    layer: str = Field(default="auto", description="which layer is compared")
    method: Literal["auto", "exact", "hnsw"] = Field(default="auto", description="how an index is built")
    exact: bool = Field(default=False, description="compare every row, whatever the method of the index")
    dims: int | None = Field(default=None, ge=1, description="how many dimensions are kept")
    second: bool = Field(default=False, description="queries are samples of the second kind")
    rebuild: bool = Field(default=False, description="make the index again")
    shards: Path | None = Field(default=None, description="folder with these embeddings, made by embed --shards")


@dataclass(frozen=True)
class Asking:
    """Which index of which run is meant.

    Attributes:
        run: whose embeddings.
        settings: layer, method and number of dimensions, and what of run and data is taken.
        data: other samples than the run's own; None for these.
        reporter: shows progress.
    """

    run: Run
    settings: SearchSettings
    data: Any
    reporter: Reporter

    @cached_property
    def layer(self) -> str:
        """Of ``auto`` the embedding where its dimensions have a meaning or pairs were trained."""
        if self.settings.layer != "auto":
            return self.settings.layer
        folder = self.run.folder
        card = read_sealed(folder.encoder_card) if folder.encoder_card.exists() else {}
        has_meaning = card.get("nonnegative", "none") != "none"
        return EMBEDDING if has_meaning or folder.second.encoder_card.exists() else REPRESENTATION

    @property
    def is_in_memory(self) -> bool:
        """Whether the samples are an array, which is known by its content."""
        return self.data is not None and not isinstance(self.data, str | Path)


@dataclass
class RunIndex:
    """An index of a run that is at hand.

    Attributes:
        asking: for what.
        about: what is indexed.
        index: the vectors.
    """

    asking: Asking
    about: IndexedRun
    index: VectorIndex
    _subject: Subject | None = None

    @property
    def subject(self) -> Subject:
        """Encoder and samples, opened when first needed; both must be those that were indexed."""
        if self._subject is None:
            with same_run(self.asking.run, self.about.weights_sha256):
                subject = open_samples(self.asking)
            if subject.source.fingerprint != self.about.fingerprint:
                raise _refusal(self.index.folder, "its samples changed after it was opened")
            self._subject = subject
        return self._subject

    def facts(self, *, exact: bool = False) -> dict[str, str]:
        """What is searched, and how."""
        about, card = self.about, self.index.card
        kept = f"{card.width} of its dimensions" if about.dims else f"{card.width} dimensions"
        facts = {"collection": f"{card.num_rows:,} samples of {about.data}", "layer": f"{about.layer} ({kept})"}
        if about.checkpoint:
            facts["checkpoint"] = f"checkpoint {about.checkpoint}"
        return {**facts, "method": self.index.how(exact=exact)}


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
        RunError: the run has no encoder yet, or is deleted or trained anew meanwhile; or the index that is there is
            damaged, or of another run, checkpoint, layer or version; named.
        DataError: fewer than two samples.
    """
    settings = build(SearchSettings, options, verb)
    asking = Asking(as_run(run), settings, data, Reporter(quiet=quiet))
    weights = weights_hash(asking.run)
    subject = open_samples(asking) if asking.is_in_memory else None
    with same_run(asking.run, weights):
        files = files_of_samples(asking.run, data, settings.part)
    index = _kept(asking, subject, files)
    if index is not None and settings.shards is None:
        return index
    # Before the samples are read: files that change meanwhile have another stamp at the next search.
    with same_run(asking.run, weights):
        stamp = None if files is None else stamp_of_files(files)
        subject = open_samples(asking) if subject is None else subject
    if settings.shards is not None:  # of an index that is there not read again, but others are not taken in silence
        shards_of(settings.shards, plan_of(subject, asking.layer, SHARD_ROWS))
    index = _kept(asking, subject, files)
    if index is not None:
        _note_stamp(index, files or (), stamp)
        return index
    if len(subject.source) < 2:
        raise DataError(f"{subject.source.name} holds 1 sample; a search needs 2 or more, one of which is asked about")
    with _held(asking, weights):
        # Another process may have built it while this one waited.
        return _kept(asking, subject, files) or _built(asking, subject, files or (), stamp)


def _kept(asking: Asking, subject: Subject | None, files: tuple[str, ...] | None) -> RunIndex | None:
    """The index that is there; None where it is of other samples, or without these nobody can tell.

    Args:
        asking: which index is meant.
        subject: the samples, where they are open.
        files: in which they lie now; None where nobody knows them.

    Raises:
        RunError: it does not fit; named.
    """
    folder = _folder(asking, subject)
    index = None if asking.settings.rebuild else open_index(folder)
    if index is None:
        return None
    about = read_record(IndexedRun, dict(index.card.about), str(folder / CARD))
    checkpoint, layer = asking.settings.checkpoint, asking.layer
    if about.version != __version__:
        raise _refusal(folder, f"it was made by version {about.version}, this is {__version__}")
    if about.weights_sha256 != weights_hash(asking.run):
        raise _refusal(folder, "it is of another run or of other weights than this run has now")
    if about.checkpoint != checkpoint:
        words = f"it is of checkpoint {about.checkpoint or 'last'}, not of {checkpoint or 'the last state'}"
        raise _refusal(folder, words)
    if about.layer != layer:
        raise _refusal(folder, f"it is of the {about.layer}, not of the {layer}")
    if subject is None:
        # A run that was copied with its data names other files.
        is_same = about.files == files and about.stamp == stamp_of_files(about.files)
    else:
        is_same = about.fingerprint == subject.source.fingerprint
    return RunIndex(asking, about, index, subject) if is_same else None


def _note_stamp(known: RunIndex, files: tuple[str, ...], stamp: str | None) -> None:
    """Write down that the samples are the same though their files were touched, where the run can be written now."""
    about, card, folder = known.about, known.index.card, known.index.folder
    if about.stamp == stamp and about.files == files:
        return
    with contextlib.suppress(RunError), lock_run(known.asking.run.path):
        if read_card(folder) == card:
            of_files = about.model_copy(update={"files": files, "stamp": stamp}).model_dump()
            write_sealed(folder / CARD, card.model_copy(update={"about": of_files}).model_dump())


@contextmanager
def _held(asking: Asking, weights: str) -> Iterator[None]:
    """The lock of the run, without which nobody deletes it or trains it anew; waited for while another process has it.

    Raises:
        RunError: the run has been deleted, is not the one that was opened, or another process holds it for too long.
    """
    run, said = asking.run, list[Holder | None]()

    def wait(holder: Holder | None) -> None:
        weights_hash(run)  # there is none while the run is trained anew, which may take days
        if not said:
            asking.reporter.say(f"waiting for {holder or 'another process'}, which uses {run.path}")
        said.append(holder)
        if len(said) * WAIT_SECONDS > MOST_SECONDS:  # it may have been stopped in the middle
            raise RunError(f"{run.path} is used by {holder or 'another process'}; search it again once that has ended")
        time.sleep(WAIT_SECONDS)

    with lock_run(run.path, wait) as note:
        if note:
            asking.reporter.say(note)
        with same_run(run, weights):
            pass
        yield


def _built(asking: Asking, subject: Subject, files: tuple[str, ...], stamp: str | None) -> RunIndex:
    """A new index of all samples, in the place of the one that is there, if any."""
    folder, source, layer = _folder(asking, subject), subject.source, asking.layer
    for left in folder.parent.glob(f".*{TEMPORARY}"):  # by builds that were killed: the lock is this process's
        shutil.rmtree(left, ignore_errors=True)
    others = [path.name for path in folder.glob("*") if path.name not in INDEX_FILES and TEMPORARY not in path.name]
    if others:
        raise RunError(f"{folder} holds {others[0]}, which search did not write, so it will not be replaced; move it")
    if (folder / CARD).exists() and not asking.settings.rebuild:
        asking.reporter.say(f"the samples of {source.name} are not those of the index {folder}: it is made again")
    with _embedded(asking, subject, layer) as rows_ND:
        looked = whole(taken(rows_ND, random_order(0, 3, len(rows_ND))[:LOOKED_AT]))
        about = IndexedRun(
            version=__version__,
            run=asking.run.path.resolve().name,
            weights_sha256=weights_hash(asking.run),
            checkpoint=asking.settings.checkpoint,
            layer=layer,
            data=source.name,
            fingerprint=source.fingerprint,
            files=files,
            stamp=stamp,
            is_own_data=subject.is_own_data,
            has_concepts=bool((looked >= 0).all()) and float((looked == 0).double().mean()) >= SPARSE,
            dims=_best_dims(rows_ND, asking.settings.dims),
        )
        kept_ND = about.kept(whole(rows_ND)) if about.dims else rows_ND
        asking.reporter.say(f"building the index of {len(rows_ND):,} {layer}s")
        named: dict[str, Any] = {"names": source.sample_names, "labels": source.classes(), "about": about.model_dump()}
        try:
            folder.parent.mkdir(exist_ok=True)
        except OSError as error:
            raise RunError(f"cannot make {folder.parent}: {error.strerror or error}") from None
        with new_folder(folder, folder.exists(), flush=False) as made:
            index = build_index(kept_ND, made, method=asking.settings.method, **named)
    return RunIndex(asking, about, replace(index, folder=folder), subject)


def open_samples(asking: Asking) -> Subject:
    """The run's encoder beside the samples that are meant."""
    subject = open_subject(asking.run, Samples(asking.data), asking.settings, asking.reporter)
    return one_checkpoint(subject, asking.settings.checkpoint)


def weights_hash(run: Run) -> str:
    """Hash of a run's weights, as its card has it.

    Raises:
        RunError: nothing is trained yet.
    """
    folder = run.folder
    if not folder.encoder_card.exists():
        raise RunError(f"{run.path} holds no encoder yet; its training has not ended (counterpoint resume goes on)")
    return str(read_sealed(folder.encoder_card).get("weights_sha256", ""))


@contextmanager
def same_run(run: Run, weights: str) -> Iterator[None]:
    """Within, a run is read that may be deleted or trained anew meanwhile: then what was read of it counts for nothing.

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
        raise RunError(f"{run.path} was deleted or trained anew while it was searched; search it again") from problem
    if problem is not None:
        raise problem


@contextmanager
def _embedded(asking: Asking, subject: Subject, layer: str) -> Iterator[Rows]:
    """A layer of all samples: passed through the encoder, or as shards have it."""
    source, encoder = subject.source, subject.encoder
    check_layers(encoder, [layer])
    if asking.settings.shards is not None:
        with rows_of_shards(asking.settings.shards, plan_of(subject, layer, SHARD_ROWS)) as rows_ND:
            yield rows_ND
        return
    with asking.reporter.bar(f"embedding {len(source):,} samples", num_pieces(source)) as advance:
        key = key_of(encoder) if asking.settings.cache else None
        rows_ND = extract(encoder, source, [layer], key=key, advance=advance).layers[layer]
    yield rows_ND


def _best_dims(rows_ND: Rows, number: int | None) -> tuple[int, ...]:
    """The dimensions with the largest expected activation, that first (ncl2024, section 5.1); none where all stay.

    Raises:
        UsageError: there are not so many.
    """
    if number is None:
        return ()
    if number > (width := rows_ND.shape[1]):
        raise UsageError(f"dims must be between 1 and {width}, the dimensions of the layer, got {number}")
    sample_ND = whole(taken(rows_ND, random_order(0, 5, len(rows_ND))[:RANKED_ON].sort().values))
    return tuple(expected_activation(sample_ND).argsort(descending=True, stable=True)[:number].tolist())


def _folder(asking: Asking, subject: Subject | None) -> Path:
    """Where an index lies: by layer, checkpoint, and of other data their name and a hash of what is taken."""
    settings, part, data = asking.settings, asking.settings.part, asking.data
    parts = [asking.layer] + ([f"step-{settings.checkpoint}"] if settings.checkpoint else [])
    parts += [f"dims-{settings.dims}"] if settings.dims is not None else []
    if data is not None or part:
        if asking.is_in_memory and subject is not None:
            stem, what = "memory", subject.source.fingerprint
        else:
            stem = "own" if data is None else Path(data).stem
            what = os.path.abspath(data) if data is not None and os.path.exists(data) else str(data)
        parts += [stem, hashlib.sha256(os.fsencode(f"{what} {sorted(part.items())}")).hexdigest()[:8]]
    return asking.run.folder.indexes / re.sub(r"[^A-Za-z0-9._-]+", "-", "-".join(parts))


def _refusal(folder: Path, words: str) -> RunError:
    """An index that does not fit, with the remedy."""
    return RunError(f"the index {folder} does not fit: {words}; make it again with --rebuild")
