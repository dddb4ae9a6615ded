"""From an optimal geometry to one HTML file: do classes merge, how sure is that, and what does it look like?

The class means are drawn in their own plane where their rank is at most 2, otherwise in the plane of their first two
principal axes; the Gram matrix as cosines and as angles.
"""

# C classes, D dimensions

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from counterpoint.core.files import write_text
from counterpoint.core.markup import Markup, coordinate, element, join
from counterpoint.report.charts.chart_frame import ChartText, spread_labels, svg, text, text_width
from counterpoint.report.charts.figures import HALF, data_table, figure
from counterpoint.report.charts.series_style import GLYPHS, marker
from counterpoint.report.document import THEORY_PAGE, PageSection, check_target, theory_document
from counterpoint.report.theory_pages.matrix_figure import MatrixPanel, matrix_figure, series_style
from counterpoint.report.wording import count, listing, number, percent
from counterpoint.theory.geometry.optimal_geometry import Geometry

# C classes, D dimensions

MAX_LISTED = 8  # classes named in a sentence or at a spoke
MAX_ROWS = 40  # of the table of proportions
RANK_OF_A_PLANE = 2
ALIKE = 1e-6  # cosines, or lengths of principal axes as a share of the longest, that count as equal
OPTIMAL = "optimal: no unit class means"  # beginning of a status that holds in any dimension
MAX_NAMED = 24  # spokes with a name
CLOSE = 0.1  # ends of spokes nearer than this share a line of names
SHORTEST = 1 / 3  # length of a spoke with a name: those of shorter ones would crowd the centre
SIDE = 60.0  # room for names beside the circle
LARGEST_RADIUS = 165.0
GAP = 14.0  # from a marker to its name


@dataclass(frozen=True)
class ClassPlane:
    """Class means in a plane.

    Attributes:
        points_C2: coordinates; the first class points upwards.
        share: part of the means' squared length that lies in the plane.
        is_unique: no other plane holds as much.
    """

    points_C2: NDArray[np.float64]
    share: float
    is_unique: bool = True


@dataclass(frozen=True)
class Remarks:
    """What a reader must know about an answer: what its risk is, and sentences that follow the status."""

    risk_label: str = "risk"
    notes: Sequence[str] = ()


NO_REMARKS = Remarks()


def write_geometry(
    geometry: Geometry,
    out: str | Path,
    *,
    question: Mapping[str, str],
    more: Sequence[PageSection] = (),
    remarks: Remarks = NO_REMARKS,
) -> Path:
    """Write the page; an earlier one is replaced.

    Args:
        geometry: the optimum.
        out: HTML file.
        question: what was asked (loss, negatives, ...), shown on the page.
        more: sections that follow the pictures.
        remarks: on the risk and the status.

    Returns:
        The file.

    Raises:
        RunError: ``out`` cannot be written, or is something else than such a page.
    """
    target = Path(out)
    check_target(THEORY_PAGE, target)
    write_text(target, render_geometry(geometry, question=question, more=more, remarks=remarks))
    return target


def render_geometry(
    geometry: Geometry,
    *,
    question: Mapping[str, str],
    more: Sequence[PageSection] = (),
    remarks: Remarks = NO_REMARKS,
) -> Markup:
    """Render the page."""
    sections = [
        PageSection("answer", "Answer", "Do classes merge?", _answer(geometry, remarks)),
        PageSection("picture", "Picture", "Where do the classes lie?", _pictures(geometry)),
        *more,
        PageSection("question", "Question", "What was asked?", _question(geometry, question)),
    ]
    facts = " · ".join(f"{name} {value}" for name, value in question.items())
    title = f"Optimal geometry of {count(len(geometry.proportions), 'class', 'classes')}"
    return theory_document("Counterpoint geometry", title, facts, sections)


def class_groups(geometry: Geometry) -> list[list[int]]:
    """Every class in one group: those that merge together, the others alone; in the order of their first class."""
    merged = {place: group for group in geometry.merged_classes for place in group}
    groups = [merged.get(place, [place]) for place in range(len(geometry.proportions))]
    return [group for place, group in enumerate(groups) if group[0] == place]


def merge_words(geometry: Geometry) -> str:
    """Say which classes coincide, or which two come closest."""
    num_groups = len(class_groups(geometry))
    merged = [_class_names(group) for group in geometry.merged_classes]
    if num_groups == 1:
        return "All classes merge: one point is the best there is."
    if merged:
        rest = "; the others stay apart" if len(merged) < num_groups else ""
        return f"Classes {'; classes '.join(merged)} merge{rest}."
    cosines = geometry.gram[~np.eye(len(geometry.gram), dtype=bool)]
    if num_groups > RANK_OF_A_PLANE and float(cosines.max() - cosines.min()) < ALIKE:
        return f"No classes merge: all are {float(geometry.angles[0, 1]):.2f}° apart."
    # 360 degrees more: no class is the closest to itself.
    away_CC = geometry.angles.numpy() + 360.0 * np.eye(len(geometry.gram))
    first, second = divmod(int(away_CC.argmin()), len(away_CC))
    return f"No classes merge: the closest two, {first + 1} and {second + 1}, are {away_CC.min():.2f}° apart."


def rank_words(geometry: Geometry) -> str:
    """The rank, and the most that an optimum needs where that is known to bound it.

    Losses that do not rise with every cosine, and features without signs, may need more than C - 1 dimensions.
    """
    most = len(geometry.gram) - 1
    is_bounded = geometry.rank <= most and geometry.status.startswith(OPTIMAL)
    return f"{geometry.rank} of at most {most}" if is_bounded else str(geometry.rank)


def spread_words(geometry: Geometry) -> str:
    """Warn where the lower bound holds for collapsed classes only; nothing otherwise."""
    if geometry.is_collapse_optimal is not False:
        return ""
    return (
        "For this loss, classes that stay spread out do better than collapsed ones: "
        "the lower bound is one for collapsed classes only."
    )


def class_plane(means_DC: NDArray[np.float64]) -> ClassPlane:
    """Project class means on their first two principal axes through the origin, turned so that class 1 points up."""
    # Not centred: lengths and angles from the origin are what the drawing shows.
    _, values, axes = np.linalg.svd(means_DC, full_matrices=False)
    kept = min(RANK_OF_A_PLANE, len(values))
    # Rank 1 has no second axis; its coordinates stay 0.
    points_C2 = np.zeros((means_DC.shape[1], 2))
    points_C2[:, :kept] = (values[:kept, None] * axes[:kept]).T
    beyond = values[kept] if len(values) > kept else 0.0
    # An axis beyond the plane that is as long could take the place of the second: the plane is one of many.
    is_unique = beyond < values[kept - 1] - ALIKE * values[0]
    return ClassPlane(_upright(points_C2), float((values[:kept] ** 2).sum() / (values**2).sum()), bool(is_unique))


def _upright(points_C2: NDArray[np.float64]) -> NDArray[np.float64]:
    """Turn class 1 to the top, and mirror the plane so that the first class off that line lies to the right."""
    # The signs and turns of an SVD are arbitrary; this makes the same geometry the same drawing.
    x, y = points_C2[0]
    turn = math.pi / 2 - math.atan2(y, x)
    # Rows are points, so this is the transposed rotation.
    turned_C2 = points_C2 @ np.array([[math.cos(turn), math.sin(turn)], [-math.sin(turn), math.cos(turn)]])
    off_line = np.flatnonzero(np.abs(turned_C2[:, 0]) > 1e-6)
    if len(off_line) and turned_C2[off_line[0], 0] < 0:
        turned_C2[:, 0] *= -1
    return turned_C2


def _answer(geometry: Geometry, remarks: Remarks) -> Markup:
    """The sentence, and the certificate."""
    rows = [
        [remarks.risk_label, number(geometry.risk, 10), "value of the class-level risk at this geometry"],
        ["lower bound", _bound(geometry.lower_bound), "no unit class means have a lower risk"],
        ["duality gap", _bound(geometry.duality_gap, 2), "risk less lower bound: how far from the optimum it can be"],
        ["rank", rank_words(geometry), "dimensions that the class means span"],
        ["iterations", number(geometry.iterations), "Newton steps"],
    ]
    spread = spread_words(geometry)
    return join(
        element("p", merge_words(geometry), class_="lede reading"),
        element("p", spread, class_="notice") if spread else None,
        element("p", _status(geometry), class_="status"),
        [element("p", note, class_="note") for note in remarks.notes],
        data_table("Certificate", ["quantity", "value", "meaning"], rows),
    )


def _status(geometry: Geometry) -> Markup:
    """The status with its sign."""
    level = "good" if geometry.is_certified else "note"
    sign = element("span", GLYPHS[level], class_="glyph", aria_hidden="true")
    return element("span", sign, geometry.status, class_=f"verdict level-{level}")


def _bound(value: float, digits: int = 10) -> str:
    return number(value, digits) if math.isfinite(value) else "none"


def _pictures(geometry: Geometry) -> Markup:
    """The plane, the cosines, the angles."""
    names = [str(number_) for number_ in range(1, len(geometry.gram) + 1)]
    cosines = MatrixPanel("Cosines of class means", geometry.gram.tolist(), names, names)
    degrees = MatrixPanel("Angles in degrees", geometry.angles.tolist(), names, names)
    figures = [
        _plane_figure(geometry),
        matrix_figure(cosines, "Rows and columns are classes in the order given."),
        matrix_figure(degrees),
    ]
    return element("div", figures, class_="panels panels-2")


def _plane_figure(geometry: Geometry) -> Markup:
    """Draw one spoke per group of classes that coincide."""
    plane = class_plane(geometry.means.numpy())
    points = plane.points_C2.tolist()
    # Classes that merge have one point: the first stands for all.
    spokes = [Spoke(_class_names(group), *points[group[0]]) for group in class_groups(geometry)]
    note = "All of their length lies in this plane."
    if plane.share < 1 - 1e-9:
        note = f"Their first two principal axes, which hold {percent(plane.share)} of their squared length."
        if not plane.is_unique:
            note += " This is one of many equally good planes."
    words = ChartText("Class means", f"{merge_words(geometry)} {note}")
    return figure("Class means", note, lambda room: unit_plane(spokes, words, room), HALF, None)


def _class_names(group: Sequence[int]) -> str:
    """Name classes by their numbers from 1.

    >>> _class_names([1]), _class_names([1, 2, 4])
    ('2', '2, 3 and 5')
    """
    names = [str(index + 1) for index in group]
    if len(names) > MAX_LISTED:
        names = [*names[: MAX_LISTED - 1], f"{len(names) - MAX_LISTED + 1} more"]
    return listing(names)


def _question(geometry: Geometry, question: Mapping[str, str]) -> Markup:
    """What was asked, and the proportions of the classes."""
    entries = [element("div", element("dt", name), element("dd", value)) for name, value in question.items()]
    shares = [number(share, 5) for share in geometry.proportions.tolist()]
    rows = [[str(place), share] for place, share in enumerate(shares[:MAX_ROWS], start=1)]
    rest = f"and {count(len(shares) - MAX_ROWS, 'class', 'classes')} more" if len(shares) > MAX_ROWS else ""
    return join(
        element("dl", entries, class_="run-card spaced"),
        data_table("Proportions", ["class", "proportion"], rows),
        element("p", rest, class_="note") if rest else None,
    )


@dataclass(frozen=True)
class Spoke:
    """A vector of length at most 1; its name may stand for several that coincide."""

    name: str
    x: float
    y: float


@dataclass(frozen=True)
class _Dial:
    """Centre and radius of the circle, in pixels."""

    x: float
    y: float
    radius: float

    def px(self, spoke: Spoke) -> float:
        return self.x + self.radius * spoke.x

    def py(self, spoke: Spoke) -> float:
        return self.y - self.radius * spoke.y


def unit_plane(spokes: Sequence[Spoke], words: ChartText, width: float) -> Markup:
    """Draw vectors from the origin inside the unit circle.

    Args:
        spokes: the vectors; those beyond the first 24, and those shorter than a third, get no name.
        words: what the chart says to those who cannot see it.
        width: in pixels.

    Returns:
        The drawing.
    """
    named = _joined([spoke for spoke in spokes if math.hypot(spoke.x, spoke.y) >= SHORTEST][:MAX_NAMED])
    # A name beside the circle takes its width from the radius on both sides.
    side = max([SIDE, *(text_width(spoke.name) + GAP + 4 for spoke in named)])
    radius = min(LARGEST_RADIUS, width / 2 - side)
    dial = _Dial(width / 2, radius + 26, radius)
    content = [
        # The circle has radius 1: unit vectors that lie in the plane end on it.
        element("circle", cx=dial.x, cy=dial.y, r=radius, class_="circle"),
        [_spoke(dial, spoke, place) for place, spoke in enumerate(spokes)],
        _names(dial, named),
    ]
    return svg((width, 2 * radius + 52), words, content, class_="chart plane")


def _joined(spokes: Sequence[Spoke]) -> list[Spoke]:
    """Put the names of spokes that end close to each other on one line, at the first of them."""
    joined: list[Spoke] = []
    for spoke in spokes:
        near = [
            place for place, other in enumerate(joined) if math.dist((spoke.x, spoke.y), (other.x, other.y)) < CLOSE
        ]
        if near:
            joined[near[0]] = replace(joined[near[0]], name=f"{joined[near[0]].name}, {spoke.name}")
        else:
            joined.append(spoke)
    return joined


def _spoke(dial: _Dial, spoke: Spoke, place: int) -> Markup:
    """A line from the centre and a marker at its end."""
    style, x, y = series_style(place), dial.px(spoke), dial.py(spoke)
    path = f"M{coordinate(dial.x)} {coordinate(dial.y)}L{coordinate(x)} {coordinate(y)}"
    return element("g", element("path", d=path, class_=f"spoke {style.colour}"), marker(style, x, y, 5.5))


def _names(dial: _Dial, spokes: Sequence[Spoke]) -> list[Markup]:
    """Name each vector on its side of the circle, moved up or down where two would overlap."""
    # A spoke straight up or down is on the right, whatever its rounding.
    sides = {is_left: [spoke for spoke in spokes if (spoke.x < -1e-9) == is_left] for is_left in (False, True)}
    return [label for is_left, group in sides.items() for label in _side(dial, group, is_left)]


def _side(dial: _Dial, spokes: Sequence[Spoke], is_left: bool) -> list[Markup]:
    wanted = [dial.py(spoke) + 4 + _lift(spoke) for spoke in spokes]
    heights = spread_labels(wanted, 12.0, dial.y + dial.radius + 22)
    shift = -GAP if is_left else GAP
    return [
        text(
            dial.px(spoke) + shift * _reach(spoke),
            height,
            spoke.name,
            class_="label halo end" if is_left else "label halo",
        )
        for spoke, height in zip(spokes, heights, strict=True)
    ]


def _lift(spoke: Spoke) -> float:
    """Names near the top or the bottom stand above or below their marker."""
    return -GAP * spoke.y / max(math.hypot(spoke.x, spoke.y), 1e-9)


def _reach(spoke: Spoke) -> float:
    """How far a name stands to the side: fully at the sides of the circle, hardly at its top."""
    return max(0.3, abs(spoke.x) / max(math.hypot(spoke.x, spoke.y), 1e-9))
