"""Figures 4, 5 and 6 of directclr2022, and the claim of its section 4, on its toy models with 16 dimensions.

Each with the released loss and with the paper's Eq. 2, because their outcomes differ. What the paper says stands beside
what the toys do.
"""

# D dimensions, T recorded times

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import torch
from torch import Tensor

from reproductions.directclr2022.singular_vectors import (
    alignment_blocks,
    alignment_matrix,
    conservation_drift,
    live_alignment,
    live_dimensions,
)
from reproductions.directclr2022.toy_models import block_noise, draw_views
from reproductions.directclr2022.toy_networks import (
    NUM_DIMS,
    NUM_POINTS,
    STRONG,
    NetworkPath,
    SgdPlan,
    Toy,
    ToyNetwork,
    decaying_network,
    gradient_flow,
    make_toys,
)
from reproductions.panels import LinePanel, MatrixPanel, Series
from reproductions.reproduction import Claim, FigureRun, Reproduction

DEPTHS = (1, 2, 3, 4)
NUM_STARTS = 3
ONE_LAYER = SgdPlan(rate=0.001, num_steps=10_000, batch_size=128, num_records=2)
QUICK_ONE_LAYER = SgdPlan(rate=0.01, num_steps=1_000, batch_size=64, num_records=2)
FLOW_TIME = 1.0
TWO_LOSSES = (
    "The released code's loss has unnormalised inner products over 0.1, negatives from the other view and a mean over "
    "the batch; Eq. 2 has squared distances, negatives from the same view and a sum. The paper does not say which drew "
    "its figures."
)


def figure_4(run: FigureRun) -> Reproduction:
    """Alignment matrix of two linear layers after training (directclr2022, Fig. 4)."""
    claims, panels = [], []
    toys = make_toys(run, "directclr-fig4")
    for toy in toys:
        last = toy.train(toy.start(2)).last
        claims += alignment_claims(toy, last)
        panels.append(_matrix_panel(f"|V2ᵀ U1| after training, {toy.name}", alignment_matrix(*last.weights)))
    return Reproduction(
        "directclr-fig4",
        "Neighbouring layers align",
        "directclr2022, Fig. 4",
        claims,
        panels,
        remarks=[
            TWO_LOSSES,
            "The flow conserves W1 W1ᵀ - W2ᵀ W2. The proof of Theorem 2 takes it for 0 once the layers have grown, "
            "which holds for directions that have outgrown it; the others need not align.",
        ],
        settings=_settings(run, toys),
    )


def figure_5(run: FigureRun) -> Reproduction:
    """Singular values of both layers and of the embedding's covariance in training (directclr2022, Fig. 5)."""
    claims, panels = [], []
    toys = make_toys(run, "directclr-fig5")
    for toy in toys:
        path = toy.train(toy.start(2))
        claims += growth_claims(toy, path)
        panels += _growth_panels(toy, path)
    # Eq. 2: the loss that the paper's theory is about.
    flow_claim, flow_panel = _flow_parts(toys[1], run.quick)
    return Reproduction(
        "directclr-fig5",
        "Small singular values stay behind",
        "directclr2022, Fig. 5",
        [*claims, *flow_claim],
        [*panels, flow_panel],
        remarks=[
            TWO_LOSSES,
            "A singular value's rate holds the other layer's value squared (Theorem 3): what starts small stays small, "
            "and the large ones have made the loss flat before its turn comes.",
        ],
        settings=_settings(run, toys),
    )


def _growth_panels(toy: Toy, path: NetworkPath) -> list[LinePanel]:
    """Draw Fig. 5a, b and c: singular values of both layers, and the spectrum of the embedding, over the steps."""
    # The flow's time is rate times steps.
    steps = (path.times_T / toy.descent.rate).tolist()
    layers = [torch.stack([torch.linalg.svdvals(net.weights[layer]) for net in path.networks]) for layer in (0, 1)]
    spectra_TD = torch.stack([toy.spectrum(network) for network in path.networks])
    return [
        _ranked(f"W1, {toy.name}", "SGD step", "singular value", steps, layers[0]),
        _ranked(f"W2, {toy.name}", "SGD step", "singular value", steps, layers[1]),
        _ranked(f"Embedding, {toy.name}", "SGD step", "log singular value of the covariance", steps, spectra_TD),
    ]


def _flow_parts(toy: Toy, quick: bool) -> tuple[list[Claim], LinePanel]:
    """Train the same start by gradient flow on fixed views; return its claims and its panel."""
    num_samples, end = (48, 0.25 * FLOW_TIME) if quick else (128, FLOW_TIME)
    toy.progress(f"{toy.name}: gradient flow on {num_samples} samples")
    # Seeds + 1 and + 2 are those of batches and start.
    views = draw_views(toy.data, num_samples, generator=torch.Generator().manual_seed(toy.seed + 3))
    start = toy.start(2)
    flow = gradient_flow(start, views, toy.loss, torch.linspace(0, end, 41))
    # The paper's constant of appendix B.5; the integrator keeps it, finite steps of SGD do not.
    drift = max(conservation_drift(start.weights, reached.weights) for reached in flow.networks)
    num_live = live_dimensions(toy.spectrum(flow.last))
    sigma_TD = torch.stack([torch.linalg.svdvals(reached.weights[0]) for reached in flow.networks])
    claims = [
        Claim(f"{toy.name}, gradient flow: change of W1 W1ᵀ - W2ᵀ W2", 0.0, drift, drift < 1e-9, "agrees below 1e-9"),
        Claim(f"{toy.name}, gradient flow: live dimensions", "below 16", num_live, num_live < NUM_DIMS),
    ]
    return claims, _ranked(f"W1, {toy.name}, gradient flow", "time", "singular value", flow.times_T.tolist(), sigma_TD)


def figure_6(run: FigureRun) -> Reproduction:
    """Embedding spectrum for 1 to 4 linear layers, and for two with ReLU between them (directclr2022, Fig. 6)."""
    claims, panels = [], []
    by_start = [make_toys(run, "directclr-fig6", start) for start in range(1 if run.quick else NUM_STARTS)]
    toys = by_start[0]
    for toy, *others in zip(*by_start, strict=True):
        starts = [toy, *others]
        spectra = [[one.spectrum(one.train(one.start(depth)).last) for depth in DEPTHS] for one in starts]
        rectified_D = toy.spectrum(toy.train(toy.start(2, is_rectified=True)).last)
        claims += depth_claims(toy, spectra, rectified_D)
        panels += [
            _spectrum_panel(f"Depth, {toy.name}", [f"L = {depth}" for depth in DEPTHS], spectra[0]),
            _spectrum_panel(f"Two layers, {toy.name}", ["linear", "ReLU"], [spectra[0][1], rectified_D]),
        ]
    return Reproduction(
        "directclr-fig6",
        "More layers, fewer dimensions",
        "directclr2022, Fig. 6",
        claims,
        panels,
        remarks=[
            TWO_LOSSES,
            "The paper released no code for this figure; start and training are those of its two-layer toy. Dimensions "
            "come alive one after the other, so the count depends on the number of steps and a little on the start.",
            "With ReLU the released loss loses one dimension exactly: hidden values have a mean above 0, inner "
            "products count it although all samples share it, and W2 learns to map it to 0. Eq. 2 does not see it.",
        ],
        settings=_settings(run, toys),
    )


def section_4(run: FigureRun) -> Reproduction:
    """One linear layer under weak and strong noise on half of its inputs (directclr2022, section 4)."""
    spectra, claims = {}, []
    for label, scale in (("noise 0.01", 0.01), (f"noise {STRONG}", STRONG)):
        noise_DD = block_noise(NUM_DIMS, scale, first=NUM_DIMS // 2)
        toy, _ = make_toys(run, "directclr-section4", noise_DD=noise_DD)
        toy = replace(toy, descent=QUICK_ONE_LAYER if run.quick else ONE_LAYER)
        # decay 0: an orthogonal start, in which no direction is behind from the beginning.
        start = decaying_network(1, NUM_DIMS, generator=torch.Generator().manual_seed(toy.seed + 2), decay=0.0)
        path = toy.train(start)
        spectra[label] = toy.spectrum(path.last)
        claims += strength_claims(toy, path, label)
    return Reproduction(
        "directclr-section4",
        "Strong augmentation in one layer",
        "directclr2022, section 4",
        claims,
        [_spectrum_panel("One layer, noise on 8 of 16 inputs", list(spectra), list(spectra.values()))],
        remarks=[
            "Theorem 1 holds X fixed. Along the true flow X changes with W and tends to 0 before W does: noisy "
            "directions end lower than the others, but not at 0. Noise on both views, as released, is part of the "
            "data's covariance too, so that X has no negative eigenvalue once W is small, however strong the noise.",
            "The released layer has a bias and torch's default start; here it has no bias and starts orthogonal.",
        ],
        settings=_settings(run, [toy]),
    )


def _ranked(title: str, x_label: str, y_label: str, x: Sequence[float], values_TD: Tensor) -> LinePanel:
    """Draw a line for each rank of singular value."""
    lines = [Series(str(rank + 1), x, values_TD[:, rank].tolist()) for rank in range(values_TD.shape[1])]
    return LinePanel(title, x_label, y_label, lines)


def _spectrum_panel(title: str, names: Sequence[str], spectra: Sequence[Tensor]) -> LinePanel:
    """Draw a line for each spectrum, over the ranks."""
    ranks = list(range(1, NUM_DIMS + 1))
    lines = [Series(name, ranks, spectrum_D.tolist()) for name, spectrum_D in zip(names, spectra, strict=True)]
    return LinePanel(title, "rank", "log singular value of the covariance", lines)


def _matrix_panel(title: str, values_DD: Tensor) -> MatrixPanel:
    """Draw a square matrix whose rows and columns are ranks."""
    ranks = [str(rank + 1) for rank in range(len(values_DD))]
    return MatrixPanel(title, values_DD.tolist(), ranks, ranks)


def _settings(run: FigureRun, toys: Sequence[Toy]) -> dict[str, str]:
    """Sizes, seed and learning rates that the numbers depend on."""
    common = {"dimensions": str(NUM_DIMS), "points": str(NUM_POINTS), "seed": str(run.seed)}
    for toy in toys:
        step = toy.descent
        common[toy.name] = f"rate {step.rate:g}, {step.num_steps} steps of {step.batch_size}"
    return common


def alignment_claims(toy: Toy, last: ToyNetwork) -> list[Claim]:
    """Check the alignment of two layers as live subspaces, in the leading block, and direction by direction."""
    below_DD, above_DD = last.weights
    num_live = live_dimensions(toy.spectrum(last))
    diagonal_D = alignment_matrix(below_DD, above_DD).diagonal()
    cosines_K = live_alignment(below_DD, above_DD, num_live)
    # Of the largest singular values.
    block = alignment_blocks(below_DD, above_DD)[0]
    lowest, mean_live = float(cosines_K[-1]), float(diagonal_D[:num_live].mean())  # cosines descend
    mean_all = float(diagonal_D.mean())
    return [
        Claim(
            f"{toy.name}: smallest cosine between the live directions of both layers, as subspaces",
            1.0,
            lowest,
            lowest > 0.98,
            f"agrees above 0.98; {num_live} directions are live with the first seed",
        ),
        Claim(
            f"{toy.name}: share of the leading block of nearly equal singular values inside it",
            1.0,
            block.share,
            block.share > 0.95,
            f"agrees above 0.95; section 5.3 expects a block-diagonal |A|; of the first seed the block has "
            f"{block.last} of 16",
        ),
        Claim(
            f"{toy.name}: mean of |A|'s diagonal over the live directions",
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
    """Check that the lowest singular values stay behind the others in training."""
    spectrum_D = toy.spectrum(path.last)
    num_live = live_dimensions(spectrum_D)
    claims = []
    for layer in (0, 1):
        before_D, after_D = (torch.linalg.svdvals(network.weights[layer]) for network in (path.networks[0], path.last))
        # Spectrum and singular values descend: live ones first. Without a collapsed one there is no gap.
        ratio = float(after_D[num_live:].max() / after_D[:num_live].min()) if num_live < NUM_DIMS else 1.0
        gain_D = after_D - before_D
        # The paper says "the lowest few"; three of 16 are taken here.
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
    """Check that collapse grows with depth for every start, and that a network with ReLU collapses similarly."""
    live = [[live_dimensions(spectrum_D) for spectrum_D in of_start] for of_start in spectra]
    rectified, linear = live_dimensions(rectified_D), live[0][1]
    one_layer = min(of_start[0] for of_start in live)
    # Strictly, from each depth to the next and for every start.
    falls = all(deep < shallow for of_start in live for shallow, deep in pairwise(of_start))
    by_depth = ", ".join(_range_text(of_depth) for of_depth in zip(*live, strict=True))
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


def _range_text(counts: Sequence[int]) -> str:
    """The number that all counts are, or the least and the largest."""
    return str(counts[0]) if min(counts) == max(counts) else f"{min(counts)} to {max(counts)}"


def strength_claims(toy: Toy, path: NetworkPath, label: str) -> list[Claim]:
    """Check how far the noisy half of the spectrum lies below the clean half, and count X's negative eigenvalues."""
    spectrum_D = toy.spectrum(path.last)
    half = NUM_DIMS // 2
    # Ranks 1 to 8 are those of the clean inputs, if noise has shrunk the others.
    gap = float(spectrum_D[:half].mean() - spectrum_D[half:].mean())
    views = draw_views(toy.data, 2_000, generator=torch.Generator().manual_seed(toy.seed + 3))
    start_DD = path.networks[0].weights[0]
    # X depends on W through alpha; at W = 0 every alpha is 1 / n.
    gaps = (toy.loss.covariance_gap(views, scale * start_DD) for scale in (1, 0))
    at_start, at_zero = (int((torch.linalg.eigvalsh(gap_DD) < 0).sum()) for gap_DD in gaps)
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
