"""Encode columns of numbers and categories as numbers, and those of other rows in the same way, without torch.

Numbers are brought to mean 0 and deviation 1 (raw columns of other scales would hide each other), with the median where
a value is missing and a further 0 or 1 that says so. Categories become one 0 or 1 each. CSV is read by Python's own
reader, whatever is installed: the same file gives the same numbers.
"""

# N rows, D numbers that a row becomes

import csv
import io
import re
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import TypeAdapter

from counterpoint.core.arrow_files import TableFile
from counterpoint.core.errors import MOST_NAMED, DataError, RunError, UsageError, first_line, nearest, some
from counterpoint.core.files import read_sealed
from counterpoint.core.rundir import RunFolder
from counterpoint.core.user_files import read_text

Columns = Mapping[str, Sequence[Any]]  # values by the column's name, all of one length
MOST_CATEGORIES = 50
ROUNDING = 1e-12  # relative; milliseconds since 1970 of rows within one second differ by more
LEAST_ROWS = 10  # from which a column that differs in each row counts as a name of the row
UNKNOWN, WITHOUT = "unknown categories as zeros", "without an indicator, as in training"
UNUSABLE = "unusable"  # of source.drop_columns: all that cannot be used
MISSING = frozenset(("", "na", "n/a", "nan", "null", "none", "<na>", "?"))  # in lower case
DATE = re.compile(r"\d{1,4}([-/.])\d{1,2}\1\d{1,4}(\D|$)")
BOOLEANS = {"false": 0.0, "true": 1.0}  # in any case, and as Python's own
SEPARATORS = ",;\t|"
DECIMAL_COMMA = re.compile(r"[+-]?\d+(\.\d{3})*,\d+")


@dataclass(frozen=True)
class TableColumn:
    """One column as training saw it.

    Attributes:
        name: name in the table.
        median: median of its numbers; None for categories.
        mean: mean of its numbers.
        deviation: standard deviation of its numbers, by which they are divided.
        categories: categories in the order of their numbers.
        has_missing: true if a further 0 or 1 says that a value is missing.
    """

    name: str
    median: float | None = None
    mean: float = 0.0
    deviation: float = 1.0
    categories: tuple[str, ...] = ()
    has_missing: bool = False

    def __len__(self) -> int:
        return (len(self.categories) if self.median is None else 1) + self.has_missing


@dataclass(frozen=True)
class ColumnPlan:
    """The columns of a training table, in its order."""

    columns: tuple[TableColumn, ...]

    @property
    def width(self) -> int:
        """Number of values that a row becomes."""
        return sum(map(len, self.columns))

    def encode(self, table: Columns, name: str) -> tuple[np.ndarray, str]:
        """Encode rows as float32 (n, d), and say for the user what was filled in.

        Raises:
            DataError: a column is not there, or holds texts instead of numbers, or infinity.

        >>> plan = ColumnPlan((TableColumn("age", 30.0, has_missing=True), TableColumn("city", categories=("a", "b"))))
        >>> plan.encode({"age": ["20", ""], "city": ["b", "c"]}, "x.csv")[0].tolist()
        [[20.0, 0.0, 0.0, 1.0], [30.0, 1.0, 0.0, 0.0]]
        """
        if lost := [column.name for column in self.columns if column.name not in table]:
            raise DataError(f"{name} has no column {some(lost)}, which the training table had; add it to the file")
        blocks, filled = list[np.ndarray](), dict[str, list[str]]()

        def count(remark: str, column: TableColumn, number: int) -> None:
            if number:
                filled.setdefault(remark, []).append(f"{column.name} {number:,}")

        for column in self.columns:
            values = Values.of(table[column.name])
            remark = "categories as zeros" if column.median is None else "values by the median"
            indicator = "with an indicator" if column.has_missing else WITHOUT
            count(f"missing {remark}, {indicator}", column, int(values.is_missing_N.sum()))
            block_ND = np.zeros((len(values.is_missing_N), len(column)), np.float32)
            if column.median is None:
                place = {category: number for number, category in enumerate(column.categories)}
                numbers = np.array([place.get(text, -1) for text in values.texts], np.int64)
                rows = np.flatnonzero(~values.is_missing_N)
                block_ND[rows[numbers >= 0], numbers[numbers >= 0]] = 1.0
                count(UNKNOWN, column, int((numbers < 0).sum()))
            else:
                if values.numbers is None or not np.isfinite(values.numbers).all():
                    odd = next((text for text in values.texts if text not in BOOLEANS and not _is_finite(text)), "")
                    raise DataError(f"{name}: column {column.name!r} must hold finite numbers, got {odd!r}; correct it")
                block_ND[:, 0] = (column.median - column.mean) / column.deviation
                scaled = (values.numbers - column.mean) / column.deviation
                if np.abs(scaled).max(initial=0.0) > np.finfo(np.float32).max:
                    raise DataError(f"{name}: column {column.name!r} holds numbers too large for float32; correct it")
                block_ND[~values.is_missing_N, 0] = scaled
            if column.has_missing:
                block_ND[:, -1] = values.is_missing_N
            blocks.append(block_ND)
        words = [f"{remark} ({some(counted)})" for remark, counted in filled.items()]
        return np.concatenate(blocks, axis=1), "; ".join(words)


PLAN = TypeAdapter(ColumnPlan)


@dataclass(frozen=True)
class Values:
    """The values of one column.

    Attributes:
        is_missing_N: true for rows without a value.
        texts: values of the other rows, as text; true and false in lower case, whole numbers without a point.
        numbers: the same values as float64, true as 1; None if one is not a number.
        is_date: true if they are dates.
    """

    is_missing_N: np.ndarray
    texts: list[str]
    numbers: np.ndarray | None
    is_date: bool

    @staticmethod
    def of(values: Sequence[Any]) -> "Values":
        """Read the values of a column of a file or a data frame."""
        is_missing_N = np.array([str(value).strip().lower() in MISSING for value in values], bool)  # None, too
        present = [value for value, missing in zip(values, is_missing_N, strict=True) if not missing]
        texts = list(map(_as_text, present))
        try:
            numbers = np.array([BOOLEANS.get(text, value) for text, value in zip(texts, present, strict=True)], float)
        except (TypeError, ValueError, OverflowError):
            numbers = None
        is_date = bool(present) and all(isinstance(value, date) or DATE.match(str(value).strip()) for value in present)
        return Values(is_missing_N, texts, numbers if numbers is None or numbers.ndim == 1 else None, is_date)


def plan_of(table: Columns, drop: str, name: str) -> tuple[ColumnPlan, list[str]]:
    """Plan how each column becomes numbers.

    Args:
        table: the columns without the labels.
        drop: names of columns to leave out, separated by commas, as in a CSV file; ``none``; or ``unusable``.
        name: name of the table.

    Returns:
        The plan, and the columns that were left out, with a reason if the user did not name them.

    Raises:
        UsageError: there is no column of a name to leave out.
        DataError: columns that cannot be used; or none is left.
    """
    dropped = [] if drop in ("none", UNUSABLE) else _column_names(drop, table)
    if (num_rows := len(next(iter(table.values()), (0, 0)))) < 2:
        raise DataError(f"{name} has {num_rows} row(s) below its header; a table needs at least 2")
    for column in dropped:
        if column not in table:
            raise UsageError(f"source.drop_columns: {name} has no column {column!r}{nearest(column, table)}")
    columns, faults = list[TableColumn](), dict[str, str]()
    for column, cells in table.items():
        if column in dropped:
            continue
        values = Values.of(cells)
        if fault := _fault(column, values):
            faults[column] = fault
            continue
        has_missing = bool(values.is_missing_N.any())
        if values.numbers is not None:
            mean, deviation = float(values.numbers.mean()), float(values.numbers.std())
            # What rounding alone makes of equal numbers is not a deviation.
            deviation = 1.0 if deviation <= ROUNDING * np.abs(values.numbers).max() else deviation
            columns.append(TableColumn(column, float(np.median(values.numbers)), mean, deviation, (), has_missing))
        else:
            columns.append(TableColumn(column, categories=tuple(sorted(set(values.texts))), has_missing=has_missing))
    if faults and drop != UNUSABLE:
        reasons = some([f"{column} ({fault})" for column, fault in faults.items()])
        names = ",".join(map(_quoted, [*dropped, *faults])) if len(faults) <= MOST_NAMED else UNUSABLE
        names = names.replace("'", "'\"'\"'")  # for a shell
        raise DataError(
            f"{name} has columns that cannot be used: {reasons}; leave them out with --source.drop-columns '{names}'"
        )
    if not columns:
        raise DataError(f"{name} has no column of numbers or categories besides labels and what is left out")
    return ColumnPlan(tuple(columns)), [*dropped, *(f"{column} ({fault})" for column, fault in faults.items())]


def _fault(name: str, values: Values) -> str:
    num_known, num_values = len(values.texts), len(set(values.texts))
    if not num_known:
        return "all missing"
    if num_values == 1 and num_known == len(values.is_missing_N):
        return "one value only"
    if values.is_date:
        return "dates"
    is_each_other = num_values == len(values.is_missing_N) >= LEAST_ROWS
    if values.numbers is not None:
        if not np.isfinite(values.numbers).all():
            return "infinity"
        with np.errstate(over="ignore", invalid="ignore"):
            if not np.isfinite(values.numbers.std()):
                return "numbers too large"
        is_whole = bool((values.numbers == np.round(values.numbers)).all())
        is_counted = is_whole and float(np.ptp(values.numbers)) == num_known - 1
        is_called = name.lower() in ("id", "index", "row", "uuid") or name.lower().endswith(("_id", " id"))
        return "numbers its rows" if is_each_other and is_whole and (is_counted or is_called) else ""
    if all(map(DECIMAL_COMMA.fullmatch, values.texts)):
        return "decimal commas; save it with points"
    if is_each_other:
        return "names its rows"
    return f"text, {num_values:,} different ones" if num_values > MOST_CATEGORIES else ""


def _column_names(setting: str, table: Columns) -> list[str]:
    """Names of columns in a setting: a name with a comma is in quotation marks, as in CSV."""
    try:
        cells = next(csv.reader([setting], skipinitialspace=True), [])
    except csv.Error:
        cells = [setting]
    return [cell if cell in table else cell.strip() for cell in cells] or [setting]


def _quoted(name: str) -> str:
    """A name as ``_column_names`` reads it.

    >>> _quoted("a"), _quoted("b,c")
    ('a', '"b,c"')
    """
    is_plain = name == name.strip() and not set(name) & set(',"\r\n')
    return name if is_plain else '"' + name.replace('"', '""') + '"'


def read_columns(path: Path) -> Columns:
    """The columns of a ``.csv`` (comma, semicolon, tab or bar between them), or of a Parquet or Arrow file.

    Raises:
        UsageError: pyarrow is missing, for the latter.
        DataError: damaged, without names of columns or rows, or with rows of other lengths.
    """
    if path.suffix.lower() == ".csv":
        names, rows = _read_csv(path)
        columns = list(zip(*rows, strict=True))
    else:
        file = TableFile(path)
        names, rows = list(file.kinds), range(len(file))
        columns = [file.column(name) for name in names]
    if twice := [name for name, count in Counter(names).items() if count > 1]:
        raise DataError(f"{path} has more than one column {some(twice)}; give each a name of its own")
    if not rows:
        raise DataError(f"{path} has 0 rows below its header")
    return dict(zip(names, columns, strict=True))


def _read_csv(path: Path) -> tuple[list[str], list[list[str]]]:
    try:
        text = read_text(path)
        head = next((line for line in text.split("\n") if line.strip()), "")
        declared = re.fullmatch(rf"sep=([{SEPARATORS}])\s*", head, re.IGNORECASE)  # of Excel
        by_most = max(SEPARATORS, key=lambda each: len(next(csv.reader([head], delimiter=each), ())))
        reader = csv.reader(io.StringIO(text, newline=""), delimiter=declared[1] if declared else by_most)
        numbered = list(enumerate(reader, start=1))
    except UnicodeDecodeError:
        raise DataError(f"{path} is not UTF-8; save it as CSV in UTF-8") from None
    except (OSError, ValueError, csv.Error) as error:
        raise DataError(f"{path} is not a readable table: {first_line(error)}") from None
    first = next((place for place, (_, row) in enumerate(numbered) if len(row) > 1 or "".join(row).strip()), 0)
    numbered = numbered[first + (declared is not None) :]
    header = numbered[0][1] if numbered else []
    # An empty line is a missing value where there is one column, and nothing where there are more.
    filled = [(number, row or [""]) for number, row in numbered[1:] if row or len(header) == 1]
    if not header:
        raise DataError(f"{path} is empty; a table has a row with the names of its columns, then its rows")
    if len(header) > 1 and all(map(_is_finite, header)):
        raise DataError(f"{path} begins with numbers; its first row must have the names of the columns")
    if odd := next(((number, row) for number, row in filled if len(row) != len(header)), None):
        raise DataError(f"{path}: row {odd[0]} has {len(odd[1])} cells, the header {len(header)}")
    return [cell.strip() or f"column {place}" for place, cell in enumerate(header, 1)], [row for _, row in filled]


def encoded(plan: ColumnPlan, table: Any) -> Any:
    """Rows of a file, a data frame or values by column as training saw them; anything else as it is.

    Categories that training did not have, and values that are missing where none was then, are counted in a warning.
    """
    name = str(table) if isinstance(table, str | Path) else "the table"
    if isinstance(table, str | Path):
        columns = read_columns(Path(table))
    elif isinstance(table, Mapping) or (hasattr(table, "columns") and hasattr(table, "__getitem__")):
        columns = _columns_in_memory(table)
    else:
        return table
    rows_ND, filled = plan.encode(columns, name)
    if f"{UNKNOWN} (" in filled or f"{WITHOUT} (" in filled:
        warnings.warn(f"{name}: {filled}", stacklevel=2)
    return rows_ND


def _columns_in_memory(table: Any) -> Columns:
    """The columns of a data frame (pandas, Polars, Arrow) or of values by column."""
    names = list(getattr(table, "column_names", getattr(table, "columns", table)))
    if twice := [name for name, count in Counter(map(str, names)).items() if count > 1]:
        raise DataError(f"the table has more than one column {some(twice)}; give each a name of its own")
    columns = dict[str, list[Any]]()
    for name in names:
        values = table[name]
        if isinstance(values, str | bytes) or not hasattr(values, "__len__") or getattr(values, "ndim", 1) != 1:
            raise DataError(
                f"the table: column {name!r} must be a list, one value per row, got {type(values).__name__}; of one "
                'row give lists of one, such as {"age": [20]}'
            )
        columns[str(name)] = values.to_pylist() if hasattr(values, "to_pylist") else list(values)
    if len(lengths := dict.fromkeys(map(len, columns.values()))) != 1 or 0 in lengths:
        counted = some([f"{name} {len(values)}" for name, values in columns.items()]) or "none"
        raise DataError(f"the table: all columns must have the same number of values, at least one; got {counted}")
    return columns


def plan_of_run(run: str) -> ColumnPlan:
    """The columns that a run was trained on.

    Raises:
        UsageError: it was trained on no table.
        RunError: not a run.
    """
    values = read_sealed(RunFolder(Path(run)).encoder_card).get("table")
    if values is None:
        raise UsageError(f"source.columns: {run} was not trained on a table of columns")
    try:
        return PLAN.validate_python(values)
    except ValueError as error:
        raise RunError(f"{run}: its columns are damaged: {first_line(error)}") from None


def _as_text(value: Any) -> str:
    """One text of a value, whatever file or data frame it comes from.

    >>> _as_text("TRUE "), _as_text(True), _as_text(2.0), _as_text("2.0")
    ('true', 'true', '2', '2.0')
    """
    if isinstance(value, float | np.floating) and float(value).is_integer():
        return str(int(value))
    text = str(value).strip()
    return text.lower() if text.lower() in BOOLEANS else text


def _is_finite(text: str) -> bool:
    try:
        return bool(np.isfinite(float(text)))
    except ValueError:
        return False
