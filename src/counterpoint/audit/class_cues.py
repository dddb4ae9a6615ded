"""Cues that predict the classes of pictures without their content: all classes, or one against the rest."""

# N pictures, M of a class, K numbers of a cue, C classes

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr
from scipy.stats import rankdata
from sklearn.ensemble import ExtraTreesClassifier
from sklearn.model_selection import StratifiedKFold

from counterpoint.audit.audit_record import Cue
from counterpoint.audit.picture_copies import GREY_3, detail
from counterpoint.audit.picture_pass import Seen
from counterpoint.core.paired_shares import holm
from counterpoint.core.thread_parts import side_by_side
from counterpoint.evaluation.metric_types import wilson

LEAST_SIDE = 24  # pixels: smaller pictures are drawings, whose ink is alike in all of a class
MOST_SAMPLES = 4000  # pictures that a cue is tried on
FOLDS, TREES, FEWEST_OF_CLASS = 3, 8, 6
LEAF = 4
SEED = 0
LEAST_AUC, P_VALUE = 0.95, 0.01  # of one class against the rest, and of all such tests together
MOST_DETAIL, MARK_ERRORS = 40.0, 4.5  # levels; standard errors by which a pixel of a mark is off the mean of all
FILE_CUES = ("resolution", "file format", "JPEG quality")  # of the files, and not of what they show


@dataclass(frozen=True)
class ClassCue:
    """One class that a cue without content distinguishes from all others.

    Attributes:
        name: name of the cue.
        label: name of the class.
        auc: share of pairs, a held-out picture of the class and one of another, that the cue puts in the right order.
    """

    name: str
    label: str
    auc: float


def class_cues(
    seen: Seen, labels_N: np.ndarray, ids: np.ndarray, class_names: Sequence[str]
) -> tuple[tuple[Cue, ...], tuple[ClassCue, ...]]:
    """Try each cue: all classes by extremely randomised trees, one class against the rest by ranks.

    Both are cross-validated in three folds that keep the classes' shares.

    Args:
        seen: all pictures.
        labels_N: class numbers; -1 where unknown.
        ids: pictures to take: readable, and one of each group of copies, so that no copy of a picture is in both parts.
        class_names: name of each class number.

    Returns:
        The accuracy of each cue, and the classes that one cue separates; nothing with fewer than two classes of six
        pictures.
    """
    ids = _ids_of_large_classes(labels_N, ids)
    if len(ids) == 0:
        return (), ()
    labels = labels_N[ids]
    folds = list(StratifiedKFold(FOLDS, shuffle=True, random_state=SEED).split(ids, labels))
    numbers = {
        name: numbers for name, numbers in cue_numbers(seen, ids).items() if (numbers.max(0) > numbers.min(0)).any()
    }

    def hits(task: tuple[np.ndarray, Sequence[np.ndarray]]) -> int:
        numbers_NK, (train, test) = task
        trees = ExtraTreesClassifier(TREES, min_samples_leaf=LEAF, random_state=SEED, n_jobs=1)
        trees.fit(numbers_NK[train], labels[train])
        return int((trees.predict(numbers_NK[test]) == labels[test]).sum())

    right = iter(side_by_side(hits, [(numbers_NK, fold) for numbers_NK in numbers.values() for fold in folds]))
    majority, cues = float(np.bincount(labels).max() / len(labels)), []
    for name in numbers:
        share = wilson(sum(itertools.islice(right, FOLDS)), len(ids))
        interval = {"accuracy": share.value, "low": share.low, "high": share.high}
        cues.append(Cue(name=name, **interval, majority=majority, num_samples=len(ids)))
    # Ink of small drawings is content, as are colours and places of things.
    is_small = np.median(seen.sides[ids]) < LEAST_SIDE
    ranked = {
        name: _closeness(numbers_NK, labels, folds)
        for name, numbers_NK in numbers.items()
        if name in FILE_CUES or (name in ("border", "darkness", "blur") and not is_small)
    }
    if not is_small:
        ranked["watermark or common background"] = _mark_scores(seen.looks.small_NSS3[ids], labels, folds)
    return tuple(cues), _distinct(ranked, labels, class_names)


def _distinct(ranked: Mapping[str, np.ndarray], labels: np.ndarray, class_names: Sequence[str]) -> tuple[ClassCue, ...]:
    """Classes whose pictures rank above nearly all others by a score of the class, (n, c): Mann-Whitney, Holm."""
    cues, p_values = [], []
    for name, score_NC in ranked.items():
        rank_NC = rankdata(score_NC, axis=0)
        for place, number in enumerate(np.unique(labels)):
            is_own = labels == number
            own, others = int(is_own.sum()), int((~is_own).sum())
            auc = (float(rank_NC[is_own, place].sum()) / own - (own + 1) / 2) / others
            z = (auc - 0.5) * math.sqrt(12 * own * others / (own + others + 1))
            cues.append(ClassCue(name, class_names[int(number)], auc))
            p_values.append(float(ndtr(-z)))  # ties make it smaller
    return tuple(cue for cue, p in zip(cues, holm(p_values), strict=True) if cue.auc >= LEAST_AUC and p <= P_VALUE)


def _closeness(numbers_NK: np.ndarray, labels: np.ndarray, folds: Sequence[Sequence[np.ndarray]]) -> np.ndarray:
    """Closeness of held-out pictures to the middle of each class, in deviations of the class, (n, c)."""
    classes, least_K = np.unique(labels), 0.02 * numbers_NK.std(0) + 1e-9
    score_NC = np.empty((len(labels), len(classes)))
    for (train, test), (place, number) in itertools.product(folds, enumerate(classes)):
        own_MK = numbers_NK[train[labels[train] == number]]
        middle_K = np.median(own_MK, axis=0)
        spread_K = np.maximum(1.4826 * np.median(np.abs(own_MK - middle_K), axis=0), least_K)
        score_NC[test, place] = -(np.abs(numbers_NK[test] - middle_K) / spread_K).mean(1)
    return score_NC


def _mark_scores(small_NSS3: np.ndarray, labels: np.ndarray, folds: Sequence[Sequence[np.ndarray]]) -> np.ndarray:
    """Strength of each class's mark in held-out pictures, (n, c): detail that its pictures have in one place."""
    classes = np.unique(labels)
    detail_NK = detail(small_NSS3 @ GREY_3).clip(-MOST_DETAIL, MOST_DETAIL).reshape(len(labels), -1)
    score_NC = np.empty((len(labels), len(classes)))
    for train, test in folds:
        mean_K, spread_K = detail_NK[train].mean(0), detail_NK[train].std(0) + 2
        mark_CK = np.zeros((len(classes), detail_NK.shape[1]), np.float32)
        for place, number in enumerate(classes):
            own_MK = detail_NK[train[labels[train] == number]]
            more_K = own_MK.mean(0) - mean_K
            is_mark_K = np.abs(more_K) * math.sqrt(len(own_MK)) > MARK_ERRORS * spread_K
            mark_CK[place] = is_mark_K * more_K / (own_MK.std(0) + 4) ** 2
        score_NC[test] = (detail_NK[test] - mean_K) @ mark_CK.T
    return score_NC


def cue_numbers(seen: Seen, ids: np.ndarray) -> Mapping[str, np.ndarray]:
    """The numbers of each cue, (n, k)."""
    looks, headers = seen.looks, [seen.headers[place] for place in ids]
    formats = sorted({header.format for header in headers})
    modes = sorted({header.mode for header in headers})
    return {
        "colours": np.concatenate([looks.colour_N6[ids], looks.histogram_NK[ids]], axis=1),
        "border": np.concatenate([looks.border_N6[ids], looks.frame_N4[ids]], axis=1),
        "darkness": np.stack([looks.colour_N6[ids, :3].mean(1), looks.range_N[ids]], axis=1),
        "blur": looks.sharpness_N[ids, None],
        "position": looks.place_N4[ids],
        "resolution": np.array([(h.width, h.height, h.width / max(h.height, 1)) for h in headers], float),
        "file format": np.array([(formats.index(h.format), modes.index(h.mode)) for h in headers], float),
        "JPEG quality": np.array([(h.quality,) for h in headers], float),
        "file size": np.array([(h.num_bytes / max(h.width * h.height, 1),) for h in headers], float),
    }


def _ids_of_large_classes(labels_N: np.ndarray, ids: np.ndarray) -> np.ndarray:
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
