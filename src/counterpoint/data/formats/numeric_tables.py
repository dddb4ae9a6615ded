"""Tables of numbers and categories as a source of vectors: CSV, and Parquet without pictures or vectors."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from counterpoint.core.array_layout import to_samples
from counterpoint.core.arrow_files import TableFile
from counterpoint.core.data_settings import SourceSettings
from counterpoint.core.errors import DataError, UsageError, nearest, some
from counterpoint.core.table_columns import ColumnPlan, Values, plan_of, plan_of_run, read_columns
from counterpoint.core.user_files import open_regular
from counterpoint.data.formats.labels import Labels, labels_as_asked, number_labels
from counterpoint.data.source import FileForm, Progress, Source, memory_source, refuse_split

LABEL_NAMES = ("label", "labels", "class", "target", "fine_label", "cls")
READS = ("label_column", "drop_columns", "columns")  # settings
ARROW_SUFFIXES = (".parquet", ".arrow", ".feather")
OF_EMBED = ("name", "label", "v0")  # how a CSV of `counterpoint embed` begins


def open_columns(path: Path, settings: SourceSettings, progress: Progress, *, plan: ColumnPlan | None = None) -> Source:
    """Open a table whose columns are numbers and categories.

    Args:
        path: of the table.
        settings: of labels and columns.
        progress: unused.
        plan: of another table, by whose columns this one is taken.

    Raises:
        UsageError: no such column of labels, or to leave out.
        DataError: not a table; or columns that are neither numbers nor categories, which are named.
    """
    refuse_split(str(path), settings.split)
    table = dict(read_columns(path))
    own = "name" if tuple(table)[:3] == OF_EMBED else None
    num_rows = len(next(iter(table.values())))
    names = [str(number) for number in range(num_rows)] if own is None else list(map(str, table.pop(own)))
    if plan is None and settings.columns != "auto":
        plan = plan_of_run(settings.columns)
    label = settings.label_column
    if label == "auto":
        label = next((name for name in table if name.lower() in LABEL_NAMES), None)
    elif label not in table:
        if plan is None:
            known = some(list(table))
            raise UsageError(
                f"source.label_column: {path} has no column {label!r}{nearest(label, table)} (columns: {known})"
            )
        label = None  # other rows of a table may lack it
    values = None if label is None else table.pop(label)
    dropped = list[str]()
    if plan is None:
        plan, dropped = plan_of(table, settings.drop_columns, str(path))
    rows_ND, filled = plan.encode(table, str(path))
    labels = labels_as_asked(
        settings.labels, names, lambda: None if values is None else _labels(values, f"{path}: column {label!r}")
    )
    if label is not None and settings.labels != "auto":  # they are elsewhere, or not wanted
        dropped = [*dropped, label]
    of_labels = f"labels: {label}" if label is not None else "no column of labels (--source.label-column NAME)"
    said = [_told(plan), filled, f"left out: {some(dropped)}" if dropped else ""]
    said += [of_labels] if settings.labels == "auto" else []
    source = memory_source(str(path), to_samples(rows_ND, "vectors", name=str(path)), labels, table=plan)
    return replace(
        source, sample_names=tuple(names), notes={**source.notes, "source.columns": "; ".join(filter(None, said))}
    )


def is_columns(path: Path) -> bool:
    """Whether a path is a file of columns, and not the vectors that ``embed`` writes."""
    if not path.is_file():
        return False
    if path.suffix.lower() == ".csv":
        with open_regular(path) as stream:
            names = stream.read(64).decode("utf-8-sig", errors="replace").split("\n")[0].strip().split(",")
        return tuple(names[:3]) != OF_EMBED
    return path.suffix.lower() in ARROW_SUFFIXES and not {"image", "bytes", "vector"} & set(
        TableFile(path).kinds.values()
    )


def _told(plan: ColumnPlan) -> str:
    one_hot = [f"{each.name} {len(each.categories)}" for each in plan.columns if each.median is None]
    numeric = len(plan.columns) - len(one_hot)
    words = [f"{numeric:,} of numbers"] if numeric else []
    words += [f"{len(one_hot):,} of categories, one-hot ({some(one_hot)})"] if one_hot else []
    return f"{len(plan.columns):,} columns as {plan.width:,} numbers: {', '.join(words)}"


def _labels(cells: Sequence[Any], name: str) -> Labels | None:
    """Numbers of the classes; whole numbers by value, others by name."""
    values = Values.of(cells)
    if values.numbers is not None and not np.isfinite(values.numbers).all():
        raise DataError(f"{name} holds infinity, and labels are classes; correct it, or name another column")
    if values.numbers is not None and not bool((values.numbers == np.round(values.numbers)).all()):
        raise DataError(
            f"{name} holds numbers with fractions, and labels are classes; bin them, or name another column"
        )
    filled = np.full(len(cells), None, object)
    is_whole = values.numbers is not None and len(values.numbers)
    filled[~values.is_missing_N] = [int(each) for each in values.numbers] if is_whole else values.texts  # pyright: ignore[reportOptionalIterable]
    return number_labels(list(filled), len(cells))


FORMS = (FileForm("a CSV table", (".csv",), open_columns, reads=READS),)
