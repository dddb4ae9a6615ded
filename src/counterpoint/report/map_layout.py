"""The map of a run's samples: laid out once by ``report``, kept in ``map.json``, and read from there.

The file names the collection that it was made of, and has its own seal. Loads without torch.
"""

# N samples of the map, K principal components

from collections.abc import Mapping
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from counterpoint.core.derived_files import read_derived, write_derived
from counterpoint.core.errors import RunError
from counterpoint.core.files import sha256_of
from counterpoint.core.rundir import RunFolder
from counterpoint.core.schemas import Figure, Listed, Record, read_record
from counterpoint.evaluation.map_samples import PLACES, Collection, Whole, read_collection

GRID = 4095  # largest position on a map
FEWEST = 8  # samples below which neighbours on a map say nothing
NUM_NEAREST = 10  # neighbours that are compared
PERPLEXITY = 30.0
NUM_STEPS = 750
BOTH_UP_TO = 1200  # samples up to which both places get a t-SNE; with more, only the first does
SEED = 0


class Layout(Record):
    """Positions of a map, in units of 1/4095 of its side, and how well it keeps neighbours.

    Trustworthiness is that of venna2001 for 10 neighbours: 1 where all neighbours on the map are true ones, about 0.5
    where they are drawn by chance.
    """

    x: Annotated[tuple[int, ...], Listed]
    y: Annotated[tuple[int, ...], Listed]
    trustworthiness: Figure = None


class MapRecord(Record):
    """The content of ``map.json``: for each place of the run, the layouts that take long to compute."""

    made_of: str  # hash of ``collection.npz``
    tsne: Mapping[str, Layout]
    pca_trustworthiness: Mapping[str, Figure]


def read_map(folder: RunFolder, collection: Collection | None) -> MapRecord | None:
    """Read ``map.json``; None if there is none, or if it is of another collection.

    Raises:
        RunError: it is damaged, or was changed after it was written.
    """
    path = folder.map_layout
    if collection is None or not path.exists():
        return None
    record = read_record(MapRecord, read_derived(folder, path, must_be_sealed=True), path.name)
    if record.made_of != sha256_of(folder.collection):
        return None
    if any(len(layout.x) != len(collection) or len(layout.y) != len(collection) for layout in record.tsne.values()):
        raise RunError(f"{path} is damaged: it needs one position for each of {len(collection)} samples")
    return record


def on_grid(points_N2: NDArray[np.floating]) -> Whole:
    """Turn positions into whole numbers from 0 to ``GRID``, both axes on one scale and centred.

    >>> on_grid(np.array([[0.0, 1.0], [2.0, 1.0]])).tolist()
    [[0, 2048], [4095, 2048]]
    """
    low_2, high_2 = points_N2.min(axis=0), points_N2.max(axis=0)
    extent = max(float((high_2 - low_2).max()), 1e-12)
    return np.rint((points_N2 - (low_2 + high_2) / 2) / extent * GRID + GRID / 2).clip(0, GRID).astype(np.int64)


def make_map(folder: RunFolder, *, quiet: bool) -> MapRecord | None:
    """Lay out the map of a run, unless that was done for the same collection.

    Args:
        folder: the run; ``map.json`` is written there.
        quiet: show no progress.

    Returns:
        The record; None if ``diagnose`` has kept no samples.

    Raises:
        RunError: a damaged file, or the disk refuses.
    """
    collection = read_collection(folder)
    earlier = read_map(folder, collection)
    if collection is None or earlier is not None:
        return earlier
    from counterpoint.core.thread_parts import one_thread  # deferred: loads torch, and a map may be there
    from counterpoint.engine.progress import Reporter  # deferred: likewise

    places = tsne_places(collection)
    tsne, pca = {}, {}
    title = f"laying out a map of {len(collection):,} samples"
    with Reporter(quiet=quiet).bar(title, len(PLACES) + len(places)) as advance, one_thread():
        for place in PLACES:
            scores_NK = collection.scores[place]
            pca[place] = _trust(scores_NK, scores_NK[:, :2])
            advance()
            if place in places:
                tsne[place] = tsne_layout(scores_NK)
                advance()
    record = MapRecord(made_of=sha256_of(folder.collection), tsne=tsne, pca_trustworthiness=pca)
    write_derived(folder, folder.map_layout, record.written())
    return record


def tsne_places(collection: Collection) -> list[str]:
    """Places that get a t-SNE: those whose features differ, but only the first of them if there are many samples."""
    if len(collection) < FEWEST:
        return []
    varied = [place for place in PLACES if collection.variance[place].sum() > 0]
    return varied if len(collection) <= BOTH_UP_TO else varied[:1]


def tsne_layout(scores_NK: NDArray[np.float64]) -> Layout:
    """Compute t-SNE (vandermaaten2008) of principal components, started at the first two; equal scores, equal maps."""
    spread = max(float(scores_NK[:, 0].std()), 1e-12)
    from sklearn.manifold import TSNE  # deferred: it takes a second, and only a page needs it

    method = TSNE(
        init=(scores_NK[:, :2] / spread * 1e-4).astype(np.float32),  # pyright: ignore[reportArgumentType]
        perplexity=min(PERPLEXITY, (len(scores_NK) - 1) / 3),
        max_iter=NUM_STEPS,
        random_state=SEED,
        n_jobs=1,
    )
    points_N2 = method.fit_transform(scores_NK.astype(np.float32))
    x, y = (tuple(axis_N.tolist()) for axis_N in on_grid(points_N2).T)
    return Layout(x=x, y=y, trustworthiness=_trust(scores_NK, points_N2))


def _trust(scores_NK: NDArray[np.float64], points_N2: NDArray[np.floating]) -> float | None:
    """Trustworthiness of a map; None for few samples, or equal ones, which have no nearest neighbours."""
    if len(scores_NK) < FEWEST or float(np.ptp(scores_NK, axis=0).max()) == 0:
        return None
    from sklearn.manifold import trustworthiness  # deferred: see `tsne_layout`

    num_nearest = min(NUM_NEAREST, (len(scores_NK) - 1) // 2)
    return float(trustworthiness(scores_NK, points_N2, n_neighbors=num_nearest))
