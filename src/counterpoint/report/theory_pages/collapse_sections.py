"""Sections about collapse: from which share on minorities merge, and what brings the optimum back to the simplex.

A phase diagram has one chart for each temperature, all on the same axes, of the cosine between minorities over the
majority's share, a line for each k that ends where the minorities merge; the exact thresholds are in a table.
Rebalancing is told in sentences, a table of classes and the cosines reached.
"""

# K numbers of negatives, U temperatures, T majority shares

import math

from counterpoint.core.markup import Markup, element, join
from counterpoint.report.charts.chart_frame import ChartText, Frame
from counterpoint.report.charts.figures import data_table, figure, panel_width, panels
from counterpoint.report.charts.line_chart import Line, label_room, line_chart
from counterpoint.report.charts.ticks import Axis, linear_axis
from counterpoint.report.document import PageSection
from counterpoint.report.theory_pages.matrix_figure import CHART_HEIGHT, MatrixPanel, matrix_figure, series_style
from counterpoint.report.wording import MINUS, NO_BREAK, count, number
from counterpoint.theory.collapse.phase import PhaseDiagram
from counterpoint.theory.collapse.rebalancing import RebalancingPlan

# K numbers of negatives, U temperatures, T majority shares

X_TITLE, Y_TITLE = "share of the majority", "cosine between minorities"
CHART_NOTE = (
    "k is the number of negatives. A line ends at a cosine of 1 where the minorities merge, if that is not beyond the "
    "largest share drawn."
)
NEXT_TO_ONE = 1e-4  # rest below which a share is written as 1 less it
MAX_ROWS = 40  # of the table of classes
CLASS_COLUMNS = ("class", "share", "sampled as", "draws of a sample", "anchor weight", "weight of a sample")
COLUMN_NOTE = (
    "Sampling: the share of each class in the batches, and how often each of its samples is drawn in an epoch of the "
    "same length. Weighing: the weight of each class as anchor, and the factor of each of its samples' terms."
)


def phase_section(diagram: PhaseDiagram) -> PageSection:
    """The diagram as a section of a page."""
    content = join(
        element("p", _lede(diagram), class_="lede reading"),
        _threshold_table(diagram),
        element("div", element("p", CHART_NOTE, class_="note"), class_="remarks"),
        panels([_chart(diagram, place) for place in range(len(diagram.temperatures))]),
    )
    return PageSection("phases", "Phase diagram", "From which share on do minorities merge?", content)


def share_words(rest: float) -> str:
    """Write a share by what it leaves, so that one next to 1 keeps its digits.

    >>> share_words(0.0998), share_words(3.4e-5).replace(NO_BREAK, " ")
    ('0.9002', '1 − 3.4×10⁻⁵')
    """
    return f"{1 - rest:.4f}" if rest > NEXT_TO_ONE or rest == 0 else f"1{NO_BREAK}{MINUS}{NO_BREAK}{number(rest, 2)}"


def phase_line(diagram: PhaseDiagram, negatives: int, temperature: int) -> Line:
    """One line, by its places in the diagram: up to the threshold, where it reaches 1, or to the last share."""
    shares = diagram.shares_T.tolist()
    cosines = diagram.minority_cosine_KUT[negatives, temperature].tolist()
    threshold = float(diagram.threshold_KU[negatives, temperature])
    # The threshold lies between two shares of the grid: the line goes on to it.
    points = [(share, value) for share, value in zip(shares, cosines, strict=True) if share < threshold]
    if len(points) < len(shares):
        points.append((threshold, 1.0))
    return Line("", [share for share, _ in points], [value for _, value in points], series_style(negatives))


def _lede(diagram: PhaseDiagram) -> str:
    """Say where merging begins, from the least threshold to the largest."""
    rests = diagram.threshold_minority_KU
    kind = "other classes" if diagram.supervised else "any class"
    # A rest is 1 less a share: the largest one belongs to the least threshold.
    least, largest = share_words(float(rests.max())), share_words(float(rests.min()))
    many = count(diagram.num_classes - 1, "equal minority", "equal minorities")
    return (
        f"Beside one majority, {many} merge from a share of the majority between {least} and {largest} on: it depends "
        f"on the temperature and on the number of negatives, here of {kind}."
    )


def _threshold_table(diagram: PhaseDiagram) -> Markup:
    """Exact thresholds by number of negatives and temperature."""
    head = ["negatives", *(f"temperature {tau:g}" for tau in diagram.temperatures)]
    rows = [
        [_negatives(k), *(share_words(rest) for rest in row_U)]
        for k, row_U in zip(diagram.num_negatives, diagram.threshold_minority_KU.tolist(), strict=True)
    ]
    return data_table("Share of the majority from which minorities merge", head, rows)


def _chart(diagram: PhaseDiagram, temperature: int) -> Markup:
    """The lines of one temperature."""
    lines = [phase_line(diagram, place, temperature) for place in range(len(diagram.num_negatives))]
    names = [f"k = {'∞' if math.isinf(k) else number(k)}" for k in diagram.num_negatives]
    title = f"Temperature {diagram.temperatures[temperature]:g}"
    words = ChartText(title, f"{Y_TITLE} over {X_TITLE}. {count(len(lines), 'line')}.")
    shares_T = diagram.shares_T.tolist()
    # linear_axis ends at ticks, which may lie beyond the shares drawn: a share stays below 1.
    ticks = tuple(tick for tick in linear_axis(X_TITLE, shares_T).ticks if shares_T[0] <= tick[0] <= shares_T[-1])
    x_axis = Axis(X_TITLE, shares_T[0], shares_T[-1], ticks)
    # From the cosine of the simplex to that of merged classes.
    y_axis = linear_axis(Y_TITLE, [-1 / (diagram.num_classes - 1), 1.0])

    def draw(room: float) -> Markup:
        frame = Frame(room, CHART_HEIGHT, x_axis, y_axis, right=label_room([]))
        return line_chart(frame, words, lines, names_below=names)

    return figure(title, "", draw, panel_width(len(diagram.temperatures)), _numbers(diagram, temperature, names))


def _numbers(diagram: PhaseDiagram, temperature: int, names: list[str]) -> Markup:
    """The cosines of one temperature: rows are shares, columns numbers of negatives."""
    columns_TK = diagram.minority_cosine_KUT[:, temperature].T.tolist()
    rows = [
        [number(share, 4), *(number(value, 4) for value in values)]
        for share, values in zip(diagram.shares_T.tolist(), columns_TK, strict=True)
    ]
    return data_table(f"Cosines at temperature {diagram.temperatures[temperature]:g}", [X_TITLE, *names], rows)


def _negatives(number_of: float) -> str:
    return "infinitely many" if math.isinf(number_of) else number(number_of)


def rebalancing_section(plan: RebalancingPlan) -> PageSection:
    """Both plans as a section of a page."""
    return PageSection("rebalancing", "Rebalancing", "What brings balance back?", _content(plan))


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
    # Exact by its certificate only; what was merely found is told by its distance.
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
