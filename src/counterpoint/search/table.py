"""Write a run's embeddings as a table: .npz, .csv, or .parquet (extra ``search``)."""

from pathlib import Path
from typing import Any

import numpy as np

from counterpoint.core.arrow_files import require_arrow
from counterpoint.core.errors import unknown_name
from counterpoint.core.files import write_atomically
from counterpoint.core.rundir import Run
from counterpoint.core.settings import PartSettings
from counterpoint.core.targets import check_new_file
from counterpoint.core.torch_state import usual_modes
from counterpoint.core.validation import build
from counterpoint.engine.progress import Reporter
from counterpoint.evaluation.features import raw_chunks
from counterpoint.evaluation.trained_run import open_trained
from counterpoint.evaluation.vector_table import WRITERS, Layer, Table


@usual_modes()
def embed(
    run: Run | str | Path,
    data: Any = None,
    *,
    out: str | Path | None = None,
    layer: Layer = "representation",
    overwrite: bool = False,
    quiet: bool = False,
    **part: Any,
) -> Table:
    """Embed every sample.

    Args:
        run: the run or its folder; ``Run(path, encoder=module)`` if it was trained with your own module.
        data: samples (anything ``train`` takes); None takes the run's own.
        out: file to write, by its suffix .npz, .csv or .parquet; None writes nothing.
        layer: the representation (best for most uses) or the embedding that the loss compared.
        overwrite: replace ``out`` if it exists.
        quiet: show no progress.
        part: what of the data is taken: ``split``, ``classes`` and ``root``, as those of ``source``.

    Raises:
        UsageError: unknown suffix or layer, or a missing extra.
        RunError: ``out`` exists, or its folder does not.
    """
    if layer not in ("representation", "embedding"):
        raise unknown_name("layer", layer, ["representation", "embedding"])
    chosen = build(PartSettings, part, "embed").part
    # Before the encoder runs, which may take an hour.
    path = None if out is None else _check_target(Path(out), overwrite)
    reporter = Reporter(quiet=quiet)
    trained = open_trained(run, data=data, part=chosen, reporter=reporter)
    source = trained.source
    with reporter.bar(f"embedding {len(source):,} samples", len(source)) as advance:
        chunks = []
        for samples in raw_chunks(source):
            # `both` gives representation and embedding.
            chunks.append(trained.encoder.both(samples)[0 if layer == "representation" else 1].numpy())
            for _ in range(len(samples)):
                advance()
    labels = None
    if source.labels is not None:
        # A sample without a label has number -1.
        labels = tuple(source.class_names[number] if number >= 0 else None for number in source.labels.tolist())
    table = Table(source.sample_names, np.concatenate(chunks).astype(np.float32), labels, layer, path)
    if path is not None:
        write_atomically(path, lambda temporary: WRITERS[path.suffix](table, temporary))
        reporter.say(f"wrote {len(table):,} x {table.vectors.shape[1]} {layer}s to {path}")
    return table


def _check_target(path: Path, overwrite: bool) -> Path:
    """Refuse a file that cannot or must not be written."""
    check_new_file(path, WRITERS, overwrite=overwrite)
    if path.suffix == ".parquet":
        require_arrow(path.suffix)
    return path
