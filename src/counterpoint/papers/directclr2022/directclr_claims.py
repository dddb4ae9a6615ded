"""What directclr2022 says of its figures, beside what the toys do."""

# D dimensions, T recorded times

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor

from counterpoint.papers.directclr2022.linear_flow import conservation_drift, covariance_gap, gap_directions
from counterpoint.papers.directclr2022.singular_vectors import (
    alignment_blocks,
    alignment_matrix,
    live_alignment,
    live_dimensions,
)
from counterpoint.papers.directclr2022.toy_models import (
    draw_views,
)
from counterpoint.papers.directclr2022.toy_networks import NUM_DIMS, STRONG, NetworkPath, Toy, ToyNetwork
from counterpoint.report.theory_pages.reproduction import Claim


def alignment_claims(toy: Toy, last: ToyNetwork) -> list[Claim]:
    """Identity one by one, as a subspace and in blocks."""
    below_DD, above_DD = last.weights
    num_live = live_dimensions(toy.spectrum(last))
    diagonal_D = alignment_matrix(below_DD, above_DD).diagonal()
    cosines_K = live_alignment(below_DD, above_DD, num_live)
    block = alignment_blocks(below_DD, above_DD)[0]
    lowest, mean_live = float(cosines_K[-1]), float(diagonal_D[:num_live].mean())
    mean_all = float(diagonal_D.mean())
    return [
        Claim(
            f"{toy.name}: smallest cosine between the {num_live} live directions of both layers, as subspaces",
            1.0,
            lowest,
            lowest > 0.98,
            "agrees above 0.98",
        ),
        Claim(
            f"{toy.name}: share of the leading block of nearly equal singular values ({block.last} of 16) inside it",
            1.0,
            block.share,
            block.share > 0.95,
            "agrees above 0.95; section 5.3 expects a block-diagonal |A|",
        ),
        Claim(
            f"{toy.name}: mean of |A|'s diagonal over the {num_live} live directions",
            1.0,
            mean_live,
            mean_live > 0.95,
            "agrees above 0.95; vectors of nearly equal singular values are arbitrary within their block",
        ),
        Claim(
            f"{toy.name}: mean of |A|'s diagonal over all 16",
            1.0,
            mean_all,
            mean_all > 0.95,
            "small directions have not outgrown what the flow conserves",
        ),
    ]


def growth_claims(toy: Toy, path: NetworkPath) -> list[Claim]:
    """How far the lowest singular values stay behind."""
    spectrum_D = toy.spectrum(path.last)
    num_live = live_dimensions(spectrum_D)
    claims = []
    for layer in (0, 1):
        before_D, after_D = (torch.linalg.svdvals(network.weights[layer]) for network in (path.networks[0], path.last))
        ratio = float(after_D[num_live:].max() / after_D[:num_live].min()) if num_live < NUM_DIMS else 1.0
        gain_D = after_D - before_D
        lag = float(gain_D[-3:].abs().max() / gain_D.max())
        claims += [
            Claim(
                f"{toy.name}: W{layer + 1}, largest collapsed over smallest live singular value",
                "significantly smaller",
                ratio,
                ratio < 0.35,
                "agrees below 0.35",
            ),
            Claim(
                f"{toy.name}: W{layer + 1}, gain of the three smallest over the largest gain",
                "significantly slower",
                lag,
                lag < 0.35,
                "agrees below 0.35",
            ),
        ]
    drift = conservation_drift(path.networks[0].weights, path.last.weights)
    return [
        *claims,
        Claim(f"{toy.name}: live dimensions of the embedding", "below 16", num_live, num_live < NUM_DIMS),
        Claim(f"{toy.name}: change of W1 W1ᵀ - W2ᵀ W2 by SGD", "0 for the flow", drift, None, "finite steps drift"),
    ]


def depth_claims(toy: Toy, spectra: Sequence[Sequence[Tensor]], rectified_D: Tensor) -> list[Claim]:
    """Collapse by depth, over starts, and with ReLU."""
    live = [[live_dimensions(spectrum_D) for spectrum_D in of_start] for of_start in spectra]
    rectified, linear = live_dimensions(rectified_D), live[0][1]
    one_layer = min(of_start[0] for of_start in live)
    falls = all(deep < shallow for of_start in live for shallow, deep in pairwise(of_start))
    by_depth = ", ".join(_range(of_depth) for of_depth in zip(*live, strict=True))
    # "Similar": ReLU leaves no more than half of the collapse undone.
    is_similar = NUM_DIMS - rectified >= (NUM_DIMS - linear) / 2
    return [
        Claim(
            f"{toy.name}: live dimensions with one layer",
            "no collapse",
            one_layer,
            one_layer >= NUM_DIMS - 1,
            "agrees at 15 or 16",
        ),
        Claim(
            f"{toy.name}: live dimensions for L = 1, 2, 3, 4",
            "fall with depth",
            by_depth,
            falls,
            f"starts: {len(live)}; the drawn one is the first",
        ),
        Claim(
            f"{toy.name}: live dimensions with ReLU, L = 2",
            f"similar to linear ({linear})",
            rectified,
            is_similar,
            "agrees if at least half as many dimensions collapse as without ReLU",
        ),
    ]


def _range(counts: Sequence[int]) -> str:
    """One number, or the least and the largest."""
    return str(counts[0]) if min(counts) == max(counts) else f"{min(counts)}-{max(counts)}"


def strength_claims(toy: Toy, path: NetworkPath, label: str) -> list[Claim]:
    """How far the noisy half lies below the clean half, and the signs of X at the start and at zero weight."""
    spectrum_D = toy.spectrum(path.last)
    half = NUM_DIMS // 2
    gap = float(spectrum_D[:half].mean() - spectrum_D[half:].mean())
    views = draw_views(toy.data, 2_000, generator=torch.Generator().manual_seed(toy.seed + 3))
    start_DD = path.networks[0].weights[0]
    at_start, at_zero = (
        gap_directions(covariance_gap(scale * start_DD, views, toy.loss).gap).num_vanishing for scale in (1, 0)
    )
    is_strong = label.endswith(str(STRONG))
    expected = "low-rank" if is_strong else "full rank"
    live = live_dimensions(spectrum_D)
    return [
        Claim(
            f"{label}: upper less lower half of the log spectrum",
            "> 0" if is_strong else "0",
            gap,
            gap > 1.5 if is_strong else gap < 1.0,
            "agrees above 1.5 with strong noise, below 1 with weak",
        ),
        Claim(
            f"{label}: live dimensions",
            expected,
            live,
            live == half if is_strong else live == NUM_DIMS,
            "lower by the gap above, not vanished" if is_strong else "",
        ),
        Claim(
            f"{label}: negative eigenvalues of X at the start",
            "some" if is_strong else "not said",
            at_start,
            at_start >= half if is_strong else None,
            "agrees at 8 or more" if is_strong else "the start is longer than the optimum: clean directions shrink too",
        ),
        Claim(f"{label}: negative eigenvalues of X at zero weight", "not said", at_zero, None),
    ]
