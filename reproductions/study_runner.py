"""Run a study: one cell for each arm and seed, kept as soon as it is measured, and the result of all cells.

OUT/NAME-SCALE/cells/ARM-seed-N.json    a cell, never measured again; of the first seed perhaps ARM-pictures.npz
OUT/NAME-SCALE.json                     the result, once all cells are there
OUT/runs/HASH/seed-N                    run folders; studies that train the same arm share them
OUT/data/                               the parts of sets that small scales take
"""

import datetime
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from counterpoint.core import __version__
from counterpoint.core.errors import RunError, UsageError
from counterpoint.core.files import read_sealed, write_sealed
from counterpoint.core.ranks import WorkPart
from counterpoint.core.run import Run
from counterpoint.core.run_records import read_record
from counterpoint.core.settings import TrainSettings
from counterpoint.core.validation import build, merge, nest
from counterpoint.engine.progress import Reporter
from counterpoint.losses.build import build_loss
from counterpoint.runs.active_settings import check_choices
from counterpoint.runs.fixed_loss import check_second_derivative
from counterpoint.runs.recipes import with_recipe
from counterpoint.runs.training import train
from reproductions.code_state import code_state, processor
from reproductions.study import Arm, Scale, Study, short_hash
from reproductions.study_data import StudyData, prepare, queries_elsewhere, transfer_pairs
from reproductions.study_measures import check_measures, measure
from reproductions.study_pictures import pictures_file, write_pictures
from reproductions.study_result import (
    FORMAT,
    CellFile,
    CellRecord,
    Made,
    StudyResult,
    cells_folder,
    check_figures,
    judge_claims,
    read_result,
    result_file,
)
from reproductions.verdicts import LOOKS, UNTOLD, SeedRule

MOST_NAMED = 3  # cells that an error lists


@dataclass(frozen=True)
class Cell:
    """One arm with one seed.

    Attributes:
        arm: of the study.
        seed: of the run.
        data: what it trains on.
        settings: of training, without data, seed and folder.
    """

    arm: Arm
    seed: int
    data: StudyData
    settings: Mapping[str, Any]

    @property
    def name(self) -> str:
        """Of its file."""
        return f"{self.arm.name}-seed-{self.seed}"


@dataclass(frozen=True)
class StudyRun:
    """A study that is being run.

    Attributes:
        study: what.
        scale: small, longer or paper.
        out: folder of everything.
        cells: all of them, seed by seed.
        commit: of the code.
        reporter: shows progress.
    """

    study: Study
    scale: Scale
    out: Path
    cells: Sequence[Cell]
    commit: str
    reporter: Reporter

    @property
    def folder(self) -> Path:
        """Of its cells."""
        return cells_folder(self.study, self.scale, self.out)

    def file(self, cell: Cell) -> Path:
        """Of a cell."""
        return self.folder / f"{cell.name}.json"

    def plan_hash(self, cell: Cell) -> str:
        """Of everything that a cell depends on beside code and seed; the parts of sets are known by their names."""
        names = [Path(name).name for name in (cell.data.train, cell.data.test or "")]
        return short_hash([dict(cell.settings), names, self.study.measures_of(cell.arm, self.scale).of_figures()])

    def run_folder(self, cell: Cell) -> Path:
        """Of the training of a cell, which studies share."""
        hashed = short_hash([dict(cell.settings), cell.data.train, self.commit])
        return self.out / "runs" / hashed / f"seed-{cell.seed}"


@dataclass(frozen=True)
class StudyPlan:
    """What is asked for.

    Attributes:
        out: folder of everything; what is finished in it stays.
        scale: small, longer or paper.
        root: folder with the data sets; None where none needs files.
        seeds: how many; None takes those of the scale.
        part: which cells this process makes.
        hours: add seeds to arms of open claims, look by look (``LOOKS``), and begin no cell that would end later; None
            makes a fixed number of seeds.
        first_seed: seeds count up from it; a result of other seeds tells whether the verdicts hold.
    """

    out: Path
    scale: Scale = "small"
    root: str | None = None
    seeds: int | None = None
    part: WorkPart = field(default_factory=WorkPart)
    hours: float | None = None
    first_seed: int = 0


def run_study(study: Study, plan: StudyPlan, reporter: Reporter) -> StudyResult | None:
    """Run the cells of a study that are not there yet, and write the result once all are.

    Args:
        study: what.
        plan: where, at which scale, with how many seeds, and which cells.
        reporter: shows progress.

    Returns:
        The result; None while cells of other parts are missing, or where the hours end before the first look.

    Raises:
        UsageError: a setting of an arm is wrong, fewer than two seeds, or hours beside a number of seeds or a part.
        DataError: the data, their labels or their splits are not there.
        RunError: ``out`` holds cells of another commit, of other claims or of another plan, or a result whose seeds
            follow another rule or begin elsewhere; they are named.
        InterruptedRunError: stopped by a signal; called again it goes on.
    """
    going = _planned(study, plan, reporter)
    _check_cells(going)
    _check_rule(going, plan)
    if plan.hours is not None:
        return _in_turn(going, plan.hours)
    mine = [going.cells[place] for place in plan.part.of(len(going.cells))]
    missing = [cell for cell in mine if not going.file(cell).exists()]
    reporter.say(f"{study.name}, {plan.scale} scale: {len(mine)} cells, {len(mine) - len(missing)} of them finished")
    _make(going, missing)
    _take_pictures(going, mine)
    if absent := sum(not going.file(cell).exists() for cell in going.cells):
        reporter.say(f"{absent} cells are still missing: other parts make them")
        return None
    return _finish(going, going.cells, "fixed")


def _planned(study: Study, asked: StudyPlan, reporter: Reporter) -> StudyRun:
    """Settings of every cell, checked, and the data."""
    check_measures(study.measures)
    scale = study.at(asked.scale)
    num_seeds = _num_seeds(asked, scale.seeds)
    settings_of = {arm.name: nest(study.settings_of(arm, asked.scale)) for arm in study.arms}
    for name, settings in settings_of.items():
        asked_for = with_recipe(settings)
        checked = build(TrainSettings, asked_for, f"{study.name}, arm {name}")
        check_choices(checked)  # before any data are read
        if study.measures.curvature and checked.loss.name != "auto":
            check_second_derivative(build_loss(checked.loss.name, {}, checked.loss.options))
    names = sorted({study.data_of(arm, asked.scale) for arm in study.arms})
    data = {name: prepare(name, scale.part_of(name), asked.root, asked.out) for name in names}
    for name, own in data.items():
        side = scale.part_of(name).image_size
        found = queries_elsewhere(name, own, side, asked.root, asked.out) if study.measures.elsewhere else {}
        pairs = {each: transfer_pairs(name, each, side, asked.root, asked.out) for each in study.measures.transfer}
        data[name] = replace(own, elsewhere=found, transfer=pairs)
    cells = []
    for seed in range(
        asked.first_seed, asked.first_seed + num_seeds
    ):  # all arms of a seed first: what is there can be compared
        for arm in study.arms:
            own = data[study.data_of(arm, asked.scale)]
            cells.append(Cell(arm, seed, own, merge({"source": dict(own.source)}, settings_of[arm.name])))
    return StudyRun(study, asked.scale, asked.out, cells, code_state(), reporter)


def _num_seeds(asked: StudyPlan, of_scale: int) -> int:
    """How many seeds are made at most."""
    if asked.hours is not None:
        if asked.seeds is not None or asked.part != WorkPart():
            raise UsageError("hours add seeds until claims are told: leave out the number of seeds, and parts")
        if not 0 < asked.hours < math.inf:
            raise UsageError(f"hours must be a number above 0, got {asked.hours}")
        return max(LOOKS)
    num_seeds = of_scale if asked.seeds is None else asked.seeds
    if num_seeds < 2:
        raise UsageError(f"seeds must be at least 2, got {num_seeds}; an interval needs them")
    return num_seeds


def _check_rule(going: StudyRun, asked: StudyPlan) -> None:
    """Refuse to go on from a result whose seeds follow another rule: more seeds after a look would count twice."""
    path, rule = result_file(going.study, going.scale, going.out), _rule(asked)
    if not path.exists():
        return
    # Not read_result, which refuses other claims: that result is of cells that are gone, and is replaced.
    known = read_record(StudyResult, read_sealed(path), str(path))
    if known.seed_rule != rule:
        raise RunError(
            f"{path} has {known.seed_rule} seeds, not {rule} ones; choose another --out, or go on as it was begun"
        )
    if known.seeds[0] != asked.first_seed:
        raise RunError(f"{path} has seeds from {known.seeds[0]}, not from {asked.first_seed}; choose another --out")


def _rule(asked: StudyPlan) -> SeedRule:
    """How the number of seeds comes about."""
    return "fixed" if asked.hours is None else "sequential"


def _in_turn(going: StudyRun, hours: float) -> StudyResult | None:
    """Make the cells of each look in turn, after the first one those of open claims alone, until the hours end."""
    until = time.monotonic() + hours * 3600
    arms = {arm.name for arm in going.study.arms}
    for look in LOOKS:
        seeds = set(_seeds(going)[:look])
        cells = [cell for cell in going.cells if cell.seed in seeds and cell.arm.name in arms]
        missing = [cell for cell in cells if not going.file(cell).exists()]
        going.reporter.say(f"{going.study.name}, {look} seeds: {len(cells)} cells, {len(missing)} of them missing")
        if not _make(going, missing, until):
            going.reporter.say("the hours have ended; the same command goes on")
            break
        known = [_read(going.file(cell)).cell for cell in going.cells if going.file(cell).exists()]
        judged = judge_claims(going.study, known, "sequential")
        open_ = [claim for claim, found in zip(going.study.claims, judged, strict=True) if found["verdict"] == UNTOLD]
        arms = {name for claim in open_ for name in (claim.first, claim.second) if name is not None}
    made = [cell for cell in going.cells if going.file(cell).exists()]
    first = [cell for cell in going.cells if cell.seed in _seeds(going)[: min(LOOKS)]]
    return _finish(going, made, "sequential") if set(map(going.file, first)) <= set(map(going.file, made)) else None


def _seeds(going: StudyRun) -> list[int]:
    """Seeds of the cells, in their order."""
    return list(dict.fromkeys(cell.seed for cell in going.cells))


def _check_cells(going: StudyRun) -> None:
    """Refuse cells that others have made: another commit, other claims, another plan."""
    there = {cell.name: (cell, _read(going.file(cell))) for cell in going.cells if going.file(cell).exists()}
    claims = going.study.claims_hash
    for what, own, of in (
        ("commit", lambda _: going.commit, lambda known: known.made.commit),
        ("claims", lambda _: claims, lambda known: known.claims_hash),
        ("plan", going.plan_hash, lambda known: known.plan_hash),
    ):
        odd = {name: of(known) for name, (cell, known) in there.items() if of(known) != own(cell)}
        if odd:
            first = next(iter(odd))
            more = f" and {len(odd) - MOST_NAMED} more" if len(odd) > MOST_NAMED else ""
            raise RunError(
                f"{going.folder} holds cells of another {what} ({odd[first]}, this is {own(there[first][0])}): "
                f"{', '.join(list(odd)[:MOST_NAMED])}{more}; remove them, or choose another --out"
            )


def _read(path: Path) -> CellFile:
    """A cell's file."""
    return read_record(CellFile, read_sealed(path), str(path))


def _make(going: StudyRun, missing: Sequence[Cell], until: float = math.inf) -> bool:
    """Train and measure cells, one after the other; False where the next one would not end in time."""
    spent: list[float] = []
    with going.reporter.bar(going.study.name, len(missing)) as advance:
        for cell in missing:
            if time.monotonic() + (sum(spent) / len(spent) if spent else 0.0) > until:
                return False
            started = time.perf_counter()
            _make_one(going, cell)
            spent.append(time.perf_counter() - started)
            left = sum(spent) / len(spent) * (len(missing) - len(spent))
            advance(f"{cell.name}: {spent[-1]:.0f} s; {len(spent)} of {len(missing)}, some {left / 60:.0f} min left")
    return True


def _make_one(going: StudyRun, cell: Cell) -> None:
    """Train and measure one cell, and keep what was found."""
    started = time.perf_counter()
    place = str(going.run_folder(cell))
    run = train(cell.data.train, **cell.settings, seed=cell.seed, out=place, resume=True, quiet=True)
    scratch = going.folder.parent / "work" / cell.name
    scratch.mkdir(parents=True, exist_ok=True)
    found = measure(run, cell.data, going.study.measures_of(cell.arm, going.scale), scratch)
    record = CellRecord(arm=cell.arm.name, seed=cell.seed, figures=found.figures, curves=found.curves)
    check_figures(going.study, record)  # of the first cell, not after the last
    made = Made(
        commit=going.commit,
        version=__version__,
        torch=torch.__version__,
        machine=f"{processor()}, threads: {torch.get_num_threads()}",
        seconds={cell.name: round(time.perf_counter() - started, 1)},
        finished=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    )
    file = CellFile(cell=record, claims_hash=going.study.claims_hash, plan_hash=going.plan_hash(cell), made=made)
    going.folder.mkdir(parents=True, exist_ok=True)
    write_sealed(going.file(cell), file.model_dump(mode="json"))


def _take_pictures(going: StudyRun, cells: Sequence[Cell]) -> None:
    """Write the pictures of the first seed that are not there, where the run folder still is."""
    plan = going.study.measures.pictures
    for cell in cells if plan else ():
        path, run = pictures_file(going.study, going.scale, going.out, cell.arm.name), Run(going.run_folder(cell))
        if plan and cell.seed == going.cells[0].seed and not path.exists() and run.folder.weights.exists():
            write_pictures(run, cell.data, plan, path)


def _finish(going: StudyRun, of_result: Sequence[Cell], rule: SeedRule) -> StudyResult:
    """Write the result of cells that are all there."""
    _check_cells(going)
    files = [_read(going.file(cell)) for cell in of_result]
    order = [arm.name for arm in going.study.arms]
    cells = sorted((file.cell for file in files), key=lambda cell: (order.index(cell.arm), cell.seed))
    made = files[-1].made.model_copy(
        update={
            "seconds": {name: spent for file in files for name, spent in file.made.seconds.items()},
            "machine": "; ".join(dict.fromkeys(file.made.machine for file in files)),
            "finished": max(file.made.finished for file in files),
        }
    )
    result = StudyResult(
        format=FORMAT,
        study=going.study.name,
        scale=going.scale,
        claims_hash=going.study.claims_hash,
        data="; ".join(dict.fromkeys(cell.data.words for cell in of_result)),
        seeds=tuple(dict.fromkeys(cell.seed for cell in of_result)),
        arms={cell.arm.name: _without_places(cell.settings) for cell in of_result},
        cells=tuple(cells),
        claims=judge_claims(going.study, cells, rule),
        made=made,
        seed_rule=rule,
    )
    path = result_file(going.study, going.scale, going.out)
    write_sealed(path, result.model_dump(mode="json"))
    return read_result(path, going.study)


def _without_places(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings without folders of this machine."""
    source = {name: value for name, value in settings.get("source", {}).items() if name != "root"}
    return {**settings, "source": source}
