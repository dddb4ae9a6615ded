"""Figures 1 and 2 of the imbalanced-geometry paper: three classes of pictures collapse to the optimal geometry."""

# N samples, C classes

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from counterpoint.papers.imbalanced2026.imbalanced_claims import (
    NUM_NEGATIVES,
    Outcome,
    Printed,
    distance_claim,
    geometry_claims,
    measure_outcome,
    merging_claim,
    threshold_claims,
    triangle_claim,
)
from counterpoint.papers.imbalanced2026.plane_embeddings import (
    ClassSamples,
    PlanePlan,
    Progress,
    embed_in_plane,
    take_classes,
)
from counterpoint.theory.reproduction import MatrixPanel, Panel, PointPanel, Reproduction, Series, ignore

MOST_POINTS = 250  # drawn of each class
LARGE_SIDE = 16  # pixels; larger pictures go to the perceptron, which learns them by heart in a minute
EPOCHS = {"convnet": 60, "mlp": 100}
QUICK_EPOCHS = {"convnet": 40, "mlp": 15}
FIGURE_1: Mapping[str, Printed] = {
    "SCL": Printed(-0.6889, -0.0480, (-0.6884, -0.6910, -0.0485)),
    "UCL": Printed(-0.6284, -0.2105, (-0.6301, -0.6271, -0.2097)),
}
FIGURE_2: Mapping[str, Printed] = {
    "SCL": Printed(-1.0, 1.0, (-1.0, -1.0, 1.0)),
    "UCL": Printed(-1.0, 1.0, (-0.9997, -0.9997, 0.9999)),
}


def figure_1(
    *, seed: int = 0, quick: bool = False, progress: Progress = ignore, data: str | None = None
) -> Reproduction:
    """Class shares 1/2, 1/4, 1/4: samples collapse to their class means, which form the optimal isosceles triangle.

    Source: imbalanced2026, Fig. 1 and section 7.1.

    Args:
        seed: of weights, order and drawn negatives.
        quick: fewer epochs.
        progress: takes a line from time to time.
        data: CIFAR-10 in any form that training takes, or other labelled samples; None is the bundled digits.
    """
    taken, plan, outcomes = _experiment((2, 1, 1), FIGURE_1, _Run(seed, quick, progress, data))
    claims = [claim for outcome in outcomes for claim in geometry_claims(outcome)]
    claims += [triangle_claim(outcome) for outcome in outcomes]
    return Reproduction(
        "imbalanced-fig1",
        "Three classes with shares 1/2, 1/4 and 1/4 collapse to their means",
        "imbalanced2026, Fig. 1",
        [*claims, distance_claim(*outcomes)],
        _panels(taken, outcomes),
        remarks=[_scale_remark(taken, plan), VIEW_REMARK, PRINTED_REMARK],
        settings=_settings(taken, plan),
    )


def figure_2(
    *, seed: int = 0, quick: bool = False, progress: Progress = ignore, data: str | None = None
) -> Reproduction:
    """Class shares 0.9, 0.05, 0.05: the two minorities merge opposite the majority.

    Source: imbalanced2026, Fig. 2 and section 7.2.

    Args:
        seed: of weights, order and drawn negatives.
        quick: fewer epochs.
        progress: takes a line from time to time.
        data: CIFAR-10 in any form that training takes, or other labelled samples; None is the bundled digits.
    """
    taken, plan, outcomes = _experiment((18, 1, 1), FIGURE_2, _Run(seed, quick, progress, data))
    claims = [claim for outcome in outcomes for claim in geometry_claims(outcome)]
    return Reproduction(
        "imbalanced-fig2",
        "Of three classes with shares 0.9, 0.05 and 0.05 the minorities merge",
        "imbalanced2026, Fig. 2",
        [*claims, *map(merging_claim, outcomes), *threshold_claims()],
        _panels(taken, outcomes),
        remarks=[_scale_remark(taken, plan), VIEW_REMARK, BOUNDARY_REMARK],
        settings=_settings(taken, plan),
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


@dataclass(frozen=True)
class _Run:
    """What the caller of a figure asked for."""

    seed: int
    quick: bool
    progress: Progress
    data: str | None


def _experiment(
    ratio: Sequence[int], printed: Mapping[str, Printed], run: _Run
) -> tuple[ClassSamples, PlanePlan, list[Outcome]]:
    """Train in both settings."""
    taken = take_classes(run.data, ratio)
    run.progress(taken.origin)
    is_large = taken.samples.ndim == 2 or max(taken.samples.shape[2:]) > LARGE_SIDE
    encoder = "mlp" if is_large else "convnet"
    plan = PlanePlan(
        (QUICK_EPOCHS if run.quick else EPOCHS)[encoder], num_negatives=NUM_NEGATIVES, encoder=encoder, seed=run.seed
    )
    outcomes = []
    for setting, numbers in printed.items():
        embedding = embed_in_plane(taken, plan, supervised=setting == "SCL", progress=run.progress)
        outcomes.append(measure_outcome(setting, numbers, taken, embedding))
    return taken, plan, outcomes


def _panels(taken: ClassSamples, outcomes: Sequence[Outcome]) -> list[Panel]:
    """Three clouds of points as in the paper, and the four matrices."""
    clouds = [("before training", outcomes[0].embedding.before)]
    clouds += [(f"after training, {outcome.setting}", outcome.embedding.after) for outcome in outcomes]
    panels: list[Panel] = [_cloud(title, z_ND, taken) for title, z_ND in clouds]
    shares = [count / len(taken.labels) for count in taken.counts]
    names = [f"{name} ({share:.2g})" for name, share in zip(taken.class_names, shares, strict=True)]
    for outcome in outcomes:
        panels.append(MatrixPanel(f"{outcome.setting}: trained network", outcome.gram.tolist(), names, names))
        panels.append(MatrixPanel(f"{outcome.setting}: optimum", outcome.optimum.gram.tolist(), names, names))
    return panels


def _cloud(title: str, z_ND: Tensor, taken: ClassSamples) -> PointPanel:
    """Evenly spaced samples of each class in the plane."""
    series = []
    for number, name in enumerate(taken.class_names):
        points = z_ND[taken.labels == number]
        points = points[torch.linspace(0, len(points) - 1, min(len(points), MOST_POINTS)).long()]
        series.append(Series(name, points[:, 0].tolist(), points[:, 1].tolist()))
    return PointPanel(title, "first dimension", "second dimension", series)


def _scale_remark(taken: ClassSamples, plan: PlanePlan) -> str:
    """What is smaller than in the paper."""
    network = "four convolutions" if plan.encoder == "convnet" else "a perceptron with two hidden layers on the pixels"
    return (
        f"{taken.origin}, {', '.join(map(str, taken.counts))} of the classes {', '.join(taken.class_names)}; encoder: "
        f"{network}, head Linear, BatchNorm, ReLU, Linear to the unit disc. The paper has 3000 pictures of CIFAR-10, "
        f"ResNet-50 and 1000 epochs at a constant rate, here {plan.epochs} with a rate that falls to zero. At most "
        f"{MOST_POINTS} points of each class are drawn."
    )


def _settings(taken: ClassSamples, plan: PlanePlan) -> dict[str, str]:
    """Sizes and rates."""
    return {
        "samples": " + ".join(map(str, taken.counts)),
        "encoder": plan.encoder,
        "epochs": str(plan.epochs),
        "batch size": str(min(plan.batch_size, len(taken.labels))),
        "negatives": str(plan.num_negatives),
        "learning rate": f"{plan.learning_rate:g}",
        "seed": str(plan.seed),
    }
