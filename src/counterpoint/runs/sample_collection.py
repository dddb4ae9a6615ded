"""Files of a run's own samples that ``diagnose`` keeps for its page, which reads them and never a live model."""

# N samples of the run, M of them on the map, D features, K principal components

import io
import math
from collections.abc import Mapping, Sequence

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from counterpoint.core.array_layout import shrunk_to_bytes
from counterpoint.core.derived_files import write_derived
from counterpoint.core.files import sha256_of
from counterpoint.core.numerics import evenly_spaced, unit_rows
from counterpoint.core.rundir import RunFolder
from counterpoint.data.formats.labels import Labels
from counterpoint.data.source import Source
from counterpoint.diagnostics.concepts import class_purity, expected_activation, is_active, top_concepts
from counterpoint.diagnostics.evidence import EMBEDDING, REPRESENTATION, Concept
from counterpoint.diagnostics.findings import Findings
from counterpoint.diagnostics.spectra import isotropic_band, isotropic_spectrum
from counterpoint.evaluation.knn import nearest_others
from counterpoint.evaluation.map_samples import (
    MOST_COMPONENTS,
    MOST_SAMPLES,
    NOBODY,
    NUM_NEIGHBOURS,
    NUM_TOP,
    PLACES,
    Collection,
    Dimensions,
    Sheet,
    write_arrays,
    write_collection,
)
from counterpoint.runs.run_evidence import GatheredEvidence

BLOCK = 512  # pictures decoded at once
LOSSLESS_SIDE = 16  # up to which a PNG is as small as anything
GROUND = 128  # grey beside a picture that is not a square
MOST_SHEET_BYTES = 2_500_000  # in a page, 4/3 of it
# Side and quality of the pictures, tried in this order until they fit.
GRAINS = ((48, 75), (48, 60), (40, 60), (32, 60), (24, 50))
NUM_TRIED = 250  # pictures by which the size of all is estimated
THUMBNAIL_SIDE = 48


def collect(source: Source, features: Mapping[str, Tensor], *, is_nonnegative: bool, threshold: float) -> Collection:
    """Choose samples, and compute the arrays of a map and of a table of dimensions.

    Args:
        source: the samples.
        features: features of all samples for each of ``PLACES``, finite.
        is_nonnegative: True if the embedding has no entry below 0 by design.
        threshold: value above which a feature of a unit-length vector counts as active.
    """
    rows_M = chosen_rows(len(source), source.labels)
    unit = {place: unit_rows(features[place][rows_M].float()) for place in PLACES}
    scores, chosen_MD = {place: principal_scores(unit_MD) for place, unit_MD in unit.items()}, unit[EMBEDDING]
    num_nearest = min(NUM_NEIGHBOURS, len(rows_M) - 1)
    nearest_MK, spare = nearest_others(chosen_MD, num_nearest).positions_QK, (0, NUM_NEIGHBOURS - num_nearest)
    return Collection(
        num_samples=len(source),
        rows_N=rows_M.numpy(),
        names=tuple(source.sample_names[int(row)] for row in rows_M.tolist()),
        labels_N=(torch.zeros(0, dtype=torch.int64) if source.labels is None else source.labels[rows_M]).numpy(),
        class_names=source.class_names if source.labels is not None else (),
        scores={place: scores_MK.double().numpy() for place, (scores_MK, _) in scores.items()},
        variance={place: share_K.double().numpy() for place, (_, share_K) in scores.items()},
        neighbours_NM=torch.nn.functional.pad(nearest_MK, spare, value=NOBODY).numpy(),
        dominant_N=(dominant_dims(chosen_MD) if is_nonnegative else torch.zeros(0, dtype=torch.int64)).numpy(),
        dims=_dimensions(features[EMBEDDING], source.labels, chosen_MD, threshold),
        sheet=picture_sheet(source, rows_M.tolist()) if source.kind == "images" else None,
    )


def chosen_rows(num_samples: int, labels: Tensor | None, at_most: int = MOST_SAMPLES) -> Tensor:
    """Rows for the map: evenly spaced within the classes, so that each keeps its share; a function of labels alone.

    >>> chosen_rows(6, torch.tensor([0, 1, 0, 1, 0, 0]), at_most=3).tolist()
    [0, 3, 4]
    """
    order_N = torch.arange(num_samples) if labels is None else labels.argsort(stable=True)
    return evenly_spaced(order_N, at_most).sort().values


def principal_scores(unit_MD: Tensor) -> tuple[Tensor, Tensor]:
    """Principal components of features, with the share of the variance of each; zeros where all features are equal.

    Each component's largest entry by size is positive, so that the same features give the same map everywhere.

    Returns:
        Scores (M, K) with at most ``MOST_COMPONENTS`` and at least two columns, and the shares (K,).
    """
    centred_MD = (unit_MD - unit_MD.mean(dim=0)).double()
    values_D, vectors_DD = torch.linalg.eigh(centred_MD.T @ centred_MD)
    num_kept = min(MOST_COMPONENTS, len(values_D))
    values_K, vectors_DK = values_D.flip(0)[:num_kept].clamp(min=0), vectors_DD.flip(1)[:, :num_kept]
    largest_K = vectors_DK.gather(0, vectors_DK.abs().argmax(dim=0)[None])[0]
    scores_MK = centred_MD @ (vectors_DK * largest_K.sign())
    # Rounding of equal features is not variance.
    total = float(values_D.clamp(min=0).sum())
    is_constant = total <= 1e-10 * max(float(unit_MD.double().square().sum()), 1e-300)
    share_K = torch.zeros_like(values_K) if is_constant else values_K / total
    scores_MK = torch.zeros_like(scores_MK) if is_constant else scores_MK
    spare = (0, max(0, 2 - num_kept))  # a map has two axes, whatever the width
    return torch.nn.functional.pad(scores_MK, spare), torch.nn.functional.pad(share_K, spare)


def dominant_dims(unit_MD: Tensor) -> Tensor:
    """The strongest dimension of each sample; -1 if all are silent.

    >>> dominant_dims(torch.tensor([[0.6, 0.8], [0.0, 0.0]])).tolist()
    [1, -1]
    """
    strongest_M, dims_M = unit_MD.max(dim=1)
    return torch.where(strongest_M > 0, dims_M, NOBODY)


def _dimensions(z_ND: Tensor, labels: Tensor | None, chosen_MD: Tensor, threshold: float) -> Dimensions:
    purity = class_purity(z_ND, labels, threshold=threshold) if labels is not None else None
    num_dims, num_top = z_ND.shape[1], min(NUM_TOP, len(chosen_MD))
    # Stable: equal samples come in their own order, on every machine.
    values_DT, top_DT = (each[:num_top].T for each in chosen_MD.sort(dim=0, descending=True, stable=True))
    top_DT = torch.where(values_DT > threshold, top_DT, NOBODY)
    spare = (0, NUM_TOP - num_top)
    class_D = torch.where(purity.is_named_D, purity.class_D, NOBODY) if purity else torch.full((num_dims,), NOBODY)
    return Dimensions(
        fires_D=is_active(z_ND, threshold).double().mean(dim=0).numpy(),
        expected_D=expected_activation(z_ND).double().numpy(),
        purity_D=(purity.share_D if purity else torch.full((num_dims,), math.nan)).double().numpy(),
        class_D=class_D.numpy(),
        top_DT=torch.nn.functional.pad(top_DT, spare, value=NOBODY).numpy(),
        values_DT=torch.nn.functional.pad(values_DT, spare).double().numpy(),
    )


def picture_sheet(source: Source, rows: list[int], most_bytes: int = MOST_SHEET_BYTES) -> Sheet:
    """Draw samples as small square pictures in one file of at most ``most_bytes``, if the smallest ones fit.

    Args:
        source: a source of images.
        rows: rows of the samples in the source.
        most_bytes: largest size of the file; pictures become smaller and coarser until they fit.
    """
    side = min(GRAINS[0][0], max(source.store.fetch(rows[:1]).shape[2:]))
    tiles = np.concatenate([_tiles(source, rows[first : first + BLOCK], side) for first in range(0, len(rows), BLOCK)])
    trial_tiles = tiles[np.linspace(0, len(tiles) - 1, min(NUM_TRIED, len(tiles))).astype(int)]
    *finer, (smallest, coarsest) = GRAINS
    for smaller, quality in finer:
        estimate = len(_sheet(trial_tiles, min(side, smaller), quality).content) * len(tiles) / len(trial_tiles)
        if estimate <= most_bytes and len((sheet := _sheet(tiles, min(side, smaller), quality)).content) <= most_bytes:
            return sheet
    return _sheet(tiles, min(side, smallest), coarsest)


def _tiles(source: Source, rows: list[int], side: int) -> np.ndarray:
    """Pictures (m, side, side, 3), uint8; a picture that is not a square lies on grey."""
    images = source.store.fetch(rows)
    # Two channels or more than four have no known colours: the first one, or three, are shown.
    images = images[:, :3] if images.shape[1] >= 3 else images[:, :1].expand(-1, 3, -1, -1)
    images = shrunk_to_bytes(images, side)
    high, wide = images.shape[2:]
    left, top = (side - wide) // 2, (side - high) // 2
    edges = (left, side - wide - left, top, side - high - top)
    return torch.nn.functional.pad(images, edges, value=GROUND).permute(0, 2, 3, 1).numpy()


def _sheet(tiles: np.ndarray, side: int, quality: int) -> Sheet:
    columns = math.ceil(math.sqrt(len(tiles)))
    num_rows, old = math.ceil(len(tiles) / columns), tiles.shape[1]
    filled = np.full((num_rows * columns, old, old, 3), GROUND, np.uint8)
    filled[: len(tiles)] = tiles
    # (row, column, y, x, colour) to (row, y, column, x, colour)
    pixels = filled.reshape(num_rows, columns, old, old, 3).transpose(0, 2, 1, 3, 4)
    picture = Image.fromarray(pixels.reshape(num_rows * old, columns * old, 3))
    if side < old:
        picture = picture.resize((columns * side, num_rows * side), Image.Resampling.BOX)
    stream = io.BytesIO()
    if side <= LOSSLESS_SIDE:
        is_grey = bool((tiles[..., :1] == tiles).all())
        (picture.convert("L") if is_grey else picture).save(stream, "PNG", optimize=True)
    else:
        picture.save(stream, "WEBP", quality=quality, method=4)
    return Sheet(stream.getvalue(), columns, side)


def described_concepts(
    z_ND: Tensor, labels: Labels | None, names: Sequence[str], threshold: float
) -> tuple[Concept, ...]:
    """Describe the top concepts, each a single dimension.

    Args:
        z_ND: features of all samples.
        labels: labels of the samples, or None.
        names: names of the samples.
        threshold: value above which a feature of a unit-length vector counts as active.
    """
    purity = class_purity(z_ND, labels.numbers, threshold=threshold) if labels else None
    records = []
    for concept in top_concepts(z_ND, threshold=threshold):
        top_class = int(purity.class_D[concept.dim]) if purity else -1  # -1: no labelled sample activates it
        is_named = purity is not None and bool(purity.is_named_D[concept.dim])
        details = {
            "purity": float(purity.share_D[concept.dim]) if purity and top_class >= 0 else None,
            "top_class": labels.class_names[top_class] if labels and is_named else None,
            "names": tuple(names[position] for position in concept.top),
        }
        records.append(concept.model_copy(update=details))
    return tuple(records)


def keep_for_page(
    folder: RunFolder,
    source: Source,
    findings: Findings,
    gathered: GatheredEvidence,
) -> None:
    """Write ``arrays.npz``, ``collection.npz`` and, last, ``findings.json``, which vouches for both.

    Args:
        folder: the run's folder.
        source: the run's own samples.
        findings: findings about them.
        gathered: features of these samples, and measurements with the arrays behind them.
    """
    arrays: dict[str, np.ndarray] = {}
    for name, place in gathered.places.items():
        arrays[f"spectrum/{name}"] = place.spectrum.numpy()
        # Range of the eigenvalues of isotropic features of the same shape and total variance.
        shape = place.figures.num_samples, len(place.spectrum)
        mean = float(place.spectrum.sum()) / float(isotropic_spectrum(*shape).sum())
        arrays[f"band/{name}"] = (torch.stack(isotropic_band(*shape)) * mean).numpy()
    cosines = gathered.places[EMBEDDING].cosines
    if cosines is not None:
        arrays |= {f"cosines/{name}": getattr(cosines, name).numpy() for name in ("edges", "positive", "negative")}

    write_arrays(folder.arrays, arrays)
    features = {EMBEDDING: gathered.embedding_ND, REPRESENTATION: gathered.representation_ND}
    threshold = float(findings.settings["sparsity_threshold"] or 0.0)
    collection = collect(source, features, is_nonnegative=gathered.evidence.is_nonnegative, threshold=threshold)
    write_collection(folder, collection)
    files = {"arrays": folder.arrays, "collection": folder.collection}
    seals = {name: {"sha256": sha256_of(file)} for name, file in files.items()}
    write_derived(folder, folder.findings, {**findings.to_dict(), **seals})


def thumbnails(source: Source, positions: list[int]) -> np.ndarray:
    """Small pictures (m, h, w) or (m, h, w, 3), uint8."""
    pixels = shrunk_to_bytes(source.store.fetch(positions), THUMBNAIL_SIDE).permute(0, 2, 3, 1).numpy()
    return pixels[..., 0] if pixels.shape[3] == 1 else pixels
