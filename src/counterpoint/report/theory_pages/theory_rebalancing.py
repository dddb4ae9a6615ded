"""What brings the optimal geometry back to the simplex, as sentences, a table of classes and the cosines reached."""

from counterpoint.report.charts.figures import data_table
from counterpoint.report.markup import Markup, element, join
from counterpoint.report.theory_pages.reproduction import MatrixPanel
from counterpoint.report.theory_pages.theory_document import TheorySection
from counterpoint.report.theory_pages.theory_matrix import matrix_figure
from counterpoint.report.wording import count, number
from counterpoint.theory.collapse.rebalancing import RebalancingPlan

MAX_ROWS = 40  # of the table of classes
CLASS_COLUMNS = ("class", "share", "sampled as", "draws of a sample", "anchor weight", "weight of a sample")
COLUMN_NOTE = (
    "Sampling: the share of each class in the batches, and how often each of its samples is drawn in an epoch of the "
    "same length. Weighing: the weight of each class as anchor, and the factor of each of its samples' terms."
)


def rebalancing_section(plan: RebalancingPlan) -> TheorySection:
    """Both plans as a section of a page."""
    return TheorySection("rebalancing", "Rebalancing", "What brings balance back?", _content(plan))


def balance_words(plan: RebalancingPlan) -> str:
    """Say how far the optimum is from the simplex, and whether that is too far."""
    distance = f"{plan.deviation_before:.3g} from the simplex in its worst cosine ({plan.allowed:g} allowed)"
    if is_balanced(plan):
        return f"Nothing to rebalance: the optimum is {distance}."
    return f"The optimum is {distance}."


def sampling_words(plan: RebalancingPlan) -> str:
    """Say how to sample and what it reaches."""
    sampling = plan.sampling
    return f"Sampling classes in proportion to share^{sampling.exponent:.3f} comes to {sampling.deviation:.3g} from it."


def weighting_words(plan: RebalancingPlan) -> str:
    """Say what weighing anchors reaches, and whom it leaves without anchors."""
    weighting = plan.weighting
    reached = "restores it exactly" if weighting.is_unique else "makes it one optimum of several"
    if not weighting.is_exact:
        reached = f"comes to {weighting.deviation:.3g} from it, the nearest that was found"
    idle = ", ".join(str(place + 1) for place in weighting.without_anchors)
    lost = f" It leaves class {idle} without any anchor, which is of no use in training: rather sample." if idle else ""
    return f"Weighing anchors instead {reached}.{lost}"


def is_balanced(plan: RebalancingPlan) -> bool:
    """Whether the optimum of the data as they are is near enough."""
    return plan.deviation_before <= plan.allowed


def class_values(plan: RebalancingPlan) -> list[list[float]]:
    """Numbers of each class, in the order of ``CLASS_COLUMNS`` after the first."""
    columns = [
        plan.proportions_C,
        plan.sampling.proportions_C,
        plan.sampling.repeat_factors_C,
        plan.weighting.anchor_weights_C,
        plan.weighting.sample_weights_C,
    ]
    return [list(row) for row in zip(*(column.tolist() for column in columns), strict=True)]


def _content(plan: RebalancingPlan) -> Markup:
    """The sentences, the table of classes, the cosines that each plan reaches."""
    lede = element("p", balance_words(plan), class_="lede reading")
    if is_balanced(plan):
        return lede
    shown = class_values(plan)[:MAX_ROWS]
    rows = [[str(place), *(number(value, 4) for value in values)] for place, values in enumerate(shown, start=1)]
    left_out = len(plan.proportions_C) - len(shown)
    names = [str(place) for place in range(1, len(plan.proportions_C) + 1)]
    sampled = MatrixPanel("Cosines when sampled so", plan.sampling.geometry.gram.tolist(), names, names)
    weighted = MatrixPanel("Cosines with anchors weighed so", plan.weighting.gram_CC.tolist(), names, names)
    return join(
        lede,
        element("p", sampling_words(plan), " ", weighting_words(plan), class_="reading"),
        data_table("Plans by class", CLASS_COLUMNS, rows),
        element("p", f"and {count(left_out, 'class', 'classes')} more", class_="note") if left_out else None,
        element("div", element("p", COLUMN_NOTE, class_="note"), class_="remarks"),
        element("div", [matrix_figure(sampled), matrix_figure(weighted)], class_="panels panels-2"),
    )
