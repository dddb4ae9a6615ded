"""Samples of made-up runs, kept as ``diagnose`` keeps them."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch

from counterpoint.core.files import sha256_of, write_json, write_sealed
from counterpoint.core.rundir import RunFolder
from counterpoint.data.formats.labels import Labels
from counterpoint.data.source import Source, memory_source
from counterpoint.evaluation.map_samples import PLACES, Collection, write_collection

THRESHOLD = 1e-5


def toy_source(
    images: np.ndarray | None, labels: np.ndarray | None, names: list[str], class_names: list[str]
) -> Source:
    """A source of pictures (n, h, w) or (n, h, w, 3), or of vectors where there are none."""
    samples = torch.zeros(len(names), 3)
    if images is not None:
        samples = torch.from_numpy(images[:, None] if images.ndim == 3 else images.transpose(0, 3, 1, 2).copy())
    known = None if labels is None else Labels(torch.from_numpy(np.asarray(labels, np.int64)), tuple(class_names))
    return memory_source("toy", samples, known, sample_names=tuple(names))


def embedded(embedding: np.ndarray) -> dict[str, Any]:
    """What ``collect`` takes, of an embedding that is its own representation."""
    z_ND = torch.from_numpy(np.asarray(embedding, np.float32))
    features = dict.fromkeys(PLACES, z_ND)
    return {"features": features, "is_nonnegative": bool((z_ND >= 0).all()), "threshold": THRESHOLD}


def keep_samples(path: Path, known: Collection) -> RunFolder:
    """Put samples into a run folder, which may be new, sealed as ``diagnose`` seals them."""
    folder = RunFolder(path)
    if not folder.findings.exists():
        path.mkdir(exist_ok=True)
        write_json(folder.findings, {})
    write_collection(folder, known)
    values = json.loads(folder.findings.read_text(encoding="utf-8"))
    was_sealed = values.pop("sha256", None) is not None
    values["collection"] = {"sha256": sha256_of(folder.collection)}
    (write_sealed if was_sealed else write_json)(folder.findings, values)
    return folder
