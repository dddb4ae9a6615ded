"""Evidence that the checks share, computed once: of any samples, and of pictures, with cues of their classes."""

# N samples

import itertools
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from counterpoint.audit.audit_record import AGAINST, MOST_NAMED, Cue, DuplicateGroup, Observation, amount
from counterpoint.audit.audited_data import AuditedData
from counterpoint.audit.class_cues import LEAST_SIDE, ClassCue, class_cues
from counterpoint.audit.picture_copies import NO_PAIRS, Alike, near_copies
from counterpoint.audit.picture_pass import Seen, outlines, pixel_digest
from counterpoint.data.stores import FileStore
from counterpoint.diagnostics.label_agreement import MOST_COMPARED, LabelAgreement, label_agreement

MOST_GROUPS = 5000  # that a record keeps
CLEAR_SIDE = 32  # pixels of the larger one of two near copies
MOSTLY = 0.5  # share from which what is odd is the rule
BLANK_RANGE = 16  # levels between the darkest and the lightest pixels of a picture that shows nothing


@dataclass(frozen=True)
class SetEvidence:
    """A collection with the facts about each sample.

    Attributes:
        collection: the samples.
        digests: hash of each sample's content; empty if it cannot be used.
        is_good_N: true for samples that can be used.
        is_blank_N: true for samples that show nothing.
        near: pairs that show the same and are not copies of one content.
        seen: result of the pass over pictures; None for vectors.
    """

    collection: AuditedData
    digests: tuple[bytes, ...]
    is_good_N: np.ndarray
    is_blank_N: np.ndarray
    near: Alike = NO_PAIRS
    seen: Seen | None = None

    @property
    def noun(self) -> str:
        """Noun for the samples, in the plural."""
        return "pictures" if self.collection.kind == "images" else "vectors"

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Names of all samples; those of data to compare with begin with ``against:``."""
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
        """Class numbers of the samples that can be used; None if there are no labels."""
        labels_N = self.collection.labels_N
        return None if labels_N is None else labels_N[self.good]

    @cached_property
    def class_counts(self) -> dict[str, int]:
        """Usable samples of each class that has any."""
        counts = Counter([] if self.labels is None else self.labels[self.labels >= 0].tolist())
        return {self.collection.class_names[number]: counts[number] for number in sorted(counts)}

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

    @cached_property
    def agreements(self) -> list[tuple[np.ndarray, Tensor, LabelAgreement]]:
        """Positions of labelled samples in parts that are compared, the features that compare them, and the result.

        Pictures are compared by their outlines, vectors by their columns at one scale.
        """
        labels_N, comparisons = self.collection.labels_N, []
        if labels_N is None:
            return []
        ids = self.unique[labels_N[self.unique] >= 0]
        if len(ids) < 2:
            return []
        for part in range(num_parts := -(-len(ids) // MOST_COMPARED)):
            places = ids[part::num_parts]
            if self.seen is not None:
                values_ND = outlines(self.seen.looks.small_NSS3[places])
            else:
                values_ND = self.collection.samples[places].astype(np.float64)
                values_ND /= np.maximum(values_ND.std(0), 1e-9)
            values = torch.from_numpy(values_ND - values_ND.mean(0))
            comparisons.append((places, values, label_agreement(values, torch.from_numpy(labels_N[places]))))
        return comparisons

    @cached_property
    def cues(self) -> tuple[tuple[Cue, ...], tuple[ClassCue, ...]]:
        """Cues of the classes of pictures, for data with classes, and those that separate one from the rest."""
        labels_N = self.collection.labels_N
        if labels_N is None or self.seen is None:
            return (), ()
        return class_cues(self.seen, labels_N, self.unique, self.collection.class_names)

    def named(self, places: Iterable[int]) -> tuple[str, ...]:
        """Names of some samples, as many as a record keeps."""
        return tuple(self.names[place] for place in list(places)[:MOST_NAMED])

    def observed(self, places: Sequence[int], words: str, more: str = "", **rest: Any) -> Observation | None:
        """A warning that counts samples in its title and names them; None if there are no samples."""
        if not places:
            return None
        title = f"{words}: {amount(len(places), self.noun)}{more}"
        return warned(places, title=title, names=self.named(places), **rest)

    def copies(self, groups: Sequence[Sequence[int]]) -> tuple[DuplicateGroup, ...]:
        """Groups of copies as records, as many as a record keeps."""
        collection, records = self.collection, []
        has_parts = len(collection.shares) > 1
        place_of = {tuple(pair): place for place, pair in enumerate(self.near.pairs_P2.tolist())}
        for group in groups[:MOST_GROUPS]:
            pair, places = place_of.get(tuple(group)), group[:MOST_NAMED]
            parts = [collection.shares[part].name for part in collection.part_of[places]]
            numbers = [] if collection.labels_N is None else collection.labels_N[places]
            record = DuplicateGroup(
                names=self.named(places),
                splits=tuple(parts) if has_parts else (),
                labels=tuple(collection.class_names[number] if number >= 0 else "" for number in numbers),
                similarity=1.0 if pair is None else round(float(self.near.similarity_P[pair]), 3),
                is_equal=pair is None,
                turn="" if pair is None else self.near.turns[pair],
            )
            records.append(record)
        return tuple(records)


def of_pictures(collection: AuditedData, seen: Seen) -> SetEvidence:
    """Collect the evidence for the checks of pictures; copies are searched for here."""
    is_good_N = np.array([not header.reason for header in seen.headers], bool)
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
        frame_N4: borders of the pictures, likewise.
        is_compared_N: true for pictures that have something to compare.
        side_N: shorter sides of the pictures, in pixels.
    """
    near = near_copies(small_NSS3, frame_N4, is_compared_N & (side_N >= LEAST_SIDE))
    return near.where(side_N[near.pairs_P2].max(axis=1, initial=0) >= CLEAR_SIDE)


def _pixel_digests(collection: AuditedData, seen: Seen, near: Alike, digests: list[bytes]) -> list[bytes]:
    """Hashes of upright pixels in place of those of the bytes, for pictures of one size that nearly show the same."""
    headers = seen.headers
    looks = [
        (header.width, header.height, small.tobytes()) if digest else b""
        for header, small, digest in zip(headers, seen.looks.small_NSS3, digests, strict=True)
    ]
    sizes = [(header.width, header.height) for header in headers]
    alike = [pair for pair in near.pairs_P2.tolist() if sizes[pair[0]] == sizes[pair[1]]]
    pixels: dict[bytes, bytes] = {}
    for place in dict.fromkeys(itertools.chain(*alike, *same_content(looks))):
        content, at = collection.located(place)
        if isinstance(content, FileStore) and digests[place] not in pixels:
            pixels[digests[place]] = pixel_digest(content, at)
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


def warned(items: Sequence[object], **rest: Any) -> Observation | None:
    """A warning, unless another level is given, about items that it counts; None if there are none."""
    return Observation(**{"level": "warning", "count": len(items), **rest}) if items else None


Check = Callable[[SetEvidence], Observation | None]
