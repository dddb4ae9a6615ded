"""Files that a user names, opened for reading: regular ones only, and read up to a bound.

A pipe would be waited for and a device need not end, whatever their names are. A reader of data opens its files here.
"""

import codecs
import io
import os
import stat
from pathlib import Path
from typing import IO

from counterpoint.core.addresses import Address, ObjectBytes, as_path
from counterpoint.core.operating_system import NO_WAIT

SCAN_BYTES = 1 << 20  # that one request to a store asks for, which takes as long as a short one
SHARD_PLAN = "plan.json"  # what a table in shards is of
MAX_TEXT_BYTES = 1 << 29  # five million lines of a hundred letters
OTHER_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def open_regular(path: str | Path) -> io.BufferedReader:
    """Open a regular file, or a link to one, for reading bytes; or an object at an address.

    Raises:
        OSError: it is missing, cannot be read, or is something else; the text says what.
    """
    if isinstance(path, Address):
        return io.BufferedReader(ObjectBytes(path), SCAN_BYTES)
    try:
        return open(path, "rb", opener=_handle)
    except ValueError:
        raise OSError("no file can have this name") from None  # a NUL, or a surrogate that encodes no byte


def length(stream: IO[bytes]) -> int:
    """How many bytes a file has, which is then at its beginning."""
    size = stream.seek(0, os.SEEK_END)
    stream.seek(0)
    return size


def read_regular(path: str | Path, at_most: int) -> bytes:
    """All bytes of a regular file.

    Raises:
        OSError: as for ``open_regular``, or it has more bytes than ``at_most``, of which then none is read.
    """
    with open_regular(path) as stream:
        size = length(stream)
        check_size(size, at_most)
        # Bounded once more, as a file may grow meanwhile; what may be read is reserved at once.
        return stream.read(min(size + 1, at_most))


def read_text(path: str | Path, at_most: int = MAX_TEXT_BYTES) -> str:
    """Text of a regular file in UTF-8; the byte order mark that spreadsheets put before it is dropped.

    Raises:
        OSError: as for ``read_regular``.
        ValueError: it is not UTF-8, or holds a NUL, which no name of a file can.
    """
    content = read_regular(path, at_most)
    place = content.find(b"\0")
    if place >= 0:
        line = content.count(b"\n", 0, place) + 1
        raise ValueError(f"line {line} has a NUL character; save it as plain text in UTF-8")
    return codecs.decode(content, "utf-8-sig")


def check_size(size: int, at_most: int) -> None:
    """Refuse more bytes than a reader takes, before any is read.

    Raises:
        OSError: too many.
    """
    if size > at_most:
        raise OSError(f"it has {size:,} bytes, at most {at_most:,} are read")


def is_shard_folder(path: str | Path) -> bool:
    """Whether a folder holds a table in shards (``evaluation.shard_files``)."""
    return (as_path(path) / SHARD_PLAN).is_file()


def is_file_or_shards(path: str | Path) -> bool:
    """Whether a path is a file or a folder of shards; a run is another folder."""
    return as_path(path).is_file() or is_shard_folder(path)


def shown_name(name: str) -> str:
    r"""A file's name as text that any file can hold: bytes that are not UTF-8 become escapes.

    >>> shown_name("caf\udce9.png")
    'caf\\udce9.png'
    """
    # Python keeps a byte that is not UTF-8 as a surrogate, which no codec writes.
    return name.encode(errors="backslashreplace").decode()


def _handle(path: str, flags: int) -> int:
    """Open without waiting for the other end of a pipe, and keep regular files only."""
    handle = os.open(path, flags | NO_WAIT)
    kind = stat.S_IFMT(os.fstat(handle).st_mode)
    if kind == stat.S_IFREG:
        return handle
    os.close(handle)
    raise OSError(f"it is {OTHER_KINDS.get(kind, 'something else')}, not a regular file; copy its content to one")
