"""Encoded images anywhere on disk as a source: indexed once, verified ever after, bad ones skipped and named."""

# N samples

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from hashlib import sha256
from os import fsencode
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from counterpoint.core.errors import DataError, first_line, some
from counterpoint.core.numerics import holding
from counterpoint.core.settings import SourceSettings
from counterpoint.core.user_files import absolute
from counterpoint.data.formats.image_files import (
    ENCODED,
    MAX_ENCODED_BYTES,
    SUFFIXES,
    ImageSize,
    Skipped,
    decode,
    map_files,
    read_size,
    to_square,
)
from counterpoint.data.formats.labels import Labels, labels_as_asked, own_labels
from counterpoint.data.formats.plain_jpegs import Pixels, decode_plain
from counterpoint.data.manifest import (
    Manifest,
    Remark,
    Row,
    Stamp,
    Status,
    manifest_path,
    read_manifest,
    stamp_of,
    write_manifest,
)
from counterpoint.data.source import Progress, Source, fingerprint, source_of
from counterpoint.data.stores import NOT_THERE, FileStore, Located, MemoryStore, Read, read_bytes

MEMORY_BUDGET_BYTES = 2 << 30  # images that fit when decoded are kept in memory
LARGEST_AUTO_SIDE = 64
NUM_NAMED = 5  # samples that one message names
NOTE = "source.manifest"
# Not an argument: openers of every form lie between the caller that looks and ``open_listing``.
_IS_GLANCE = ContextVar("_IS_GLANCE", default=False)


@dataclass(frozen=True)
class Listing:
    """Images in files, and the way to deal with them.

    Attributes:
        images: every image, good or bad.
        ignored: other files, with reasons.
        remarks: the same for files of many samples; the manifest keeps them.
        read: function that reads an image's bytes.
        label: labels of the good ones, if the user asks for nothing else.
        cached: the earlier manifest, if it was read already.
        variant: settings on which places and labels depend.
    """

    images: Sequence[Located]
    ignored: Sequence[Skipped] = ()
    remarks: Sequence[Remark] = ()
    read: Read = read_bytes
    label: Callable[[Sequence[Located]], Labels | None] = own_labels
    cached: Manifest | None = None
    variant: str = ""


@dataclass(frozen=True)
class EarlierIndex:
    """Rows of an earlier index, and the stamps of the files of samples then and now."""

    rows: Mapping[tuple[str, str], Row]  # by file and name
    then: Mapping[str, Stamp]
    now: Mapping[str, Stamp]
    files: Mapping[Path, str]  # by path, as the other three name them

    def unchanged(self, image: Located) -> Row | None:
        """The earlier row, if neither the file's stamp nor the place of the image changed."""
        file = self.files[image.path]
        row = self.rows.get((file, image.name))
        if row is None or self.then.get(file) != self.now[file] or row.offset != image.offset:
            return None
        return row if image.size in (None, row.size) else None


def glance() -> AbstractContextManager[None]:
    """Open data in the block only for a look at their files: none is decoded, and no index is read or kept.

    Every picture that was found is in the source's ``FileStore``, good or bad.
    """
    return holding(_IS_GLANCE, True)


def open_listing(name: str, listing: Listing, settings: SourceSettings, progress: Progress) -> Source:
    """Open encoded images on disk: whole files or ranges of bytes.

    Each image is decoded when it is seen first, so that bad ones are known before training. Images that fit are kept
    in memory; others are read, verified and decoded at each fetch, and opening them again reads only what changed.

    Args:
        name: the user's name of the data.
        listing: every image, in the order of the samples, and the way to deal with them.
        settings: labels, size, share of bad ones allowed, what to do with altered ones.
        progress: bar that shows how far they have been read.

    Raises:
        DataError: no images; more bad ones than ``settings.max_bad`` allows; or content that is not what was indexed.
    """
    images = listing.images
    if not images:
        raise DataError(f"no images in {name} (looked at any depth for {', '.join(sorted(SUFFIXES))})")
    if _IS_GLANCE.get():
        return _unread(name, listing, settings)
    path = manifest_path(name, [image.path for image in images], listing.variant)
    cached = listing.cached or read_manifest(path)
    # Stamped before any byte is read: a file that changes meanwhile has another stamp at the next start.
    files = {place: absolute(place) for place in dict.fromkeys(image.path for image in images)}
    now = {file: stamp_of(place) for place, file in files.items()}
    earlier = EarlierIndex({(row.file, row.name): row for row in cached.rows}, cached.stamps, now, files)
    side, notes = settings.image_size, {}
    if side == "auto":
        side, notes["source.image_size"] = choose_side(images, earlier, listing.read)
    # Pictures are decoded once, into their places of one tensor; a list of tensors would need the memory twice.
    is_kept = len(images) * 3 * side * side <= MEMORY_BUDGET_BYTES
    pixels = torch.empty(len(images), 3, side, side, dtype=torch.uint8) if is_kept else None
    rows = _index(listing, earlier, progress, pixels)
    if settings.altered == "refuse":
        _refuse_altered(name, listing, earlier, rows)
    lost = [Skipped(remark.name, remark.reason) for remark in listing.remarks if remark.is_lost]
    others = [Skipped(remark.name, remark.reason) for remark in listing.remarks if not remark.is_lost]
    # Members of a shard that are lost count as bad ones.
    bad = [Skipped(row.name, row.reason) for row in rows if row.status == "bad"] + lost
    _check_share_of_bad(name, bad, len(rows) + len(lost), settings.max_bad)
    # A shard without any image has remarks only, and is to be known again, too.
    stamps = {**{remark.file: stamp_of(remark.file) for remark in listing.remarks}, **earlier.now}
    manifest = Manifest(tuple(rows), stamps, tuple(listing.remarks))
    # A manifest that is in the cache already is not written again.
    complaint = "" if manifest == cached else write_manifest(path, manifest)
    if remarks := "; ".join(text for text in (cached.complaint, complaint) if text):
        notes[NOTE] = remarks
    is_good_N = torch.tensor([row.status == "ok" for row in rows])
    good = [(image, row) for image, row in zip(images, rows, strict=True) if row.status == "ok"]
    names = tuple(image.name for image, _ in good)
    labels = labels_as_asked(settings.labels, names, lambda: listing.label([image for image, _ in good]))
    # Hashes represent the content: the fingerprint of a large set needs no second pass over its bytes.
    parts = [b"%d\0" % side, *(fsencode(row.name) + bytes.fromhex(row.hash) for _, row in good)]
    if pixels is None:
        store = FileStore(tuple(image for image, _ in good), tuple(row.hash for _, row in good), side, listing.read)
    else:
        store = MemoryStore(pixels if bool(is_good_N.all()) else pixels[is_good_N])
    skipped, content = (*bad, *others, *listing.ignored), fingerprint(parts, labels)
    fields = {"sample_names": names, "skipped": skipped, "fingerprint": content, "notes": notes}
    return source_of(name, store, (3, side, side), labels, **fields)


def _unread(name: str, listing: Listing, settings: SourceSettings) -> Source:
    images, side, notes = listing.images, settings.image_size, {}
    if side == "auto":
        side, notes["source.image_size"] = choose_side(images, None, listing.read)
    names = tuple(image.name for image in images)
    labels = labels_as_asked(settings.labels, names, lambda: listing.label(images))
    store = FileStore(tuple(images), ("",) * len(images), side, listing.read)
    skipped = (*(Skipped(remark.name, remark.reason) for remark in listing.remarks), *listing.ignored)
    fields = {"sample_names": names, "skipped": skipped, "fingerprint": "", "notes": notes}
    return source_of(name, store, (3, side, side), labels, **fields)


def _index(listing: Listing, earlier: EarlierIndex, progress: Progress, pixels_N: Tensor | None) -> list[Row]:
    """One row per image; a row that did not change is taken from the earlier manifest, unless its pixels are wanted."""

    def bytes_of(image: Located) -> int:
        """Number of bytes that are in memory while an image is read."""
        return earlier.now[earlier.files[image.path]][0] if image.size is None else image.size

    def row_of(number: int) -> Row:
        image = listing.images[number]
        row = earlier.unchanged(image)
        # A bad image has no pixels, and its file did not change: it is not tried again.
        if row is not None and (row.status == "bad" or pixels_N is None):
            return replace(row, label=image.label)

        def keep(picture: Image.Image | Pixels) -> ImageSize:
            if pixels_N is not None:
                pixels_N[number] = to_square(picture, pixels_N.shape[-1])
            height, width = picture.shape[:2] if isinstance(picture, np.ndarray) else picture.size[::-1]
            return ImageSize(height, width)

        file, num_bytes = earlier.files[image.path], bytes_of(image)
        content, shape, reason = b"", ImageSize(0, 0), ""
        with ENCODED.reserved(min(num_bytes, MAX_ENCODED_BYTES) if listing.read is read_bytes else 0):
            try:
                content = listing.read(image)
                plain = decode_plain(content)
                shape = decode(content, keep) if plain is None else keep(plain)
            except (OSError, ValueError) as error:
                shape, reason = read_size(content) or shape, first_line(error)
            size = len(content) if image.size is None else image.size
            digest = sha256(content).hexdigest() if content else ""
        status: Status = "bad" if reason else "ok"
        place = (image.name, file, image.offset, size, digest, image.label)
        return Row(None, *place, status, reason, shape.height, shape.width)

    num_images = len(listing.images)
    if pixels_N is None and not any(earlier.unchanged(image) is None for image in listing.images):
        rows = [row_of(number) for number in range(num_images)]  # nothing to read, nothing to show
    else:
        with progress(f"reading {num_images} images", num_images) as advance:
            rows = map_files(row_of, range(num_images), advance, sum(map(bytes_of, listing.images)) / num_images)
    # Positions count the good images only.
    ids = iter(range(num_images))
    return [replace(row, id=next(ids) if row.status == "ok" else None) for row in rows]


def _refuse_altered(name: str, listing: Listing, earlier: EarlierIndex, rows: Sequence[Row]) -> None:
    """Stop when samples are not those that were indexed; one that was bad was never trained on and may change."""
    altered = []
    for row in rows:
        indexed = earlier.rows.get((row.file, row.name))
        # A file that is gone is missing, not altered: it counts as bad.
        if indexed is not None and indexed.status == "ok" and row.hash != indexed.hash and row.reason != NOT_THERE:
            altered.append(row.name if row.hash else f"{row.name} ({row.reason})")
    # What a damaged shard hides now is missing, too.
    damaged = {remark.file for remark in listing.remarks if remark.is_lost}
    present = {(row.file, row.name) for row in rows}
    altered += [key[1] for key in earlier.rows if key[0] in damaged and key not in present]
    if altered:
        raise DataError(
            f"{len(altered)} of {len(rows)} samples in {name} changed since they were indexed: {some(altered)}; "
            "restore them, or take them as they are now with --source.altered reindex"
        )


def choose_side(images: Sequence[Located], earlier: EarlierIndex | None, read: Read) -> tuple[int, str]:
    """Side for photographs: the median short side, at most 64, a multiple of 8."""

    def size_of(image: Located) -> ImageSize | None:
        row = None if earlier is None else earlier.unchanged(image)
        if row is not None:
            return ImageSize(row.height, row.width) if row.height else None
        if read is read_bytes and image.size is None:
            return read_size(image.path)  # the header is enough
        try:
            return read_size(read(image))
        except (OSError, ValueError):
            return None

    sizes = [size for size in map_files(size_of, images, lambda: None, 0) if size is not None]
    median = int(np.median([min(size.height, size.width) for size in sizes])) if sizes else LARGEST_AUTO_SIDE
    side = max(8, min(LARGEST_AUTO_SIDE, median // 8 * 8))
    reason = f"the median short side is {median} px; at most {LARGEST_AUTO_SIDE} by default, so that a laptop can train"
    return side, reason


def _check_share_of_bad(name: str, bad: Sequence[Skipped], num_images: int, max_bad: float) -> None:
    share, remedy = len(bad) / num_images, "nothing is left to train on"
    if len(bad) < num_images:
        if share <= max_bad:
            return
        # Rounded up, so that the share named is always enough.
        remedy = f"allow them with --source.max-bad {min(1.0, np.ceil(share * 100) / 100):g}"
    first = "; ".join(f"{item.name} ({item.reason})" for item in bad[:NUM_NAMED])
    more = f"; and {len(bad) - NUM_NAMED} more" if len(bad) > NUM_NAMED else ""
    raise DataError(
        f"{len(bad)} of {num_images} images in {name} cannot be read ({share:.1%}, allowed {max_bad:.1%}): "
        f"{first}{more}; {remedy}"
    )
