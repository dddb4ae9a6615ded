"""Figures 4, 5 and 6 of directclr2022, and the claim of its section 4, on its toy models with 16 dimensions.

Each with the released loss and with the paper's Eq. 2, because their outcomes differ.
"""

# D dimensions, T recorded times

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from counterpoint.papers.directclr2022.directclr_claims import (
    alignment_claims,
    depth_claims,
    growth_claims,
    strength_claims,
)
from counterpoint.papers.directclr2022.linear_flow import conservation_drift
from counterpoint.papers.directclr2022.singular_vectors import alignment_matrix, live_dimensions
from counterpoint.papers.directclr2022.toy_models import (
    block_noise,
    draw_views,
)
from counterpoint.papers.directclr2022.toy_networks import (
    NUM_DIMS,
    NUM_POINTS,
    STRONG,
    NetworkPath,
    SgdPlan,
    Toy,
    decaying_network,
    gradient_flow,
    make_toys,
)
from counterpoint.report.theory_pages.reproduction import Claim, FigureRun, LinePanel, MatrixPanel, Reproduction, Series

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
    toys = make_toys(run)
    for toy in toys:
        last = toy.train(toy.start(2)).last
        claims += alignment_claims(toy, last)
        panels.append(_matrix(f"|V2ᵀ U1| after training, {toy.name}", alignment_matrix(*last.weights)))
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
        settings=_settings(toys),
    )


def figure_5(run: FigureRun) -> Reproduction:
    """Singular values of both layers and of the embedding's covariance in training (directclr2022, Fig. 5)."""
    claims, panels = [], []
    toys = make_toys(run)
    for toy in toys:
        path = toy.train(toy.start(2))
        claims += growth_claims(toy, path)
        panels += _growth_panels(toy, path)
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
        settings=_settings(toys),
    )


def _growth_panels(toy: Toy, path: NetworkPath) -> list[LinePanel]:
    """Fig. 5a, b, c."""
    steps = (path.times_T / toy.descent.rate).tolist()
    layers = [torch.stack([torch.linalg.svdvals(net.weights[layer]) for net in path.networks]) for layer in (0, 1)]
    spectra_TD = torch.stack([toy.spectrum(network) for network in path.networks])
    return [
        _ranked(f"W1, {toy.name}", "SGD step", "singular value", steps, layers[0]),
        _ranked(f"W2, {toy.name}", "SGD step", "singular value", steps, layers[1]),
        _ranked(f"Embedding, {toy.name}", "SGD step", "log singular value of the covariance", steps, spectra_TD),
    ]


def _flow_parts(toy: Toy, quick: bool) -> tuple[list[Claim], LinePanel]:
    """The same start by the adaptive integrator, on views that stay."""
    num_samples, end = (48, 0.25 * FLOW_TIME) if quick else (128, FLOW_TIME)
    toy.progress(f"{toy.name}: gradient flow on {num_samples} samples")
    views = draw_views(toy.data, num_samples, generator=torch.Generator().manual_seed(toy.seed + 3))
    start = toy.start(2)
    flow = gradient_flow(start, views, toy.loss, torch.linspace(0, end, 41))
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
    toys = make_toys(run)
    for toy in toys:
        starts = [replace(toy, seed=run.seed + 100 * start) for start in range(1 if run.quick else NUM_STARTS)]
        spectra = [[one.spectrum(one.train(one.start(depth)).last) for depth in DEPTHS] for one in starts]
        rectified_D = toy.spectrum(toy.train(toy.start(2, is_rectified=True)).last)
        claims += depth_claims(toy, spectra, rectified_D)
        panels += [
            _spectra(f"Depth, {toy.name}", [f"L = {depth}" for depth in DEPTHS], spectra[0]),
            _spectra(f"Two layers, {toy.name}", ["linear", "ReLU"], [spectra[0][1], rectified_D]),
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
        settings=_settings(toys),
    )


def section_4(run: FigureRun) -> Reproduction:
    """One linear layer under weak and strong noise on half of its inputs (directclr2022, section 4)."""
    spectra, claims = {}, []
    for label, scale in (("noise 0.01", 0.01), (f"noise {STRONG}", STRONG)):
        noise_DD = block_noise(NUM_DIMS, scale, first=NUM_DIMS // 2)
        toy, _ = make_toys(run, noise_DD)
        toy = replace(toy, descent=QUICK_ONE_LAYER if run.quick else ONE_LAYER)
        start = decaying_network(1, NUM_DIMS, generator=torch.Generator().manual_seed(run.seed + 2), decay=0.0)
        path = toy.train(start)
        spectra[label] = toy.spectrum(path.last)
        claims += strength_claims(toy, path, label)
    return Reproduction(
        "directclr-section4",
        "Strong augmentation in one layer",
        "directclr2022, section 4",
        claims,
        [_spectra("One layer, noise on 8 of 16 inputs", list(spectra), list(spectra.values()))],
        remarks=[
            "Theorem 1 holds X fixed. Along the true flow X changes with W and tends to 0 before W does: noisy "
            "directions end lower than the others, but not at 0. Noise on both views, as released, is part of the "
            "data's covariance too, so that X has no negative eigenvalue once W is small, however strong the noise.",
            "The released layer has a bias and torch's default start; here it has no bias and starts orthogonal.",
        ],
        settings=_settings([toy]),
    )


def _ranked(title: str, x_label: str, y_label: str, x: Sequence[float], values_TD: Tensor) -> LinePanel:
    """A line per rank of singular value."""
    lines = [Series(str(rank + 1), x, values_TD[:, rank].tolist()) for rank in range(values_TD.shape[1])]
    return LinePanel(title, x_label, y_label, lines)


def _spectra(title: str, names: Sequence[str], spectra: Sequence[Tensor]) -> LinePanel:
    """A line per spectrum, over rank."""
    ranks = list(range(1, NUM_DIMS + 1))
    lines = [Series(name, ranks, spectrum_D.tolist()) for name, spectrum_D in zip(names, spectra, strict=True)]
    return LinePanel(title, "rank", "log singular value of the covariance", lines)


def _matrix(title: str, values_DD: Tensor) -> MatrixPanel:
    """A square matrix with its ranks."""
    ranks = [str(rank + 1) for rank in range(len(values_DD))]
    return MatrixPanel(title, values_DD.tolist(), ranks, ranks)


def _settings(toys: Sequence[Toy]) -> dict[str, str]:
    """Sizes and rates."""
    common = {"dimensions": str(NUM_DIMS), "points": str(NUM_POINTS), "seed": str(toys[0].seed)}
    for toy in toys:
        step = toy.descent
        common[toy.name] = f"rate {step.rate:g}, {step.num_steps} steps of {step.batch_size}"
    return common
