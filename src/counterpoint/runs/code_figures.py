"""Measure sparse codes (silent units, reconstruction and kNN at each k) beside other codes, and write their files."""

# N samples, B of the bank, Q queries, D features, H units

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from scipy.sparse import csr_matrix, save_npz
from sklearn.cluster import MiniBatchKMeans
from torch import Tensor

from counterpoint.core.arrow_files import GROUP_ROWS, PARQUET_SUFFIX
from counterpoint.core.files import check_new_file, write_atomically
from counterpoint.core.numerics import evenly_spaced
from counterpoint.core.paired_shares import Difference
from counterpoint.core.schemas import EvaluationRow
from counterpoint.core.stored_rows import row_slices
from counterpoint.core.thread_parts import one_blas_thread
from counterpoint.core.torch_state import own_draws
from counterpoint.core.user_files import require_arrow, shown_name
from counterpoint.data.order import Split
from counterpoint.diagnostics.concepts import expected_activation
from counterpoint.evaluation.knn import Vote, knn_predict
from counterpoint.evaluation.metric_types import accuracy, row_of
from counterpoint.nn.heads import SparseCode, keep_largest

ROWS = 4096  # samples that are coded at once
VALUE_BYTES, ENTRY_BYTES = 4, 8  # of a float32, and of a value of a sparse row with its column
MOST_BANK, MOST_QUERIES = 20_000, 4000  # samples of the bank and queries of kNN, evenly spaced
DENSE, CODE = "dense", "sparse code"
SILENT_LIMIT = 0.05


@dataclass(frozen=True)
class CodeFigures:
    """Figures of one code.

    Attributes:
        code: name of the code.
        k: number of values of a row that are not 0; None for the features themselves.
        num_bytes: size of a row in bytes.
        explained: share of the held-out samples' variance that its reconstruction explains; None if it has none.
        silent: share of the units that no sample activates, of training or held out; None for dense codes.
        accuracy: accuracy of kNN on held-out samples; None if too few of them, or of the others, have labels.
        behind: accuracy minus that of the sparse code of the same k, on the same queries; None for that code itself.
    """

    code: str
    k: int | None
    num_bytes: int
    explained: float | None
    silent: float | None
    accuracy: float | None = None
    behind: Difference | None = None


def sparse_rows(code: SparseCode, x_ND: Tensor, k: int | None = None) -> csr_matrix:
    """Codes of samples as a sparse matrix (n, H), float32, columns ascending in each row."""
    columns, values, ends = [], [], [np.zeros(1, np.int64)]
    with torch.no_grad():
        for rows in row_slices(len(x_ND), ROWS):
            z_BH = keep_largest(code.activations(x_ND[rows]), k or code.active)
            entries = z_BH.nonzero()
            columns.append(entries[:, 1].int().numpy())
            values.append(z_BH[entries[:, 0], entries[:, 1]].numpy())
            ends.append(ends[-1][-1] + (z_BH > 0).sum(dim=1).cumsum(0).numpy())
    parts = (np.concatenate(values), np.concatenate(columns), np.concatenate(ends))
    return csr_matrix(parts, shape=(len(x_ND), len(code.shift_H)))


def check_codes_file(path: Path, *, overwrite: bool) -> None:
    """Require a file for sparse rows that can be written.

    Raises:
        UsageError: another kind of file, or pyarrow is missing.
        RunError: it exists, or its folder does not.
    """
    check_new_file(path, (".npz", PARQUET_SUFFIX), overwrite=overwrite, flag="--codes")
    if path.suffix == PARQUET_SUFFIX:
        require_arrow(path.suffix)


def write_codes(path: Path, names: Sequence[str], rows: csr_matrix) -> None:
    """Write SciPy's ``.npz``; or a table with the columns name, indices and values, of which the last two are lists.

    Args:
        path: path of the file, as ``check_codes_file`` accepts it.
        names: names of the rows, which ``.npz`` does not keep.
        rows: codes (n, h), columns ascending in each row.

    Raises:
        RunError: it cannot be written.
    """

    def write(temporary: Path) -> None:
        with temporary.open("wb") as stream:
            if path.suffix == ".npz":  # a stream, since SciPy would add .npz to the name of a temporary file
                save_npz(stream, rows)
                return
            arrow = require_arrow(PARQUET_SUFFIX)
            ends = arrow.array(rows.indptr.astype(np.int64))
            lists = [arrow.LargeListArray.from_arrays(ends, arrow.array(part)) for part in (rows.indices, rows.data)]
            columns = [arrow.array(list(map(shown_name, names))), *lists]
            table = arrow.table(columns, names=["name", "indices", "values"])
            arrow.parquet.write_table(table, stream, row_group_size=GROUP_ROWS)

    write_atomically(path, write)


def code_figures(
    code: SparseCode, x_ND: Tensor, split: Split, labels_N: Tensor | None, *, sizes: tuple[int, ...], seed: int
) -> tuple[CodeFigures, ...]:
    """Measure the code at each k beside the features, and beside codes of the same bytes that need less training.

    Principal components and a random projection hold as many float32 as the bytes of k entries; truncation holds the
    features of largest expected activation; k-means names one of H clusters.

    Args:
        code: trained code.
        x_ND: features of all samples.
        split: samples that the code was trained on, and held-out ones; without these ``explained`` is of the former.
        labels_N: class numbers of all samples, -1 for a sample without a label; None if there are no labels.
        sizes: values of k to measure.
        seed: seed of random projection and k-means.
    """
    held_out = split.held_out if len(split.held_out) else split.train
    votes = _Votes(split, labels_N)
    mean_D = x_ND[split.train].mean(dim=0)
    # Centred for all: the features' common part tells no samples apart.
    centred_ND = x_ND - mean_D
    queries_QD = centred_ND[held_out]
    figures = [
        CodeFigures(DENSE, None, VALUE_BYTES * x_ND.shape[1], 1.0, None, votes.row(centred_ND.__getitem__).accuracy)
    ]
    others = _OtherCodes(centred_ND, split.train, seed)
    for k in sizes:
        rows = sparse_rows(code, x_ND, k)
        silent = 1 - len(np.unique(rows.indices)) / len(code.shift_H)
        own_votes = votes.row(lambda part, rows=rows: torch.from_numpy(rows[part.numpy()].toarray()))
        own_share = _explained_share(queries_QD, _reconstruct(code, rows[held_out.numpy()]) - mean_D)
        own = CodeFigures(CODE, k, ENTRY_BYTES * k, own_share, silent, own_votes.accuracy)
        figures.append(own)
        for name, other_ND, rebuilt in others.codes(k, held_out, len(code.shift_H)):
            row, num_bytes = votes.row(other_ND.__getitem__), VALUE_BYTES * min(2 * k, x_ND.shape[1])
            figures.append(
                CodeFigures(
                    name,
                    k,
                    VALUE_BYTES if name == "k-means" else num_bytes,
                    _explained_share(queries_QD, rebuilt),
                    1 - float((other_ND > 0).any(dim=0).float().mean()) if name == "k-means" else None,
                    row.accuracy,
                    row.minus(own_votes),
                )
            )
    return tuple(figures)


def explained_by(code: SparseCode, x_ND: Tensor) -> float:
    """Share of the features' variance that their codes give back; below 0 if their mean alone is nearer."""
    return _explained_share(x_ND, _reconstruct(code, sparse_rows(code, x_ND)))


def _reconstruct(code: SparseCode, rows: csr_matrix) -> Tensor:
    # A sparse product: the codes of all samples at full width may not fit into memory.
    return torch.from_numpy(rows @ code.decoder_HD.detach().numpy()) + code.centre_D.detach()


class _OtherCodes:
    """Other codes of as many bytes as k entries of a sparse one."""

    def __init__(self, centred_ND: Tensor, train: Tensor, seed: int) -> None:
        self.centred_ND, self.fitted_ND, self.seed = centred_ND, centred_ND[train], seed
        _, axes_DD = torch.linalg.eigh(self.fitted_ND.T.double() @ self.fitted_ND.double())
        self.axes_DD = axes_DD.flip(1)  # largest variance first
        self.order_D = expected_activation(self.fitted_ND).argsort(descending=True, stable=True)

    def codes(self, k: int, held_out: Tensor, num_units: int) -> Iterator[tuple[str, Tensor, Tensor]]:
        centred_ND, width = self.centred_ND, self.centred_ND.shape[1]
        dims = min(ENTRY_BYTES * k // VALUE_BYTES, width)
        axes_DK = self.axes_DD[:, :dims].float()
        components_NK = centred_ND @ axes_DK
        yield "PCA", components_NK, components_NK[held_out] @ axes_DK.T
        with own_draws(self.seed):
            axes_DK = torch.linalg.qr(torch.randn(width, dims)).Q
        projected_NK = centred_ND @ axes_DK
        yield "random projection", projected_NK, projected_NK[held_out] @ axes_DK.T
        first_K = self.order_D[:dims]
        rebuilt = torch.zeros_like(centred_ND[held_out])
        rebuilt[:, first_K] = centred_ND[held_out][:, first_K]
        yield "truncation", centred_ND[:, first_K], rebuilt
        if k == 1:
            count, seed = min(num_units, len(self.fitted_ND)), self.seed % 2**32
            model = MiniBatchKMeans(count, random_state=seed, batch_size=4096)
            with one_blas_thread():
                model.fit(self.fitted_ND.numpy())
                cluster_N = torch.from_numpy(model.predict(centred_ND.numpy())).long()
            centres_KD = torch.from_numpy(model.cluster_centers_).float()
            one_hot_NK = torch.nn.functional.one_hot(cluster_N, len(centres_KD)).float()
            yield "k-means", one_hot_NK, centres_KD[cluster_N[held_out]]


def _explained_share(x_QD: Tensor, rebuilt_QD: Tensor) -> float:
    total = float((x_QD - x_QD.mean(dim=0)).double().square().sum())
    missed = float((rebuilt_QD - x_QD).double().square().sum())
    return 1 - missed / total if total else float("nan")


class _Votes:
    """Accuracy of kNN on held-out samples, by the labelled training samples."""

    def __init__(self, split: Split, labels_N: Tensor | None) -> None:
        if labels_N is None:
            labels_N = torch.full((len(split.train) + len(split.held_out),), -1)
        self.labels_N = labels_N
        bank, queries = (part[labels_N[part] >= 0] for part in (split.train, split.held_out))
        self.bank, self.queries = evenly_spaced(bank, MOST_BANK), evenly_spaced(queries, MOST_QUERIES)

    def row(self, features: Callable[[Tensor], Tensor]) -> EvaluationRow:
        """The share of queries that are right by these features; an empty row without labels or held-out samples."""
        if len(self.queries) < 2 or len(self.labels_N[self.bank].unique()) < 2:
            return EvaluationRow()
        vote = Vote(min(20, len(self.bank)))
        predicted_Q = knn_predict(features(self.bank), self.labels_N[self.bank], features(self.queries), vote)
        return row_of("", "knn", accuracy(predicted_Q, self.labels_N[self.queries], {}))
