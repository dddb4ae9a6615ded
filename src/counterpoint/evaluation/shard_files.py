"""A table as a folder of shards, which any number of processes fill, and which is read as one table.

FOLDER/plan.json               encoder, data and layer of the table, rows of each shard; none depends on processes
FOLDER/shard-000012.parquet    rows 12 n to 13 n - 1: row, name, label, vector; or the other columns of the plan
FOLDER/shard-000012.json       its length and hash, and again the plan: written last, so that it means "done"
FOLDER/manifest.json           the plan and all shards: written once all are there

Files of one plan have the same bytes, independent of the process that writes them. Loads without torch.
"""

# N rows, D features

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from counterpoint.core.arrow_files import TableFile, vector_writer
from counterpoint.core.errors import DataError, RunError, some
from counterpoint.core.files import Seal, read_sealed, seal_of, write_atomically, write_sealed
from counterpoint.core.schemas import Record, read_record
from counterpoint.core.user_files import SHARD_PLAN, is_shard_folder

FORMAT = 1
MANIFEST = "manifest.json"


class TablePlan(Record):
    """The plan of a table in shards: its rows, and all that they are computed from.

    Attributes:
        num_rows: number of rows of the table.
        shard_rows: number of rows of each shard; the last one may have fewer.
        layer: name of the encoder's layer; or what else the columns hold.
        encoder: hash of the encoder's architecture and weights; or what else computes the columns.
        data: hash of the samples, their names and labels.
        software: versions that the figures may depend on, and the kind of device.
        has_labels: whether labels are known.
    """

    format: int = FORMAT
    num_rows: int
    shard_rows: int
    layer: str
    encoder: str
    data: str
    software: str
    has_labels: bool

    @property
    def num_shards(self) -> int:
        """Number of shards."""
        return -(-self.num_rows // self.shard_rows)

    def rows(self, number: int) -> slice:
        """Rows of a shard, a function of the plan alone."""
        return slice(number * self.shard_rows, min((number + 1) * self.shard_rows, self.num_rows))


class ShardRecord(Record):
    """A finished shard: its first row, how many, how wide, the file's length, its SHA-256, and its table's plan."""

    number: int
    first: int
    rows: int
    width: int
    size: int
    content: str
    plan: TablePlan


@dataclass(frozen=True)
class ShardBlock:
    """Some rows of a table that follow each other: names, labels, and vectors float32 (n, d)."""

    names: Sequence[str]
    labels: Sequence[str | None]
    vectors_ND: np.ndarray


@dataclass(frozen=True)
class ShardFolder:
    """A folder of shards and its plan.

    Raises:
        RunError: files that cannot be read or written, or are not of this plan.
    """

    path: Path
    plan: TablePlan

    def file(self, number: int) -> Path:
        """Path of a shard."""
        return self.path / f"shard-{number:06d}.parquet"

    def record(self, number: int) -> ShardRecord | None:
        """The record of a finished shard; None if it is not finished or its record is damaged.

        Raises:
            RunError: it is of another table.
        """
        path = self.file(number).with_suffix(".json")
        try:
            record = read_record(ShardRecord, read_sealed(path, must_be_sealed=True), str(path))
        except RunError:
            return None
        check_same(record.plan, self.plan, path)
        rows = self.plan.rows(number)
        if (record.number, record.first, record.rows) != (number, rows.start, rows.stop - rows.start):
            raise RunError(f"{path} is of shard {record.number}: it was renamed; remove it")
        return record

    def complaint(self, number: int) -> str:
        """Say if a shard is missing or damaged; the text is empty if the content has the hash of its record.

        Raises:
            RunError: it is of another table.
        """
        path, record = self.file(number), self.record(number)
        if record is None:
            is_there = path.with_suffix(".json").exists()
            return f"{path.with_suffix('.json')} is damaged" if is_there else f"{path} is missing"
        try:
            seal = seal_of(path)
        except OSError as error:
            return f"{path} cannot be read: {error.strerror or error}"
        return "" if seal == Seal(record.size, record.content) else f"{path} is damaged: its hash has changed"

    def unfinished(self, numbers: Iterable[int], say: Callable[[str], object]) -> list[int]:
        """Numbers of the shards that are missing or no longer have their hash; ``say`` names those that are damaged."""
        complaints = {number: complaint for number in numbers if (complaint := self.complaint(number))}
        for number, complaint in complaints.items():
            if self.file(number).with_suffix(".json").exists():
                say(f"{complaint}; it is rebuilt")
        return list(complaints)

    def write(self, number: int, block: ShardBlock) -> None:
        """Write a shard of vectors, then its record.

        Raises:
            RunError: the disk is full or refuses.
        """
        first, width = self.plan.rows(number).start, block.vectors_ND.shape[1]

        def fill(temporary: Path) -> None:
            with vector_writer(temporary, width, first) as add:
                add(block.names, block.labels, block.vectors_ND)

        self.write_file(number, fill, width)

    def write_file(self, number: int, fill: Callable[[Path], object], width: int) -> None:
        """Write a shard by a function that takes the place of its file, then its record.

        Raises:
            RunError: the disk is full or refuses.
        """
        rows, seals = self.plan.rows(number), list[Seal]()

        def sealed(temporary: Path) -> None:
            fill(temporary)
            seals.append(seal_of(temporary))

        write_atomically(self.file(number), sealed)
        values = {"number": number, "first": rows.start, "rows": rows.stop - rows.start, "width": width}
        record = ShardRecord(**values, size=seals[0].size, content=seals[0].sha256, plan=self.plan)
        write_sealed(self.file(number).with_suffix(".json"), record.model_dump())

    def finish(self) -> list[int]:
        """Write the manifest if all shards are there, and return the numbers of those that are missing."""
        records = [self.record(number) for number in range(self.plan.num_shards)]
        missing = [number for number, record in enumerate(records) if record is None]
        if not missing:
            done = [record.model_dump() for record in records if record is not None]
            write_sealed(self.path / MANIFEST, {"plan": self.plan.model_dump(), "shards": done})
        return missing

    def check(self) -> None:
        """Require all shards, each done and of this table; their content is compared when it is read.

        Raises:
            RunError: some are missing; they are named.
        """
        if missing := [number for number in range(self.plan.num_shards) if self.record(number) is None]:
            raise RunError(
                f"{self.path} lacks {len(missing)} of {self.plan.num_shards} shards: "
                f"{some(list(map(str, missing)))}; run the command that made it again, which makes "
                "only these"
            )

    def blocks(self) -> Iterator[ShardBlock]:
        """The rows in order, a row group at a time; each shard is compared with its hash before it is read.

        Raises:
            RunError: a shard is missing, damaged, or has other rows than its place says; it is named.
        """
        self.check()
        for number in range(self.plan.num_shards):
            if complaint := self.complaint(number):
                raise RunError(f"{complaint}; run the command that made it again, which makes only this shard")
            path, rows, places = self.file(number), self.plan.rows(number), list[np.ndarray]()
            try:
                table = TableFile(path)
                for chunk in range(table.num_chunks):
                    places.append(table.values("row", chunk))
                    names = [name or "" for name in table.texts("name", chunk)]
                    yield ShardBlock(names, table.texts("label", chunk), table.values("vector", chunk))
            except (ValueError, DataError, KeyError) as error:
                raise RunError(f"{path} cannot be read: {error}") from None
            if not places or not np.array_equal(np.concatenate(places), np.arange(rows.start, rows.stop)):
                raise RunError(f"{path} has other rows than {rows.start} to {rows.stop - 1}, each once; remove it")


def open_shards(path: Path) -> ShardFolder:
    """Open a folder of shards for reading.

    Raises:
        RunError: the folder has no plan, or a damaged one.
    """
    values = read_sealed(path / SHARD_PLAN, must_be_sealed=True)
    if values.get("format") != FORMAT:
        raise RunError(f"{path / SHARD_PLAN} has format {values.get('format')}; this version reads {FORMAT}")
    return ShardFolder(path, read_record(TablePlan, values, str(path / SHARD_PLAN)))


def make_shards(path: Path, plan: TablePlan) -> ShardFolder:
    """Make a folder for the shards of a plan: a new or empty one, or one that has some of them already.

    Raises:
        RunError: it holds something else or another table; or it cannot be made.
    """
    if not is_shard_folder(path):
        try:
            path.mkdir(parents=True, exist_ok=True)
            # Another process may begin at the same moment: what it writes for the time being has a dot in front.
            others = [each.name for each in path.iterdir() if not each.name.startswith(".") and each.name != SHARD_PLAN]
        except OSError as error:
            raise RunError(f"cannot make the folder {path}: {error.strerror or error}; choose another one") from None
        if others and not is_shard_folder(path):
            raise RunError(f"{path} holds other files, such as {min(others)}; choose an empty folder")
        write_sealed(path / SHARD_PLAN, plan.model_dump())
    folder = open_shards(path)
    check_same(folder.plan, plan, path / SHARD_PLAN)
    return folder


def check_same(stored: TablePlan, wanted: TablePlan, path: Path) -> None:
    """Require two plans to be of one table.

    Raises:
        RunError: they differ; the file and the first difference are named.
    """
    wanted_values = wanted.model_dump()
    for name, value in stored.model_dump().items():
        if value != wanted_values[name]:
            raise RunError(
                f"{path} is of another table: {name} {value}, this is {wanted_values[name]}; choose another "
                f"folder, or remove {path.parent} to start again"
            )
