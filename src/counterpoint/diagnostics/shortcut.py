"""Do colours alone tell which views belong together, and does the embedding follow them?"""

# N pictures, C channels, H, W pixels, D features, K = 2 C statistics

import math

import torch
from torch import Tensor

from counterpoint.core.checks import check_features
from counterpoint.core.numerics import unit_rows
from counterpoint.diagnostics.alignment import MAX_PAIR_SAMPLES, overlap
from counterpoint.diagnostics.evidence import ColourShortcut

CLOSE = 0.05  # of the samples


def colour_statistics(pictures_NCHW: Tensor) -> Tensor:
    """Mean and standard deviation of each channel, (n, 2 c), float64.

    >>> colour_statistics(torch.tensor([[[[0.0, 2.0]]]])).tolist()
    [[1.0, 1.0]]
    """
    values_NCP = pictures_NCHW.double().flatten(2)
    return torch.cat([values_NCP.mean(dim=2), values_NCP.std(dim=2, correction=0)], dim=1)


def shortcut(statistics: tuple[Tensor, Tensor], z_ND: Tensor) -> ColourShortcut:
    """Judge whether simple statistics of two views solve the task that the loss sets, and whether they did.

    Statistics are centred and scaled to unit deviation over both views before views are compared by cosine.

    Args:
        statistics: of both views, (n, k) each, row by row, n >= 20.
        z_ND: embeddings of the first view.

    >>> k = torch.randn(200, 4, generator=torch.Generator().manual_seed(0))
    >>> found = shortcut((k, k), k)
    >>> found.overlap, found.followed > 0.5
    (1.0, True)
    """
    check_features(z_ND, "z")
    both = torch.cat(statistics).double()
    scaled = (both - both.mean(dim=0)) / both.std(dim=0).clamp(min=1e-12)
    first_NK, second_NK = scaled.chunk(2)
    return ColourShortcut(
        overlap=overlap(first_NK, second_NK), followed=followed(first_NK, z_ND), num_samples=len(z_ND)
    )


def followed(x_NK: Tensor, z_ND: Tensor) -> float:
    """Share of samples whose closest other sample by z is among the closest 5 % by x; 0.05 where they are unrelated.

    By cosine of z, and Euclidean distance of x. Of at most ``MAX_PAIR_SAMPLES`` samples, the first ones.

    >>> x = torch.arange(100.0)[:, None]
    >>> followed(x, torch.cat([x.cos(), x.sin()], dim=1)) < 0.2
    True
    """
    x_NK, unit_ND = x_NK[:MAX_PAIR_SAMPLES].double(), unit_rows(z_ND[:MAX_PAIR_SAMPLES].double())
    closest_N = (unit_ND @ unit_ND.T).fill_diagonal_(-math.inf).argmax(dim=1)
    distances_NN = torch.cdist(x_NK, x_NK).fill_diagonal_(math.inf)
    num_close = max(round(CLOSE * (len(x_NK) - 1)), 1)
    limits_N = distances_NN.kthvalue(num_close, dim=1).values
    return float((distances_NN.gather(1, closest_N[:, None])[:, 0] <= limits_N).double().mean())
