"""What tells the classes without what the pictures show."""

# N pictures, K numbers of a cue, C classes

from collections.abc import Mapping, Sequence

import numpy as np
from sklearn.ensemble import ExtraTreesClassifier
from sklearn.model_selection import StratifiedKFold

from counterpoint.audit.audit_record import Cue
from counterpoint.audit.picture_pass import Seen
from counterpoint.core.thread_parts import side_by_side
from counterpoint.evaluation.metric_types import wilson

MOST_SAMPLES = 4000  # pictures that a cue is tried on
FOLDS, TREES, FEWEST_OF_CLASS = 3, 60, 6
LEAF = 2
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
        share = wilson(sum(right[place * FOLDS : (place + 1) * FOLDS]), len(ids))
        interval = {"accuracy": share.value, "low": share.low, "high": share.high}
        found.append(Cue(name=name, **interval, majority=majority, num_samples=len(ids)))
    return tuple(found)


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
