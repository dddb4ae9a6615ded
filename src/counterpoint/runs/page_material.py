"""What ``diagnose`` keeps of a run's own samples for its page: concepts in words, pictures, arrays, the collection.

The report reads these files, and never a live model.
"""

# N samples, D features

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from torch import Tensor

from counterpoint.core.array_layout import shrunk_to_bytes
from counterpoint.core.collection import write_collection
from counterpoint.core.derived_files import write_derived
from counterpoint.core.files import sha256_of, write_atomically
from counterpoint.core.rundir import RunFolder
from counterpoint.data.source import Source
from counterpoint.diagnostics.concepts import class_purity, top_concepts
from counterpoint.diagnostics.evidence import EMBEDDING
from counterpoint.diagnostics.feature_roles import drawn_correlation
from counterpoint.diagnostics.findings import DescribedConcept, Findings
from counterpoint.diagnostics.pair_record import PairRecord
from counterpoint.runs.layer_reading import Arrays, null_band
from counterpoint.runs.run_evidence import GatheredEvidence
from counterpoint.runs.sample_collection import Embedded, collect

THUMBNAIL_SIDE = 48


def described_concepts(
    z_ND: Tensor, labels: Tensor | None, class_names: tuple[str, ...], names: Sequence[str], threshold: float
) -> tuple[tuple[DescribedConcept, ...], list[int]]:
    """Records of single dimensions, and the samples that their thumbnails show.

    Args:
        z_ND: features of all samples.
        labels: class numbers of the samples, or None.
        class_names: by number.
        names: of the samples.
        threshold: above which a feature of a unit-length vector counts as active.
    """
    purity = class_purity(z_ND, labels, threshold=threshold) if labels is not None else None
    concepts = top_concepts(z_ND, threshold=threshold)
    shown = sorted({position for concept in concepts for position in concept.top})
    # A sample that several dimensions share is stored once.
    place_of = {position: place for place, position in enumerate(shown)}
    records = []
    for concept in concepts:
        top_class = int(purity.class_D[concept.dim]) if purity else -1  # -1: no labelled sample activates it
        is_named = purity is not None and bool(purity.is_named_D[concept.dim])
        records.append(
            DescribedConcept(
                **{name: value for name, value in vars(concept).items() if name != "top"},
                purity=float(purity.share_D[concept.dim]) if purity and top_class >= 0 else None,
                top_class=class_names[top_class] if is_named else None,
                thumbnails=tuple(place_of[position] for position in concept.top),
                names=tuple(names[position] for position in concept.top),
            )
        )
    return tuple(records), shown


def with_thumbnails(record: PairRecord, shown: Sequence[int]) -> tuple[PairRecord, list[int]]:
    """Number the pictures of pairs behind those that are kept already.

    Args:
        record: from ``pairs_of_run``.
        shown: samples whose pictures are kept.

    Returns:
        The record, and all samples whose pictures are kept.
    """
    kept = list(
        dict.fromkeys([*shown, *(int(at) for pair in record.nearest for at in pair.thumbnails if at is not None)])
    )
    place_of = {position: place for place, position in enumerate(kept)}
    nearest = tuple(
        pair.model_copy(update={"thumbnails": tuple(place_of[int(at)] for at in pair.thumbnails if at is not None)})
        for pair in record.nearest
    )
    return record.model_copy(update={"nearest": nearest}), kept


def keep_for_page(
    folder: RunFolder,
    source: Source,
    findings: Findings,
    known: GatheredEvidence,
    *,
    shown: Sequence[int],
    layer_arrays: Arrays,
) -> None:
    """Write ``arrays.npz``, ``collection.npz`` and, last, ``findings.json``, which vouches for both.

    Args:
        folder: of the run.
        source: its own samples.
        findings: about them.
        known: their features, and measurements with the arrays behind them.
        shown: samples whose pictures are kept.
        layer_arrays: spectra and matrices of layers, where they were asked for.
    """
    correlation = drawn_correlation(known.embedding_ND)
    arrays: Arrays = {
        **layer_arrays,
        "correlation/dims": np.array(correlation.dims),
        "correlation/matrix": correlation.matrix_LL.numpy(),
    }
    for name, place in known.places.items():
        arrays[f"spectrum/{name}"] = place.spectrum.numpy()
        arrays[f"band/{name}"] = null_band(place.spectrum, place.figures.num_samples)
    cosines = known.places[EMBEDDING].cosines
    if cosines is not None:
        arrays |= {f"cosines/{name}": getattr(cosines, name).numpy() for name in ("edges", "positive", "negative")}
    if source.kind == "images" and shown:
        arrays["thumbnails"] = thumbnails(source, list(shown))

    def write(path: Path) -> None:
        with path.open("wb") as stream:
            np.savez_compressed(stream, **arrays)  # pyright: ignore[reportArgumentType]

    write_atomically(folder.arrays, write)
    threshold = float(findings.settings["sparsity_threshold"] or 0.0)
    embedded = Embedded(known.embedding_ND, known.representation_ND, known.evidence.is_nonnegative, threshold)
    write_collection(folder, collect(source, embedded))
    files = {"arrays": folder.arrays, "collection": folder.collection}
    seals = {name: {"sha256": sha256_of(file)} for name, file in files.items()}
    write_derived(folder, folder.findings, {**findings.to_dict(), **seals})


def thumbnails(source: Source, positions: list[int]) -> np.ndarray:
    """Small pictures (m, h, w) or (m, h, w, 3), uint8."""
    pixels = shrunk_to_bytes(source.store.fetch(positions), THUMBNAIL_SIDE).permute(0, 2, 3, 1).numpy()
    return pixels[..., 0] if pixels.shape[3] == 1 else pixels
