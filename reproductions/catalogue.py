"""Name the papers' tables and figures: those that are computed or studied, and why others are neither.

A figure is a function and is computed here; a study is data (``study``) and run by ``study_runner``. Drawing is left to
``report``, which reads the same record. Loads without torch: a figure is imported when it is made.
"""

import os
import re
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from pkgutil import resolve_name

from counterpoint.core.errors import RunError, UsageError, unknown_name
from counterpoint.core.files import read_json, write_json
from reproductions.reproduction import FigureRun, Reproduction
from reproductions.study import Scale, Study, read_study, studies

QUICK = "quick, reduced"
MARKS = {"name", "source", "claims", "panels"}  # of a file of ours


@dataclass(frozen=True)
class Figure:
    """A figure that can be made again.

    Attributes:
        summary: a sentence about it.
        maker: ``package.module:name`` of the function that does it.
        takes: names of ``OPTIONS`` that it leaves open.
    """

    summary: str
    maker: str
    takes: tuple[str, ...] = ()

    @property
    def make(self) -> Callable[[FigureRun], Reproduction]:
        """The function that makes the figure; its module is imported now."""
        return resolve_name(self.maker)


# What a run of a figure may be given beside seed and size, and what a figure that does not take it does instead.
OPTIONS: Mapping[str, str] = {
    "data": "draws its own data",
    "encoder": "builds its own networks",
    "epochs": "has a number of steps of its own",
}
CATALOGUE: Mapping[str, Figure] = {
    "alphacl-fig2": Figure(
        "five linear layers under fixed importance: the objective reaches the largest eigenvalue, each weight rank 1",
        "reproductions.alphacl2022.alphacl_figures:figure_2",
    ),
    "alphacl-fig3": Figure(
        "two layers with ReLU: filters specialise, where a linear network finds one direction",
        "reproductions.alphacl2022.alphacl_figures:figure_3",
    ),
    "directclr-fig4": Figure(
        "two linear layers: their singular vectors align",
        "reproductions.directclr2022.directclr_figures:figure_4",
    ),
    "directclr-fig5": Figure(
        "two linear layers: the lowest singular values stay low",
        "reproductions.directclr2022.directclr_figures:figure_5",
    ),
    "directclr-fig6": Figure(
        "more layers, or ReLU: more dimensions of the embedding collapse",
        "reproductions.directclr2022.directclr_figures:figure_6",
    ),
    "directclr-section4": Figure(
        "one linear layer: augmentation stronger than the data's variance collapses dimensions",
        "reproductions.directclr2022.directclr_figures:section_4",
    ),
    "imbalanced-fig1": Figure(
        "three classes of images, one twice as large: samples collapse to the optimal geometry",
        "reproductions.imbalanced2026.imbalanced_figures:figure_1",
        takes=("data", "encoder", "epochs"),
    ),
    "imbalanced-fig2": Figure(
        "three classes of images, one with nine tenths: the two minorities merge",
        "reproductions.imbalanced2026.imbalanced_figures:figure_2",
        takes=("data", "encoder", "epochs"),
    ),
    "ncl-fig6": Figure(
        "features of contrastive and of non-negative contrastive learning side by side",
        "reproductions.ncl2024.ncl_figures:figure_6",
        takes=("data",),
    ),
}


# What shows no measurement: nothing in it can be made again.
DRAWINGS: Mapping[str, str] = {
    "alphacl-fig1": "a diagram, and the losses of the family: counterpoint list losses",
    "alphacl-fig4": "a drawing of the notation",
    "mio-fig1": "a graphical model",
    "mio-table1": "sizes of the data sets: counterpoint list data",
    "ncl-fig2": "a diagram of learning paradigms",
    "directclr-fig1": "a drawing of complete and of dimensional collapse",
    "directclr-fig3": "a drawing of the two-layer linear model",
    "directclr-fig8": "a diagram of DirectCLR",
    "directclr-fig10": "a diagram of the residual connection",
}


@dataclass(frozen=True)
class Listed:
    """A table or figure of a paper, as the list shows it.

    Attributes:
        name: as in ``python -m reproductions NAME``.
        kind: figure, study or drawing.
        summary: a sentence.
    """

    name: str
    kind: str
    summary: str


def listed() -> tuple[Listed, ...]:
    """Every table and figure of the five papers, paper by paper."""
    items = [Listed(name, "figure", figure.summary) for name, figure in CATALOGUE.items()]
    for study in studies().values():
        items.append(Listed(study.name, "study", study.title))
        items += [Listed(name, "study", f"{words} (with {study.name})") for name, words in study.also.items()]
    items += [Listed(name, "drawing", f"nothing to make again: {why}") for name, why in DRAWINGS.items()]
    return tuple(sorted(items, key=_sort_key))


def _sort_key(item: Listed) -> tuple[str, str, int, str]:
    """Sort by paper, then by kind (figures before tables), then by number."""
    paper, _, rest = item.name.partition("-")
    parts = re.match(r"(\D*)(\d*)", rest)
    assert parts is not None
    return paper, parts[1], int(parts[2] or 0), rest


def study_named(name: str, scale: Scale = "small") -> Study | None:
    """Return the study that has a name or shows the table or figure of that name, or that is in a YAML file.

    Returns:
        The study; None if the name is that of a figure which a function computes.

    Raises:
        UsageError: a name that nothing has, or of a drawing; a file that is no study.
    """
    if name.endswith(".yaml"):
        return read_study(Path(name), scale)
    for study in studies(scale).values():
        if name == study.name or name in study.also:
            return study
    if name in DRAWINGS:
        raise UsageError(f"{name} has nothing to make again: {DRAWINGS[name]}")
    if name not in CATALOGUE:
        raise unknown_name("table or figure", name, [item.name for item in listed() if item.kind != "drawing"])
    return None


def reproduce(figure: str, run: FigureRun, *, out: str | Path, seeds: int = 1) -> Reproduction:
    """Make a figure of a paper again and write its numbers to ``out/FIGURE.json``, or ``out/FIGURE-quick.json``.

    Args:
        figure: a name of the catalogue.
        run: what it is asked for; a seed >= 0.
        out: folder, made if need be; an earlier result of the same name is replaced.
        seeds: how many, from that of ``run`` on; every claim is judged with each.

    Returns:
        The record with the paper's claims beside ours; what is drawn is of the first seed.

    Raises:
        UsageError: an unknown figure (names the nearest), a seed below 0, no seeds, no epochs, an unknown encoder,
            or an option that the figure does not take.
        DataError: the images cannot be used.
        RunError: ``out`` cannot be written, or holds another file of that name.
    """
    chosen = figure_named(figure)
    check_options(figure, run)
    if seeds < 1:
        raise UsageError(f"seeds must be a whole number >= 1, got {seeds}")
    # Refuse before the work.
    target = numbers_file(figure, out, quick=run.quick)
    try:
        nearest = next(place for place in (Path(out), *Path(out).absolute().parents) if os.path.lexists(place))
        tempfile.TemporaryFile(dir=nearest).close()  # what permissions promise, some file systems refuse
    except OSError as error:
        raise RunError(f"cannot write into {out}: {error.strerror or error}; choose another --out") from error
    _check_numbers(target)
    from reproductions.code_state import code_state, processor  # deferred: a list of the figures needs neither
    from reproductions.figure_seeds import over_seeds  # deferred: the same

    started = time.perf_counter()
    record = over_seeds([chosen.make(replace(run, seed=run.seed + place)) for place in range(seeds)], run.seed)
    if run.quick:
        record = replace(record, settings={"size": QUICK, **record.settings})
    # Made only now: a figure that fails leaves no empty folder.
    target.parent.mkdir(parents=True, exist_ok=True)
    spent = round(time.perf_counter() - started, 1)
    made = {"commit": code_state(), "machine": processor(), "seconds": spent}
    write_json(target, {**record.to_dict(), "made": made})
    return record


def check_options(figure: str, run: FigureRun) -> None:
    """Refuse a seed, a number of epochs or an option that a figure cannot have.

    Raises:
        UsageError: a seed below 0, no epochs, or an option that the figure does not take.
    """
    if run.seed < 0:
        raise UsageError(f"seed must be a whole number >= 0, got {run.seed}")
    for option, instead in OPTIONS.items():
        if getattr(run, option) is not None and option not in CATALOGUE[figure].takes:
            fitting = " and ".join(name for name, other in CATALOGUE.items() if option in other.takes)
            raise UsageError(f"{figure} {instead}; leave out --{option}, which goes with {fitting}")
    if run.epochs is not None and run.epochs < 1:
        raise UsageError(f"epochs must be a whole number >= 1, got {run.epochs}")


def figure_named(name: str) -> Figure:
    """Return a figure of the catalogue by its name.

    Raises:
        UsageError: an unknown name.
    """
    if name not in CATALOGUE:
        raise unknown_name("figure", name, CATALOGUE)
    return CATALOGUE[name]


def numbers_file(figure: str, out: str | Path, *, quick: bool = False) -> Path:
    """The file with a figure's numbers; those of a reduced size never replace those of the full one."""
    return Path(out) / f"{figure}{'-quick' if quick else ''}.json"


def _check_numbers(target: Path) -> None:
    """Refuse to replace a file that is not an earlier result."""
    if not target.exists():
        return
    content = None if target.is_dir() else _json_or_none(target)
    if not isinstance(content, dict) or not content.keys() >= MARKS:
        raise RunError(f"{target} exists and holds no reproduced figure, so it stays as it is; choose another --out")


def _json_or_none(target: Path) -> object:
    try:
        return read_json(target)
    # What cannot be read as JSON is not ours either.
    except RunError:
        return None
