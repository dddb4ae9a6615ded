"""Write embeddings: as a table (.npz, .csv, or .parquet, extra ``search``), or as shards of one by many processes."""

# N rows, D features

import hashlib
import itertools
import json
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from torch import nn

from counterpoint.core.arrow_files import PARQUET_SUFFIX
from counterpoint.core.errors import RunError, UsageError
from counterpoint.core.files import check_new_file, write_atomically
from counterpoint.core.ranks import HERE, PieceEngine, WorkPart
from counterpoint.core.run import Run
from counterpoint.core.settings import LookSettings
from counterpoint.core.stored_rows import Rows, load
from counterpoint.core.torch_state import usual_modes
from counterpoint.core.user_files import SHARD_PLAN, as_path, is_shard_folder, require_arrow
from counterpoint.core.validation import build
from counterpoint.engine.progress import Reporter
from counterpoint.evaluation.feature_tables import software_of, weights_hash
from counterpoint.evaluation.features import SHARD_ROWS, extract, features_of, num_pieces
from counterpoint.evaluation.load_subject import Samples, one_checkpoint, open_subject
from counterpoint.evaluation.shard_files import ShardBlock, ShardFolder, TablePlan, check_same, make_shards, open_shards
from counterpoint.evaluation.subject import Subject
from counterpoint.evaluation.vector_table import WRITERS, Table
from counterpoint.nn.layer_outputs import REPRESENTATION, check_layers


@usual_modes()
def embed(
    run: Run | str | Path | nn.Module,
    data: Any = None,
    *,
    out: str | Path | None = None,
    layer: str = REPRESENTATION,
    overwrite: bool = False,
    quiet: bool = False,
    **look: Any,
) -> Table:
    """Embed every sample.

    Args:
        run: the run or its folder (``Run(path, encoder=module)`` if it was trained with your own module); or an encoder
            from elsewhere, as ``evaluate`` takes it.
        data: samples (anything ``train`` takes); None takes the run's own.
        out: file to write, by its suffix .npz, .csv or .parquet; None writes nothing.
        layer: the representation (best for most uses), the embedding that the loss compared, or another layer, see
            ``evaluate``.
        overwrite: replace ``out`` if it exists.
        quiet: show no progress.
        look: settings: which data are used (``split``, ``classes``, ``root`` and ``image_size``, as in ``source``);
            ``checkpoint`` (a step), ``device`` and ``cache``; and for an encoder from elsewhere ``weights``, ``mean``
            and ``std``.

    Raises:
        UsageError: unknown suffix or layer, or a missing extra.
        RunError: ``out`` exists, or its folder does not.
    """
    settings = build(LookSettings, look, "embed")
    # The path is checked before the encoder runs, which may take an hour.
    path = None if out is None else as_path(out)
    if path is not None:
        check_new_file(path, WRITERS, overwrite=overwrite)
        if path.suffix == PARQUET_SUFFIX:
            require_arrow(path.suffix)
    reporter = Reporter(quiet=quiet)
    subject = one_checkpoint(open_subject(run, Samples(data), settings, reporter), settings.checkpoint)
    source, vectors_ND = subject.source, load(layer_rows(subject, layer, settings.cache, reporter))
    table = Table(tuple(source.sample_names), vectors_ND.numpy(), source.classes(), layer, path)
    if path is not None:
        write_atomically(path, lambda temporary: WRITERS[path.suffix](table, temporary))
        reporter.say(f"wrote {len(table):,} x {table.vectors.shape[1]} {layer}s to {path}")
    return table


def layer_rows(subject: Subject, layer: str, cache: bool, reporter: Reporter) -> Rows:
    """One layer for every sample of a subject; a bar shows how many have passed.

    Raises:
        UsageError: the encoder has no such layer.
    """
    check_layers(subject.encoder, [layer])
    with reporter.bar(f"embedding {len(subject.source):,} samples", num_pieces(subject.source)) as advance:
        return extract(subject.encoder, subject.source, [layer], cache=cache, advance=advance).layers[layer]


@dataclass(frozen=True)
class Shards:
    """The folder of shards, and the part of them that this process makes.

    Attributes:
        out: the folder; new, empty, or with shards of the same table, which stay.
        rows: number of rows of a shard; None takes those of shards that are there, else ``SHARD_ROWS``.
        part: the part of this process; parts need share no disk.
    """

    out: Path
    rows: int | None = None
    part: WorkPart = field(default_factory=WorkPart)

    def __post_init__(self) -> None:
        if self.rows is not None and self.rows < 1:
            raise UsageError(f"shards must have at least 1 row, got {self.rows}; 10,000 to 1,000,000 are usual")


@usual_modes()
def embed_shards(
    run: Run | str | Path | nn.Module,
    data: Any = None,
    *,
    shards: Shards,
    layer: str = REPRESENTATION,
    engine: PieceEngine = HERE,
    quiet: bool = False,
    **look: Any,
) -> bool:
    """Make the missing shards of this process's part; they have the same bytes for any number of processes.

    Args:
        run: the run, its folder, or an encoder from elsewhere; see ``embed``.
        data: samples (anything ``train`` takes); None takes the run's own.
        shards: folder of the shards, and the part to make.
        layer: name of the layer; see ``embed``.
        engine: engine whose workers make the shards; all of them see the folder.
        quiet: show no progress.
        look: settings that ``embed`` takes; the cache of features is not used.

    Returns:
        True if all shards are there.

    Raises:
        UsageError: unknown layer, or a missing extra.
        RunError: the folder holds something else or another table, or cannot be written.
    """
    settings = build(LookSettings, look, "embed")
    require_arrow(PARQUET_SUFFIX)
    reporter = Reporter(quiet=quiet)
    rows = shards.rows or (open_shards(shards.out).plan.shard_rows if is_shard_folder(shards.out) else SHARD_ROWS)
    with engine.opened(partial(_open_table, run, data, layer=layer, rows=rows, look=settings, quiet=quiet)) as workers:
        folder = make_shards(shards.out, workers.ask(lambda table: table.plan))
        plan = folder.plan
        own = shards.part.of(plan.num_shards)
        missing = folder.unfinished(own, reporter.say)
        title = f"part {shards.part}: {len(own)} of {plan.num_shards} shards, {len(missing)} of them to be made"
        with reporter.bar(title, len(missing)) as advance:
            for number, seconds in workers.each(partial(_make_shard, folder=folder), missing):
                rows = plan.rows(number)
                rate = (rows.stop - rows.start) / seconds
                span = f"rows {rows.start:,} to {rows.stop - 1:,}"
                advance(f"shard {number} of {plan.num_shards}: {span}, {rate:,.0f} a second")
    missing = folder.finish()
    if unreadable := sorted({*missing} & {*own}):
        raise RunError(
            f"{folder.path}: shards {', '.join(map(str, unreadable))} cannot be read back; run the command again, on "
            "machines that share this folder"
        )
    if missing:
        reporter.say(f"part {shards.part}: its shards are there; those of other parts are missing")
        return False
    reporter.say(f"all {plan.num_shards} shards of {plan.num_rows:,} samples are in {folder.path}")
    return True


@dataclass(frozen=True)
class _OpenTable:
    subject: Subject
    plan: TablePlan


@usual_modes()
def _open_table(
    run: Run | str | Path | nn.Module, data: Any, *, layer: str, rows: int, look: LookSettings, quiet: bool
) -> _OpenTable:
    subject = one_checkpoint(open_subject(run, Samples(data), look, Reporter(quiet=quiet)), look.checkpoint)
    check_layers(subject.encoder, [layer])
    return _OpenTable(subject, plan_of(subject, layer, rows))


def plan_of(subject: Subject, layer: str, shard_rows: int) -> TablePlan:
    """Plan the shards of a table: a function of encoder, samples, layer and size, never of processes."""
    source, facts = subject.source, subject.facts or {}
    # For an encoder from elsewhere the facts have the file of its weights, which need not be parameters of a module.
    of_encoder = [weights_hash(subject.encoder), json.dumps(facts, default=str, sort_keys=True)]
    of_data = itertools.chain([source.fingerprint, repr(source.shape)], source.class_names, source.sample_names)
    return TablePlan(
        num_rows=len(source),
        shard_rows=shard_rows,
        layer=layer,
        encoder=_digest(of_encoder),
        data=_digest(of_data),
        software=software_of(subject.encoder),
        has_labels=source.labels is not None,
    )


def _digest(texts: Iterable[str]) -> str:
    digest = hashlib.blake2b(digest_size=8)
    for text in texts:
        digest.update(text.encode(errors="surrogateescape") + b"\0")
    return digest.hexdigest()


@usual_modes()
def _make_shard(table: _OpenTable, number: int, folder: ShardFolder) -> float:
    check_same(folder.plan, table.plan, folder.path / SHARD_PLAN)
    begun = time.perf_counter()
    # A worker that died may have finished it.
    if folder.complaint(number):
        source, rows, layer = table.subject.source, folder.plan.rows(number), folder.plan.layer
        vectors_ND = features_of(table.subject.encoder, source, [layer], rows)[layer]
        labels = source.classes(rows) or [None] * len(vectors_ND)
        folder.write(number, ShardBlock(source.sample_names[rows], labels, vectors_ND))
    return time.perf_counter() - begun
