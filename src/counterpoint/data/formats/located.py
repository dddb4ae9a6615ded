"""Where one encoded image lies on disk, and how its bytes are read and recognised."""

import hashlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

NOT_THERE = "no such file"


@dataclass(frozen=True)
class Located:
    """One encoded image on disk.

    Attributes:
        name: what the sample is called in messages and tables.
        path: the file that holds it.
        offset: where its bytes begin; for tables, its row.
        size: how many bytes; None means to the end of the file.
        label: what the data say it shows.
        label_at: where in the file that label was read, so that a change of it is noticed; how, the reader knows.
    """

    name: str
    path: Path
    offset: int = 0
    size: int | None = None
    label: str | None = None
    label_at: tuple[int, ...] | None = None


Read = Callable[[Located], bytes]  # raises OSError or ValueError, whose text is the reason


def read_bytes(image: Located) -> bytes:
    """The bytes of one image: a whole file, or a range of one.

    Raises:
        OSError: the file is gone or cannot be read.
        ValueError: the file ends before the range does.
    """
    try:
        with image.path.open("rb") as stream:
            remaining = os.fstat(stream.fileno()).st_size - image.offset  # a header may promise exabytes
            if image.size is not None and image.size > remaining:
                raise ValueError(f"cut off: {max(remaining, 0)} of {image.size} bytes")
            stream.seek(image.offset)
            return stream.read() if image.size is None else stream.read(image.size)
    except FileNotFoundError:
        raise FileNotFoundError(NOT_THERE) from None
    except OSError as error:
        raise OSError(error.strerror or str(error)) from None


def content_hash(content: bytes) -> str:
    """Hex digest by which content is recognised.

    >>> content_hash(b"")[:16]
    'e3b0c44298fc1c14'
    """
    return hashlib.sha256(content).hexdigest()
