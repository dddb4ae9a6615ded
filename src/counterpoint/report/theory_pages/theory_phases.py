"""A phase diagram as charts: the cosine between minorities over the majority's share, a line for each k.

One chart for each temperature, all on the same axes; a line ends where the minorities merge. The exact thresholds are
in a table, number of negatives by temperature.
"""

import math

from counterpoint.report.charts.chart_frame import ChartText, Frame
from counterpoint.report.charts.figures import data_table, figure, panel_width, panels
from counterpoint.report.charts.line_chart import Line, label_room, line_chart
from counterpoint.report.charts.ticks import Axis, linear_axis
from counterpoint.report.markup import Markup, element, join
from counterpoint.report.theory_pages.theory_document import TheorySection
from counterpoint.report.theory_pages.theory_panels import CHART_HEIGHT, series_style
from counterpoint.report.wording import MINUS, NO_BREAK, count, number
from counterpoint.theory.collapse.phase import PhaseDiagram

# K numbers of negatives, U temperatures, T majority shares

X_TITLE, Y_TITLE = "share of the majority", "cosine between minorities"
CHART_NOTE = (
    "k is the number of negatives. A line ends at a cosine of 1 where the minorities merge, if that is not beyond the "
    "largest share drawn."
)
NEXT_TO_ONE = 1e-4  # rest below which a share is written as 1 less it


def phase_section(diagram: PhaseDiagram) -> TheorySection:
    """The diagram as a section of a page."""
    content = join(
        element("p", _lede(diagram), class_="lede reading"),
        _threshold_table(diagram),
        element("div", element("p", CHART_NOTE, class_="note"), class_="remarks"),
        panels([_chart(diagram, place) for place in range(len(diagram.temperatures))]),
    )
    return TheorySection("phases", "Phase diagram", "From which share on do minorities merge?", content)


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
    points = [(share, value) for share, value in zip(shares, cosines, strict=True) if share < threshold]
    if len(points) < len(shares):
        points.append((threshold, 1.0))
    return Line("", [share for share, _ in points], [value for _, value in points], series_style(negatives))


def _lede(diagram: PhaseDiagram) -> str:
    """Say where merging begins, from the least threshold to the largest."""
    rests = diagram.threshold_minority_KU
    kind = "other classes" if diagram.supervised else "any class"
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
    ticks = tuple(tick for tick in linear_axis(X_TITLE, shares_T).ticks if shares_T[0] <= tick[0] <= shares_T[-1])
    x_axis = Axis(X_TITLE, shares_T[0], shares_T[-1], ticks)
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
