"""Do colours alone tell which views belong together, and does the embedding follow them?"""

# N pictures, C channels, H, W pixels, D features, K = 2 C statistics

import torch
from torch import Tensor

from counterpoint.core.checks import check_features
from counterpoint.diagnostics.alignment import overlap
from counterpoint.diagnostics.evidence import Shortcut

FOLDS = 5


def colour_statistics(pictures_NCHW: Tensor) -> Tensor:
    """Mean and standard deviation of each channel, (n, 2 c), float64.

    >>> colour_statistics(torch.tensor([[[[0.0, 2.0]]]])).tolist()
    [[1.0, 1.0]]
    """
    values_NCP = pictures_NCHW.double().flatten(2)
    return torch.cat([values_NCP.mean(dim=2), values_NCP.std(dim=2, correction=0)], dim=1)


def shortcut(statistics: tuple[Tensor, Tensor], z_ND: Tensor) -> Shortcut:
    """Judge whether simple statistics of two views solve the task that the loss sets.

    Statistics are centred and scaled to unit deviation over both views before views are compared by cosine.

    Args:
        statistics: of both views, (n, k) each, row by row, n >= 20.
        z_ND: embeddings of the first view.

    >>> generator = torch.Generator().manual_seed(0)
    >>> k = torch.randn(200, 4, generator=generator)
    >>> found = shortcut((k, k), k @ torch.randn(4, 16, generator=generator))
    >>> round(found.overlap, 2), round(found.explained, 2)
    (1.0, 1.0)
    """
    check_features(z_ND, "z")
    both = torch.cat(statistics).double()
    scaled = (both - both.mean(dim=0)) / both.std(dim=0).clamp(min=1e-12)
    first_NK, second_NK = scaled.chunk(2)
    return Shortcut(
        overlap=overlap(first_NK, second_NK),
        explained=explained_variance(first_NK, z_ND.double()),
        num_samples=len(z_ND),
    )


def explained_variance(x_NK: Tensor, z_ND: Tensor) -> float:
    r"""Share of the variance of z that a linear function of x predicts on samples it was not fitted to, at least 0.

    .. math:: 1 - \frac{\sum_i |z_i - \hat z_i|^2}{\sum_i |z_i - \bar z|^2}

    with :math:`\hat z_i` from least squares on the other four of five interleaved parts.
    """
    inputs = torch.cat([torch.ones(len(x_NK), 1, dtype=torch.float64), x_NK], dim=1)
    part_N = torch.arange(len(x_NK)) % FOLDS
    left, total = 0.0, 0.0
    for fold in range(FOLDS):
        fitted, tried = part_N != fold, part_N == fold
        weights = torch.linalg.lstsq(inputs[fitted], z_ND[fitted], driver="gelsd").solution
        left += float((z_ND[tried] - inputs[tried] @ weights).square().sum())
        total += float((z_ND[tried] - z_ND[fitted].mean(dim=0)).square().sum())
    return max(1 - left / total, 0.0) if total > 0 else 0.0
