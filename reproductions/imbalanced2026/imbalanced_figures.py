"""Figures 1 and 2 of imbalanced2026: three classes of pictures collapse to the optimal geometry.

What the figures claim stands beside the exact optimum and a trained network.
"""

# N samples, D dimensions

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from counterpoint.engine.placement import place
from counterpoint.nn.encoders import check_encoder_name
from reproductions.imbalanced2026.imbalanced_claims import (
    FIGURE_1,
    FIGURE_2,
    NUM_NEGATIVES,
    Outcome,
    Printed,
    class_scatter,
    distance_claim,
    geometry_claims,
    measure_outcome,
    merging_claim,
    threshold_claims,
    triangle_claim,
)
from reproductions.imbalanced2026.plane_embeddings import (
    BATCH_SIZE,
    LEARNING_RATE,
    ClassSamples,
    PlanePlan,
    embed_in_plane,
    take_classes,
)
from reproductions.panels import MatrixPanel, Panel, PointPanel, Series, TablePanel
from reproductions.reproduction import FigureRun, Reproduction

MOST_POINTS = 250  # drawn of each class
LARGE_SIDE = 16  # pixels; larger pictures go to the perceptron, which learns them by heart in a minute
EPOCHS = {"convnet": 60, "mlp": 100}
QUICK_EPOCHS = {"convnet": 40, "mlp": 15}
NETWORKS = {"convnet": "four convolutions", "mlp": "a perceptron with two hidden layers on the pixels"}
CHOSEN_EPOCHS, QUICK_CHOSEN_EPOCHS = 40, 5  # of an encoder that was asked for


def figure_1(run: FigureRun) -> Reproduction:
    """Class shares 1/2, 1/4, 1/4: samples collapse to their class means, which form the optimal isosceles triangle.

    Source: imbalanced2026, Fig. 1 and section 7.1.

    The data are CIFAR-10 in any form that training takes, or other labelled samples; None is the bundled digits.
    """
    # 1500, 750 and 750 samples in the paper
    classes, plan, outcomes = _train_both((2, 1, 1), FIGURE_1, run)
    claims = [claim for outcome in outcomes for claim in geometry_claims(outcome)]
    claims += [triangle_claim(outcome) for outcome in outcomes]
    return Reproduction(
        "imbalanced-fig1",
        "Three classes with shares 1/2, 1/4 and 1/4 collapse to their means",
        "imbalanced2026, Fig. 1",
        [*claims, distance_claim(*outcomes)],
        _panels(classes, outcomes),
        remarks=[_scale_remark(classes, plan), VIEW_REMARK, PRINTED_REMARK],
        settings=_settings(classes, plan),
    )


def figure_2(run: FigureRun) -> Reproduction:
    """Class shares 0.9, 0.05, 0.05: the two minorities merge opposite the majority.

    Source: imbalanced2026, Fig. 2 and section 7.2.

    The data are CIFAR-10 in any form that training takes, or other labelled samples; None is the bundled digits.
    """
    # 2700, 150 and 150 samples in the paper
    classes, plan, outcomes = _train_both((18, 1, 1), FIGURE_2, run)
    claims = [claim for outcome in outcomes for claim in geometry_claims(outcome)]
    return Reproduction(
        "imbalanced-fig2",
        "Of three classes with shares 0.9, 0.05 and 0.05 the minorities merge",
        "imbalanced2026, Fig. 2",
        [*claims, *map(merging_claim, outcomes), *threshold_claims()],
        _panels(classes, outcomes),
        remarks=[_scale_remark(classes, plan), VIEW_REMARK, BOUNDARY_REMARK],
        settings=_settings(classes, plan),
    )


VIEW_REMARK = (
    "One view of each sample and no augmentation, as Eq. 20 has it. The loss takes two views and is given the same "
    "vectors twice: each then counts twice among anchors, positives and negatives, which changes no mean, and its k "
    "negatives are drawn twice independently, which changes no expectation."
)
PRINTED_REMARK = (
    "The optimum is exact for k = 512, with a certificate. The paper's values by CVX lie up to 0.011 beside it: those "
    "of SCL fit k = 5 to 7 and those of UCL about k = 12, and neither matrix has rank 2 as it should."
)
BOUNDARY_REMARK = (
    "In UCL a share of 0.9 lies on the boundary: minorities merge from 0.90005 on with k = 512 and from 0.9002 "
    "on without limit, so that the optimum is not quite the paper's matrix of ones. The risk is nearly flat there, and "
    "training stops anywhere close by."
)


def _train_both(
    ratio: Sequence[int], printed: Mapping[str, Printed], run: FigureRun
) -> tuple[ClassSamples, PlanePlan, list[Outcome]]:
    """Train an encoder in both settings, SCL and UCL, and measure the outcomes."""
    if run.encoder is not None:
        check_encoder_name(run.encoder)
    classes = take_classes(run.data, ratio)
    plan = _training_plan(classes, run)
    run.progress(f"{classes.origin}; {plan.encoder}, {plan.epochs} epochs for each of {' and '.join(printed)}")
    outcomes = []
    for setting, numbers in printed.items():
        embedding = embed_in_plane(classes, plan, supervised=setting == "SCL", progress=run.progress)
        outcomes.append(measure_outcome(setting, numbers, classes, embedding))
    return classes, plan, outcomes


def _training_plan(classes: ClassSamples, run: FigureRun) -> PlanePlan:
    """Plan the training of the encoder that was asked for, or of a small one that suits samples of this size."""
    if run.encoder is not None:
        epochs = run.epochs or (QUICK_CHOSEN_EPOCHS if run.quick else CHOSEN_EPOCHS)
        device = place("auto", "fp32").device
        return PlanePlan(epochs, NUM_NEGATIVES, run.encoder, run.seed, device, pass_size=BATCH_SIZE, num_lines=epochs)
    is_large = classes.samples.ndim == 2 or max(classes.samples.shape[2:]) > LARGE_SIDE
    encoder = "mlp" if is_large else "convnet"
    return PlanePlan(run.epochs or (QUICK_EPOCHS if run.quick else EPOCHS)[encoder], NUM_NEGATIVES, encoder, run.seed)


def _panels(classes: ClassSamples, outcomes: Sequence[Outcome]) -> list[Panel]:
    """Draw three clouds of points as in the paper and the four matrices, and add two tables."""
    clouds = [("before training", outcomes[0].embedding.before)]
    clouds += [(f"after training, {outcome.setting}", outcome.embedding.after) for outcome in outcomes]
    panels: list[Panel] = [_cloud(title, z_ND, classes) for title, z_ND in clouds]
    shares = [count / len(classes.labels) for count in classes.counts]
    names = [f"{name} ({share:.2g})" for name, share in zip(classes.class_names, shares, strict=True)]
    for outcome in outcomes:
        panels.append(MatrixPanel(f"{outcome.setting}: trained network", outcome.gram.tolist(), names, names))
        panels.append(MatrixPanel(f"{outcome.setting}: optimum", outcome.optimum.gram.tolist(), names, names))
    return [*panels, _scatter_table(classes, outcomes), _certificate_table(outcomes)]


def _scatter_table(classes: ClassSamples, outcomes: Sequence[Outcome]) -> TablePanel:
    """Scatter of each class before and after training, and the length of its mean."""
    head = ["class", "samples", "scatter before"]
    scatters = class_scatter(outcomes[0].embedding.before, classes.labels)
    rows = [
        [name, str(count), f"{scatter:.3g}"]
        for name, count, scatter in zip(classes.class_names, classes.counts, scatters, strict=True)
    ]
    for outcome in outcomes:
        head += [f"scatter, {outcome.setting}", f"length of the mean, {outcome.setting}"]
        lengths = outcome.gram.diagonal().sqrt().tolist()
        scatters = class_scatter(outcome.embedding.after, classes.labels)
        for row, scatter, length in zip(rows, scatters, lengths, strict=True):
            row += [f"{scatter:.3g}", f"{length:.4f}"]
    return TablePanel("Scatter of each class: mean squared distance of its samples from their mean", head, rows)


def _certificate_table(outcomes: Sequence[Outcome]) -> TablePanel:
    """Risk, lower bound and certificate of each optimum."""
    rows = [
        [outcome.setting, f"{best.risk:.8f}", f"{best.lower_bound:.8f}", f"{best.duality_gap:.1e}", best.status]
        for outcome in outcomes
        for best in [outcome.optimum]
    ]
    head = ["setting", "risk", "no class means have less than", "gap", "certificate"]
    return TablePanel("The optimum and its certificate", head, rows)


def _cloud(title: str, z_ND: Tensor, classes: ClassSamples) -> PointPanel:
    """Draw at most ``MOST_POINTS`` evenly spaced samples of each class in the plane."""
    series = []
    for number, name in enumerate(classes.class_names):
        points = z_ND[classes.labels == number]
        # spread over the class, which may be in an order of its own; a fixed choice, as the figure is made again
        points = points[torch.linspace(0, len(points) - 1, min(len(points), MOST_POINTS)).long()]
        series.append(Series(name, points[:, 0].tolist(), points[:, 1].tolist()))
    return PointPanel(title, "first dimension", "second dimension", series)


def _scale_remark(classes: ClassSamples, plan: PlanePlan) -> str:
    """Tell in which sizes the data, the encoder and the training differ from the paper's."""
    network = NETWORKS.get(plan.encoder, plan.encoder)
    return (
        f"{classes.origin}, {', '.join(map(str, classes.counts))} of the classes {', '.join(classes.class_names)}; "
        f"encoder: {network}, head Linear, BatchNorm, ReLU, Linear to the unit disc. The paper has 3000 pictures of "
        f"CIFAR-10, ResNet-50 and 1000 epochs at a constant rate, here {plan.epochs} with a rate that falls to zero. "
        f"At most {MOST_POINTS} points of each class are drawn."
    )


def _settings(classes: ClassSamples, plan: PlanePlan) -> dict[str, str]:
    """Sizes, rates and seed that the numbers depend on."""
    return {
        "samples": " + ".join(map(str, classes.counts)),
        "sample": " x ".join(map(str, classes.samples.shape[1:])),
        "encoder": plan.encoder,
        "epochs": str(plan.epochs),
        "batch size": str(min(BATCH_SIZE, len(classes.labels))),
        "negatives": str(plan.num_negatives),
        "learning rate": f"{LEARNING_RATE:g}",
        "seed": str(plan.seed),
        "device": plan.device,
    }
