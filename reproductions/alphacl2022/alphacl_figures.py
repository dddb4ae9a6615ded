"""Make Figs. 2 and 3 of alphacl2022 again: deep linear layers of rank one, and ReLU layers that hold modes."""

# N samples, D inputs, M modes, K hidden nodes, O outputs, T steps

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from counterpoint.losses.infonce import InfoNCE
from reproductions.alphacl2022.contrastive_covariance import contrastive_covariance
from reproductions.alphacl2022.deep_linear import Alignment, Ascent, alignment, ascend, draw_layers
from reproductions.alphacl2022.relu_optima import ascend_sticky, describe_first_layer, draw_mixture
from reproductions.panels import LinePanel, MatrixPanel, Series
from reproductions.reproduction import Claim, FigureRun, Reproduction

DEPTH, WIDTH, NUM_SAMPLES = 5, 10, 32
MODES, HIDDEN, OUTPUTS = 10, 10, 20
MAGNITUDES = torch.linspace(10, 1, MODES, dtype=torch.float64)
NOISE, BATCH, NUM_BATCHES, TEMPERATURE, RATE = 0.5, 128, 500, 0.1, 0.01
VISIBLE = 0.05  # singular values above this share of the largest count in the rank of a trained layer


def figure_2(run: FigureRun) -> Reproduction:
    """Five linear layers with alpha held fixed: objective and singular values while the energy rises.

    Quick takes two starts instead of four, and half of the steps.
    """
    num_starts, num_steps = (2, 3000) if run.quick else (4, 6000)  # one start in 120 needs more than 3,000
    run.progress(f"{num_starts} starts: {num_steps} steps of {DEPTH} layers")
    drawn = [_gaussian_covariance(run.seed_of("alphacl-fig2", start)) for start in range(num_starts)]
    starts = [draw_layers([WIDTH] * (DEPTH + 1), generator=generator) for _, generator in drawn]
    x_alpha_SDD = torch.stack([x_alpha_DD for x_alpha_DD, _ in drawn])
    layers = [torch.stack(layer) for layer in zip(*starts, strict=True)]
    free = ascend(x_alpha_SDD, layers, num_steps=num_steps)
    # Corollary 3: each row of the layers below the last has norm 1 / sqrt(n_l).
    even = ascend(x_alpha_SDD, layers, num_steps=num_steps, per_filter=True)
    return Reproduction(
        name="alphacl-fig2",
        title="Deep linear layers under fixed importance do PCA",
        source="alphacl2022, Fig. 2",
        claims=_figure_2_claims(free, [alignment(weights) for weights in zip(*even.weights, strict=True)]),
        panels=_figure_2_panels(free),
        remarks=(
            "The paper gives neither data nor step for this figure, and its code is not public. Ours: Gaussian inputs, "
            "a second view with noise, random weights with rows of sum 1, all layers moved at once by a step of 0.05 "
            "over the largest gradient norm, then scaled back to Frobenius norm 1.",
            "A plain small step hardly moves: at a random start the gradients of five layers of norm 1 are orders of "
            "magnitude smaller than near the optimum.",
        ),
        settings={
            "seed": str(run.seed),
            "starts": str(num_starts),
            "steps": str(num_steps),
            "layers": str(DEPTH),
            "width": str(WIDTH),
            "samples": str(NUM_SAMPLES),
        },
    )


def figure_3(run: FigureRun) -> Reproduction:
    """Two layers on orthogonal modes: with ReLU and without, alpha held fixed and alpha of InfoNCE in training.

    Quick takes one start and 200 iterations instead of two and 5000: the shape, not the end.
    """
    num_starts, num_iterations = (1, 200) if run.quick else (2, 5000)
    seeds = [run.seed_of("alphacl-fig3", start) for start in range(num_starts)]
    fixed = [_ascend_both(seed, num_steps=1000 if run.quick else 3000) for seed in seeds]
    batches, trained = released_batches(NUM_BATCHES), {}
    for setting in SETTINGS:
        trained[setting.name] = []
        for start, seed in enumerate(seeds):
            run.progress(f"{setting.name}, start {start + 1} of {num_starts}: {num_iterations} iterations")
            trained[setting.name].append(_train(setting, batches, seed=seed, num_iterations=num_iterations))
    return Reproduction(
        name="alphacl-fig3",
        title="Two ReLU layers hold modes where linear layers hold one direction",
        source="alphacl2022, Fig. 3 and Theorem 6",
        claims=[*_fixed_claims(fixed), *_trained_claims(trained)],
        panels=_figure_3_panels(fixed[0], {name: ends[0] for name, ends in trained.items()}),
        remarks=(
            "The released script does not parse as it stands; its set-up is used with that fixed: BatchNorm after the "
            "ReLU, outputs of unit length. The theory of section 5 has neither. The other two rows have its energy and "
            "its constraint, layers of Frobenius norm 1 and outputs as they are, but alpha still moves with the batch.",
            "With alpha held fixed, as in the theorems, a global maximum has rank at most 2; with two modes rank 2 "
            "takes augmentation strong enough to push the diagonal of X_alpha below its off-diagonal size "
            "(alphacl2022.relu_optima). Higher ranks come with an alpha that moves to the pairs which the first "
            "modes leave unresolved; a linear network then has rank above 1 as well, so that rank alone is not the "
            "mark of ReLU.",
            "In the script's data 2 % of the samples of the smallest mode are negative (magnitude 1, noise 0.5); "
            "Assumption 1 does not hold for those.",
        ),
        settings={
            "seed": str(run.seed),
            "starts": str(num_starts),
            "iterations": str(num_iterations),
            "modes": str(MODES),
            "hidden": str(HIDDEN),
            "outputs": str(OUTPUTS),
            "batch": str(BATCH),
            "temperature": str(TEMPERATURE),
            "rate": str(RATE),
            "momentum": "0.9",
            "noise": str(NOISE),
        },
    )


# --- Fig. 2


def _gaussian_covariance(seed: int) -> tuple[Tensor, torch.Generator]:
    """Return X_alpha of Gaussian inputs with random weights, and the generator in its state after the draws."""
    generator = torch.Generator().manual_seed(seed)
    # Zero before rows are divided by their sums: the diagonal is no pair.
    alpha_NN = torch.rand(NUM_SAMPLES, NUM_SAMPLES, generator=generator, dtype=torch.float64).fill_diagonal_(0)
    x_ND = torch.randn(NUM_SAMPLES, WIDTH, generator=generator, dtype=torch.float64)
    other_ND = x_ND + 0.3 * torch.randn(NUM_SAMPLES, WIDTH, generator=generator, dtype=torch.float64)
    # Rows of sum 1, as those of InfoNCE are at epsilon = 0 (Theorem 2).
    return contrastive_covariance(alpha_NN / alpha_NN.sum(1, keepdim=True), x_ND, other_ND), generator


def _figure_2_claims(free: Ascent, filters: Sequence[Alignment]) -> list[Claim]:
    """Compare what Fig. 2 and its caption say with the worst of all starts."""
    early, last = (float(free.ratio[place].min()) for place in (100, -1))
    # Theorem 3: W_l = v_l v_{l-1}^T has the singular values 1, 0, 0, ...
    first_SL, second_SL = free.singular_values(slice(-1, None))[0].unbind(-1)
    first, second = float(first_SL.min()), float(second_SL.max())
    uneven = max(end.unevenness for end in filters)
    return [
        Claim("objective over lambda_max, end, worst start", 1.0, last, last >= 0.9999, "judged at 0.9999"),
        Claim("the same after 100 steps", "quickly", early, early >= 0.9, "judged at 0.9; steps are ours"),
        Claim("largest singular value, any layer, end", 1.0, first, first >= 0.999, "judged at 0.999"),
        Claim("second singular value, any layer, end", 0.0, second, second <= 0.05, "judged at 0.05"),
        Claim("per-filter norms: distance of |v_l| from 1/sqrt(n)", 0.0, uneven, uneven <= 0.01, "Corollary 3"),
    ]


def _figure_2_panels(free: Ascent) -> list[LinePanel]:
    """Draw the objective of every start and the singular values of the first one over the first 500 steps."""
    step_T = range(501)
    ratio_ST = free.ratio[:501].T.tolist()
    objective = [Series(f"start {n}", step_T, ratio_T) for n, ratio_T in enumerate(ratio_ST, start=1)]
    singular_TL2 = free.singular_values(slice(501))[:, 0]
    values = [
        Series(f"W{layer + 1} {name}", step_T, singular_TL2[:, layer, place].tolist())
        for place, name in enumerate(("largest", "second"))
        for layer in range(DEPTH)
    ]
    return [
        LinePanel("objective over its maximum", "step", "2 E / lambda_max", objective),
        LinePanel("singular values of the layers, first start", "step", "singular value", values),
    ]


# --- Fig. 3


@dataclass(frozen=True)
class _Setting:
    """A way to train two layers with InfoNCE: as released, or under the constraint and the energy of the theory."""

    name: str
    is_relu: bool
    is_released: bool


@dataclass(frozen=True)
class _TrainedLayers:
    """Two layers after training, with the concentration of the first one at some iterations."""

    w1_KM: Tensor
    w2_OK: Tensor
    iterations: list[int]
    concentration: list[float]


@dataclass(frozen=True)
class _FirstLayers:
    """First layers of the linear and of the ReLU network after ascent under one fixed alpha."""

    linear_KM: Tensor
    relu_KM: Tensor


RELEASED = _Setting("ReLU, released set-up", is_relu=True, is_released=True)
UNIT = _Setting("ReLU, layers of norm 1", is_relu=True, is_released=False)
LINEAR = _Setting("linear, layers of norm 1", is_relu=False, is_released=False)
SETTINGS = (RELEASED, UNIT, LINEAR)


def _ascend_both(seed: int, *, num_steps: int) -> _FirstLayers:
    """Train the linear and the ReLU network on data that obey Assumption 1, with a random fixed alpha."""
    generator = torch.Generator().manual_seed(seed)
    x_2NM = draw_mixture(MAGNITUDES, BATCH, spread=0.05, generator=generator)
    alpha_NN = torch.rand(BATCH, BATCH, generator=generator, dtype=torch.float64)
    x_alpha_MM = contrastive_covariance(alpha_NN / alpha_NN.sum(1, keepdim=True), *x_2NM)
    w1_KM, w2_OK = draw_layers([MODES, HIDDEN, OUTPUTS], generator=generator)
    linear_KM = ascend(x_alpha_MM, [w1_KM, w2_OK], num_steps=num_steps).weights[0]
    # Lemma 3: negative weights do nothing, so the ReLU network starts from the positive part.
    return _FirstLayers(linear_KM, ascend_sticky(x_alpha_MM, w1_KM.clamp(min=0), w2_OK, num_steps=num_steps)[0])


def released_batches(count: int) -> list[Tensor]:
    """Draw batches of two views (2, N, M), each seeded by its number as in the released script."""
    batches = []
    for number in range(count):
        generator = torch.Generator().manual_seed(number)
        mode_N = torch.randint(MODES, (BATCH,), generator=generator)
        noise_2N = NOISE * torch.randn(2, BATCH, generator=generator, dtype=torch.float64)
        # One mode per sample, of another size in each view: Assumption 1, save where noise turns a small mode negative.
        batches.append(F.one_hot(mode_N, MODES) * (MAGNITUDES[mode_N] + noise_2N)[:, :, None])
    return batches


def _train(setting: _Setting, batches: Sequence[Tensor], *, seed: int, num_iterations: int) -> _TrainedLayers:
    """Train by SGD on InfoNCE with same-view negatives; entries of a ReLU network's first layer stay >= 0."""
    weights = _initial_layers(setting, seed)
    # gain and bias of BatchNorm
    affine = [torch.ones(HIDDEN, dtype=torch.float64), torch.zeros(HIDDEN, dtype=torch.float64)]
    parameters = [p.requires_grad_() for p in (weights + affine if setting.is_released else weights)]
    optimiser = torch.optim.SGD(parameters, lr=RATE, momentum=0.9, weight_decay=5e-3 if setting.is_released else 0.0)
    # epsilon = 1. The released logits are z1 z1^T with z1 . z2 on the diagonal: negatives are of the same view.
    loss = InfoNCE(TEMPERATURE, 1.0, "same-view", setting.is_released, anchors="first")
    seen: list[int] = []
    concentration: list[float] = []
    for iteration in range(num_iterations):
        if iteration % max(num_iterations // 50, 1) == 0:
            seen.append(iteration)
            concentration.append(_concentration(weights[0]))
        z0, z1 = (_outputs(setting, parameters, x_NM) for x_NM in batches[iteration % len(batches)])
        optimiser.zero_grad()
        loss(z0, z1).backward()
        optimiser.step()
        _constrain(setting, weights)
    return _TrainedLayers(weights[0].detach(), weights[1].detach(), seen, concentration)


def _initial_layers(setting: _Setting, seed: int) -> list[Tensor]:
    """Draw layers uniformly, as torch's linear layers begin, and constrain them."""
    generator = torch.Generator().manual_seed(seed)
    shapes = ((HIDDEN, MODES), (OUTPUTS, HIDDEN))
    layers = [(2 * torch.rand(s, generator=generator, dtype=torch.float64) - 1) / s[1] ** 0.5 for s in shapes]
    _constrain(setting, layers)
    return layers


def _outputs(setting: _Setting, parameters: Sequence[Tensor], x_NM: Tensor) -> Tensor:
    """Apply both layers, with ReLU and batch norm between them if the setting has these."""
    hidden_NK = x_NM @ parameters[0].T
    hidden_NK = torch.relu(hidden_NK) if setting.is_relu else hidden_NK
    if setting.is_released:
        # Each view by its own batch statistics, without running averages.
        hidden_NK = F.batch_norm(hidden_NK, None, None, *parameters[2:], training=True)
    return hidden_NK @ parameters[1].T


@torch.no_grad()
def _constrain(setting: _Setting, weights: Sequence[Tensor]) -> None:
    """Project onto the constraint: non-negative under a ReLU, Frobenius norm 1 unless as released."""
    if setting.is_relu:
        # As released: after every step, not in the forward pass.
        weights[0].clamp_(min=0.0)
    if not setting.is_released:
        for layer in weights:
            # Differs from the released option, which keeps the initial norm: Eq. 11 asks for 1.
            layer.div_(layer.norm())


def _concentration(w_KM: Tensor) -> float:
    """Mean over nodes of the largest entry of their unit weights, signs aside."""
    return describe_first_layer(w_KM.detach().abs()).concentration


def _rank(w_KM: Tensor) -> int:
    """The number of singular values above the share ``VISIBLE`` of the largest one."""
    singular = torch.linalg.svdvals(w_KM)
    return int((singular > VISIBLE * singular[0]).sum())


def _fixed_claims(fixed: Sequence[_FirstLayers]) -> list[Claim]:
    """Check Theorem 3 on the linear network and Theorem 6 on the ReLU network."""
    linear, relu = [_rank(run.linear_KM) for run in fixed], [_rank(run.relu_KM) for run in fixed]
    first_layers = [describe_first_layer(run.relu_KM) for run in fixed]
    # Theorem 6: W1 = v e_m^T, or rank above 1.
    holds = all(layer.single_mode is not None or layer.rank > 1 for layer in first_layers)
    modes = ", ".join("several modes" if f.single_mode is None else f"mode {f.single_mode + 1}" for f in first_layers)
    return [
        Claim("rank of W1, linear, alpha fixed", "1", _joined(linear), set(linear) == {1}, "Theorem 3"),
        Claim(
            "W1, ReLU, alpha fixed",
            "one mode, or rank > 1",
            f"{modes} (rank {_joined(relu)})",
            holds,
            "Theorem 6; modes are numbered from the largest magnitude",
        ),
    ]


def _trained_claims(trained: dict[str, list[_TrainedLayers]]) -> list[Claim]:
    """Compare ranks and concentration of the first layers after training with InfoNCE."""
    ranks = {name: [_rank(run.w1_KM) for run in runs] for name, runs in trained.items()}
    sharp = {name: sum(_concentration(run.w1_KM) for run in runs) / len(runs) for name, runs in trained.items()}
    more = "more diverse than rank 1"
    return [
        Claim("rank of W1, ReLU, released set-up", more, _joined(ranks[RELEASED.name]), min(ranks[RELEASED.name]) > 1),
        Claim("rank of W1, ReLU, layers of norm 1", more, _joined(ranks[UNIT.name]), min(ranks[UNIT.name]) > 1),
        Claim(
            "rank of W1, linear, layers of norm 1",
            "1 while alpha is fixed",
            _joined(ranks[LINEAR.name]),
            None,
            "alpha moves here, and Theorem 3 says nothing about that: rank above 1 is not the mark of ReLU",
        ),
        Claim(
            "concentration: ReLU released, ReLU norm 1, linear",
            "-",
            ", ".join(f"{sharp[setting.name]:.3f}" for setting in SETTINGS),
            None,
            "1 where every node sees one mode; the released script prints it, the paper does not",
        ),
    ]


def _joined(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers))


def _figure_3_panels(fixed: _FirstLayers, trained: dict[str, _TrainedLayers]) -> list[LinePanel | MatrixPanel]:
    """Draw weights as heat maps, singular values and the concentration over training, all of the first start."""
    layers = {
        "linear, alpha fixed": fixed.linear_KM,
        "ReLU, alpha fixed": fixed.relu_KM,
        **{name: run.w1_KM for name, run in trained.items()},
    }
    singular = {name: torch.linalg.svdvals(w_KM) for name, w_KM in layers.items()}
    spectra = [Series(name, range(1, len(s) + 1), (s / s[0]).tolist()) for name, s in singular.items()]
    courses = [Series(name, run.iterations, run.concentration) for name, run in trained.items()]
    released = trained[RELEASED.name]
    order = _node_order(released.w1_KM)
    maps = [_heat_map(f"W1: {name}", w_KM[_node_order(w_KM)], "mode") for name, w_KM in layers.items()]
    # Fig. 3 shows W1 and W2^T W2; nodes have no order of their own, so they are put in that of their modes.
    gram_KK = (released.w2_OK.T @ released.w2_OK)[order][:, order]
    return [
        *maps,
        _heat_map(f"W2^T W2: {RELEASED.name}", gram_KK, "node"),
        LinePanel("singular values of W1", "index", "value over the largest", spectra),
        LinePanel("concentration of the nodes", "iteration", "largest share of a node", courses),
    ]


def _node_order(w_KM: Tensor) -> Tensor:
    """Indices of the nodes, sorted by the mode with their largest weight."""
    return w_KM.abs().argmax(dim=1).argsort(stable=True)


def _heat_map(title: str, values: Tensor, column: str) -> MatrixPanel:
    """Draw entries divided by the largest one, to two digits."""
    # + 0.0 turns -0.0 into 0.0.
    scaled = (values / values.abs().max()).mul(100).round().div(100) + 0.0
    rows, columns = (
        [f"{word} {n + 1}" for n in range(size)] for word, size in zip(("node", column), values.shape, strict=True)
    )
    return MatrixPanel(title, scaled.tolist(), rows, columns)
