"""What `sparsify` is given, as settings of training, features, and features of two views."""

# N samples, D features, E draws

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from counterpoint.core.addresses import as_path
from counterpoint.core.errors import DataError, UsageError
from counterpoint.core.run import as_run
from counterpoint.core.user_files import is_file_or_shards
from counterpoint.engine.progress import Reporter
from counterpoint.evaluation.features import VIEW_EPOCH, extract
from counterpoint.evaluation.features import check_finite as check_rows
from counterpoint.evaluation.subject import view_drawer
from counterpoint.evaluation.trained_run import read_resolved
from counterpoint.evaluation.vector_table import Table, is_embedded, read_table
from counterpoint.nn.encoders import IDENTITY
from counterpoint.nn.layer_outputs import REPRESENTATION
from counterpoint.runs.assembly import Assembled
from counterpoint.runs.sparse_training import Views
from counterpoint.runs.user_inputs import Given

NUM_DRAWS = 2  # of the views of each picture, encoded before training


def code_subject(subject: Any, data: Any, labels: Any, settings: dict[str, Any]) -> tuple[dict[str, Any], Given]:
    """Settings of training that follow from a subject of ``sparsify``, and what is in memory.

    Raises:
        UsageError: data beside features, or an encoder without data.
    """
    own: dict[str, Any] = {name: settings[name] for name in ("views",) if name in settings}
    if isinstance(labels, str | Path):
        own["source"], labels = {"labels": str(labels)}, None
    path = as_path(subject) if isinstance(subject, str | Path) and is_file_or_shards(subject) else None
    if path is not None or isinstance(subject, Table | Tensor | np.ndarray):
        if data is not None:
            raise UsageError("data goes with an encoder; only features were given")
        if path is not None and (path.is_dir() or (path.suffix != ".npy" and is_embedded(path))):
            subject = read_table(path)
        if isinstance(subject, Table):
            labels = subject.labels if labels is None else labels
            subject = subject.vectors
        own |= {"encoder": IDENTITY}
        if path is None:
            own |= {"out": "runs/features-sparse"}
        return Given.of_call(subject, own, labels)
    if isinstance(subject, nn.Module) or (isinstance(subject, str) and not Path(subject).exists()):
        if data is None:
            raise UsageError(
                f"{subject if isinstance(subject, str) else type(subject).__name__} is neither a run nor a "
                "file; an encoder from elsewhere comes without samples: give --data"
            )
        return Given.of_call(data, {**own, "encoder": subject}, labels)
    known = as_run(subject)
    before = read_resolved(known.folder)
    if data is None:
        data = before.data if known.data is None else known.data
        labels = known.labels if labels is None else labels
        own["source"] = {**before.source.model_dump(), **own.get("source", {})}
    own |= {"init": str(known.path), "out": f"{known.path.resolve()}-sparse", "views": own.get("views", known.views)}
    if own["views"] is None:
        own["views"] = {} if before.views.preset == "custom" else before.views.model_dump()
    if known.encoder is not None:
        own["encoder"] = known.encoder
    return Given.of_call(data, own, labels)


def features_of(assembled: Assembled, dims: int, reporter: Reporter) -> Tensor:
    """Features of all samples, (n, d).

    Raises:
        UsageError: the code has fewer units than there are features.
        DataError: all features are the same.
    """
    source, width = assembled.source, assembled.encoder.card.width
    if dims < width:
        raise UsageError(
            f"dims must be at least the width of the features, {width}, got {dims}: a sparse code of fewer units than "
            "features says less than truncation; 4 times the width is usual"
        )
    with reporter.bar(f"encoding {len(source):,} samples", -(-len(source) // 128)) as advance:
        x_ND = extract(assembled.encoder, source, [REPRESENTATION], advance=advance).representation
    # Where all are equal but for rounding, directions are noise.
    if not bool((x_ND.std(dim=0) > 1e-6 * x_ND.abs().amax(dim=0).clamp(min=1e-30)).any()):
        raise DataError(
            f"all {len(x_ND):,} samples of {source.name} have the same features; no code can tell them apart"
        )
    return x_ND


def views_of(assembled: Assembled, width: int, reporter: Reporter) -> Views:
    """Features of two views of training samples: of pictures drawn before, of vectors anew in each epoch."""
    encoder, source, positions = assembled.encoder, assembled.source, assembled.part.positions
    drawer = view_drawer(assembled.settings, encoder.card, assembled.given.views)

    def drawn(rows: Tensor, epoch: int) -> tuple[Tensor, Tensor]:
        ids = positions[rows]
        views = drawer.two_views(source.store.fetch(ids.tolist()), ids, epoch)
        with torch.no_grad():
            first, second = (encoder.backbone(view) for view in views)
        for each in (first, second):
            check_rows({"features": each.numpy()}, ids, source)
        return first, second

    if source.kind == "vectors" and encoder.card.architecture == IDENTITY:
        return drawn
    parts = torch.arange(len(positions)).split(256)
    kept_E2ND = torch.empty(NUM_DRAWS, 2, len(positions), width)
    with reporter.bar(f"encoding {2 * NUM_DRAWS} views of each sample", NUM_DRAWS * len(parts)) as advance:
        for draw in range(NUM_DRAWS):
            for rows in parts:
                kept_E2ND[draw, 0, rows], kept_E2ND[draw, 1, rows] = drawn(rows, VIEW_EPOCH + 1 + draw)
                advance()
    return lambda rows, epoch: (kept_E2ND[epoch % NUM_DRAWS, 0, rows], kept_E2ND[epoch % NUM_DRAWS, 1, rows])
