"""A small sample of a run's data through its newest checkpoint, while the run goes on: spectra, kNN and concepts.

``python -m counterpoint.runs.live_sample`` is the process that `counterpoint watch` asks: it reads one JSON line with a
run's path for each answer, and writes one JSON line. It has one thread and the lowest priority, computes on the CPU
alone, writes nothing into the run folder, and ends with whoever started it.
"""

# N samples, D features

import base64
import io
import json
import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from counterpoint.core.errors import CounterpointError, UsageError, first_line
from counterpoint.core.ranks import Ranks
from counterpoint.core.rundir import RunFolder
from counterpoint.core.torch_state import usual_modes
from counterpoint.data.order import Split
from counterpoint.data.source import Source
from counterpoint.diagnostics.concepts import SPARSITY_THRESHOLD
from counterpoint.diagnostics.evidence import EMBEDDING, REPRESENTATION, Evidence
from counterpoint.diagnostics.findings import Findings, find
from counterpoint.diagnostics.measure import measure_place
from counterpoint.engine.checkpoint import Memory, newest_memory
from counterpoint.engine.placement import Placement
from counterpoint.engine.progress import Reporter
from counterpoint.evaluation.checkpoints import encoder_at
from counterpoint.evaluation.online_knn import MIN_QUERIES, NEIGHBOURS, vote_accuracy
from counterpoint.evaluation.trained_run import read_resolved
from counterpoint.evaluation.view_pairs import evenly_spaced
from counterpoint.methods.catalogue import CATALOGUE as METHODS
from counterpoint.nn.trained import Encoder
from counterpoint.runs.assembly import assemble
from counterpoint.runs.effects import levers_of
from counterpoint.runs.given import Given, open_given
from counterpoint.runs.inspection import described_concepts, thumbnails
from counterpoint.runs.resolve import resolve_holdout
from counterpoint.runs.run_evidence import values_of
from counterpoint.runs.warm_start import weights_of_begun

NUM_TRAIN, NUM_HELD_OUT = 800, 200  # samples that are looked at, evenly spaced
NICEST = 19  # lowest priority


@dataclass(frozen=True)
class Opened:
    """A run's data and its untrained encoder, opened once; what trains is never touched."""

    source: Source
    split: Split
    encoder: Encoder
    settings: Any


def answer(path: Path, known: dict[Path, Opened]) -> dict[str, Any]:
    """What the newest checkpoint of a run makes of the sample, as plain values.

    Args:
        path: of the run.
        known: runs that are open already; this one is added.

    Returns:
        ``step`` and ``epoch`` of the checkpoint, ``findings`` as in ``findings.json``, ``arrays`` as the bytes of an
        ``arrays.npz`` in base64, ``knn`` (None without labels); or ``why`` there is nothing.
    """
    folder = RunFolder(path)
    try:
        memory = newest_memory(folder.checkpoints)
        if memory is None:
            return {"run": str(path), "why": "no checkpoint was saved yet"}
        known[path] = known.get(path) or _open(folder)
        return {"run": str(path), **_measured(folder, known[path], memory)}
    except (CounterpointError, OSError, RuntimeError, StopIteration) as error:
        # StopIteration: the checkpoint was dropped for a newer one meanwhile.
        return {"run": str(path), "why": first_line(error)}


def main() -> None:
    """Answer until nobody asks any more."""
    os.nice(NICEST)
    torch.set_num_threads(1)
    known: dict[Path, Opened] = {}
    for line in sys.stdin:
        found = answer(Path(json.loads(line)), known)
        # What it has cost so far, starting included: who asks leaves the processors to the training in proportion.
        sys.stdout.write(json.dumps({**found, "seconds": time.process_time()}) + "\n")
        sys.stdout.flush()


def _open(folder: RunFolder) -> Opened:
    """The data as the run split them, and an encoder to put a checkpoint's weights into.

    Raises:
        UsageError: data or encoder are not in files.
    """
    settings = read_resolved(folder)
    engine = settings.engine.model_copy(update={"device": "cpu", "precision": "fp32", "compile": False})
    settings = settings.model_copy(update={"engine": engine})
    if settings.data == "array":
        raise UsageError("it is trained on an array in memory, which no other process can read")
    # Weights to begin with bring the preparation of their input; a checkpoint remembers it.
    start = weights_of_begun(folder, settings)
    side, alone = None if start is None else start.side, Placement("cpu", "fp32", {}, Ranks())
    source = open_given(settings, Given(), Reporter(quiet=True), side=side)
    assembled = assemble(resolve_holdout(settings, source), source, alone, Given(), start)
    split = Split(assembled.positions, assembled.split.held_out)
    return Opened(source, split, assembled.encoder, assembled.settings)


@usual_modes()
@torch.no_grad()
def _measured(folder: RunFolder, opened: Opened, memory: Memory) -> dict[str, Any]:
    """Features of the sample by the checkpoint's weights, and what is to be said of them."""
    source, position = opened.source, memory.position
    encoder = encoder_at(folder, opened.encoder, position.step)
    parts = [evenly_spaced(opened.split.train, NUM_TRAIN), evenly_spaced(opened.split.held_out, NUM_HELD_OUT)]
    chosen_N = torch.cat(parts)
    representation_ND, embedding_ND = encoder.both(source.store.fetch(chosen_N.tolist()))
    labels_N = None if source.labels is None else source.labels[chosen_N]
    places = {
        name: measure_place(z_ND, labels=labels_N)
        for name, z_ND in ((REPRESENTATION, representation_ND), (EMBEDDING, embedding_ND))
    }
    names = [source.sample_names[place] for place in chosen_N.tolist()]
    concepts, shown = described_concepts(embedding_ND, labels_N, source.class_names, names, SPARSITY_THRESHOLD)
    evidence = _evidence(folder, opened, {name: place.figures for name, place in places.items()})
    findings = Findings(
        findings=find(evidence),
        places=evidence.places,
        concepts=concepts,
        settings={"sparsity_threshold": SPARSITY_THRESHOLD, "num_samples": len(chosen_N)},
        unjudged=evidence.unjudged,
        levers=tuple(sorted(evidence.levers)),
    )
    arrays = {f"spectrum/{name}": place.spectrum.numpy() for name, place in places.items()}
    if source.kind == "images" and shown:
        arrays["thumbnails"] = thumbnails(source, [int(chosen_N[place]) for place in shown])
    knn = None if labels_N is None else _knn(representation_ND, labels_N, len(parts[0]))
    plain = {"findings": findings.to_dict(), "arrays": _packed(arrays), "knn": knn}
    return {"step": position.step, "epoch": position.epoch, "num_samples": len(chosen_N), **plain}


def _evidence(folder: RunFolder, opened: Opened, places: dict[str, Any]) -> Evidence:
    """What findings about the sample are drawn from: nothing that needs views or a baseline."""
    lines = folder.read_metrics()
    last = lines[-1] if lines else {}
    return Evidence(
        places,
        loss=last.get("loss"),
        chance=last.get("chance"),
        floor=last.get("floor"),
        is_nonnegative=opened.encoder.card.nonnegative != "none",
        is_supervised=METHODS[opened.settings.method].needs_labels,
        levers=levers_of(opened.settings, opened.source.kind),
        values=values_of(opened.settings),
    )


def _knn(z_ND: Tensor, labels_N: Tensor, num_bank: int) -> float | None:
    """Share of labelled held-out samples whose class their nearest training samples give; None of too few."""
    bank, queries = (
        (z_ND[part][labels_N[part] >= 0], labels_N[part][labels_N[part] >= 0])
        for part in (slice(None, num_bank), slice(num_bank, None))
    )
    if len(bank[0]) < NEIGHBOURS or len(queries[0]) < MIN_QUERIES:
        return None
    return vote_accuracy(bank, queries)


def _packed(arrays: dict[str, np.ndarray]) -> str:
    """The bytes of an ``arrays.npz``, in base64."""
    stream = io.BytesIO()
    np.savez_compressed(stream, **arrays)  # pyright: ignore[reportArgumentType]
    return base64.b64encode(stream.getvalue()).decode("ascii")


if __name__ == "__main__":
    main()
