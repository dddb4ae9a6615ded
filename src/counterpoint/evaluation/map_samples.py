"""Samples that a run folder keeps: their places on a map, figures of each dimension, and small pictures.

``collection.npz`` is written by ``diagnose`` and sealed in ``findings.json``. Loads without torch.
"""

# N samples of the map, D dimensions, K principal components

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from counterpoint.core.derived_files import read_derived
from counterpoint.core.errors import RunError, first_line
from counterpoint.core.files import sha256_of, write_atomically
from counterpoint.core.rundir import RunFolder
from counterpoint.core.user_files import open_regular

MOST_SAMPLES = 2500  # of a map: its t-SNE takes below 10 s on one thread, of 5,000 samples it took 22
MOST_COMPONENTS = 50  # principal ones that are kept of each place
NUM_NEIGHBOURS = 6
NUM_TOP = 8  # strongest samples of a dimension
NOBODY = -1  # in place of a sample, a class or a dimension
PLACES = ("embedding", "representation")  # in the order in which a page offers them
Floats = NDArray[np.float64]
Whole = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Dimensions:
    """Figures of each dimension of the embedding, over all samples of the run.

    Attributes:
        fires_D: share of the samples that it is active on.
        expected_D: mean absolute value of the unit-length embedding.
        purity_D: share of the commonest class among the samples that it is active on; NaN if that is not known.
        class_D: number of that class if its share is beyond chance, else -1.
        top_DT: samples with the largest values, as places on the map, descending; -1 if there are fewer.
        values_DT: values of these samples in the unit-length embedding.
    """

    fires_D: Floats
    expected_D: Floats
    purity_D: Floats
    class_D: Whole
    top_DT: Whole
    values_DT: Floats

    def __len__(self) -> int:
        return len(self.fires_D)


@dataclass(frozen=True)
class Sheet:
    """Square pictures of the samples of a map in one picture file, row by row.

    Attributes:
        content: bytes of the file, PNG or WebP.
        columns: number of pictures in a row.
        side: width and height of one picture in pixels.
    """

    content: bytes
    columns: int
    side: int


@dataclass(frozen=True, eq=False)
class Collection:
    """Samples of a run, at most ``MOST_SAMPLES``.

    Attributes:
        num_samples: number of samples of the run.
        rows_N: positions of these samples among all samples of the run.
        names: names of these samples.
        labels_N: class numbers, -1 if unknown; empty without labels.
        class_names: names of the classes, by class number.
        scores: principal components (N, K) of the unit-length features, for each of ``PLACES``.
        variance: share of the variance that each component has (K,), for each of ``PLACES``.
        neighbours_NM: nearest other samples by cosine of the embedding, as places on the map, -1 if there are fewer.
        dominant_N: strongest dimension of each sample, -1 if all are 0; empty for an embedding with signs.
        dims: figures of the dimensions of the embedding.
        sheet: pictures of the samples; None for vectors.
    """

    num_samples: int
    rows_N: Whole
    names: tuple[str, ...]
    labels_N: Whole
    class_names: tuple[str, ...]
    scores: Mapping[str, Floats]
    variance: Mapping[str, Floats]
    neighbours_NM: Whole
    dominant_N: Whole
    dims: Dimensions
    sheet: Sheet | None = None

    def __len__(self) -> int:
        return len(self.rows_N)


def write_collection(folder: RunFolder, collection: Collection) -> None:
    """Write ``collection.npz``.

    Raises:
        RunError: the disk refuses.
    """
    dims = collection.dims
    arrays: dict[str, Any] = {
        "num_samples": np.int64(collection.num_samples),
        "rows": collection.rows_N,
        "names": np.array(collection.names, dtype=np.str_),
        "labels": collection.labels_N,
        "class_names": np.array(collection.class_names, dtype=np.str_),
        "neighbours": collection.neighbours_NM.astype(np.int32),
        "dominant": collection.dominant_N.astype(np.int32),
        "dims/fires": dims.fires_D,
        "dims/expected": dims.expected_D,
        "dims/purity": dims.purity_D,
        "dims/class": dims.class_D.astype(np.int32),
        "dims/top": dims.top_DT.astype(np.int32),
        "dims/values": dims.values_DT.astype(np.float32),
    }
    for place, scores_NK in collection.scores.items():
        # Features of unit length: half precision is far finer than any map.
        arrays |= {f"scores/{place}": scores_NK.astype(np.float16), f"variance/{place}": collection.variance[place]}
    if collection.sheet is not None:
        arrays |= {
            "sheet/content": np.frombuffer(collection.sheet.content, np.uint8),
            "sheet/columns": np.int64(collection.sheet.columns),
            "sheet/side": np.int64(collection.sheet.side),
        }

    write_arrays(folder.collection, arrays)


def write_arrays(path: Path, arrays: Mapping[str, Any]) -> None:
    """Write an ``.npz``; raises as ``write_atomically``."""

    def write(temporary: Path) -> None:
        with temporary.open("wb") as stream:  # to a path that ends otherwise NumPy would add .npz
            np.savez_compressed(stream, **arrays)

    write_atomically(path, write)


def read_collection(folder: RunFolder) -> Collection | None:
    """Read ``collection.npz``; None if there is none.

    Raises:
        RunError: it is damaged, or was changed after it was written.
    """
    path = folder.collection
    if not path.exists() or not folder.findings.exists():
        return None
    if read_derived(folder, folder.findings).get("collection") != {"sha256": sha256_of(path)}:
        raise RunError(f"{path} was changed after it was written; counterpoint diagnose writes it again")
    try:
        # A pickle could run code of the folder's author.
        with open_regular(path) as stream, np.load(stream, allow_pickle=False) as stored:
            return _checked_collection({name: stored[name] for name in stored.files})
    except Exception as error:  # what NumPy's and zipfile's readers raise on damaged bytes is not documented
        raise RunError(f"{path} is damaged: {first_line(error)}; counterpoint diagnose writes it again") from None


def _checked_collection(arrays: Mapping[str, NDArray[Any]]) -> Collection:
    num, num_dims = len(arrays["rows"]), len(arrays["dims/fires"])
    names, classes = (tuple(map(str, arrays[name].ravel())) for name in ("names", "class_names"))

    def floats(name: str, *shape: int) -> Floats:
        return np.nan_to_num(arrays[name].astype(np.float64).reshape(shape), posinf=0.0, neginf=0.0)

    def integers(name: str, end: int, *shape: int) -> Whole:
        values = arrays[name].astype(np.int64).reshape(shape)
        if values.size and not (values.min() >= NOBODY and values.max() < end):
            raise ValueError(f"{name} must be from -1 to {end - 1}, got {values.min()} to {values.max()}")
        return values

    labels_N, dominant_N = integers("labels", len(classes), -1), integers("dominant", num_dims, -1)
    if len(names) != num or len(labels_N) not in (0, num) or len(dominant_N) not in (0, num):
        raise ValueError("its samples, names, labels and dimensions are not equally many")
    scores, sheet = {place: floats(f"scores/{place}", num, -1) for place in PLACES}, None
    if "sheet/content" in arrays:
        content, columns, side = arrays["sheet/content"], int(arrays["sheet/columns"]), int(arrays["sheet/side"])
        if content.dtype != np.uint8 or columns < 1 or side < 1:
            raise ValueError(f"its pictures are {content.dtype}, {columns} in a row, of {side} pixels")
        sheet = Sheet(content.tobytes(), columns, side)
    return Collection(
        num_samples=int(arrays["num_samples"]),
        rows_N=integers("rows", int(arrays["num_samples"]), num),
        names=names,
        labels_N=labels_N,
        class_names=classes,
        scores=scores,
        variance={place: floats(f"variance/{place}", scores[place].shape[1]) for place in PLACES},
        neighbours_NM=integers("neighbours", num, num, NUM_NEIGHBOURS),
        dominant_N=dominant_N,
        dims=Dimensions(
            fires_D=floats("dims/fires", num_dims),
            expected_D=floats("dims/expected", num_dims),
            purity_D=arrays["dims/purity"].astype(np.float64).reshape(num_dims),
            class_D=integers("dims/class", len(classes), num_dims),
            top_DT=integers("dims/top", num, num_dims, NUM_TOP),
            values_DT=floats("dims/values", num_dims, NUM_TOP),
        ),
        sheet=sheet,
    )
