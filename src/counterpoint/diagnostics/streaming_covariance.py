"""Covariance of features that come batch by batch, and the floor below which a spectrum is rounding."""

# N samples, M of them in a batch, D features

import math

import torch
from torch import Tensor

from counterpoint.core.checks import check_features
from counterpoint.diagnostics.spectra import without_rounding


class StreamingCovariance:
    r"""The covariance of rows that come batch by batch, in float64.

    .. math:: (N - 1)\, C = \sum_i r_i r_i^\top - N \bar r \bar r^\top, \qquad r_i = z_i - c

    with c the mean of the first batch: near the mean of all, so that an offset costs no digits. Memory: one matrix of
    D x D numbers, whatever N is.

    >>> stream = StreamingCovariance()
    >>> for batch in torch.tensor([[1.0, 0.0], [-1.0, 0.0], [1.0, 0.0], [-1.0, 0.0]]).split(3):
    ...     stream.update(batch)
    >>> stream.spectrum()
    tensor([1.3333, 0.0000], dtype=torch.float64)
    """

    def __init__(self) -> None:
        self.num_samples = 0
        self._squares = 0.0
        self._sums: tuple[Tensor, Tensor, Tensor] | None = None  # c, sum of r, sum of r r'

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
            ValueError: rows that are not finite.
        """
        check_features(batch_MD, "batch", min_rows=1)
        batch_MD = batch_MD.double()
        centre_D = batch_MD.mean(dim=0) if self._sums is None else self._sums[0]
        rows_MD = batch_MD - centre_D
        sum_D, products_DD = rows_MD.sum(dim=0), rows_MD.T @ rows_MD
        if self._sums is not None:
            sum_D, products_DD = sum_D + self._sums[1], products_DD + self._sums[2]
        self._sums = centre_D, sum_D, products_DD
        self._squares += float(batch_MD.square().sum())
        self.num_samples += len(batch_MD)

    def spectrum(self) -> Tensor:
        """Eigenvalues of the covariance of all rows so far, with N - 1, descending.

        Returns:
            float64 tensor (d,), non-negative; those at the level of rounding are 0. Unchanged by rotating or shifting
            the rows.

        Raises:
            ValueError: fewer than 2 rows.
        """
        if self._sums is None or self.num_samples < 2:
            raise ValueError(f"a covariance needs at least 2 rows, got {self.num_samples}")
        _, sum_D, products_DD = self._sums
        scatter_DD = products_DD - torch.outer(sum_D, sum_D) / self.num_samples
        lambda_D = torch.linalg.eigvalsh(scatter_DD / (self.num_samples - 1)).flip(0)
        return without_rounding(lambda_D, self.mean_square)

    def floor(self, largest: float, *, dtype: torch.dtype = torch.float32) -> float:
        r"""The level below which nothing of the spectrum can be told: rounding of features, or of their covariance.

        .. math:: \max\Big( D\, \epsilon_{64}\, \lambda_1,\; \frac{\ln 2}{18} \epsilon^2 \,
            \frac{\overline{|z|^2}}{D} \Big)

        An entry :math:`z = m 2^e` is rounded to a multiple of :math:`\epsilon 2^e`, with an error of variance
        :math:`\epsilon^2 4^e / 12`; with a mantissa m whose logarithm is uniform, :math:`E[m^2] = 3 / (2 \ln 2)`.
        What a network computes in float32 errs by more: its products add their own errors.

        Args:
            largest: eigenvalue.
            dtype: in which the features were held, an offset included.
        """
        assert self._sums is not None
        num_dims = len(self._sums[0])
        stored = math.log(2) / 18 * torch.finfo(dtype).eps ** 2 * self.mean_square / num_dims
        return max(num_dims * torch.finfo(torch.float64).eps * largest, stored)
