"""Positions of samples on a map by t-SNE, and how far neighbours on it are neighbours: made once, kept in the run."""

# N samples, K principal components

import numpy as np
from numpy.typing import NDArray
from sklearn.manifold import TSNE, trustworthiness

from counterpoint.core.derived_files import write_derived
from counterpoint.core.files import sha256_of
from counterpoint.core.map_samples import PLACES, Collection, Layout, MapRecord, on_grid, read_collection, read_map
from counterpoint.core.rundir import RunFolder
from counterpoint.core.thread_parts import one_thread
from counterpoint.engine.progress import Reporter

FEWEST = 8  # samples below which neighbours on a map say nothing
NUM_NEAREST = 10  # neighbours that are compared
PERPLEXITY = 30.0
NUM_STEPS = 750
BOTH_UP_TO = 2500  # samples; of more, t-SNE of the embedding alone, as each place takes half a minute
SEED = 0


def make_map(folder: RunFolder, reporter: Reporter) -> MapRecord | None:
    """Lay out the map of a run, unless that was done of the same collection.

    Args:
        folder: the run; ``map.json`` is written there.
        reporter: shows progress.

    Returns:
        The record; None where ``diagnose`` has kept no samples.

    Raises:
        RunError: a damaged file, or the disk refuses.
    """
    known = read_collection(folder)
    if known is None:
        return None
    earlier = read_map(folder, known)
    if earlier is not None:
        return earlier
    places = tsne_places(known)
    tsne, pca = {}, {}
    with (
        reporter.bar(f"laying out a map of {len(known):,} samples", len(PLACES) + len(places)) as advance,
        one_thread(),
    ):
        for place in PLACES:
            scores_NK = known.scores[place]
            pca[place] = _trust(scores_NK, scores_NK[:, :2])
            advance()
            if place in places:
                tsne[place] = tsne_layout(scores_NK)
                advance()
    record = MapRecord(made_of=sha256_of(folder.collection), tsne=tsne, pca_trustworthiness=pca)
    write_derived(folder, folder.map_layout, record.written())
    return record


def tsne_places(known: Collection) -> list[str]:
    """Of which places a t-SNE is made: of those whose features differ, and of at most one where there are many."""
    if len(known) < FEWEST:
        return []
    varied = [place for place in PLACES if known.variance[place].sum() > 0]
    return varied if len(known) <= BOTH_UP_TO else varied[:1]


def tsne_layout(scores_NK: NDArray[np.float64]) -> Layout:
    """t-SNE (vandermaaten2008) of principal components, begun at the first two; the same scores give the same map."""
    spread = max(float(scores_NK[:, 0].std()), 1e-12)
    method = TSNE(
        init=(scores_NK[:, :2] / spread * 1e-4).astype(np.float32),  # pyright: ignore[reportArgumentType]
        perplexity=min(PERPLEXITY, (len(scores_NK) - 1) / 3),
        max_iter=NUM_STEPS,
        random_state=SEED,
        n_jobs=1,
    )
    points_N2 = method.fit_transform(scores_NK.astype(np.float32))
    placed_N2 = on_grid(points_N2)
    x, y = (tuple(axis_N.tolist()) for axis_N in placed_N2.T)
    return Layout(x=x, y=y, trustworthiness=_trust(scores_NK, points_N2))


def _trust(scores_NK: NDArray[np.float64], points_N2: NDArray[np.floating]) -> float | None:
    """Trustworthiness of a map; None for few samples or equal ones, of which no neighbour is nearer than another."""
    num_nearest = min(NUM_NEAREST, (len(scores_NK) - 1) // 2)
    if len(scores_NK) < FEWEST or float(np.ptp(scores_NK, axis=0).max()) == 0:
        return None
    return float(trustworthiness(scores_NK, points_N2, n_neighbors=num_nearest))
