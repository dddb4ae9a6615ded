"""What the checks look at, computed once: of any samples, and of pictures, with what tells their classes.

A cue is what tells the classes without what the pictures show.
"""

# N samples, K numbers of a cue, C classes

import itertools
import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy.special import ndtr
from scipy.stats import rankdata
from sklearn.ensemble import ExtraTreesClassifier
from sklearn.model_selection import StratifiedKFold

from counterpoint.audit.audit_record import (
    AGAINST,
    MOST_NAMED,
    Cue,
    DuplicateGroup,
    Observation,
    amount,
    is_for_tests,
)
from counterpoint.audit.audited_data import AuditedData
from counterpoint.audit.picture_copies import GREY_3, NO_PAIRS, Alike, detail, near_copies
from counterpoint.audit.picture_pass import Seen, outlines, pixel_digest
from counterpoint.core.paired_shares import holm
from counterpoint.core.thread_parts import side_by_side
from counterpoint.data.stores import FileStore
from counterpoint.evaluation.metric_types import wilson

MOST_GROUPS = 5000  # that a record keeps
LEAST_SIDE, CLEAR_SIDE = 24, 32  # pixels: of each of two near copies, and of the larger one
MOSTLY = 0.5  # share from which what is odd is the rule
BLANK_RANGE = 16  # levels between the darkest and the lightest pixels of a picture that shows nothing
MOST_SAMPLES = 4000  # pictures that a cue is tried on
FOLDS, TREES, FEWEST_OF_CLASS = 3, 8, 6
LEAF = 4
SEED = 0
LEAST_AUC, P_VALUE = 0.95, 0.01  # of one class against the rest, and of all such tests together
MOST_DETAIL, MARK_ERRORS = 40.0, 4.5  # levels; standard errors by which a pixel of a mark is off the mean of all
MARKS = ("border", "darkness", "blur", "watermark")  # of which a class may have one of its own
FILE_CUES = ("resolution", "file format", "JPEG quality")  # of the files, and not of what they show


@dataclass(frozen=True)
class ClassCue:
    """One class that something tells from all others which is not what pictures show.

    Attributes:
        name: of the cue.
        label: of the class.
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
        class_names: of each class number.

    Returns:
        How well each tells the classes, and the classes that one tells from the rest; nothing with fewer than two
        classes of six pictures.
    """
    ids = _usable(labels_N, ids)
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
    majority, found = float(np.bincount(labels).max() / len(labels)), []
    for name in numbers:
        share = wilson(sum(itertools.islice(right, FOLDS)), len(ids))
        interval = {"accuracy": share.value, "low": share.low, "high": share.high}
        found.append(Cue(name=name, **interval, majority=majority, num_samples=len(ids)))
    # Ink of small drawings tells them, as colours and places of things do.
    is_small = np.median(seen.sides[ids]) < LEAST_SIDE
    ranked = {
        name: _closeness(numbers_NK, labels, folds)
        for name, numbers_NK in numbers.items()
        if name in FILE_CUES or (name in MARKS and not is_small)
    }
    if not is_small:
        ranked["watermark"] = _mark_scores(seen.looks.small_NSS3[ids], labels, folds)
    return tuple(found), _sure(ranked, labels, class_names)


def _sure(ranked: Mapping[str, np.ndarray], labels: np.ndarray, class_names: Sequence[str]) -> tuple[ClassCue, ...]:
    """Classes whose pictures are above nearly all others by a score of theirs, (n, c): Mann-Whitney, Holm."""
    found, p_values = [], []
    for name, score_NC in ranked.items():
        rank_NC = rankdata(score_NC, axis=0)
        for place, number in enumerate(np.unique(labels)):
            is_own = labels == number
            own, others = int(is_own.sum()), int((~is_own).sum())
            auc = (float(rank_NC[is_own, place].sum()) / own - (own + 1) / 2) / others
            z = (auc - 0.5) * math.sqrt(12 * own * others / (own + others + 1))
            found.append(ClassCue(name, class_names[number], auc))
            p_values.append(float(ndtr(-z)))  # ties make it smaller
    return tuple(
        each for each, p in zip(found, holm(p_values), strict=True) if each.auc >= LEAST_AUC and p <= P_VALUE
    )


def _closeness(numbers_NK: np.ndarray, labels: np.ndarray, folds: Sequence[Sequence[np.ndarray]]) -> np.ndarray:
    """How near held-out pictures are to the middle of each class, in deviations of the class, (n, c)."""
    known, least_K = np.unique(labels), 0.02 * numbers_NK.std(0) + 1e-9
    score_NC = np.empty((len(labels), len(known)))
    for (train, test), (place, number) in itertools.product(folds, enumerate(known)):
        own_MK = numbers_NK[train[labels[train] == number]]
        middle_K = np.median(own_MK, axis=0)
        spread_K = np.maximum(1.4826 * np.median(np.abs(own_MK - middle_K), axis=0), least_K)
        score_NC[test, place] = -(np.abs(numbers_NK[test] - middle_K) / spread_K).mean(1)
    return score_NC


def _mark_scores(small_NSS3: np.ndarray, labels: np.ndarray, folds: Sequence[Sequence[np.ndarray]]) -> np.ndarray:
    """How much held-out pictures show the mark of each class, (n, c): detail that its pictures have in one place."""
    known = np.unique(labels)
    detail_NK = detail(small_NSS3 @ GREY_3).clip(-MOST_DETAIL, MOST_DETAIL).reshape(len(labels), -1)
    score_NC = np.empty((len(labels), len(known)))
    for train, test in folds:
        mean_K, spread_K = detail_NK[train].mean(0), detail_NK[train].std(0) + 2
        mark_CK = np.zeros((len(known), detail_NK.shape[1]), np.float32)
        for place, number in enumerate(known):
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

    def of_files(numbers: Sequence[Sequence[float]]) -> np.ndarray:
        return np.array(numbers, np.float64)

    return {
        "colours": np.concatenate([looks.colour_N6[ids], looks.histogram_NK[ids]], axis=1),
        "border": np.concatenate([looks.border_N6[ids], looks.frame_N4[ids]], axis=1),
        "darkness": np.stack([looks.colour_N6[ids, :3].mean(1), looks.range_N[ids]], axis=1),
        "blur": looks.sharpness_N[ids, None],
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


@dataclass(frozen=True)
class SetEvidence:
    """A collection with what is known of each sample.

    Attributes:
        collection: the samples.
        digests: hash of each one's content; empty where it cannot be used.
        is_good_N: which can be used.
        is_blank_N: which show nothing.
        near: pairs that show the same and are no copies of one content.
        seen: what the pass over pictures kept; None of vectors.
    """

    collection: AuditedData
    digests: tuple[bytes, ...]
    is_good_N: np.ndarray
    is_blank_N: np.ndarray
    near: Alike = NO_PAIRS
    seen: Seen | None = None

    @property
    def noun(self) -> str:
        """What the samples are called."""
        return "pictures" if self.collection.kind == "images" else "vectors"

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Of all samples; those of other data are called after them."""
        return tuple(
            f"{AGAINST}: {name}" if share.name == AGAINST else name
            for share in self.collection.shares
            for name in share.names
        )

    @cached_property
    def good(self) -> np.ndarray:
        """Positions of the samples that can be used."""
        return np.flatnonzero(self.is_good_N)

    @cached_property
    def labels(self) -> np.ndarray | None:
        """Class numbers of the samples that can be used; None without any."""
        labels_N = self.collection.labels_N
        return None if labels_N is None else labels_N[self.good]

    @cached_property
    def class_counts(self) -> dict[str, int]:
        """Usable samples of each class that has any."""
        counts = Counter([] if self.labels is None else self.labels[self.labels >= 0].tolist())
        return {self.collection.class_names[number]: counts[number] for number in sorted(counts)}

    @cached_property
    def is_test(self) -> np.ndarray:
        """Which samples are of a part that is kept for tests."""
        is_test = np.array([is_for_tests(share.name) for share in self.collection.shares], bool)
        return is_test[self.collection.part_of]

    @cached_property
    def equal(self) -> list[list[int]]:
        """Groups of samples with the same content."""
        return same_content(self.digests)

    @cached_property
    def all_copies(self) -> list[list[int]]:
        """Groups of samples with the same content, and pairs that show the same."""
        return [*self.equal, *self.near.pairs_P2.tolist()]

    @cached_property
    def unique(self) -> np.ndarray:
        """Positions of usable samples that show something, one of each group of copies."""
        is_left_N = self.is_good_N & ~self.is_blank_N
        for group in self.equal:
            is_left_N[group[1:]] = False
        for first, second in self.near.pairs_P2.tolist():
            is_left_N[second] &= not is_left_N[first]
        return np.flatnonzero(is_left_N)

    def described(self, ids: np.ndarray) -> np.ndarray:
        """What samples are compared by: outlines of pictures, columns of vectors at one scale; (n, d), centred."""
        if self.seen is not None:
            values_ND = outlines(self.seen.looks.small_NSS3[ids])
            return values_ND - values_ND.mean(0)
        values_ND = self.collection.held[ids].astype(np.float64).clip(-1e38, 1e38)  # also where float32 has no number
        return (values_ND - values_ND.mean(0)) / np.maximum(values_ND.std(0), 1e-9)

    @cached_property
    def _told(self) -> tuple[tuple[Cue, ...], tuple[ClassCue, ...]]:
        labels_N, names = self.collection.labels_N, self.collection.class_names
        return (
            ((), ()) if labels_N is None or self.seen is None else class_cues(self.seen, labels_N, self.unique, names)
        )

    @property
    def cues(self) -> tuple[Cue, ...]:
        """What tells the classes of pictures, where there are some."""
        return self._told[0]

    @property
    def class_cues(self) -> tuple[ClassCue, ...]:
        """What tells single classes from the rest."""
        return self._told[1]

    def named(self, places: Iterable[int]) -> tuple[str, ...]:
        """Names of some samples, as many as a record keeps."""
        return tuple(self.names[place] for place in list(places)[:MOST_NAMED])

    def observed(self, places: Sequence[int], words: str, more: str = "", **rest: Any) -> Observation | None:
        """An observation that counts samples in its title and names them; None of no samples."""
        if not places:
            return None
        title = f"{words}: {amount(len(places), self.noun)}{more}"
        return Observation(title=title, count=len(places), names=self.named(places), **rest)

    def copies(self, groups: Sequence[Sequence[int]]) -> tuple[DuplicateGroup, ...]:
        """Groups of copies as records, as many as a record keeps."""
        return tuple(self._group(group) for group in groups[:MOST_GROUPS])

    def _group(self, places: Sequence[int]) -> DuplicateGroup:
        collection = self.collection
        kept = list(places)[:MOST_NAMED]
        parts = [collection.shares[part].name for part in collection.part_of[kept]]
        numbers = [] if collection.labels_N is None else collection.labels_N[kept]
        pair = self._pair_of.get(tuple(kept))
        return DuplicateGroup(
            names=self.named(kept),
            splits=tuple(parts) if len(collection.shares) > 1 else (),
            labels=tuple(collection.class_names[number] if number >= 0 else "" for number in numbers),
            similarity=1.0 if pair is None else round(float(self.near.similarity_P[pair]), 3),
            is_equal=pair is None,
            turn="" if pair is None else self.near.turns[pair],
        )

    @cached_property
    def _pair_of(self) -> dict[tuple[int, ...], int]:
        """Place of each pair among the near copies."""
        return {tuple(pair): place for place, pair in enumerate(self.near.pairs_P2.tolist())}


def of_pictures(collection: AuditedData, seen: Seen) -> SetEvidence:
    """Everything that the checks of pictures look at; copies are looked for here."""
    is_good_N = seen.is_good
    is_blank_N = is_good_N & (seen.looks.range_N < BLANK_RANGE)
    if is_blank_N.sum() > MOSTLY * is_good_N.sum():
        is_blank_N = is_good_N & (seen.looks.range_N == 0)  # drawings with hardly any ink, say
    digests = [header.digest if good else b"" for header, good in zip(seen.headers, is_good_N, strict=True)]
    is_compared_N = is_good_N & ~is_blank_N
    for group in same_content(digests):
        is_compared_N[group[1:]] = False
    near = clear_copies(seen.looks.small_NSS3, seen.looks.frame_N4, is_compared_N, seen.sides)
    digests = _pixel_digests(collection, seen, near, digests)
    is_other_P = np.array([digests[first] != digests[second] for first, second in near.pairs_P2.tolist()], bool)
    return SetEvidence(collection, tuple(digests), is_good_N, is_blank_N, near.where(is_other_P), seen)


def clear_copies(small_NSS3: np.ndarray, frame_N4: np.ndarray, is_compared_N: np.ndarray, side_N: np.ndarray) -> Alike:
    """Near copies among pictures that are large enough: of scanned digits, unlike ones agree as copies do.

    Args:
        small_NSS3: the pictures, as ``near_copies`` takes them.
        frame_N4: likewise.
        is_compared_N: which have something to compare.
        side_N: their shorter sides in pixels.
    """
    near = near_copies(small_NSS3, frame_N4, is_compared_N & (side_N >= LEAST_SIDE))
    return near.where(side_N[near.pairs_P2].max(axis=1, initial=0) >= CLEAR_SIDE)


def _pixel_digests(collection: AuditedData, seen: Seen, near: Alike, digests: list[bytes]) -> list[bytes]:
    """Hashes of upright pixels in place of those of the bytes, for pictures of one size that nearly show the same."""
    headers, starts = seen.headers, np.cumsum([0, *(len(share) for share in collection.shares)])
    looks = [
        (header.width, header.height, small.tobytes()) if digest else b""
        for header, small, digest in zip(headers, seen.looks.small_NSS3, digests, strict=True)
    ]
    sizes = [(header.width, header.height) for header in headers]
    alike = [pair for pair in near.pairs_P2.tolist() if sizes[pair[0]] == sizes[pair[1]]]
    pixels: dict[bytes, bytes] = {}
    for place in dict.fromkeys(itertools.chain(*alike, *same_content(looks))):
        part = int(collection.part_of[place])
        content = collection.shares[part].content
        if isinstance(content, FileStore) and digests[place] not in pixels:
            pixels[digests[place]] = pixel_digest(content, place - int(starts[part]))
    return [pixels.get(digest, digest) for digest in digests]


def same_content(digests: Sequence[Hashable]) -> list[list[int]]:
    """Groups of positions with one digest; an empty one is like no other.

    >>> same_content([b"a", b"b", b"a", b"", b""])
    [[0, 2]]
    """
    places: dict[Hashable, list[int]] = {}
    for place, digest in enumerate(digests):
        if digest:
            places.setdefault(digest, []).append(place)
    return sorted((group for group in places.values() if len(group) > 1), key=lambda group: (-len(group), group))


Check = Callable[[SetEvidence], Observation | None]
