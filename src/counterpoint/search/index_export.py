"""Write an index as what another database imports: unit-length vectors with id, name and label, batch by batch."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from counterpoint.core.errors import RunError, unknown_name
from counterpoint.core.files import write_json
from counterpoint.core.new_folder import new_folder
from counterpoint.core.run import Run, as_run
from counterpoint.core.torch_state import usual_modes
from counterpoint.core.validation import build
from counterpoint.engine.progress import Reporter
from counterpoint.search.exporters import faiss_file, lance_table, pgvector_files, qdrant_points
from counterpoint.search.run_index import Asking, SearchSettings, open_run_index
from counterpoint.search.vector_index import VectorIndex

ABOUT = "about.json"  # written last


@dataclass(frozen=True)
class Exporter:
    """How an index is written for a database.

    Attributes:
        write: into a folder; gives lines that say how it is loaded.
        files: what it writes there.
    """

    write: Callable[[VectorIndex, Path], list[str]]
    files: tuple[str, ...]


EXPORTERS: Mapping[str, Exporter] = {
    "qdrant": Exporter(qdrant_points.write_qdrant, qdrant_points.FILES),
    "pgvector": Exporter(pgvector_files.write_pgvector, pgvector_files.FILES),
    "lancedb": Exporter(lance_table.write_lancedb, lance_table.FILES),
    "faiss": Exporter(faiss_file.write_faiss, faiss_file.FILES),
}


@usual_modes()
def export_index(
    run: Run | str | Path,
    kind: str,
    out: str | Path,
    *,
    to: Any = None,
    overwrite: bool = False,
    quiet: bool = False,
    **options: Any,
) -> list[str]:
    """Write the index of a run for another database.

    Args:
        run: the run or its folder.
        kind: a name of ``EXPORTERS``.
        out: folder to write into.
        to: other samples than the run's own.
        overwrite: replace what an earlier export wrote there.
        quiet: show no progress.
        options: as those of ``search``.

    Returns:
        What was written, and how it is loaded.

    Raises:
        UsageError: an unknown kind, a missing library, or more dimensions than the database takes.
        RunError: the folder holds something, or cannot be written; it is then as it was.
    """
    if kind not in EXPORTERS:
        raise unknown_name("export", kind, EXPORTERS)
    exporter, folder = EXPORTERS[kind], Path(out)
    _check_room(folder, overwrite=overwrite)
    asked = build(SearchSettings, options, "export")
    known = open_run_index(Asking(as_run(run), asked, to, Reporter(quiet=quiet)))
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunError(f"cannot write {folder}: {error.strerror or error}") from None
    with new_folder(folder, folder.exists()) as made:
        lines = [line.replace(made.name, folder.name) for line in exporter.write(known.index, made)]
        left_out = {"curve", "files", "stamp"}
        about = {**known.about.model_dump(exclude=left_out), "rows": len(known.index), "width": known.index.card.width}
        write_json(made / ABOUT, {**about, "kind": kind, "similarity": "cosine; vectors are at unit length"})
    return [f"wrote {len(known.index):,} x {known.index.card.width} vectors for {kind} to {folder}", *lines]


def _check_room(folder: Path, *, overwrite: bool) -> None:
    """Refuse what is not to be written over."""
    if folder.exists() and not folder.is_dir():
        raise RunError(f"{folder} is a file; --export writes a folder, choose another --out")
    if not folder.is_dir() or not any(folder.iterdir()):
        return
    if not overwrite:
        raise RunError(f"{folder} holds files; replace an earlier export with --overwrite, or choose another --out")
    if not (folder / ABOUT).is_file():
        raise RunError(f"{folder} is no earlier export (it has no {ABOUT}), so it stays as it is; choose another --out")
    ours = {ABOUT, *(name for exporter in EXPORTERS.values() for name in exporter.files)}
    if others := sorted({path.name for path in folder.iterdir()} - ours):
        raise RunError(
            f"{folder} holds {others[0]}, which --export did not write, so it is not replaced; choose another --out"
        )
