"""Encoded images anywhere on disk as a source: indexed once, verified ever after, bad ones skipped and named."""

# N samples

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from os import fsencode

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from counterpoint.core.data_settings import SourceSettings
from counterpoint.core.errors import DataError
from counterpoint.data.formats.image_files import ImageSize, Skipped, map_files, read_size, to_square
from counterpoint.data.formats.index_check import UNREAD, Known, examine, judge, known_samples, named, refuse_altered
from counterpoint.data.formats.labels import Labels, labels_as_asked, own_labels
from counterpoint.data.manifest import (
    CachedManifest,
    Manifest,
    Remark,
    Row,
    manifest_path,
    read_manifest,
    stamp_of,
    write_manifest,
)
from counterpoint.data.source import Progress, Source, fingerprint, source_of
from counterpoint.data.stores import FileStore, Located, MemoryStore, Read, read_bytes

MEMORY_BUDGET_BYTES = 2 << 30  # images that fit when decoded are kept in memory
LARGEST_AUTO_SIDE = 64
NOTE = "source.manifest"
# Not arguments: openers of every form lie between who looks and ``open_listing``.
_IS_GLANCE = ContextVar("_IS_GLANCE", default=False)
_IS_BARE = ContextVar("_IS_BARE", default=False)


@dataclass(frozen=True)
class Listing:
    """Images that were found, and how to deal with them.

    Attributes:
        images: every image, good or bad.
        ignored: what else was found, with reasons.
        remarks: the same for files of many samples; the manifest keeps them.
        read: gets an image's bytes.
        label: labels of the good ones, where the user asks for nothing else.
        cached: the earlier manifest, if it was read already.
        variant: settings on which places and labels depend.
    """

    images: Sequence[Located]
    ignored: Sequence[Skipped] = ()
    remarks: Sequence[Remark] = ()
    read: Read = read_bytes
    label: Callable[[Sequence[Located]], Labels | None] = own_labels
    cached: CachedManifest | None = None
    variant: str = ""


@contextmanager
def glance(*, is_bare: bool = False) -> Iterator[None]:
    """Data that are opened here are for a look at a few pictures: each is decoded when it is fetched, and not before.

    What an earlier index says holds; pictures that it does not know are taken for good until they are fetched, and no
    index is kept.

    Args:
        is_bare: what an earlier index says is not asked either: every picture that was found is in the source's
            ``FileStore``, good or bad.
    """
    tokens = _IS_GLANCE.set(True), _IS_BARE.set(is_bare)
    try:
        yield
    finally:
        _IS_GLANCE.reset(tokens[0])
        _IS_BARE.reset(tokens[1])


def open_listing(name: str, listing: Listing, settings: SourceSettings, progress: Progress) -> Source:
    """Open encoded images on disk: whole files or ranges of bytes.

    Each image is decoded when it is seen first, so that bad ones are known before training. Images that fit are kept
    in memory; others are read, verified and decoded at each fetch, and opening them again reads only what changed.

    Args:
        name: how the user named the data.
        listing: every image, in the order of the samples, and how to deal with them.
        settings: labels, size, share of bad ones allowed, what to do with altered ones.
        progress: shows how far they have been read.

    Raises:
        DataError: no images; more bad ones than ``settings.max_bad`` allows; or content that is not what was indexed.
    """
    images = listing.images
    if not images:
        raise DataError(f"no images in {name}")
    path = manifest_path(name, [image.path for image in images], listing.variant)
    cached = CachedManifest(None, "") if _IS_BARE.get() else listing.cached or read_manifest(path)
    known = known_samples(images, cached.manifest)
    side, notes = settings.image_size, {}
    if side == "auto":
        side, notes["source.image_size"] = _choose_side(images, known, listing.read)
    # Pictures are decoded once, into their places of one tensor; a list of tensors would need the memory twice.
    pixels = None if _IS_GLANCE.get() else _memory_for(len(images), side)
    rows = _index(listing, known, settings, progress, pixels)
    if settings.altered == "refuse":
        refuse_altered(name, rows)
    lost = [Skipped(remark.name, remark.reason) for remark in listing.remarks if remark.is_lost]
    others = [Skipped(remark.name, remark.reason) for remark in listing.remarks if not remark.is_lost]
    # Altered samples that are left out count as bad ones, and so do members of a shard that are lost.
    bad = [Skipped(row.name, row.reason) for row in rows if row.status != "ok"] + lost
    _check_share_of_bad(name, bad, len(rows) + len(lost), settings.max_bad)
    # A shard without any image has remarks only, and is to be known again, too.
    stamps = {**{remark.file: stamp_of(remark.file) for remark in listing.remarks}, **known.now}
    manifest = Manifest(tuple(rows), stamps, tuple(listing.remarks))
    # What is in the cache already is not written again.
    is_kept = manifest == cached.manifest or _IS_GLANCE.get()
    complaint = "" if is_kept else write_manifest(path, manifest)
    changes = "" if cached.manifest is None else _changes(rows, known)
    if remarks := "; ".join(text for text in (changes, cached.complaint, complaint) if text):
        notes[NOTE] = remarks
    is_good_N = torch.tensor([row.status == "ok" for row in rows])
    good = [(image, row) for image, row in zip(images, rows, strict=True) if row.status == "ok"]
    names = tuple(image.name for image, _ in good)
    labels = labels_as_asked(settings.labels, names, lambda: listing.label([image for image, _ in good]))
    # Hashes stand for the content: the fingerprint of a large set needs no second pass over its bytes.
    parts = [b"%d\0" % side, *(fsencode(row.name) + bytes.fromhex(row.hash) for _, row in good)]
    if pixels is None:
        store = FileStore(tuple(image for image, _ in good), tuple(row.hash for _, row in good), side, listing.read)
    else:
        store = MemoryStore(pixels if bool(is_good_N.all()) else pixels[is_good_N])
    skipped, content = (*bad, *others, *listing.ignored), fingerprint(parts, labels)
    known_of = {"sample_names": names, "skipped": skipped, "fingerprint": content, "notes": notes}
    return source_of(name, store, (3, side, side), labels, **known_of)


def _memory_for(num_images: int, side: int) -> Tensor | None:
    """Room for all decoded images, if they fit in memory."""
    is_kept = num_images * 3 * side * side <= MEMORY_BUDGET_BYTES
    return torch.empty(num_images, 3, side, side, dtype=torch.uint8) if is_kept else None


def _index(
    listing: Listing, known: Known, settings: SourceSettings, progress: Progress, pixels_N: Tensor | None
) -> list[Row]:
    """One row per image. What did not change is taken from the earlier manifest, unless its pixels are wanted."""

    def row_of(number: int) -> Row:
        image = listing.images[number]
        row = known.unchanged(image)
        # A bad image has no pixels, and its file did not change: it is not tried again.
        if row is not None and (row.status == "bad" or pixels_N is None) and not is_renewed(row):
            # Labels by folder or list are not part of the file, and are taken as they are now.
            return replace(row, label=image.label)
        if is_glance:
            return judge(image, None, UNREAD, settings.altered)

        def keep(picture: Image.Image) -> None:
            if pixels_N is not None:
                pixels_N[number] = to_square(picture, pixels_N.shape[-1])

        size = known.num_bytes(image) if listing.read is read_bytes else 0
        return judge(image, known.row(image), examine(image, listing.read, keep, size=size), settings.altered)

    def is_renewed(row: Row) -> bool:
        # An altered row keeps the earlier hash; to be taken as it is now it is read again, though its stamp is known.
        return settings.altered == "reindex" and row.status != "ok"

    is_glance, num_images = _IS_GLANCE.get(), len(listing.images)
    if is_glance or (pixels_N is None and not any(known.unchanged(image) is None for image in listing.images)):
        rows = [row_of(number) for number in range(num_images)]  # nothing to read, nothing to show
    else:
        with progress(f"reading {num_images} images", num_images) as advance:
            rows = map_files(row_of, range(num_images), advance)
    # Positions count the good images only.
    ids = iter(range(num_images))
    return [replace(row, id=next(ids) if row.status == "ok" else None) for row in rows]


def _changes(rows: Sequence[Row], known: Known) -> str:
    """What changed since the earlier manifest."""
    keys = {(row.file, row.name) for row in rows}
    counts = {
        "new": len(keys - known.rows.keys()),
        "gone": len(known.rows.keys() - keys),
        "changed and left out": sum(row.status == "altered" for row in rows),
        "changed and taken as they are now": sum(
            _is_retaken(row, known.rows.get((row.file, row.name))) for row in rows
        ),
    }
    text = ", ".join(f"{count} {what}" for what, count in counts.items() if count)
    return f"{text} since it was indexed" if text else ""


def _is_retaken(row: Row, earlier: Row | None) -> bool:
    """Whether a sample's content was replaced in the index."""
    return earlier is not None and row.status != "altered" and earlier.hash != row.hash


def _choose_side(images: Sequence[Located], known: Known, read: Read) -> tuple[int, str]:
    """Side for photographs: the median short side, at most 64, a multiple of 8."""

    def size_of(image: Located) -> ImageSize | None:
        row = known.unchanged(image)
        if row is not None:
            return ImageSize(row.height, row.width) if row.height else None
        if read is read_bytes and image.size is None:
            return read_size(image.path)  # the header is enough
        try:
            return read_size(read(image))
        except (OSError, ValueError):
            return None

    sizes = [size for size in map_files(size_of, images, lambda: None) if size is not None]
    median = int(np.median([min(size.height, size.width) for size in sizes])) if sizes else LARGEST_AUTO_SIDE
    side = max(8, min(LARGEST_AUTO_SIDE, median // 8 * 8))
    return (
        side,
        f"the median short side is {median} px; at most {LARGEST_AUTO_SIDE} by default, so that a laptop can train",
    )


def _check_share_of_bad(name: str, bad: Sequence[Skipped], num_images: int, max_bad: float) -> None:
    """Stop when too many images are bad, or all of them."""
    share = len(bad) / num_images
    if len(bad) < num_images and share <= max_bad:
        return
    remedy = (
        # Rounded up, so that the share named is always enough.
        f"allow them with --source.max-bad {min(1.0, np.ceil(share * 100) / 100):g}"
        if len(bad) < num_images
        else "nothing is left to train on"
    )
    raise DataError(
        f"{len(bad)} of {num_images} images in {name} cannot be read ({share:.1%}, allowed {max_bad:.1%}): "
        f"{named(bad)}; {remedy}"
    )
