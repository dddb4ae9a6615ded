"""Covariance of features that come batch by batch, and the floor below which a spectrum is rounding."""

# N samples, M of them in a batch, D features, B rows that are folded in at a time

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from counterpoint.core.checks import check_features
from counterpoint.diagnostics.spectra import without_rounding

LEAST_BLOCK = 512  # rows that are folded in at a time: a product of fewer costs more calls than multiplications


@dataclass(frozen=True)
class Moments:
    """Of some rows.

    Attributes:
        num: how many.
        mean_D: their mean.
        scatter_DD: sum of outer products of the centred rows, or the Gram matrix of fewer rows than features.
    """

    num: int
    mean_D: Tensor
    scatter_DD: Tensor


class StreamingCovariance:
    r"""The covariance of rows that come batch by batch, in float64.

    .. math:: S_{ab} = S_a + S_b + \frac{n_a n_b}{n_a + n_b} \delta \delta^\top, \qquad \delta = \bar z_b - \bar z_a

    Rows are folded in when as many are there as there are features (at least 512), always the same ones together, so
    that the size of the batches does not change the result. Memory: two matrices of D x D numbers, whatever N is; with
    fewer rows than features the rows themselves, N x D, whose Gram matrix has the same eigenvalues.

    Source: chan1983, Eq. 2.1 for vectors.

    >>> stream = StreamingCovariance()
    >>> for batch in torch.tensor([[1.0, 0.0], [-1.0, 0.0], [1.0, 0.0], [-1.0, 0.0]]).split(3):
    ...     stream.update(batch)
    >>> stream.spectrum()
    tensor([1.3333, 0.0000], dtype=torch.float64)
    """

    def __init__(self) -> None:
        self.num_samples = 0
        self._moments: Moments | None = None
        self._held: list[Tensor] = []  # rows that are not folded in yet
        self._num_dims = 0
        self._squares = 0.0

    @property
    def mean_square(self) -> float:
        """Mean squared length of the rows, not centred."""
        return self._squares / max(self.num_samples, 1)

    def update(self, batch_MD: Tensor) -> None:
        """Add rows.

        Args:
            batch_MD: features, m >= 1, of as many dimensions as those before.

        Raises:
            TypeError: not a dense floating tensor.
            ValueError: another number of dimensions, or rows that are not finite.
        """
        check_features(batch_MD, "batch", min_rows=1)
        self._num_dims = self._num_dims or batch_MD.shape[1]
        if batch_MD.shape[1] != self._num_dims:
            raise ValueError(f"batch must have {self._num_dims} features like those before, got {batch_MD.shape[1]}")
        self._held.append(batch_MD.double())
        self._squares += float(self._held[-1].square().sum())
        self.num_samples += len(batch_MD)
        block = max(LEAST_BLOCK, self._num_dims)
        if sum(map(len, self._held)) >= block:
            parts = torch.cat(self._held).split(block)
            for rows in parts[: -1 if len(parts[-1]) < block else None]:
                self._moments = _joined(self._moments, rows)
            self._held = [parts[-1].clone()] if len(parts[-1]) < block else []

    def spectrum(self) -> Tensor:
        """Eigenvalues of the covariance of all rows so far, with N - 1, descending.

        Returns:
            float64 tensor (d,), non-negative; those at the level of rounding (see ``arithmetic_floor``) are 0.
            Unchanged by rotating or shifting the rows.

        Raises:
            ValueError: fewer than 2 rows.
        """
        if self.num_samples < 2:
            raise ValueError(f"a covariance needs at least 2 rows, got {self.num_samples}")
        moments = _joined(self._moments, torch.cat(self._held)) if self._held else self._moments
        assert moments is not None
        lambda_K = torch.linalg.eigvalsh(moments.scatter_DD).flip(0)
        # The Gram matrix of few rows has the eigenvalues of their scatter that are not 0.
        missing = lambda_K.new_zeros(self._num_dims - len(lambda_K))
        return without_rounding(torch.cat([lambda_K, missing]) / (self.num_samples - 1), self.mean_square)


def _joined(moments: Moments | None, rows_BD: Tensor) -> Moments:
    """Moments of some rows and of those before; of fewer rows than features alone, the scatter is their Gram matrix."""
    mean_D = rows_BD.mean(dim=0)
    centred_BD = rows_BD - mean_D
    is_wide = moments is None and len(rows_BD) < len(mean_D)
    scatter_DD = centred_BD @ centred_BD.T if is_wide else centred_BD.T @ centred_BD
    if moments is None:
        return Moments(len(rows_BD), mean_D, scatter_DD)
    num, total = len(rows_BD), moments.num + len(rows_BD)
    delta_D = mean_D - moments.mean_D
    scatter_DD += moments.scatter_DD
    scatter_DD.addr_(delta_D, delta_D, alpha=moments.num * num / total)
    return Moments(total, moments.mean_D + delta_D * (num / total), scatter_DD)


def rounding_floor(mean_square: float, num_dims: int, *, dtype: torch.dtype = torch.float32) -> float:
    r"""Variance along any direction that rounding the features to a dtype makes: the least floor of their spectrum.

    .. math:: \frac{\ln 2}{18} \epsilon^2 \, \frac{\overline{|z|^2}}{D}

    An entry :math:`z = m 2^e` is rounded to a multiple of :math:`\epsilon 2^e`, with an error of variance
    :math:`\epsilon^2 4^e / 12`; with a mantissa m whose logarithm is uniform, :math:`E[m^2] = 3 / (2 \ln 2)`. What a
    network computes in float32 errs by more: its products add their own errors, which ``computed_floor`` measures.

    Args:
        mean_square: mean squared length of the features, not centred: an offset is rounded, too.
        num_dims: D.
        dtype: in which the features were held.

    >>> round(rounding_floor(128.0, 128) / torch.finfo(torch.float32).eps ** 2, 4)
    0.0385
    """
    return math.log(2) / 18 * torch.finfo(dtype).eps ** 2 * mean_square / num_dims


def computed_floor(z_ND: Tensor, exact_ND: Tensor) -> float:
    """Variance along a direction, on average over all, by which computed features differ from exact ones.

    Below it a direction holds rounding and nothing else. A difference that all samples share is no variance.

    Args:
        z_ND: features as a network computes them, n >= 2.
        exact_ND: the same of a copy of it in float64.

    >>> computed_floor(torch.tensor([[1.0, 2.0], [3.0, 4.0]]), torch.tensor([[1.0, 2.0], [3.0, 5.0]]).double())
    0.25
    """
    return float((z_ND.double() - exact_ND.double()).var(dim=0).mean())


def arithmetic_floor(spectrum_D: Tensor, floors: Sequence[float]) -> float:
    """The level below which nothing of a spectrum can be told: rounding of features, or of their covariance.

    A covariance in float64 resolves D eps of its largest eigenvalue, eps = 2.2e-16: 12 decades up to 4,500 dimensions.

    Args:
        spectrum_D: from ``StreamingCovariance.spectrum``.
        floors: of the features, from ``rounding_floor`` and ``computed_floor``.

    >>> arithmetic_floor(torch.tensor([2.0, 1.0]).double(), [1e-20]) / torch.finfo(torch.float64).eps
    4.0
    """
    return max(len(spectrum_D) * torch.finfo(torch.float64).eps * float(spectrum_D[0]), *floors)
