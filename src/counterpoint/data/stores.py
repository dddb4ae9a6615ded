"""Where samples lie: in memory, or in image files that are decoded when fetched."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor

from counterpoint.data.image_files import decode_square


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

    def fetch(self, positions: Sequence[int]) -> Tensor:
        """See ``Store.fetch``."""
        return self.samples[torch.as_tensor(positions, dtype=torch.int64)]


@dataclass(frozen=True)
class FileStore:
    """Image files, decoded at each fetch: for folders that do not fit in memory."""

    paths: tuple[Path, ...]
    side: int

    def __len__(self) -> int:
        return len(self.paths)

    def fetch(self, positions: Sequence[int]) -> Tensor:
        """See ``Store.fetch``."""
        return torch.stack([decode_square(self.paths[position], self.side) for position in positions])
