"""The members of a tar archive by byte offset. Nothing is extracted; damaged headers are named and passed over.

Own code beside ``tarfile``, which ends at a damaged header without a word and takes twice as long (measured on 40,000
members: 3.6 s against 1.9 s).
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO

from counterpoint.core.user_files import open_regular

BLOCK = 512
SEARCH_BYTES = 1 << 20
# In one archive, where headers are damaged: a few seconds' work.
MAX_SEARCHED_BYTES = 1 << 30
MAX_MAGIC_WORDS = 100_000
SPENT = (
    f"damaged, and no more than {MAX_SEARCHED_BYTES:,} bytes and {MAX_MAGIC_WORDS:,} possible headers are searched; "
    "pack the shard again"
)
MAX_EXTENSION = 1 << 20  # of a long name or a pax header
MAX_DIGITS = 7  # of a length in a pax header
END_BYTES = 2 * BLOCK  # an archive ends with two blocks of zeros
MAGIC, MAGIC_AT = b"ustar", 257
CHECKSUM = slice(148, 156)
# GNU's long name and long link; pax headers for one member and for all.
EXTENSIONS = (b"L", b"K", b"x", b"g")
# \0 is what tar wrote before POSIX, 7 a "contiguous" file.
FILE_TYPES = (b"0", b"\0", b"7")
FOLDER_TYPE = b"5"
REFUSED_TYPES = {
    b"1": "a link",
    b"2": "a link",
    b"3": "a device",
    b"4": "a device",
    b"6": "a pipe",
    b"S": "a sparse file",
}


@dataclass(frozen=True)
class Member:
    """A regular file in the archive: its name, and where its bytes lie."""

    name: str
    offset: int
    size: int


@dataclass(frozen=True)
class Unreadable:
    """What is no usable member: its name as far as it can be told, and why.

    Attributes:
        name: of the member, or the place in the archive.
        reason: why it is none.
        is_damage: the archive is not as it was written; members may be missing.
        is_lost: a member was here.
    """

    name: str
    reason: str
    is_damage: bool = False
    is_lost: bool = False


@dataclass(frozen=True)
class Header:
    """One header block."""

    name: str
    size: int
    kind: bytes


@dataclass(frozen=True)
class Extension:
    """What long-name and pax blocks say of the member that follows."""

    name: str | None = None
    size: int | None = None
    is_sparse: bool = False


@dataclass
class Search:
    """How much of an archive may yet be searched for headers: it may be one hole of a terabyte, or all magic words."""

    num_bytes: int = MAX_SEARCHED_BYTES
    num_words: int = MAX_MAGIC_WORDS


@dataclass(frozen=True)
class Gap:
    """Bytes where a header should be.

    Attributes:
        following: where the next header is, or the end of the file.
        is_end: nothing more is to be said of the archive.
        problem: what was here, unless it is the end mark.
    """

    following: int
    is_end: bool = False
    problem: Unreadable | None = None


def members_of(path: Path) -> Iterator[Member | Unreadable]:
    """Walk the headers of an archive in order; after a damaged one the walk goes on at the next that is valid.

    Yields:
        Regular files, and whatever else there is by name.

    Raises:
        OSError: the archive cannot be read.
    """
    extension, place, is_ended = Extension(), 0, False
    search = Search()
    with open_regular(path) as stream:
        end = os.fstat(stream.fileno()).st_size
        while place < end:
            # Invariant: a header should begin at ``place``, and ``extension`` is what the blocks before said of it.
            block = _read(stream, place, BLOCK)
            header = parse_header(block)
            if header is None:
                gap = _gap(stream, place, end, search)
                is_ended = gap.is_end
                yield from () if gap.problem is None else (gap.problem,)
                # A long name before the gap belongs to a member that is lost.
                place, extension = gap.following, Extension()
            elif header.kind in EXTENSIONS:
                # Bounded: the size in a damaged header may be any number.
                extension = _extend(extension, header, _read(stream, place + BLOCK, min(header.size, MAX_EXTENSION)))
                place += BLOCK + _padded(header.size)
            else:
                member = _member(header, extension, place + BLOCK, end)
                yield from () if member is None else (member,)
                place += BLOCK + _padded(_size(header, extension, end - place))
                extension = Extension()
    if not is_ended:
        yield Unreadable("end", "the archive ends without an end mark: it may be cut off", is_damage=True)


def parse_header(block: bytes) -> Header | None:
    """Read one header block; None when its checksum or its numbers are not right."""
    if len(block) < BLOCK:
        return None
    # Offsets are those of POSIX ustar: name 0, size 124, checksum 148, type 156, magic 257, prefix 345.
    total = sum(block) - sum(block[CHECKSUM]) + 8 * ord(" ")  # the checksum counts itself as blanks
    try:
        if total != _number(block[CHECKSUM]):
            return None
        size = _number(block[124:136])
    except ValueError:
        return None
    name, prefix = _text(block[:100]), _text(block[345:500])
    # GNU's own magic is "ustar  "; there times stand where POSIX has the prefix.
    is_posix = block[MAGIC_AT : MAGIC_AT + 6] == b"ustar\0"
    return Header(f"{prefix}/{name}" if prefix and is_posix else name, size, block[156:157])


def _size(header: Header, extension: Extension, room: int) -> int:
    """Bytes of a member; a pax size has no checksum, so one that the file cannot hold is not believed."""
    return header.size if extension.size is None or extension.size > room else extension.size


def _padded(size: int) -> int:
    """Bytes that a member takes with its padding."""
    return -(-size // BLOCK) * BLOCK


def _member(header: Header, extension: Extension, offset: int, end: int) -> Member | Unreadable | None:
    """A regular file, or why it is none; folders are passed over."""
    name = extension.name or header.name
    shown = printable(name) or f"byte {offset - BLOCK}"
    if header.kind == FOLDER_TYPE:
        return None
    if extension.is_sparse or header.kind in REFUSED_TYPES:
        return Unreadable(shown, f"{REFUSED_TYPES.get(header.kind, 'a sparse file')}, not a plain file")
    if header.kind not in FILE_TYPES:
        return Unreadable(shown, f"of unknown type {header.kind!r}, not a plain file")
    if shown != name:
        return Unreadable(shown, "its name is empty or has control characters")
    if name.startswith("/") or "\\" in name or ".." in name.split("/"):
        return Unreadable(shown, "its name leads out of the archive")
    return Member(name, offset, _size(header, extension, end - offset))


def _gap(stream: BinaryIO, place: int, end: int, search: Search) -> Gap:
    """What lies where a header should be, up to the next one."""
    # From the next byte, not the next block: lost or inserted bytes shift all that follows.
    following = _next_header(stream, place + 1, end, search)
    if following is None:
        return Gap(end, True, Unreadable(f"bytes {place} to {end}", SPENT, is_damage=True, is_lost=True))
    is_empty = not any(chunk.strip(b"\0") for chunk in _chunks(stream, place, following))
    # Zeros to the end of the file are the end mark and its padding; before another header they are a gap.
    if is_empty and following == end and end - place >= END_BYTES:
        return Gap(following, True)
    return Gap(following, problem=_named_gap(_read(stream, place, BLOCK), place, following, is_empty=is_empty))


def _named_gap(block: bytes, place: int, following: int, *, is_empty: bool) -> Unreadable:
    """Name what lies where a header should be."""
    reach = f"bytes {place} to {following}"
    if is_empty:
        # Two blocks or more may be the end mark of an archive to which another was joined; fewer were a header.
        return Unreadable(
            reach, "zeros, where a member may have been", is_damage=True, is_lost=following - place < END_BYTES
        )
    name = _text(block[:100])
    shown = name if name and printable(name) == name else reach
    return Unreadable(shown, f"damaged header; {reach} cannot be read", is_damage=True, is_lost=True)


def _extend(extension: Extension, header: Header, content: bytes) -> Extension:
    """Take up a long name (GNU) or a pax header."""
    if header.kind == b"L":
        return replace(extension, name=_text(content))
    if header.kind != b"x":
        return extension  # a long link name, or defaults for all members
    fields = _pax_fields(content)
    sizes = fields.get("size", "")
    return Extension(
        name=fields.get("path", extension.name),
        size=int(sizes) if sizes.isascii() and sizes.isdigit() else extension.size,
        is_sparse=any(key.startswith("GNU.sparse") for key in fields),
    )


def _pax_fields(content: bytes) -> dict[str, str]:
    """Fields of a pax header, as far as it can be read: lines of `length key=value`."""
    fields, start = {}, 0
    while start < len(content):
        digits = content[start : start + MAX_DIGITS + 1].partition(b" ")[0]
        # A length counts its own digits and the blank; less is damage, and 0 would not advance the loop.
        if not digits.isdigit() or len(digits) > MAX_DIGITS or int(digits) <= len(digits) + 1:
            break
        stop = start + int(digits)
        key, _, value = content[start + len(digits) + 1 : stop].rstrip(b"\n").partition(b"=")
        fields[_text(key)] = _text(value)
        start = stop
    return fields


def _next_header(stream: BinaryIO, start: int, end: int, search: Search) -> int | None:
    """Where the next valid header begins, at any byte; the end of the file when there is none.

    None when nothing is left of the search.
    """
    # A header that begins in a chunk has its magic word in the same chunk or in the overlap.
    overlap = MAGIC_AT + len(MAGIC)
    place = start
    while place < end:
        if search.num_bytes <= 0:
            return None
        chunk = _read(stream, place, SEARCH_BYTES + overlap)
        search.num_bytes -= len(chunk)
        found = chunk.find(MAGIC)
        while found >= 0:
            begin = place + found - MAGIC_AT
            search.num_words -= 1
            if search.num_words < 0:
                return None
            # The word may stand in an image by chance; the checksum then does not fit.
            if begin >= start and parse_header(_read(stream, begin, BLOCK)) is not None:
                return begin
            found = chunk.find(MAGIC, found + 1)
        place += SEARCH_BYTES
    return end


def _chunks(stream: BinaryIO, start: int, end: int) -> Iterator[bytes]:
    """The bytes of a range, piece by piece."""
    for place in range(start, end, SEARCH_BYTES):
        yield _read(stream, place, min(SEARCH_BYTES, end - place))


def _read(stream: BinaryIO, place: int, size: int) -> bytes:
    """Bytes at a place; fewer where the file ends."""
    stream.seek(place)
    return stream.read(size)


def _number(field: bytes) -> int:
    """An octal number, or a binary one where its first bit is set."""
    # Sizes from 8 GiB on do not fit eleven octal digits.
    if field[:1] == b"\x80":
        return int.from_bytes(field[1:], "big")
    digits = field.strip(b" \0") or b"0"
    if not digits.isdigit():
        raise ValueError("not a number")
    return int(digits, 8)


def _text(field: bytes) -> str:
    """Text up to the first zero."""
    return field.split(b"\0", 1)[0].decode("utf-8", errors="backslashreplace")


def printable(name: str) -> str:
    """A name without characters that a terminal would act on."""
    return "".join(letter for letter in name if letter.isprintable())
