"""Figures 1 and 2 of imbalanced2026: three classes of pictures collapse to the optimal geometry.

What the figures claim stands beside the exact optimum and a trained network.
"""

# N samples, C classes, D dimensions

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from counterpoint.papers.imbalanced2026.plane_embeddings import (
    BATCH_SIZE,
    LEARNING_RATE,
    ClassSamples,
    PlaneEmbedding,
    PlanePlan,
    embed_in_plane,
    take_classes,
)
from counterpoint.report.theory_pages.reproduction import (
    Claim,
    FigureRun,
    MatrixPanel,
    Panel,
    PointPanel,
    Reproduction,
    Series,
)
from counterpoint.theory.collapse.collapse_bounds import collapse_bounds
from counterpoint.theory.collapse.minority_collapse import collapse_threshold
from counterpoint.theory.features.unconstrained_features import class_means, within_class_variance
from counterpoint.theory.geometry.optimal_geometry import Geometry, optimal_geometry

NUM_NEGATIVES = 512
PRINTED_TOLERANCE = 0.015  # the paper's solver stopped near the optimum; its values fit k = 5 to 12 better than 512
TRAINED_TOLERANCE = 0.03  # of a small network, from the exact optimum; the paper's own is 0.01 off
COLLAPSED_VARIANCE = 0.01  # of unit vectors
LEGS_SHARE = 0.1  # an isosceles triangle's legs differ by less than this share of what they differ from the base
MERGED = 0.999  # cosine of classes that have merged, or nearly
MOST_POINTS = 250  # drawn of each class
LARGE_SIDE = 16  # pixels; larger pictures go to the perceptron, which learns them by heart in a minute
EPOCHS = {"convnet": 60, "mlp": 100}
QUICK_EPOCHS = {"convnet": 40, "mlp": 15}


@dataclass(frozen=True)
class Printed:
    """The paper's numbers for one setting.

    Attributes:
        majority: cosine of the majority with a minority, by CVX.
        minorities: cosine of the two minorities, by CVX.
        trained: entries 12, 13 and 23 of the network's Gram matrix.
    """

    majority: float
    minorities: float
    trained: tuple[float, float, float]


# section 7.1, matrices "CVX-package" (majority, minorities) and "Neural-Network" (trained)
FIGURE_1: Mapping[str, Printed] = {
    "SCL": Printed(-0.6889, -0.0480, (-0.6884, -0.6910, -0.0485)),
    "UCL": Printed(-0.6284, -0.2105, (-0.6301, -0.6271, -0.2097)),
}
# section 7.2
FIGURE_2: Mapping[str, Printed] = {
    "SCL": Printed(-1.0, 1.0, (-1.0, -1.0, 1.0)),
    "UCL": Printed(-1.0, 1.0, (-0.9997, -0.9997, 0.9999)),
}


@dataclass(frozen=True)
class Outcome:
    """A trained network beside the optimum of its setting.

    Attributes:
        setting: SCL (negatives of other classes) or UCL (of all).
        embedding: where the samples were and are.
        gram: inner products of the trained class means, (c, c).
        variances: within-class variance before and after.
        num_strays: samples that end on the far side of their class mean.
        gram_without_strays: inner products of the trained class means without them, (c, c).
        optimum: what theory says for the same proportions and number of negatives.
        printed: what the paper says.
    """

    setting: str
    embedding: PlaneEmbedding
    gram: Tensor
    variances: tuple[float, float]
    num_strays: int
    gram_without_strays: Tensor
    optimum: Geometry
    printed: Printed


def measure_outcome(setting: str, printed: Printed, taken: ClassSamples, embedding: PlaneEmbedding) -> Outcome:
    """Measure a trained network, and find the optimum of its setting.

    Args:
        setting: SCL or UCL.
        printed: what the paper says.
        taken: the samples.
        embedding: where they were and are.
    """
    shares_C = torch.tensor(taken.counts, dtype=torch.float64) / len(taken.labels)
    before_ND, after_ND = embedding.before.double(), embedding.after.double()
    means_CD = class_means(after_ND, taken.labels)
    variances = (within_class_variance(before_ND, taken.labels), within_class_variance(after_ND, taken.labels))
    optimum = optimal_geometry(shares_C, num_negatives=NUM_NEGATIVES, supervised=setting == "SCL")
    # opposite to the mean the loss has no slope along the circle: such samples stay where they are and shorten the mean
    is_near_N = (after_ND * means_CD[taken.labels]).sum(1) > 0
    near_CD = class_means(after_ND[is_near_N], taken.labels[is_near_N])
    num_strays = int((~is_near_N).sum())
    return Outcome(
        setting, embedding, means_CD @ means_CD.T, variances, num_strays, near_CD @ near_CD.T, optimum, printed
    )


def geometry_claims(outcome: Outcome) -> list[Claim]:
    """The optimum beside CVX, the trained network beside the paper's, and the collapse."""
    setting, printed, optimal_CC = outcome.setting, outcome.printed, outcome.optimum.gram
    ours, trained = _corner(optimal_CC), _corner(outcome.gram)
    deviation, printed_deviation = _deviation(trained, ours), _deviation(printed.trained, ours)
    before, after = outcome.variances
    return [
        _value_claim(f"{setting}: optimal cosine of majority and minority", printed.majority, ours[0]),
        _value_claim(f"{setting}: optimal cosine of the two minorities", printed.minorities, ours[2]),
        Claim(
            f"{setting}: Gram matrix of the trained class means, entries 12, 13, 23",
            _triple(printed.trained),
            _triple(trained),
            deviation <= TRAINED_TOLERANCE,
            f"Largest difference from the exact optimum {deviation:.4f} (agreement: at most {TRAINED_TOLERANCE}); that "
            f"of the paper's network {printed_deviation:.4f}.{_strays_note(outcome)}",
        ),
        Claim(
            f"{setting}: all samples of a class nearly collapse to its mean",
            "within-class variance nearly 0",
            f"{after:.2g}, before training {before:.2g}",
            after <= COLLAPSED_VARIANCE,
        ),
    ]


def _strays_note(outcome: Outcome) -> str:
    """What the samples do that training left at the wrong end of the circle."""
    if outcome.num_strays == 0:
        return ""
    without = _triple(_corner(outcome.gram_without_strays))
    return (
        f" {outcome.num_strays} samples ended on the far side of their class mean; opposite to it the loss has no "
        f"slope along the circle. Without them: {without}."
    )


def _value_claim(what: str, printed: float, ours: float) -> Claim:
    """A value of the optimum beside the printed one."""
    # printed values have four digits
    note = f"Agreement within {PRINTED_TOLERANCE}." if abs(printed - ours) > 1e-4 else ""
    return Claim(what, printed, ours, abs(printed - ours) <= PRINTED_TOLERANCE, note)


def triangle_claim(outcome: Outcome) -> Claim:
    """Isosceles, as the minorities are of one size, and not equilateral, as the majority is not."""
    first, second, third = _corner(outcome.gram)
    legs, base = abs(first - second), abs((first + second) / 2 - third)
    return Claim(
        f"{outcome.setting}: the trained means form an isosceles, not an equilateral triangle",
        "yes",
        f"cosines of the legs differ by {legs:.4f}, base and legs by {base:.4f}",
        legs <= LEGS_SHARE * base,
    )


def distance_claim(scl: Outcome, ucl: Outcome) -> Claim:
    """The sentence about Fig. 1 that the paper's own matrices contradict."""
    apart, printed = (
        [(2 - 2 * cosine) ** 0.5 for cosine in cosines]
        for cosines in (
            # cosine of the two minorities
            (_corner(ucl.gram)[2], _corner(scl.gram)[2]),
            (ucl.printed.trained[2], scl.printed.trained[2]),
        )
    )
    return Claim(
        "the two minorities are much nearer to each other in UCL than in SCL",
        "yes (text of 7.1)",
        f"no: distance {apart[0]:.3f} in UCL, {apart[1]:.3f} in SCL",
        apart[0] < apart[1],
        f"The paper's own matrices say the contrary of its text: {printed[0]:.3f} in UCL, {printed[1]:.3f} in SCL.",
    )


def merging_claim(outcome: Outcome) -> Claim:
    """Whether the minorities merge at this share, and from which on they do."""
    cosine = float(outcome.optimum.gram[1, 2])
    exact = collapse_threshold(3, num_negatives=NUM_NEGATIVES, supervised=outcome.setting == "SCL").share
    return Claim(
        f"{outcome.setting}: the minorities' optimal means at a majority share of 0.9",
        "one vector, or nearly",
        f"cosine {cosine:.5f}; one vector from {exact:.5f} on",
        cosine >= MERGED,
        "The paper has sufficient conditions only; the share from which minorities merge is exact.",
    )


def threshold_claims() -> list[Claim]:
    """The sufficient thresholds that 7.2 names."""
    claims = []
    for setting, printed, note in (
        ("UCL", 0.9239, "Section 7.2 prints 0.9239; Corollary 6 itself gives 0.9292 for three classes."),
        ("SCL", 0.9438, ""),
    ):
        supervised = setting == "SCL"
        stated = collapse_bounds(3, num_negatives=NUM_NEGATIVES, supervised=supervised).stated
        assert stated is not None
        corollary = f"Corollary {7 if supervised else 6}"
        what = f"{setting}: majority share that {corollary} calls sufficient for merging"
        claims.append(Claim(what, printed, stated, abs(printed - stated) < 1e-4, note))
    return claims


def _corner(gram_CC: Tensor) -> tuple[float, float, float]:
    """Entries 12, 13 and 23."""
    return float(gram_CC[0, 1]), float(gram_CC[0, 2]), float(gram_CC[1, 2])


def _deviation(entries: Sequence[float], optimal: Sequence[float]) -> float:
    """Largest difference."""
    return max(abs(a - b) for a, b in zip(entries, optimal, strict=True))


def _triple(values: Sequence[float]) -> str:
    """Three cosines, written out."""
    return ", ".join(f"{value:.4f}" for value in values)


def figure_1(run: FigureRun) -> Reproduction:
    """Class shares 1/2, 1/4, 1/4: samples collapse to their class means, which form the optimal isosceles triangle.

    Source: imbalanced2026, Fig. 1 and section 7.1.

    The data are CIFAR-10 in any form that training takes, or other labelled samples; None is the bundled digits.
    """
    # 1500, 750 and 750 samples in the paper
    taken, plan, outcomes = _experiment((2, 1, 1), FIGURE_1, run)
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


def figure_2(run: FigureRun) -> Reproduction:
    """Class shares 0.9, 0.05, 0.05: the two minorities merge opposite the majority.

    Source: imbalanced2026, Fig. 2 and section 7.2.

    The data are CIFAR-10 in any form that training takes, or other labelled samples; None is the bundled digits.
    """
    # 2700, 150 and 150 samples in the paper
    taken, plan, outcomes = _experiment((18, 1, 1), FIGURE_2, run)
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


def _experiment(
    ratio: Sequence[int], printed: Mapping[str, Printed], run: FigureRun
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
        # spread over the class, which may be in an order of its own; a fixed choice, as the figure is made again
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
        "batch size": str(min(BATCH_SIZE, len(taken.labels))),
        "negatives": str(plan.num_negatives),
        "learning rate": f"{LEARNING_RATE:g}",
        "seed": str(plan.seed),
    }
