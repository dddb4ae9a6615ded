"""Sparse rows as a file: SciPy's ``.npz``, or a Parquet table with lists of indices and values."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from scipy.sparse import csr_matrix, save_npz

from counterpoint.core.addresses import require_arrow
from counterpoint.core.arrow_files import GROUP_ROWS, PARQUET_SUFFIX
from counterpoint.core.files import check_new_file, write_atomically
from counterpoint.core.user_files import shown_name


def check_sparse_file(path: Path, *, overwrite: bool, flag: str) -> None:
    """Require a file for sparse rows that can be written.

    Raises:
        UsageError: another kind of file, one that is there, or pyarrow is missing.
    """
    check_new_file(path, (".npz", PARQUET_SUFFIX), overwrite=overwrite, flag=flag)
    if path.suffix == PARQUET_SUFFIX:
        require_arrow(path.suffix)


def write_sparse_rows(path: Path, names: Sequence[str], rows: csr_matrix) -> None:
    """Write rows; a table has the columns name, indices and values, of which the last two are lists.

    Args:
        path: as ``check_sparse_file`` lets it pass.
        names: of the rows; ``.npz`` has none.
        rows: (n, h), columns ascending in each row.

    Raises:
        RunError: it cannot be written.
    """
    write_atomically(path, lambda part: _write_npz(part, rows) if path.suffix == ".npz" else _write(part, names, rows))


def _write_npz(path: Path, rows: csr_matrix) -> None:
    # A stream, since SciPy would add .npz to the name of a temporary file.
    with path.open("wb") as stream:
        save_npz(stream, rows)


def _write(path: Path, names: Sequence[str], rows: csr_matrix) -> None:
    arrow = require_arrow(PARQUET_SUFFIX)
    ends = arrow.array(rows.indptr.astype(np.int64))
    parts = [arrow.LargeListArray.from_arrays(ends, arrow.array(part)) for part in (rows.indices, rows.data)]
    table = arrow.table([arrow.array(list(map(shown_name, names))), *parts], names=["name", "indices", "values"])
    with path.open("wb") as stream:
        arrow.parquet.write_table(table, stream, row_group_size=GROUP_ROWS)
