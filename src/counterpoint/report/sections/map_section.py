"""What lies beside what? A map of the samples of each run, as a still drawing and as numbers for a script; a search."""

# N samples of the map

import base64
import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from counterpoint.evaluation.map_samples import PLACES, Collection
from counterpoint.report.charts.figures import RUN_SIGNS, absences, choice, data_table, run_title
from counterpoint.report.map_layout import GRID, on_grid
from counterpoint.report.markup import Child, Markup, element, join
from counterpoint.report.picture_sheets import SHARES, PicturePlaces, pictures_of
from counterpoint.report.run_reading import RunRecord
from counterpoint.report.sections import Section
from counterpoint.report.wording import count, number, percent

NUM_GROUPS = 12  # most groups that a map tells apart
OTHERS = 255
NUM_COLOURS = 6
SIDE = 1000  # side of the drawing, in its own units
# Marks of a still map in the order of RUN_SIGNS, as strokes from where they begin, so that thousands take few bytes.
SHAPES = (
    ("h0", 0, 0),
    ("h9v9h-9z", -4, -4),
    ("l6 10h-12z", 0, -6),
    ("l6 6-6 6-6-6z", 0, -6),
    ("h12m-6-6v12", -6, 0),
    ("h12m-9-5l6 10m0-10l-6 10", -6, 0),
)
LOOKS = ("dots", "filled", "filled", "filled", "crossed", "crossed")  # classes of the style sheet
LABEL_STEP, NAME_HALF = 34.0, 9.0  # height of a name and half the width of a character, in the same units
# Offsets at which a name is tried, from the middle of its samples outwards.
NAME_STEPS_S2 = np.array(
    [
        (reach * math.cos(turn), reach * math.sin(turn))
        for reach in range(0, 240, 12)
        for turn in np.linspace(0, 2 * math.pi, 16, endpoint=False)
    ]
)
Box = tuple[float, float, float, float]  # left, top, right and bottom
LIMITS = (
    "A map shows a space of many dimensions on two, so it must leave most of it out. Principal components keep large "
    "distances as well as two directions can, and put on top of each other what differs in other directions. t-SNE "
    "keeps near neighbours together; how far two groups lie apart, how large they are and where they lie mean nothing, "
    "and it can show groups where there are none. Trustworthiness is 1 where all of the 10 nearest on the map are near "
    "in the 50 principal components kept, too, and about 0.5 where a map is drawn by chance."
)
HOW_TO_USE = (
    "Point at a mark, or go from mark to mark with the arrow keys, to see the sample; Enter or a click keeps it. "
    "The wheel zooms once the map has been clicked, + and − at any time, 0 shows all; drag, or Shift with an arrow "
    "key, to move the map; Escape lets go."
)


@dataclass(frozen=True, eq=False)
class Drawn:
    """One layout of a map.

    Attributes:
        name: the name of the layout.
        place: the place of the run whose vectors are laid out.
        points_N2: positions of the samples from 0 to ``GRID``, rightwards and upwards.
    """

    name: str
    place: str
    points_N2: NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Groups:
    """The groups of samples that the marks of a map tell apart.

    Attributes:
        names: the names of at most ``NUM_GROUPS`` groups, the largest first.
        sizes: the number of samples of each group.
        of_N: the group of each sample; ``OTHERS`` for a sample in none of them.
    """

    names: tuple[str, ...]
    sizes: tuple[int, ...]
    of_N: NDArray[np.uint8]


def map_section(runs: Sequence[RunRecord], step: int) -> Markup:
    """Draw the maps of all runs that have kept samples.

    Args:
        runs: the runs of the page.
        step: number of times that the page was shrunk.
    """
    mapped = [run for run in runs if run.collection]
    absent = absences([run for run in runs if not run.collection], "map", "diagnose")
    if not mapped:
        return join(absent)
    pictures = pictures_of(runs, step)
    maps = [join(run_title(run, len(runs)), _map(run, layouts_of(run), pictures.get(run.order))) for run in mapped]
    field = element(
        "input", type="search", id="search", autocomplete="off", spellcheck="false", aria_describedby="found"
    )
    label = element("label", "Find samples and dimensions by file name, class or number", for_="search")
    tally = element("output", id="found", for_="search")
    search = element("div", label, field, tally, class_="search")
    how_to_use = element("p", HOW_TO_USE, class_="note needs-script")
    limits = element("p", LIMITS, class_="protocol")
    search_and_hits = element("div", search, element("ol", class_="hits"), class_="needs-script")
    return join(search_and_hits, maps, how_to_use, limits, absent)


def _answer(run: RunRecord) -> str:
    if run.collection is None:
        return ""
    return f"A map of {count(len(run.collection), 'sample')}, with a search"


def _map(run: RunRecord, layouts: Sequence[Drawn], pictures: PicturePlaces | None) -> Markup:
    collection, place = run.samples, run.order
    colours: list[tuple[str, str]] = [("none", "nothing")]
    groups = {"class": class_groups(collection), "dimension": dimension_groups(collection)}
    legends = []
    for key, words in (("dimension", "strongest dimension"), ("class", "class")):
        if key_groups := groups[key]:
            colours.insert(0, (key, words))
            # A map without a script is coloured by class where there are classes.
            only = "needs-script" if key == "dimension" and groups["class"] else None
            legends.insert(0, element("div", legend(key_groups, len(collection)), data_legend=key, class_=only))
    names = [(layout.name, layout.name) for layout in layouts]
    controls = [choice(f"map-layout-{place}", "Layout", names, data_key="layout")]
    controls.append(choice(f"map-colour-{place}", "Colour by", colours, data_key="colour"))
    by = "Coloured by class." if groups["class"] else "Coloured by strongest dimension." if groups["dimension"] else ""
    words = f"{_chosen_words(collection)} {by}".strip()
    stills = [
        element(
            "figure",
            element("figcaption", element("strong", layout.name)),
            still_map(layout, groups["class"] or groups["dimension"], words),
        )
        for layout in layouts
        if layout.place == "embedding"
    ]
    return element(
        "div",
        element("p", _chosen_words(collection), class_="note"),
        element("p", run.gaps["report"], class_="notice") if "report" in run.gaps else None,
        map_data(run, layouts, pictures),
        element("div", controls, element("div", class_="map-live"), class_="needs-script map-tools"),
        element("div", legends, class_="legends"),
        element("div", stills, class_="stills"),
        _trust_table(run, layouts),
        class_="map",
    )


def _trust_table(run: RunRecord, layouts: Sequence[Drawn]) -> Markup:
    rows: list[list[Child]] = []
    for layout in layouts:
        is_tsne, record = layout.name.startswith("t-SNE"), run.layouts
        trust = None
        if record:
            pca = record.pca_trustworthiness.get(layout.place)
            trust = record.tsne[layout.place].trustworthiness if is_tsne else pca
        variance = "–" if is_tsne else percent(float(run.samples.variance[layout.place][:2].sum()))
        rows.append([layout.name, variance, "not measured" if trust is None else f"{trust:.3f}"])
    head = ["map", "variance kept by its two axes", "trustworthiness"]
    return data_table("How far the maps can be trusted", head, rows)


def layouts_of(run: RunRecord) -> list[Drawn]:
    """List the layouts of a run, those that show neighbours best first."""
    tsne_layouts = run.layouts.tsne if run.layouts else {}
    tsne = [
        Drawn(f"t-SNE of the {place}", place, np.array([tsne_layouts[place].x, tsne_layouts[place].y]).T)
        for place in PLACES
        if place in tsne_layouts
    ]
    return tsne + [
        Drawn(f"principal components of the {place}", place, on_grid(run.samples.scores[place][:, :2]))
        for place in PLACES
    ]


def class_groups(collection: Collection) -> Groups | None:
    """Group the samples by the commonest classes; None without labels."""
    return _groups(collection.labels_N, collection.class_names.__getitem__) if len(collection.labels_N) else None


def dimension_groups(collection: Collection) -> Groups | None:
    """Group the samples by their strongest dimension; None for an embedding with signs."""
    if not len(collection.dominant_N):
        return None

    def name(dim: int) -> str:
        its_class = int(collection.dims.class_D[dim])
        return f"dimension {dim}" + (f" ({collection.class_names[its_class]})" if its_class >= 0 else "")

    return _groups(collection.dominant_N, name)


def _groups(numbers_N: NDArray[np.int64], name: Callable[[int], str]) -> Groups:
    """Group the samples by the commonest numbers from 0 on, the largest group first."""
    counted = Counter(numbers_N[numbers_N >= 0].tolist())
    # The commonest first, equal ones in their own order.
    chosen = sorted(counted, key=lambda key: (-counted[key], key))[:NUM_GROUPS]
    of_N = np.full(len(numbers_N), OTHERS, np.uint8)
    for group, key in enumerate(chosen):
        of_N[numbers_N == key] = group
    return Groups(tuple(map(name, chosen)), tuple(counted[key] for key in chosen), of_N)


def legend(groups: Groups, num_samples: int) -> Markup:
    """List the groups with their marks; a script makes the list interactive."""
    items = []
    for group, (name, size) in enumerate(zip(groups.names, groups.sizes, strict=True)):
        sign = element("span", RUN_SIGNS[marker_of(group)], class_=f"sign {colour_of(group)}", aria_hidden="true")
        items.append(element("li", sign, element("bdi", name), " ", element("span", number(size), class_="size")))
    rest = num_samples - sum(groups.sizes)
    if rest:
        items.append(
            element("li", element("span", "·", class_="sign muted", aria_hidden="true"), f"others {number(rest)}")
        )
    return element("ul", items, class_="legend")


def colour_of(group: int) -> str:
    """Class of the style sheet for the colour of a group."""
    return "muted" if group == OTHERS else f"c{group % NUM_COLOURS + 1}"


def marker_of(group: int) -> int:
    """Number of the marker of a group: no two groups have both colour and marker in common."""
    return (group + group // NUM_COLOURS) % len(RUN_SIGNS)


def still_map(layout: Drawn, groups: Groups | None, words: str) -> Markup:
    """Draw a map that needs no script: marks by group, with the names of the groups at their middles."""
    points_N2 = np.rint(20 + layout.points_N2 / GRID * (SIDE - 40)).astype(int)
    points_N2[:, 1] = SIDE - points_N2[:, 1]
    of_N = np.full(len(points_N2), OTHERS) if groups is None else groups.of_N
    dots = []
    for group in (OTHERS, *range(len(groups.names) if groups else 0)):
        shape, dx, dy = ("h0", 0, 0) if group == OTHERS else SHAPES[marker_of(group)]
        look = "dots" if group == OTHERS else LOOKS[marker_of(group)]
        if path := "".join(f"M{x + dx} {y + dy}{shape}" for x, y in points_N2[of_N == group].tolist()):
            dots.append(element("path", d=path, class_=f"{look} {colour_of(group)}"))
    names = _names(points_N2, groups) if groups else None
    described = [element("title", f"Map: {layout.name}"), element("desc", words)]
    return element("svg", described, dots, names, class_="chart still", role="img", viewBox=f"0 0 {SIDE} {SIDE}")


def _names(points_N2: NDArray[np.int64], groups: Groups) -> list[Markup]:
    """Write the names of the groups, each at the free place that is nearest to the middle of its samples.

    No name covers a mark or another name; one without such a place is in the legend alone.
    """
    boxes: list[Box] = []
    drawn = []
    for group, name in enumerate(name if len(name) <= 24 else name[:23] + "…" for name in groups.names):
        middle_2 = np.median(points_N2[groups.of_N == group], axis=0)
        width, height = NAME_HALF * (len(name) + 1), LABEL_STEP / 2
        places = (middle_2 + NAME_STEPS_S2).tolist()
        around = ((x - width, y - height, x + width, y + height) for x, y in places)
        box = next((box for box in around if _is_free(box, points_N2, boxes)), None)
        if box is not None:
            boxes.append(box)
            middle = {"x": (box[0] + box[2]) / 2, "y": box[3] - LABEL_STEP / 4}
            drawn.append(element("text", name, **middle, class_="halo middle"))
    return drawn


def _is_free(box: Box, points_N2: NDArray[np.int64], others: Sequence[Box]) -> bool:
    left, top, right, bottom = box
    if left < 0 or top < 0 or right > SIDE or bottom > SIDE:
        return False
    if any(left < other[2] and right > other[0] and top < other[3] and bottom > other[1] for other in others):
        return False
    x_N, y_N = points_N2.T
    margin = 6  # half of a mark
    return not ((x_N > left - margin) & (x_N < right + margin) & (y_N > top - margin) & (y_N < bottom + margin)).any()


def map_data(run: RunRecord, layouts: Sequence[Drawn], pictures: PicturePlaces | None) -> Markup:
    """Write names, positions, groups and neighbours for the script, hidden."""
    collection = run.samples
    classes, dims = class_groups(collection), dimension_groups(collection)
    return element(
        "div",
        [element("i", data_layout=layout.name, data_xy=_coded(layout.points_N2, "<u2")) for layout in layouts],
        hidden=True,
        class_="map-data",
        data_names="\n".join(collection.names),
        data_neighbours=_coded(collection.neighbours_NM, "<i2"),
        data_classes="\n".join(collection.class_names) if classes else None,
        data_labels=_coded(collection.labels_N, "<i2") if classes else None,
        data_class_groups=_coded(classes.of_N, "u1") if classes else None,
        data_dominant=_coded(collection.dominant_N, "<i2") if dims else None,
        data_dimension_groups=_coded(dims.of_N, "u1") if dims else None,
        data_sheet=pictures.name if pictures else None,
        data_columns=pictures.sheet.columns if pictures else None,
        data_pixelated=True if pictures and pictures.is_pixelated else None,
    )


def _coded(values: NDArray[np.integer], kind: str) -> str:
    """Encode whole numbers as base64 of their bytes, a quarter of what digits take."""
    return base64.b64encode(np.ascontiguousarray(values, dtype=kind).tobytes()).decode("ascii")


def _chosen_words(samples: Collection) -> str:
    if len(samples) == samples.num_samples:
        return f"All {count(len(samples), 'sample')} of the run." if len(samples) > 1 else "The one sample of the run."
    within = ", within each class" if len(samples.labels_N) else ""
    return f"{number(len(samples))} of {number(samples.num_samples)} samples, evenly spaced{within}."


FILLS = [partial(map_section, step=step) for step in range(len(SHARES))]
SECTION = Section(62, "map", "Map", "What lies beside what?", FILLS[0], _answer, smaller=FILLS[1:])
