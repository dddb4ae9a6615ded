"""The index of a run's embeddings: kept in the run folder, built when first asked, refused where it does not fit."""

import hashlib
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
from pydantic import Field
from torch import Tensor

from counterpoint.core import __version__
from counterpoint.core.data_settings import LookSettings
from counterpoint.core.errors import DataError, RunError
from counterpoint.core.files import read_sealed
from counterpoint.core.own_parts import CUSTOM
from counterpoint.core.run import Run
from counterpoint.core.run_records import Listed, Record, read_record
from counterpoint.core.search_records import CurvePoint
from counterpoint.core.stored_rows import Rows, taken, whole
from counterpoint.data.order import random_order
from counterpoint.engine.progress import Reporter
from counterpoint.evaluation.feature_tables import key_of
from counterpoint.evaluation.features import extract, num_pieces
from counterpoint.evaluation.opening import Samples, one_checkpoint, open_subject
from counterpoint.evaluation.subject import Subject
from counterpoint.nn.layer_outputs import EMBEDDING, REPRESENTATION, LayerReader, check_layers
from counterpoint.search.embedding_shards import SHARD_ROWS, plan_of
from counterpoint.search.shard_merge import rows_of_shards, shards_of
from counterpoint.search.shortening import shorten
from counterpoint.search.vector_index import CARD, VectorIndex, build_index, open_index, read_card

SPARSE = 0.5  # share of zeros from which a non-negative code has dimensions that are active on few samples
LOOKED_AT = 4096  # rows by which a code is known
SAME = ("version", "weights_sha256", "checkpoint", "layer", "fingerprint")  # of an index that fits


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
        is_own_data: whether the run was trained on them.
        zeros: share of zeros.
        is_nonnegative: whether no entry is below zero.
        dims: dimensions that were kept, the first one first; empty where all were.
        curve: recall against the number of dimensions, where some were kept.
    """

    version: str
    run: str
    weights_sha256: str
    checkpoint: str | None = None
    layer: str
    data: str
    fingerprint: str
    is_own_data: bool = True
    zeros: float = 0.0
    is_nonnegative: bool = False
    dims: Annotated[tuple[int, ...], Listed] = ()
    curve: Annotated[tuple[CurvePoint, ...], Listed] = ()

    def kept(self, vectors_ND: Tensor) -> Tensor:
        """The dimensions that are indexed."""
        return vectors_ND[:, list(self.dims)] if self.dims else vectors_ND

    @property
    def has_concepts(self) -> bool:
        """Whether two samples are alike because of single dimensions that few samples activate."""
        return self.is_nonnegative and self.zeros >= SPARSE


class SearchSettings(LookSettings):
    """What is searched, and how."""

    layer: str = Field(default="auto", description="which layer is compared")
    method: Literal["auto", "exact", "cells", "hnsw"] = Field(default="auto", description="how an index is built")
    exact: bool = Field(default=False, description="compare every row, whatever the method of the index")
    dims: int | Literal["auto"] | None = Field(default=None, description="how many dimensions are kept")
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
        """Encoder and samples, opened when first needed; the samples must be those that were indexed."""
        if self._subject is None:
            subject = open_samples(self.asking)
            if subject.source.fingerprint != self.about.fingerprint:
                raise _refusal(self.index.folder, "fingerprint", self.about.fingerprint, subject.source.fingerprint)
            self._subject = subject
        return self._subject


def open_run_index(asking: Asking) -> RunIndex:
    """The index that is meant, built where there is none.

    Raises:
        RunError: the run has no encoder yet; or the index that is there is damaged, or of another run, checkpoint,
            layer, data or version; named.
        DataError: fewer than two samples.
    """
    run, settings = asking.run, asking.settings
    expected: dict[str, Any] = {"version": __version__, "weights_sha256": weights_hash(run)}
    layer, is_memory = layer_of(asking), asking.data is not None and not isinstance(asking.data, str | Path)
    # Samples in memory are known by their content.
    subject = open_samples(asking) if is_memory else None
    folder = run.folder.indexes / _name(asking, layer, subject)
    if (folder / CARD).exists() and not settings.rebuild:
        card = read_card(folder)
        about = read_record(IndexedRun, dict(card.about), str(folder / CARD))
        expected |= {"checkpoint": settings.checkpoint, "layer": layer}
        if subject is not None:
            expected["fingerprint"] = subject.source.fingerprint
        elif asking.data is None and not settings.part:
            expected["fingerprint"] = run.folder.read_status().data_fingerprint or about.fingerprint
        for name in SAME:
            if name in expected and getattr(about, name) != expected[name]:
                raise _refusal(folder, name, getattr(about, name), expected[name])
        if settings.shards is not None:  # not read again, but others are not taken in silence
            subject = open_samples(asking) if subject is None else subject
            shards_of(settings.shards, plan_of(subject, layer, SHARD_ROWS))
        return RunIndex(asking, about, open_index(folder), subject)
    subject = open_samples(asking) if subject is None else subject
    if len(subject.source) < 2:
        raise DataError(f"{subject.source.name} holds 1 sample; a search needs 2 or more, one of which is asked about")
    return _built(asking, subject, layer, folder)


def _built(asking: Asking, subject: Subject, layer: str, folder: Path) -> RunIndex:
    """A new index of all samples."""
    source, settings = subject.source, asking.settings
    with _embedded(asking, subject, layer) as rows_ND:
        about = _described(asking, subject, layer, rows_ND)
        kept_ND: Rows = rows_ND
        if settings.dims is not None:
            shorter = shorten(rows_ND, settings.dims)
            about = about.model_copy(update={"dims": shorter.dims, "curve": shorter.curve})
            kept_ND = about.kept(whole(rows_ND))
        asking.reporter.say(f"building the index of {len(rows_ND):,} {layer}s")
        named: dict[str, Any] = {"names": source.sample_names, "labels": source.classes(), "about": about.model_dump()}
        index = build_index(kept_ND, folder, method=settings.method, **named)
    return RunIndex(asking, about, index, subject)


def open_samples(asking: Asking) -> Subject:
    """The run's encoder beside the samples that are meant."""
    subject = open_subject(asking.run, Samples(asking.data), asking.settings, asking.reporter)
    return one_checkpoint(subject, asking.settings.checkpoint)


def layer_of(asking: Asking) -> str:
    """The layer that is meant: of ``auto`` the embedding where its dimensions have a meaning or pairs were trained."""
    if asking.settings.layer != "auto":
        return asking.settings.layer
    folder = asking.run.folder
    card = read_sealed(folder.encoder_card) if folder.encoder_card.exists() else {}
    has_meaning = card.get("nonnegative", "none") != "none"
    return EMBEDDING if has_meaning or folder.second.encoder_card.exists() else REPRESENTATION


def weights_hash(run: Run) -> str:
    """Hash of a run's weights, as its card has it.

    Raises:
        RunError: nothing is trained yet.
    """
    folder = run.folder
    if not folder.encoder_card.exists():
        raise RunError(f"{run.path} holds no encoder yet; its training has not ended (counterpoint resume goes on)")
    return str(read_sealed(folder.encoder_card).get("weights_sha256", ""))


def embed_samples(subject: Subject, layer: str, samples: Tensor) -> Tensor:
    """A layer of an encoder for samples in memory, as ``data.stores`` give them."""
    with LayerReader(subject.encoder, [layer]) as reader, torch.no_grad():
        return torch.cat([reader(part)[layer].cpu() for part in samples.split(256)])


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
        key = key_of(encoder) if asking.settings.cache and encoder.card.architecture != CUSTOM else None
        rows_ND = extract(encoder, source, [layer], key=key, advance=advance).layers[layer]
    yield rows_ND


def _described(asking: Asking, subject: Subject, layer: str, rows_ND: Rows) -> IndexedRun:
    """The record of what is indexed."""
    looked = whole(taken(rows_ND, random_order(0, 3, len(rows_ND))[:LOOKED_AT]))
    return IndexedRun(
        version=__version__,
        run=asking.run.path.resolve().name,
        weights_sha256=weights_hash(asking.run),
        checkpoint=asking.settings.checkpoint,
        layer=layer,
        data=subject.source.name,
        fingerprint=subject.source.fingerprint,
        is_own_data=subject.is_own_data,
        zeros=float((looked == 0).double().mean()),
        is_nonnegative=bool((looked >= 0).all()),
    )


def _name(asking: Asking, layer: str, subject: Subject | None) -> str:
    """Of the folder of an index: layer, checkpoint, and of other data their name and a hash of what is taken."""
    settings, part = asking.settings, asking.settings.part
    parts = [layer] + ([f"step-{settings.checkpoint}"] if settings.checkpoint else [])
    parts += [f"dims-{settings.dims}"] if settings.dims is not None else []
    if asking.data is not None or part:
        known = asking.data if isinstance(asking.data, str | Path) else None
        place = os.path.abspath(known) if known is not None and os.path.exists(known) else str(known)
        what = place if subject is None else subject.source.fingerprint
        stem = "own" if asking.data is None else "memory" if known is None else Path(known).stem
        digest = hashlib.sha256(os.fsencode(f"{what} {sorted(part.items())}")).hexdigest()[:8]
        parts += [stem, digest]
    return re.sub(r"[^A-Za-z0-9._-]+", "-", "-".join(parts))


def _refusal(folder: Path, what: str, found: object, wanted: object) -> RunError:
    """An index that does not fit, by name, with the remedy."""
    words = {
        "version": f"it was made by version {found}, this is {wanted}",
        "weights_sha256": "it is of another run or of other weights than this run has now",
        "checkpoint": f"it is of checkpoint {found or 'last'}, not of {wanted or 'the last state'}",
        "layer": f"it is of the {found}, not of the {wanted}",
        "fingerprint": "its samples are not those that are there now",
    }
    return RunError(f"the index {folder} does not fit: {words[what]}; make it again with --rebuild")
