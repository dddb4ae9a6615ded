"""Stores of samples: in memory, encoded on disk, where each fetch verifies and decodes them, or of other stores."""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor

from counterpoint.core.errors import DataError, first_line
from counterpoint.core.user_files import check_size, length, open_regular
from counterpoint.data.formats.image_files import MAX_ENCODED_BYTES, decode_square

NOT_THERE = "no such file"


@dataclass(frozen=True)
class Located:
    """One encoded image on disk.

    Attributes:
        name: name of the sample in messages and tables.
        path: the file that holds it.
        offset: place of its first byte; for tables, its row.
        size: number of its bytes; None means to the end of the file.
        label: its label in the data.
    """

    name: str
    path: Path
    offset: int = 0
    size: int | None = None
    label: str | None = None


Read = Callable[[Located], bytes]  # raises OSError or ValueError, whose text is the reason


def read_bytes(image: Located) -> bytes:
    """The bytes of one image: a whole file, or a range of one.

    Raises:
        OSError: the file is gone, cannot be read, or has more bytes than a picture may have.
        ValueError: the file ends before the range does.
    """
    try:
        with open_regular(image.path) as stream:
            remaining = length(stream) - image.offset  # a header may promise exabytes
            size = remaining if image.size is None else image.size
            if size > remaining:
                raise ValueError(f"cut off: {max(remaining, 0)} of {size} bytes")
            check_size(size, MAX_ENCODED_BYTES)
            # Past the buffer: a store is asked for these bytes and no more.
            stream.raw.seek(image.offset, os.SEEK_SET)
            return stream.raw.read(size) or b""
    except FileNotFoundError:
        raise FileNotFoundError(NOT_THERE) from None
    except OSError as error:
        # Without the path, which the caller names in its own way.
        raise OSError(error.strerror or str(error)) from None


class Store(Protocol):
    """Samples by position."""

    def __len__(self) -> int:
        """Number of samples."""
        ...

    def fetch(self, positions: Sequence[int]) -> Tensor:
        """Samples at some positions: uint8 or float32 (b, c, h, w), or float32 (b, d)."""
        ...


@dataclass(frozen=True)
class MemoryStore:
    """Samples held in one tensor."""

    samples: Tensor

    def __len__(self) -> int:
        return len(self.samples)

    def fetch(self, positions: Sequence[int] | Tensor) -> Tensor:
        """See ``Store.fetch``; positions may be a tensor, which for samples on a GPU should lie there, too."""
        rows = torch.as_tensor(positions, dtype=torch.int64, device=self.samples.device)
        return self.samples.index_select(0, rows)


@dataclass(frozen=True)
class ChosenStore:
    """Some samples of a store, in the order of their positions."""

    store: Store
    positions: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.positions)

    def fetch(self, positions: Sequence[int]) -> Tensor:
        """See ``Store.fetch``."""
        return self.store.fetch([self.positions[position] for position in positions])


@dataclass(frozen=True)
class JoinedStore:
    """The samples of one store, then those of another."""

    first: Store
    second: Store

    def __len__(self) -> int:
        return len(self.first) + len(self.second)

    def fetch(self, positions: Sequence[int]) -> Tensor:
        """See ``Store.fetch``."""
        border = len(self.first)
        # Those of the first store before the others; then back into the order that was asked for.
        order = sorted(range(len(positions)), key=lambda place: positions[place] >= border)
        ordered = [positions[place] for place in order]
        num_first = sum(position < border for position in ordered)
        parts = [(self.first, ordered[:num_first]), (self.second, [each - border for each in ordered[num_first:]])]
        return torch.cat([store.fetch(each) for store, each in parts if each])[torch.tensor(order).argsort()]


@dataclass(frozen=True)
class FileStore:
    """Encoded images on disk, for sets that do not fit in memory.

    Every fetch compares the bytes it read with the hash in the manifest: content that changed under a running training
    stops it, and never becomes other pixels.

    Attributes:
        images: place of each sample.
        hashes: hash of each sample's bytes, from the manifest; empty if they have not been read.
        side: side in pixels to which images are resized.
        read: function that reads the bytes.
    """

    images: Sequence[Located] = field(repr=False)
    hashes: Sequence[str] = field(repr=False)
    side: int
    read: Read = read_bytes

    def __len__(self) -> int:
        return len(self.images)

    def fetch(self, positions: Sequence[int]) -> Tensor:
        """See ``Store.fetch``.

        Raises:
            DataError: a sample's bytes are gone or are not those that were indexed; its name and file are given.
        """
        return torch.stack([self._sample(int(position)) for position in positions])

    def _sample(self, position: int) -> Tensor:
        image = self.images[position]
        # A member of a shard, or a row of a table, is named with its file.
        where = image.name if image.path.as_posix().endswith(image.name) else f"{image.name} in {image.path}"
        remedy = "restore it, or start again with --source.altered reindex"
        try:
            content = self.read(image)
        except (OSError, ValueError) as error:
            raise DataError(f"{where} can no longer be read ({first_line(error)}); {remedy}") from None
        # Before decoding: a damaged JPEG may decode to other pixels without an error.
        if self.hashes and sha256(content).hexdigest() != self.hashes[position]:
            raise DataError(f"the content of {where} changed since it was indexed; {remedy}")
        try:
            return decode_square(content, self.side)
        except ValueError as error:
            if not self.hashes:
                raise DataError(
                    f"{where} cannot be decoded ({error}); name it in a file for --source.exclude"
                ) from None
            # It decoded when it was indexed: another version of the image library.
            raise DataError(f"{where} no longer decodes ({error}) though its bytes are the same") from None
