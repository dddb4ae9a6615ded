"""Exact search of sparse codes: an inverted index, of which a query reads only the columns where it is not zero."""

# N codes, Q queries, H units, K neighbours, P entries that a query reads, T codes that share a unit with it

from typing import Any

import numpy as np
import torch
from scipy.sparse import csr_matrix, issparse
from scipy.sparse.linalg import norm

from counterpoint.core.errors import DataError, UsageError
from counterpoint.evaluation.knn import DOT, Neighbours


class CodeIndex:
    r"""An index of sparse codes by column, so that a query of k units reads k columns.

    .. math:: s(q, z) = \frac{\langle q, z \rangle}{|q| |z|} \text{ (cosine)}, \quad
        s(q, z) = \langle q, z \rangle \text{ (dot)}

    Entries are float32 of any sign, and sums are float64. A cosine with a row of zeros is 0.

    Args:
        codes: codes (n, h), a SciPy matrix of sparse rows such as ``sparsify`` gives, or an array.
        similarity: measure of similarity, ``cosine`` or ``dot``.

    Raises:
        DataError: no rows, not two dimensions, or NaN or infinity.

    >>> index = CodeIndex(np.array([[0.0, 2.0, 1.0], [3.0, 0.0, 0.0], [0.0, 4.0, 2.0]]))
    >>> index.search(np.array([[0.0, 2.0, 1.0]]), 2).positions_QK
    tensor([[0, 2]])
    """

    def __init__(self, codes: Any, similarity: str = "cosine") -> None:
        if similarity not in ("cosine", DOT):
            raise UsageError(f"similarity must be cosine or {DOT}, got {similarity}")
        rows = _sparse(codes, "codes")
        if not rows.get_shape()[0]:
            raise DataError("there are no codes to search")
        self.lengths_N = _lengths(rows) if similarity == "cosine" else None
        columns = rows.tocsc()
        self.num_rows, self.num_units = rows.get_shape()
        self._starts, self._rows, self._values = columns.indptr, columns.indices, columns.data

    def __len__(self) -> int:
        return self.num_rows

    @property
    def num_bytes(self) -> int:
        """Memory of the index."""
        parts = (self._starts, self._rows, self._values, self.lengths_N)
        return sum(part.nbytes for part in parts if part is not None)

    def search(self, queries: Any, k: int) -> Neighbours:
        """The k codes most similar to each query, nearest first; of equal similarities the first row.

        Args:
            queries: codes (q, h) to search for, as sparse rows or an array.
            k: number of neighbours of a query, 1 <= k <= n.

        Returns:
            Similarities, float64, and positions of the codes.

        Raises:
            UsageError: k is out of range.
            DataError: queries of another width, or with NaN or infinity.
        """
        if isinstance(k, bool) or not isinstance(k, int | np.integer) or not 1 <= k <= len(self):
            raise UsageError(f"k must be a whole number between 1 and {len(self):,}, the number of codes, got {k!r}")
        rows = _sparse(queries, "queries")
        num_queries, num_units = rows.get_shape()
        if num_units != self.num_units:
            raise DataError(f"queries have {num_units:,} units, and the codes {self.num_units:,}")
        lengths_Q = _lengths(rows)
        similarity_QK, row_QK = np.empty((num_queries, k)), np.empty((num_queries, k), np.int64)
        for place, (first, end) in enumerate(zip(rows.indptr[:-1], rows.indptr[1:], strict=True)):
            row_T, similarity_T = self._products(rows.indices[first:end], rows.data[first:end])
            if self.lengths_N is not None:
                similarity_T = similarity_T / (self.lengths_N[row_T] * lengths_Q[place])
            if np.count_nonzero(similarity_T > 0) < k:  # the first of all others, at similarity 0, may be among the k
                others = np.setdiff1d(np.arange(min(len(self), k + len(row_T))), row_T, assume_unique=True)[:k]
                row_T = np.concatenate([row_T, others])
                similarity_T = np.concatenate([similarity_T, np.zeros(len(others))])
            high = np.flatnonzero(similarity_T >= np.partition(similarity_T, -k)[-k])
            best = high[np.lexsort((row_T[high], -similarity_T[high]))[:k]]  # of equal ones those of the smaller rows
            similarity_QK[place], row_QK[place] = similarity_T[best], row_T[best]
        return Neighbours(torch.from_numpy(similarity_QK), torch.from_numpy(row_QK))

    def _products(self, units: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Rows that share a unit with a query, ascending, and their products with the query."""
        spans = [slice(self._starts[unit], self._starts[unit + 1]) for unit in units]
        row_P = np.concatenate([self._rows[:0], *(self._rows[span] for span in spans)])
        if not len(row_P):
            return row_P, np.zeros(0)
        product_P = np.concatenate([self._values[each] * np.float64(v) for each, v in zip(spans, values, strict=True)])
        # A stable sort merges the columns, each of which ascends; and equal codes add up in the same order.
        order_P = row_P.argsort(kind="stable")
        row_P = row_P[order_P]
        starts_T = np.flatnonzero(np.concatenate([[True], row_P[1:] != row_P[:-1]]))
        return row_P[starts_T], np.add.reduceat(product_P[order_P], starts_T)


def _sparse(rows: Any, name: str) -> csr_matrix:
    """Finite rows whose columns ascend, without stored zeros."""
    matrix = rows if issparse(rows) else np.asarray(rows)
    if matrix.ndim != 2:
        raise DataError(f"{name} must have the shape (n, units), got {matrix.shape}")
    sparse_rows = csr_matrix(matrix, dtype=np.float32, copy=True)
    sparse_rows.sum_duplicates()
    sparse_rows.eliminate_zeros()
    if not np.isfinite(sparse_rows.data).all():
        raise DataError(f"{name} hold NaN or infinity")
    return sparse_rows


def _lengths(rows: csr_matrix) -> np.ndarray:
    return np.asarray(norm(rows.astype(np.float64), axis=1))
