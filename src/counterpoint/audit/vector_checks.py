"""What is wrong with a table of vectors: NaN and infinity, constant columns, different scales."""

# N samples, D features

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import torch

from counterpoint.audit.audit_record import MOST_NAMED, Observation, amount
from counterpoint.audit.audited_data import WHOLE, AuditedData, Share
from counterpoint.audit.set_evidence import Check, SetEvidence
from counterpoint.core.errors import DataError
from counterpoint.data.formats.array_files import LABEL_KEYS, SAMPLE_KEYS
from counterpoint.data.formats.labels import labels_as_asked, number_labels
from counterpoint.data.formats.npz_files import npz_keys, read_npy, read_npz
from counterpoint.evaluation.vector_table import read_table

SCALES_APART = 100.0  # largest deviation of a column over the middle one
NUMBERS = "fiub"


def read_vectors(data: Any, labels: Any) -> tuple[np.ndarray, tuple[str, ...], Any] | None:
    """Vectors as they are, NaN and all, their names and labels; None where the data are not a table of vectors.

    Args:
        data: an array, a tensor, or a path.
        labels: given with it.
    """
    if isinstance(data, torch.Tensor):
        data = data.detach().cpu().numpy()
    if not isinstance(data, str | Path):
        values = np.asarray(data)
        is_table = values.ndim == 2 and values.dtype.kind in NUMBERS
        return (values, _numbered(len(values)), labels) if is_table else None
    path = Path(data)
    if not path.is_file():
        return None
    if path.suffix.lower() == ".npy":
        values = read_npy(path)
        return (values, _numbered(len(values)), labels) if values.ndim == 2 else None
    if path.suffix.lower() == ".npz":
        return _from_archive(path, labels)
    return _from_table(path, labels) if path.suffix.lower() == ".csv" else None


def _from_archive(path: Path, labels: Any) -> tuple[np.ndarray, tuple[str, ...], Any] | None:
    """The samples of an archive, by the name of the array; or what ``embed`` wrote."""
    keys = npz_keys(path)
    name = next((key for key in SAMPLE_KEYS if key in keys), None)
    if name is None:
        return _from_table(path, labels) if "jpeg" not in keys else None
    values = read_npz(path, [name])[name]
    if values.ndim != 2:
        return None
    own = next((key for key in LABEL_KEYS if key in keys), None)
    return values, _numbered(len(values)), labels if own is None or labels is not None else read_npz(path, [own])[own]


def _from_table(path: Path, labels: Any) -> tuple[np.ndarray, tuple[str, ...], Any] | None:
    """A table as ``embed`` writes it; None for a list of pictures and what else has such a suffix."""
    try:
        table = read_table(path, only_finite=False)
    except DataError:
        return None
    return table.vectors, table.names, labels if table.labels is None else table.labels


def _numbered(number: int) -> tuple[str, ...]:
    return tuple(map(str, range(number)))


def of_vectors(
    name: str, values_ND: np.ndarray, names: tuple[str, ...], labels: Any, asked: str = "auto"
) -> SetEvidence:
    """Evidence of vectors.

    Args:
        name: of the data.
        values_ND: as they are, NaN and all.
        names: of the samples.
        labels: that came with them, or None.
        asked: where labels are taken from, as ``source.labels``.

    Raises:
        DataError: no numbers, or no sample.
    """
    if values_ND.dtype.kind not in NUMBERS or 0 in values_ND.shape:
        raise DataError(f"{name} must hold vectors (n, d) of numbers, got {values_ND.dtype} of shape {values_ND.shape}")
    known = labels_as_asked(asked, names, lambda: None if labels is None else number_labels(labels, len(values_ND)))
    collection = AuditedData(
        kind="vectors",
        shares=(Share(WHOLE, torch.from_numpy(values_ND.astype(np.float32)), names),),
        labels_N=None if known is None else known.numbers.numpy(),
        class_names=() if known is None else known.class_names,
    )
    return vector_evidence(collection, values_ND)


def vector_evidence(collection: AuditedData, values_ND: np.ndarray | None = None) -> SetEvidence:
    """Evidence of a collection of vectors.

    Args:
        collection: in float32.
        values_ND: the same as they were given; None for those of the collection.
    """
    values_ND = np.ascontiguousarray(collection.held if values_ND is None else values_ND)
    is_good_N = np.asarray(np.isfinite(values_ND.astype(np.float64)).all(1))
    digests = tuple(
        hashlib.sha256(row.tobytes()).digest()[:16] if is_good else b""
        for row, is_good in zip(values_ND, is_good_N, strict=True)
    )
    return SetEvidence(collection, digests, is_good_N, np.zeros(len(values_ND), bool))


def check_finite(evidence: SetEvidence) -> Observation | None:
    """Rows with NaN or infinity."""
    bad = np.flatnonzero(~evidence.is_good_N).tolist()
    return evidence.observed(
        bad,
        "NaN or infinity",
        f" of {len(evidence.names):,}",
        code="not-finite",
        level="severe",
        text="Training refuses them: one such number makes every weight NaN.",
        remedy="leave these rows out, or fill the gaps with the median of the column",
    )


def check_constant(evidence: SetEvidence) -> Observation | None:
    """Columns with one value."""
    values_ND = _values(evidence)
    if len(values_ND) < 2:
        return None
    places = np.flatnonzero(values_ND.max(0) == values_ND.min(0)).tolist()
    if not places:
        return None
    return Observation(
        code="constant-columns",
        level="warning" if len(places) == values_ND.shape[1] else "note",
        title=f"one value only: {amount(len(places), 'column')} of {values_ND.shape[1]:,}",
        text="They tell no sample from another.",
        remedy="leave them out",
        count=len(places),
        names=tuple(f"column {place}" for place in places[:MOST_NAMED]),
    )


def check_scales(evidence: SetEvidence) -> Observation | None:
    """Columns with scales far apart."""
    values_ND = _values(evidence)
    deviation_D = values_ND.std(0) if len(values_ND) > 1 else np.zeros(0)
    deviation_D = deviation_D[deviation_D > 0]
    if len(deviation_D) < 2:
        return None
    ratio = float(deviation_D.max() / np.median(deviation_D))
    if ratio < SCALES_APART:
        return None
    return Observation(
        code="scales",
        title=f"the widest column varies {ratio:,.3g} times as much as the middle one",
        text="Training scales each column to one deviation; distances of the raw vectors see that column only.",
        remedy="nothing for training; a logarithm helps where a column is skewed",
        measured=ratio,
        reference=1.0,
        reference_name="of columns of one scale",
        count=1,
    )


def _values(evidence: SetEvidence) -> np.ndarray:
    return evidence.collection.held[evidence.is_good_N].astype(np.float64)


VECTOR_CHECKS: tuple[Check, ...] = (check_finite, check_constant, check_scales)
