"""What is found where an image lies, held against what the manifest says of it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from os.path import abspath
from typing import Literal

from PIL import Image

from counterpoint.core.errors import DataError, first_line
from counterpoint.data.formats.decoding import MAX_ENCODED_BYTES
from counterpoint.data.formats.image_files import ENCODED, ImageSize, Skipped, decode, read_size
from counterpoint.data.manifest import FileStamp, Manifest, Row, stamp_of
from counterpoint.data.stores import NOT_THERE, Located, Read, content_hash

Altered = Literal["refuse", "skip", "reindex"]
NUM_NAMED = 5  # samples that one message names


@dataclass(frozen=True)
class Known:
    """What an earlier index says of the samples, and the stamps of their files then and now."""

    rows: Mapping[tuple[str, str], Row]  # by file and name
    then: Mapping[str, FileStamp]
    now: Mapping[str, FileStamp]

    def row(self, image: Located) -> Row | None:
        """The earlier row of an image."""
        return self.rows.get((abspath(image.path), image.name))

    def num_bytes(self, image: Located) -> int:
        """How many bytes an image in a file of its own, or in a range of one, has."""
        return self.now[abspath(image.path)].size if image.size is None else image.size

    def unchanged(self, image: Located) -> Row | None:
        """The earlier row, if neither the file's stamp nor the place and label of the image changed."""
        row, file = self.row(image), abspath(image.path)
        if row is None or self.then.get(file) != self.now[file] or row.offset != image.offset:
            return None
        return row if image.size in (None, row.size) and not _is_label_changed(image, row) else None


@dataclass(frozen=True)
class Examined:
    """What the bytes of an image are; a reason says why they are no image."""

    size: int
    hash: str
    height: int
    width: int
    reason: str = ""


UNREAD = Examined(0, "", 0, 0)  # taken for good, without a hash


def known_samples(images: Sequence[Located], manifest: Manifest | None) -> Known:
    """Set an earlier manifest beside the files as they are now."""
    # Stamped before any byte is read: a file that changes meanwhile has another stamp at the next start.
    now = {file: stamp_of(file) for file in dict.fromkeys(abspath(image.path) for image in images)}
    if manifest is None:
        return Known({}, {}, now)
    return Known({(row.file, row.name): row for row in manifest.rows}, manifest.stamps, now)


def examine(image: Located, read: Read, use: Callable[[Image.Image], None], *, size: int = 0) -> Examined:
    """Read and decode one image.

    Args:
        image: where it lies.
        read: gets its bytes.
        use: gets the picture.
        size: how many bytes it has, if reading them takes memory for so many.
    """

    def used(picture: Image.Image) -> ImageSize:
        use(picture)
        return ImageSize(picture.height, picture.width)

    with ENCODED.taken(min(size, MAX_ENCODED_BYTES)):
        try:
            content = read(image)
        except (OSError, ValueError) as error:
            return Examined(0, "", 0, 0, first_line(error))
        try:
            shape, reason = decode(content, used), ""
        except ValueError as error:
            shape, reason = read_size(content) or ImageSize(0, 0), first_line(error)
        return Examined(len(content), content_hash(content), shape.height, shape.width, reason)


def judge(image: Located, known: Row | None, found: Examined, altered: Altered) -> Row:
    """The row of an image that was examined.

    A sample that was indexed before must have the same bytes and label, unless it is to be indexed anew; one that was
    bad before was never trained on and may change.
    """
    # A file that is gone is missing, not altered: it counts as bad.
    is_free = known is None or known.status == "bad" or altered == "reindex" or found.reason == NOT_THERE
    change = "" if known is None or is_free else _change(image, known, found)
    row = Row(
        id=None,
        name=image.name,
        file=abspath(image.path),
        offset=image.offset,
        size=found.size if image.size is None else image.size,
        hash=found.hash,
        label=image.label,
        label_at=image.label_at,
        status="bad" if found.reason else "ok",
        reason=found.reason,
        height=found.height,
        width=found.width,
    )
    if known is None or not change:
        return row
    # The hash that was indexed stays on record: bytes brought back as they were are good again.
    return replace(known, id=None, status="altered", reason=change, offset=image.offset)


def refuse_altered(name: str, rows: Sequence[Row]) -> None:
    """Stop when samples changed since they were indexed.

    Raises:
        DataError: some did; up to five are named.
    """
    altered = [row for row in rows if row.status == "altered"]
    if not altered:
        return
    names = ", ".join(row.name for row in altered[:NUM_NAMED])
    more = f" and {len(altered) - NUM_NAMED} more" if len(altered) > NUM_NAMED else ""
    raise DataError(
        f"{len(altered)} of {len(rows)} samples in {name} changed since they were indexed: {names}{more}; bring them "
        f"back as they were, take them as they are now with --source.altered reindex, or leave them out with "
        f"--source.altered skip"
    )


def named(skipped: Sequence[Skipped]) -> str:
    """Up to five samples with their reasons, and how many more there are."""
    first = "; ".join(f"{item.name} ({item.reason})" for item in skipped[:NUM_NAMED])
    more = len(skipped) - NUM_NAMED
    return f"{first}; and {more} more" if more > 0 else first


def _change(image: Located, known: Row, found: Examined) -> str:
    """How a sample differs from its row; nothing when it does not."""
    # Without a hash nothing could be read; bytes that were read are compared even where they do not decode.
    if not found.hash:
        return f"can no longer be read: {found.reason}"
    if found.hash != known.hash:
        return "content changed since it was indexed"
    return "label changed since it was indexed" if _is_label_changed(image, known) else ""


def _is_label_changed(image: Located, row: Row) -> bool:
    """Only labels that are read from the data themselves count; names of folders and lists may change."""
    return (image.label_at is not None or row.label_at is not None) and image.label != row.label
