"""What `sparsify` is given: a run, an encoder with samples, or features, as settings of training."""

from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor, nn

from counterpoint.core.errors import UsageError
from counterpoint.core.run import as_run
from counterpoint.core.user_files import is_file_or_shards
from counterpoint.evaluation.trained_run import read_resolved
from counterpoint.evaluation.vector_table import Table, is_embedded, read_table
from counterpoint.nn.encoders import IDENTITY
from counterpoint.runs.user_inputs import Given


def code_subject(subject: Any, data: Any, labels: Any, settings: dict[str, Any]) -> tuple[dict[str, Any], Given]:
    """Settings of training that follow from a subject of ``sparsify``, and what is in memory.

    Raises:
        UsageError: data beside features, or an encoder without data.
    """
    own: dict[str, Any] = {name: settings[name] for name in ("views",) if name in settings}
    if isinstance(labels, str | Path):
        own["source"], labels = {"labels": str(labels)}, None
    path = Path(subject) if isinstance(subject, str | Path) and is_file_or_shards(subject) else None
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
