"""Run a study: one cell for each arm and seed, written as soon as it is measured, and the result of all cells.

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
from counterpoint.core.schemas import read_record
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
        """The name of the cell's file."""
        return f"{self.arm.name}-seed-{self.seed}"


@dataclass(frozen=True)
class StudyRun:
    """A study that is being run.

    Attributes:
        study: the study.
        scale: small, longer or paper.
        out: folder of all files.
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
        """The folder of the cells."""
        return cells_folder(self.study, self.scale, self.out)

    def file(self, cell: Cell) -> Path:
        """The file of a cell."""
        return self.folder / f"{cell.name}.json"

    def plan_hash(self, cell: Cell) -> str:
        """Hash of everything that a cell depends on beside code and seed; parts of sets count by their names."""
        names = [Path(name).name for name in (cell.data.train, cell.data.test or "")]
        return short_hash([dict(cell.settings), names, self.study.measures_of(cell.arm, self.scale).of_figures()])

    def run_folder(self, cell: Cell) -> Path:
        """The run folder of a cell's training, which studies share."""
        hashed = short_hash([dict(cell.settings), cell.data.train, self.commit])
        return self.out / "runs" / hashed / f"seed-{cell.seed}"


@dataclass(frozen=True)
class StudyPlan:
    """Options of one call of ``run_study``.

    Attributes:
        out: folder of all files; finished cells in it stay.
        scale: small, longer or paper.
        root: folder with the data sets; None if no set needs files.
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
        study: the study.
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
    study_run = _plan_cells(study, plan, reporter)
    _check_cells(study_run)
    _check_rule(study_run, plan)
    if plan.hours is not None:
        return _run_in_looks(study_run, plan.hours)
    mine = [study_run.cells[place] for place in plan.part.of(len(study_run.cells))]
    missing = [cell for cell in mine if not study_run.file(cell).exists()]
    reporter.say(f"{study.name}, {plan.scale} scale: {len(mine)} cells, {len(mine) - len(missing)} of them finished")
    _make_cells(study_run, missing)
    _take_pictures(study_run, mine)
    if absent := sum(not study_run.file(cell).exists() for cell in study_run.cells):
        reporter.say(f"{absent} cells are still missing: other parts make them")
        return None
    return _write_result(study_run, study_run.cells, "fixed")


def _plan_cells(study: Study, plan: StudyPlan, reporter: Reporter) -> StudyRun:
    """Check the settings of every cell, prepare the data, and return the run with all cells."""
    check_measures(study.measures)
    scale = study.at(plan.scale)
    num_seeds = _num_seeds(plan, scale.seeds)
    settings_of = {arm.name: nest(study.settings_of(arm, plan.scale)) for arm in study.arms}
    for name, settings in settings_of.items():
        checked = build(TrainSettings, with_recipe(settings), f"{study.name}, arm {name}")
        check_choices(checked)  # before any data are read
        if study.measures.curvature and checked.loss.name != "auto":
            check_second_derivative(build_loss(checked.loss.name, {}, checked.loss.options))
    names = sorted({study.data_of(arm, plan.scale) for arm in study.arms})
    data = {name: prepare(name, scale.part_of(name), plan.root, plan.out) for name in names}
    for name, own in data.items():
        side = scale.part_of(name).image_size
        styled = queries_elsewhere(name, own, side, plan.root, plan.out) if study.measures.elsewhere else {}
        pairs = {style: transfer_pairs(name, style, side, plan.root, plan.out) for style in study.measures.transfer}
        data[name] = replace(own, elsewhere=styled, transfer=pairs)
    cells = []
    # All arms of a seed first: what is there can be compared.
    for seed in range(plan.first_seed, plan.first_seed + num_seeds):
        for arm in study.arms:
            own = data[study.data_of(arm, plan.scale)]
            cells.append(Cell(arm, seed, own, merge({"source": dict(own.source)}, settings_of[arm.name])))
    return StudyRun(study, plan.scale, plan.out, cells, code_state(), reporter)


def _num_seeds(plan: StudyPlan, of_scale: int) -> int:
    """The largest number of seeds that the plan allows."""
    if plan.hours is not None:
        if plan.seeds is not None or plan.part != WorkPart():
            raise UsageError("hours add seeds until claims are told: leave out the number of seeds, and parts")
        if not 0 < plan.hours < math.inf:
            raise UsageError(f"hours must be a number above 0, got {plan.hours}")
        return max(LOOKS)
    num_seeds = of_scale if plan.seeds is None else plan.seeds
    if num_seeds < 2:
        raise UsageError(f"seeds must be at least 2, got {num_seeds}; an interval needs them")
    return num_seeds


def _check_rule(study_run: StudyRun, plan: StudyPlan) -> None:
    """Refuse to go on from a result whose seeds follow another rule: more seeds after a look would count twice."""
    path, rule = result_file(study_run.study, study_run.scale, study_run.out), _seed_rule(plan)
    if not path.exists():
        return
    # Not read_result, which refuses other claims: that result is of cells that are gone, and is replaced.
    result = read_record(StudyResult, read_sealed(path), str(path))
    if result.seed_rule != rule:
        raise RunError(
            f"{path} has {result.seed_rule} seeds, not {rule} ones; choose another --out, or go on as it was begun"
        )
    if result.seeds[0] != plan.first_seed:
        raise RunError(f"{path} has seeds from {result.seeds[0]}, not from {plan.first_seed}; choose another --out")


def _seed_rule(plan: StudyPlan) -> SeedRule:
    """The rule by which the number of seeds is set: fixed, or sequential with ``hours``."""
    return "fixed" if plan.hours is None else "sequential"


def _run_in_looks(study_run: StudyRun, hours: float) -> StudyResult | None:
    """Make the cells of each look in turn, after the first look for open claims only, until the hours end."""
    until = time.monotonic() + hours * 3600
    study, reporter = study_run.study, study_run.reporter
    arms = {arm.name for arm in study.arms}
    for look in LOOKS:
        seeds = set(_seeds(study_run)[:look])
        cells = [cell for cell in study_run.cells if cell.seed in seeds and cell.arm.name in arms]
        missing = [cell for cell in cells if not study_run.file(cell).exists()]
        reporter.say(f"{study.name}, {look} seeds: {len(cells)} cells, {len(missing)} of them missing")
        if not _make_cells(study_run, missing, until):
            reporter.say("the hours have ended; the same command goes on")
            break
        records = [_read_cell(study_run.file(cell)).cell for cell in study_run.cells if study_run.file(cell).exists()]
        verdicts = [judged["verdict"] for judged in judge_claims(study, records, "sequential")]
        open_ = [claim for claim, verdict in zip(study.claims, verdicts, strict=True) if verdict == UNTOLD]
        arms = {name for claim in open_ for name in (claim.first, claim.second) if name is not None}
    made = [cell for cell in study_run.cells if study_run.file(cell).exists()]
    first = [cell for cell in study_run.cells if cell.seed in _seeds(study_run)[: min(LOOKS)]]
    is_judged = all(study_run.file(cell).exists() for cell in first)
    return _write_result(study_run, made, "sequential") if is_judged else None


def _seeds(study_run: StudyRun) -> list[int]:
    """Seeds of the cells, in their order."""
    return list(dict.fromkeys(cell.seed for cell in study_run.cells))


def _check_cells(study_run: StudyRun) -> None:
    """Refuse cells that others have made: another commit, other claims, another plan."""
    cells = [cell for cell in study_run.cells if study_run.file(cell).exists()]
    files = {cell.name: (cell, _read_cell(study_run.file(cell))) for cell in cells}
    claims = study_run.study.claims_hash
    for part, own, of in (
        ("commit", lambda _: study_run.commit, lambda file: file.made.commit),
        ("claims", lambda _: claims, lambda file: file.claims_hash),
        ("plan", study_run.plan_hash, lambda file: file.plan_hash),
    ):
        odd = {name: of(file) for name, (cell, file) in files.items() if of(file) != own(cell)}
        if odd:
            first = next(iter(odd))
            more = f" and {len(odd) - MOST_NAMED} more" if len(odd) > MOST_NAMED else ""
            raise RunError(
                f"{study_run.folder} holds cells of another {part} ({odd[first]}, this is {own(files[first][0])}): "
                f"{', '.join(list(odd)[:MOST_NAMED])}{more}; remove them, or choose another --out"
            )


def _read_cell(path: Path) -> CellFile:
    """Read a cell's file."""
    return read_record(CellFile, read_sealed(path), str(path))


def _make_cells(study_run: StudyRun, missing: Sequence[Cell], until: float = math.inf) -> bool:
    """Train and measure cells, one after the other; return False if the next one would not end in time."""
    spent: list[float] = []
    with study_run.reporter.bar(study_run.study.name, len(missing)) as advance:
        for cell in missing:
            if time.monotonic() + (sum(spent) / len(spent) if spent else 0.0) > until:
                return False
            started = time.perf_counter()
            _make_cell(study_run, cell)
            spent.append(time.perf_counter() - started)
            left = sum(spent) / len(spent) * (len(missing) - len(spent))
            advance(f"{cell.name}: {spent[-1]:.0f} s; {len(spent)} of {len(missing)}, some {left / 60:.0f} min left")
    return True


def _make_cell(study_run: StudyRun, cell: Cell) -> None:
    """Train and measure one cell, and write its file."""
    started = time.perf_counter()
    place = str(study_run.run_folder(cell))
    run = train(cell.data.train, **cell.settings, seed=cell.seed, out=place, resume=True, quiet=True)
    scratch = study_run.folder.parent / "work" / cell.name
    scratch.mkdir(parents=True, exist_ok=True)
    measured = measure(run, cell.data, study_run.study.measures_of(cell.arm, study_run.scale), scratch)
    record = CellRecord(arm=cell.arm.name, seed=cell.seed, figures=measured.figures, curves=measured.curves)
    check_figures(study_run.study, record)  # of the first cell, not after the last
    made = Made(
        commit=study_run.commit,
        version=__version__,
        torch=torch.__version__,
        machine=f"{processor()}, threads: {torch.get_num_threads()}",
        seconds={cell.name: round(time.perf_counter() - started, 1)},
        finished=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    )
    claims_hash, plan_hash = study_run.study.claims_hash, study_run.plan_hash(cell)
    file = CellFile(cell=record, claims_hash=claims_hash, plan_hash=plan_hash, made=made)
    study_run.folder.mkdir(parents=True, exist_ok=True)
    write_sealed(study_run.file(cell), file.model_dump(mode="json"))


def _take_pictures(study_run: StudyRun, cells: Sequence[Cell]) -> None:
    """Write the missing pictures of the first seed, for arms whose run folder still exists."""
    plan = study_run.study.measures.pictures
    for cell in cells if plan else ():
        path = pictures_file(study_run.study, study_run.scale, study_run.out, cell.arm.name)
        run = Run(study_run.run_folder(cell))
        if plan and cell.seed == study_run.cells[0].seed and not path.exists() and run.folder.weights.exists():
            write_pictures(run, cell.data, plan, path)


def _write_result(study_run: StudyRun, of_result: Sequence[Cell], rule: SeedRule) -> StudyResult:
    """Write the result of cells whose files all exist, and return it."""
    _check_cells(study_run)
    files = [_read_cell(study_run.file(cell)) for cell in of_result]
    order = [arm.name for arm in study_run.study.arms]
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
        study=study_run.study.name,
        scale=study_run.scale,
        claims_hash=study_run.study.claims_hash,
        data="; ".join(dict.fromkeys(cell.data.words for cell in of_result)),
        seeds=tuple(dict.fromkeys(cell.seed for cell in of_result)),
        arms={cell.arm.name: _without_places(cell.settings) for cell in of_result},
        cells=tuple(cells),
        claims=judge_claims(study_run.study, cells, rule),
        made=made,
        seed_rule=rule,
    )
    path = result_file(study_run.study, study_run.scale, study_run.out)
    write_sealed(path, result.model_dump(mode="json"))
    return read_result(path, study_run.study)


def _without_places(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return training settings without folders of this machine."""
    source = {name: value for name, value in settings.get("source", {}).items() if name != "root"}
    return {**settings, "source": source}
