"""The result of a study: figures of every arm and seed, verdicts of its claims, and where it was made. No torch."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import Annotated, Any

from pydantic import Field, Strict

from counterpoint.core.errors import RunError, UsageError, unknown_name
from counterpoint.core.files import read_sealed
from counterpoint.core.schemas import Record, read_record
from reproductions.study import Scale, Study, StudyClaim
from reproductions.verdicts import Relation, SeedRule, Verdict, judge, judge_in_turn, told_p, told_p_in_turn

FORMAT = 1
Listed = Strict(False)
ENDING = ".json"
RESULTS = "results"  # folder of a paper with the results that were made here


class Made(Record):
    """Time, machine and code of a result: the parts that another machine would have differently.

    Attributes:
        commit: of the code.
        version: of the package.
        torch: its version.
        machine: processor and number of threads.
        seconds: of each cell.
        finished: date and time of the last one.
    """

    commit: str
    version: str
    torch: str
    machine: str
    seconds: Mapping[str, float]
    finished: str


class CellRecord(Record):
    """Measurements of one arm with one seed.

    Attributes:
        arm: its name.
        seed: of the run.
        figures: by key.
        curves: by key.
    """

    arm: str
    seed: int
    figures: Mapping[str, float]
    curves: Mapping[str, Annotated[tuple[float, ...], Listed]] = Field(default_factory=dict)


class CellFile(Record):
    """A cell's file: the record, and hashes that must be alike in all cells of a result.

    Attributes:
        cell: what was measured.
        claims_hash: of the study's claims when the cell was made.
        plan_hash: of the arm's settings, data and measures.
        made: time, machine and code of this cell alone.
    """

    cell: CellRecord
    claims_hash: str
    plan_hash: str
    made: Made


class StudyResult(Record):
    """All cells of a study at one scale, with the verdicts of its claims.

    Attributes:
        format: of this file.
        study: its name.
        scale: small, longer or paper.
        claims_hash: of the claims as they stood before the first cell.
        data: description of the training data and queries, for people.
        seeds: their numbers.
        arms: settings of training by arm.
        cells: arm by arm, seed by seed.
        claims: each statement with its verdict.
        made: time, machine and code.
        seed_rule: whether the number of seeds was fixed beforehand, or seeds were added until claims were told.
    """

    format: int
    study: str
    scale: Scale
    claims_hash: str
    data: str
    seeds: Annotated[tuple[int, ...], Listed]
    arms: Mapping[str, Mapping[str, Any]]
    cells: Annotated[tuple[CellRecord, ...], Listed]
    claims: Annotated[tuple[Mapping[str, Any], ...], Listed]
    made: Made
    seed_rule: SeedRule = "fixed"

    def of_arm(self, arm: str, key: str) -> list[float]:
        """Values of an arm's figure, seed by seed; empty if it was not measured."""
        return [cell.figures[key] for cell in self.cells if cell.arm == arm and key in cell.figures]


@dataclass(frozen=True)
class Spread:
    """Mean and deviation over seeds; the mean is None without seeds, the deviation with fewer than two."""

    mean: float | None
    deviation: float | None

    @classmethod
    def of(cls, values: Sequence[float]) -> "Spread":
        """Compute mean and deviation of the figures of all seeds."""
        return cls(fmean(values) if values else None, stdev(values) if len(values) > 1 else None)

    def words(self, scale: float = 1.0) -> str:
        """Write mean and deviation as one cell of a table.

        >>> Spread.of([0.5, 0.7]).words(100)
        '60.0 ± 14.1'
        """
        if self.mean is None:
            return ""
        size = abs(self.mean * scale)
        digits = 1 if size >= 10 else 2 if size >= 1 else 3 if size >= 0.01 or size == 0 else 5
        spread = "" if self.deviation is None else f" ± {self.deviation * scale:.{digits}f}"
        return f"{self.mean * scale:.{digits}f}{spread}"


def judge_claims(study: Study, cells: Iterable[CellRecord], rule: SeedRule = "fixed") -> tuple[dict[str, Any], ...]:
    """Judge each claim of a study; return its statement with the fields of its verdict.

    Raises:
        UsageError: a figure that a claim names was not measured.
    """
    cell_of = {(cell.arm, cell.seed): cell for cell in cells}
    return tuple({"says": claim.says, **asdict(Compared.of(claim, cell_of, rule).verdict)} for claim in study.claims)


@dataclass(frozen=True)
class Compared:
    """Both sides of a claim: the figure of each seed, with relation, threshold and rule of seeds."""

    first: tuple[float, ...]
    second: tuple[float, ...]
    relation: Relation
    than: float
    rule: SeedRule

    @classmethod
    def of(cls, claim: StudyClaim, cells: Mapping[tuple[str, int], CellRecord], rule: SeedRule) -> "Compared":
        """Collect both sides of a claim from the cells, on the seeds that both of its arms have."""
        arms = [claim.first, *([claim.second] if claim.second else [])]
        seeds = sorted({seed for _, seed in cells if all((arm, seed) in cells for arm in arms)})
        second = [0.0] * len(seeds)
        if claim.second is not None:
            key = claim.second_figure or claim.figure
            second = [claim.times * _figure(cells[claim.second, seed], key) for seed in seeds]
        first = [_figure(cells[claim.first, seed], claim.figure) for seed in seeds]
        return cls(tuple(first), tuple(second), claim.relation, claim.than, rule)

    @property
    def verdict(self) -> Verdict:
        """The verdict of this claim alone."""
        judged = judge if self.rule == "fixed" else judge_in_turn
        return judged(self.first, self.second, relation=self.relation, than=self.than)

    @property
    def p_value(self) -> float:
        """The p of the verdict."""
        p_of = told_p if self.rule == "fixed" else told_p_in_turn
        return p_of(self.first, self.second, relation=self.relation, than=self.than)


def check_figures(study: Study, cell: CellRecord) -> None:
    """Refuse a cell without a figure that a claim about its arm compares.

    Raises:
        UsageError: a figure that a claim names was not measured.
    """
    for claim in study.claims:
        if claim.first == cell.arm:
            _figure(cell, claim.figure)
        if claim.second == cell.arm:
            _figure(cell, claim.second_figure or claim.figure)


def _figure(cell: CellRecord, key: str) -> float:
    """Return a figure of a cell; refuse a key that was not measured."""
    if key not in cell.figures:
        raise UsageError(f"{cell.arm}: {unknown_name('figure', key, cell.figures)}")
    return cell.figures[key]


def read_result(path: Path, study: Study) -> StudyResult:
    """Read a result, and require that it is of these claims.

    Raises:
        RunError: not a result, of another study or scale, or made for other claims than the study has.
    """
    result = read_record(StudyResult, read_sealed(path), str(path))
    if result.study != study.name:
        raise RunError(f"{path} is a result of {result.study}, not of {study.name}")
    if result_file(study, result.scale, path.parent).name != path.name:
        raise RunError(f"{path} is a result at the {result.scale} scale, against its name")
    if result.claims_hash != study.claims_hash:
        raise RunError(
            f"{path} was made for other claims ({result.claims_hash}) than {study.name} has now "
            f"({study.claims_hash}); make it again: python -m reproductions {study.name} --scale {result.scale}"
        )
    return result


def cells_folder(study: Study, scale: str, out: Path) -> Path:
    """The folder of a study's cells."""
    return out / f"{study.name}-{scale}" / "cells"


def result_file(study: Study, scale: str, folder: Path) -> Path:
    """The file of a study's result in a folder."""
    return folder / f"{study.name}-{scale}{ENDING}"
