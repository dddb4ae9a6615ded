"""Write embeddings as a table: .npz, .csv, or .parquet (extra ``search``)."""

from pathlib import Path
from typing import Any

from torch import nn

from counterpoint.core.arrow_files import PARQUET_SUFFIX, require_arrow
from counterpoint.core.data_settings import LookSettings
from counterpoint.core.files import check_new_file, write_atomically
from counterpoint.core.run import Run
from counterpoint.core.stored_rows import whole
from counterpoint.core.torch_state import usual_modes
from counterpoint.core.validation import build
from counterpoint.engine.progress import Reporter
from counterpoint.evaluation.feature_tables import key_of
from counterpoint.evaluation.features import extract, num_pieces
from counterpoint.evaluation.load_subject import Samples, one_checkpoint, open_subject
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
        look: what of the data is taken: ``split``, ``classes``, ``root`` and ``image_size``, as those of ``source``;
            ``checkpoint`` (a step), ``device`` and ``cache``; and of an encoder from elsewhere ``weights``, ``mean``
            and ``std``.

    Raises:
        UsageError: unknown suffix or layer, or a missing extra.
        RunError: ``out`` exists, or its folder does not.
    """
    asked = build(LookSettings, look, "embed")
    # Before the encoder runs, which may take an hour.
    path = None if out is None else Path(out)
    if path is not None:
        check_new_file(path, WRITERS, overwrite=overwrite)
        if path.suffix == PARQUET_SUFFIX:
            require_arrow(path.suffix)
    reporter = Reporter(quiet=quiet)
    subject = one_checkpoint(open_subject(run, Samples(data), asked, reporter), asked.checkpoint)
    source, encoder = subject.source, subject.encoder
    check_layers(encoder, [layer])
    with reporter.bar(f"embedding {len(source):,} samples", num_pieces(source)) as advance:
        key = key_of(encoder) if asked.cache else None
        vectors_ND = whole(extract(encoder, source, [layer], key=key, advance=advance).layers[layer])
    table = Table(source.sample_names, vectors_ND.numpy(), source.classes(), layer, path)
    if path is not None:
        write_atomically(path, lambda temporary: WRITERS[path.suffix](table, temporary))
        reporter.say(f"wrote {len(table):,} x {table.vectors.shape[1]} {layer}s to {path}")
    return table
