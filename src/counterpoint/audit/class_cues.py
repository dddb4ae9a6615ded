"""What tells the classes, or which crops belong together, without what the pictures show."""

# N pictures, K numbers of a cue, C classes

from collections.abc import Mapping, Sequence

import numpy as np
from sklearn.ensemble import ExtraTreesClassifier
from sklearn.model_selection import StratifiedKFold

from counterpoint.audit.audit_record import CROPS, Cue
from counterpoint.audit.picture_pass import NUM_CELLS, PictureStatistics, Seen
from counterpoint.core.thread_parts import side_by_side
from counterpoint.evaluation.metric_types import wilson

MOST_SAMPLES = 4000  # pictures that a cue is tried on
FOLDS, TREES, FEWEST_OF_CLASS = 3, 60, 6
LEAF = 2
KEPT = 5  # of the eight cells along each side: the crops by which colours are tried
MOST_PAIRS = 512
SEED = 0
FILE_CUES = ("resolution", "file format", "JPEG quality")  # of the files, and not of what they show


def class_cues(seen: Seen, labels_N: np.ndarray, ids: np.ndarray) -> tuple[Cue, ...]:
    """Try each cue: extremely randomised trees, in three folds that keep the classes' shares.

    Args:
        seen: all pictures.
        labels_N: class numbers; -1 where unknown.
        ids: pictures to take: readable, and one of each group of copies, so that no copy of a picture is in both parts.

    Returns:
        Nothing with fewer than two classes of six pictures.
    """
    ids = _usable(labels_N, ids)
    if len(ids) == 0:
        return ()
    cues = cue_numbers(seen, ids)
    labels = labels_N[ids]
    majority = float(np.bincount(labels).max() / len(labels))
    folds = list(StratifiedKFold(FOLDS, shuffle=True, random_state=SEED).split(ids, labels))

    def work(task: tuple[np.ndarray, Sequence[np.ndarray]]) -> int:
        numbers_NK, (train, test) = task
        trees = ExtraTreesClassifier(TREES, min_samples_leaf=LEAF, random_state=SEED, n_jobs=1)
        trees.fit(numbers_NK[train], labels[train])
        return int((trees.predict(numbers_NK[test]) == labels[test]).sum())

    varied = {name: numbers for name, numbers in cues.items() if (numbers.max(0) > numbers.min(0)).any()}
    right = side_by_side(work, [(numbers, fold) for numbers in varied.values() for fold in folds])
    found = []
    for place, name in enumerate(varied):
        found.append(_cue(name, sum(right[place * FOLDS : (place + 1) * FOLDS]), len(ids), majority))
    return tuple(found)


def _cue(name: str, num_right: int, number: int, majority: float) -> Cue:
    """A cue with the interval of its accuracy."""
    share = wilson(num_right, number)
    return Cue(name=name, accuracy=share.value, low=share.low, high=share.high, majority=majority, num_samples=number)


def cue_numbers(seen: Seen, ids: np.ndarray) -> Mapping[str, np.ndarray]:
    """The numbers of each cue, (n, k)."""
    looks, headers = seen.looks, [seen.headers[place] for place in ids]
    formats = sorted({header.format for header in headers})
    modes = sorted({header.mode for header in headers})

    def of_files(numbers: Sequence[Sequence[float]]) -> np.ndarray:
        return np.array(numbers, np.float64)

    return {
        "colours": np.concatenate([looks.colour_N6[ids], looks.histogram_NK[ids]], axis=1),
        "border": looks.border_N6[ids],
        "position": looks.place_N4[ids],
        "resolution": of_files([(h.width, h.height, h.width / max(h.height, 1)) for h in headers]),
        "file format": of_files([(formats.index(h.format), modes.index(h.mode)) for h in headers]),
        "JPEG quality": of_files([(h.quality,) for h in headers]),
        "file size": of_files([(h.num_bytes / max(h.width * h.height, 1),) for h in headers]),
    }


def _usable(labels_N: np.ndarray, ids: np.ndarray) -> np.ndarray:
    """Some pictures of the classes that have enough, evenly spaced."""
    ids = ids[labels_N[ids] >= 0]
    counts = np.bincount(labels_N[ids])
    ids = ids[counts[labels_N[ids]] >= FEWEST_OF_CLASS]
    if len(np.unique(labels_N[ids])) < 2:
        return ids[:0]
    if len(ids) > MOST_SAMPLES:
        ids = ids[np.random.default_rng(SEED).permutation(len(ids))[:MOST_SAMPLES]]
        counts = np.bincount(labels_N[ids], minlength=labels_N.max() + 1)
        ids = ids[counts[labels_N[ids]] >= FOLDS]
    return np.sort(ids)


def crops_by_colour(crops_N2K: np.ndarray) -> Cue | None:
    """How often colours alone find the other crop of a picture among those of all pictures.

    Args:
        crops_N2K: colour statistics of two crops of each picture.

    Returns:
        None for fewer than 20 pictures.

    >>> rng = np.random.default_rng(0)
    >>> same = np.repeat(rng.normal(size=(100, 1, 6)), 2, axis=1)
    >>> crops_by_colour(same).accuracy
    1.0
    """
    if len(crops_N2K) < 20:
        return None
    scaled = (crops_N2K - crops_N2K.mean((0, 1))) / np.maximum(crops_N2K.std((0, 1)), 1e-9)
    first_NK, second_NK = scaled[:, 0], scaled[:, 1]
    squares_NN = (first_NK**2).sum(1)[:, None] + (second_NK**2).sum(1) - 2 * first_NK @ second_NK.T
    # A tie is no find: pictures without colour are all alike.
    nearest_N = (squares_NN <= squares_NN.diagonal()[:, None] + 1e-9).sum(1) == 1
    return _cue(CROPS, int(nearest_N.sum()), len(crops_N2K), 1 / len(crops_N2K))


def crop_colours(looks: PictureStatistics, ids: np.ndarray) -> np.ndarray:
    """Mean and deviation of the colours of two crops of each picture, 5 of 8 cells wide, at random, (n, 2, k)."""
    rng = np.random.default_rng(SEED)
    ids = ids[rng.permutation(len(ids))[:MOST_PAIRS]]
    corners = rng.integers(0, NUM_CELLS - KEPT + 1, (len(ids), 2, 2))
    found = np.empty((len(ids), 2, 6))
    for place, (picture, pair) in enumerate(zip(ids, corners, strict=True)):
        for view, (top, left) in enumerate(pair):
            crop = looks.cells_N883[picture, top : top + KEPT, left : left + KEPT].reshape(-1, 3).astype(float)
            found[place, view] = np.concatenate([crop.mean(0), crop.std(0)])
    return found
