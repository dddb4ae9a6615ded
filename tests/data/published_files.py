"""Writes small archives byte for byte in the forms in which data sets are published."""

import pickle
import struct
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

CIFAR10_NAMES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
CIFAR100_NAMES = tuple(f"fine {number:02}" for number in range(100))
STL10_NAMES = ("airplane", "bird", "car", "cat", "deer", "dog", "horse", "monkey", "ship", "truck")

Dump = Callable[[Mapping[str, Any]], bytes]


class Python2Pickler:
    """Protocol 2 as Python 2's cPickle wrote CIFAR: text and bytes alike as (SHORT_)BINSTRING, everything memoised."""

    def __init__(self) -> None:
        self.out = bytearray(b"\x80\x02")
        self.num_memos = 0

    def dump(self, value: Mapping[str, Any]) -> bytes:
        self.dictionary(value)
        return bytes(self.out + b".")

    def dictionary(self, value: Mapping[str, Any]) -> None:
        self.put(b"}")
        self.out += b"("
        for key, item in value.items():
            self.string(key.encode())
            self.value(item)
        self.out += b"u"

    def value(self, item: Any) -> None:
        if isinstance(item, str):
            self.string(item.encode())
        elif isinstance(item, np.ndarray):
            self.array(item)
        elif isinstance(item, int):
            self.integer(item)
        else:
            self.put(b"]")
            self.out += b"("
            for element in item:
                self.value(element)
            self.out += b"e"

    def string(self, text: bytes) -> None:
        short = len(text) < 256
        self.put((b"U" + bytes([len(text)]) if short else b"T" + struct.pack("<i", len(text))) + text)

    def integer(self, number: int) -> None:
        if 0 <= number < 256:
            self.out += b"K" + bytes([number])
        elif 0 <= number < 65536:
            self.out += b"M" + struct.pack("<H", number)
        else:
            self.out += b"J" + struct.pack("<i", number)

    def array(self, array: np.ndarray) -> None:
        """numpy.core.multiarray._reconstruct(numpy.ndarray, (0,), 'b'), then its state."""
        self.put(b"cnumpy.core.multiarray\n_reconstruct\n")
        self.put(b"cnumpy\nndarray\n")
        self.out += b"K\x00"
        self.put(b"\x85")
        self.string(b"b")
        self.put(b"\x87")
        self.put(b"R")
        self.out += b"(K\x01"
        for length in array.shape:
            self.integer(length)
        self.put(b"\x86")
        self.put(b"cnumpy\ndtype\n")
        self.string(b"u1")
        self.out += b"K\x00K\x01"
        self.put(b"\x87")
        self.put(b"R")
        self.out += b"(K\x03"
        self.string(b"|")
        self.out += b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00"
        self.put(b"t")
        self.out += b"b\x89"
        self.string(array.tobytes())
        self.put(b"t")
        self.out += b"b"

    def put(self, code: bytes) -> None:
        """Write a step and remember its value."""
        self.num_memos += 1
        long = self.num_memos > 255
        self.out += code + (b"r" + struct.pack("<I", self.num_memos) if long else b"q" + bytes([self.num_memos]))


def as_python2(value: Mapping[str, Any]) -> bytes:
    return Python2Pickler().dump(value)


def as_python3(protocol: int) -> Dump:
    """Pickled by Python 3, with bytes for keys and texts as the originals' are when read there."""

    def dump(value: Mapping[str, Any]) -> bytes:
        return pickle.dumps({key.encode(): _as_bytes(item) for key, item in value.items()}, protocol=protocol)

    return dump


def _as_bytes(item: Any) -> Any:
    if isinstance(item, str):
        return item.encode()
    if isinstance(item, list):
        return [_as_bytes(element) for element in item]
    return item


def save_cifar(
    root: Path, rng: np.random.Generator, *, num_classes: int, per_batch: int = 4, dump: Dump = as_python2
) -> None:
    """The python version of CIFAR-10 or CIFAR-100, ``per_batch`` images in each file."""
    fine = "labels" if num_classes == 10 else "fine_labels"
    folder = root / ("cifar-10-batches-py" if num_classes == 10 else "cifar-100-python")
    folder.mkdir(parents=True)
    names = [f"data_batch_{number}" for number in range(1, 6)] + ["test_batch"]
    for name in names if num_classes == 10 else ["train", "test"]:
        content: dict[str, Any] = {
            "batch_label": f"part {name}",
            fine: rng.integers(0, num_classes, per_batch).tolist(),
            "data": rng.integers(0, 256, (per_batch, 3072), dtype=np.uint8),
            "filenames": [f"{name}_{number}.png" for number in range(per_batch)],
        }
        if num_classes == 100:
            content["coarse_labels"] = rng.integers(0, 20, per_batch).tolist()
        (folder / name).write_bytes(dump(content))
    if num_classes == 10:
        meta = {"num_cases_per_batch": 10_000, "label_names": list(CIFAR10_NAMES), "num_vis": 3072}
        (folder / "batches.meta").write_bytes(dump(meta))
    else:
        coarse = [f"coarse {number}" for number in range(20)]
        (folder / "meta").write_bytes(dump({"fine_label_names": list(CIFAR100_NAMES), "coarse_label_names": coarse}))


def save_stl10(root: Path, rng: np.random.Generator) -> None:
    folder = root / "stl10_binary"
    folder.mkdir(parents=True)
    for part, count in (("train", 5), ("test", 4), ("unlabeled", 6)):
        (folder / f"{part}_X.bin").write_bytes(rng.integers(0, 256, (count, 3, 96, 96), dtype=np.uint8).tobytes())
        if part != "unlabeled":
            (folder / f"{part}_y.bin").write_bytes(rng.integers(1, 11, count).astype(np.uint8).tobytes())
    (folder / "class_names.txt").write_text("\n".join(STL10_NAMES) + "\n", encoding="utf-8")


def save_all(root: Path, rng: np.random.Generator) -> None:
    """A small archive of each named set."""
    save_cifar(root, rng, num_classes=10)
    save_cifar(root, rng, num_classes=100)
    save_stl10(root, rng)
