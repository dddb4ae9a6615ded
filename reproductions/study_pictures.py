"""The queries that activate each dimension of a trained arm most, as pictures beside its cell.

Pictures are data of others: they stay in the folder of the study and on its page, and are in no result.
"""

# Q queries, D features

from pathlib import Path
from typing import Any

import numpy as np

from counterpoint.core.errors import UsageError
from counterpoint.core.files import write_atomically
from counterpoint.core.run import Run
from counterpoint.diagnostics.concepts import top_concepts
from counterpoint.report.picture_sheets import data_address
from counterpoint.runs.sample_collection import thumbnails
from reproductions.reproduction import PictureGrid, PictureRow
from reproductions.study import PicturePlan, Study
from reproductions.study_data import StudyData, class_names_of
from reproductions.study_measures import query_features
from reproductions.study_result import cells_folder

LARGEST = 64  # pixels of a side on a page


def pictures_file(study: Study, scale: str, out: Path, arm: str) -> Path:
    """The file with the pictures of an arm's first seed."""
    return cells_folder(study, scale, out) / f"{arm}-pictures.npz"


def write_pictures(run: Run, data: StudyData, plan: PicturePlan, path: Path) -> None:
    """Write the queries that activate each of the first dimensions most, as plain arrays with a row for each picture.

    Dimensions come by expected activation, of absolute values where features have signs, and silent ones are left out;
    the queries of a dimension come by its value in the unit-length features.

    Source: ncl2024, appendix G.2 (Fig. 1, 8, 9).

    Args:
        run: of one seed.
        data: what it was trained on, and the queries.
        plan: layer, and how many dimensions and pictures.
        path: an ``.npz``; an earlier one is replaced.

    Raises:
        UsageError: the queries are no pictures.
    """
    queries = query_features(run, data, (plan.layer,))
    source = queries.source
    if source.kind != "images":
        raise UsageError(f"pictures of dimensions need images, and {source.name} has vectors")
    z_QD = queries.layers[plan.layer]
    concepts = top_concepts(z_QD, num_concepts=plan.dimensions, num_samples=plan.pictures)
    positions = [int(queries.positions[place]) for concept in concepts for place in concept.top]
    names = class_names_of(data, source)
    numbers = [-1] * len(positions) if source.labels is None else source.labels[positions].tolist()
    arrays: dict[str, Any] = {
        "images": thumbnails(source, positions),
        "dimensions": np.repeat([concept.dim for concept in concepts], [len(concept.top) for concept in concepts]),
        "values": np.array([value for concept in concepts for value in concept.values]),
        "classes": np.array([names[number] if number >= 0 else "" for number in numbers], np.str_),
    }

    def write(place: Path) -> None:
        with place.open("wb") as stream:
            np.savez_compressed(stream, **arrays)

    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, write)


def read_pictures(path: Path) -> tuple[PictureRow, ...]:
    """Read the rows of a file of ``write_pictures``, one for each dimension, in its order."""
    with np.load(path, allow_pickle=False) as arrays:
        images, dimensions, classes = (arrays[name] for name in ("images", "dimensions", "classes"))
    rows = []
    for dim in dict.fromkeys(dimensions.tolist()):
        own = np.flatnonzero(dimensions == dim)
        addresses = tuple(data_address(images[place], LARGEST) for place in own)
        rows.append(PictureRow(f"dimension {dim}", addresses, tuple(map(str, classes[own]))))
    return tuple(rows)


def picture_grids(study: Study, scale: str, out: Path) -> tuple[PictureGrid, ...]:
    """Pictures of each arm for the page of a study; empty if the study asks for no pictures."""
    return tuple(_grid(study, scale, out, arm.name) for arm in study.arms) if study.measures.pictures else ()


def _grid(study: Study, scale: str, out: Path, name: str) -> PictureGrid:
    """Return the pictures of an arm, or a sentence on how to get them."""
    path, title = pictures_file(study, scale, out, name), study.arm(name).says
    if path.exists():
        return PictureGrid(title, read_pictures(path))
    missing = (
        f"The run folder of {name}, first seed, is not there any more. Remove its cell from "
        f"{study.name}-{scale}/cells, and python -m reproductions {study.name} trains it again and takes its pictures."
    )
    return PictureGrid(title, (), missing)
