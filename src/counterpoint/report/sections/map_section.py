"""What lies beside what? A map of the samples of each run, with a search."""

from collections.abc import Sequence
from functools import partial

from counterpoint.report.charts.figures import absences, choice, data_table
from counterpoint.report.charts.series_style import run_title
from counterpoint.report.markup import Child, Markup, element, join
from counterpoint.report.picture_sheets import SHARES, PicturePlaces, pictures_of
from counterpoint.report.run_record import RunRecord
from counterpoint.report.sections import Section
from counterpoint.report.sections.map_drawing import (
    Drawn,
    chosen_words,
    class_groups,
    dimension_groups,
    layouts_of,
    legend,
    map_data,
    still_map,
)
from counterpoint.report.wording import count, percent

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


def map_section(runs: Sequence[RunRecord], step: int) -> Markup:
    """Draw the maps of all runs that have kept samples.

    Args:
        runs: of the page.
        step: how often the page was shrunk.
    """
    known = [run for run in runs if run.collection]
    absent = absences([run for run in runs if not run.collection], "map", "diagnose")
    if not known:
        return join(absent)
    pictures = pictures_of(runs, step)
    maps = [
        join(run_title(run.name, run.order, len(runs)), _map(run, layouts_of(run), pictures.get(run.order)))
        for run in known
    ]
    how_to_use = element("p", HOW_TO_USE, class_="note needs-script")
    limits = element("p", LIMITS, class_="protocol")
    return join(_search(), maps, how_to_use, limits, absent)


def map_answer(run: RunRecord) -> str:
    """What is shown, and how many of the nearest are of the same class."""
    if run.collection is None:
        return ""
    return f"A map of {count(len(run.collection), 'sample')}, with a search"


def _search() -> Markup:
    """A field that only works, and only shows, with JavaScript."""
    field = element(
        "input", type="search", id="search", autocomplete="off", spellcheck="false", aria_describedby="found"
    )
    label = element("label", "Find samples and dimensions by file name, class or number", for_="search")
    found = element("output", id="found", for_="search")
    return element(
        "div", element("div", label, field, found, class_="search"), element("ol", class_="hits"), class_="needs-script"
    )


def _map(run: RunRecord, layouts: Sequence[Drawn], shown: PicturePlaces | None) -> Markup:
    known, place = run.samples, run.order
    colours: list[tuple[str, str]] = [("none", "nothing")]
    groups = {"class": class_groups(known), "dimension": dimension_groups(known)}
    legends = []
    for key, words in (("dimension", "strongest dimension"), ("class", "class")):
        if found := groups[key]:
            colours.insert(0, (key, words))
            # A map without a script is coloured by class where there are classes.
            only = "needs-script" if key == "dimension" and groups["class"] else None
            legends.insert(0, element("div", legend(found, len(known)), data_legend=key, class_=only))
    names = [(each.name, each.name) for each in layouts]
    controls = [choice(f"map-layout-{place}", "Layout", names, data_key="layout")]
    controls.append(choice(f"map-colour-{place}", "Colour by", colours, data_key="colour"))
    by = "Coloured by class." if groups["class"] else "Coloured by strongest dimension." if groups["dimension"] else ""
    words = f"{chosen_words(known)} {by}".strip()
    stills = [
        element(
            "figure",
            element("figcaption", element("strong", each.name)),
            still_map(each, groups["class"] or groups["dimension"], words),
        )
        for each in layouts
        if each.place == "embedding"
    ]
    return element(
        "div",
        element("p", chosen_words(known), class_="note"),
        element("p", run.gaps["report"], class_="notice") if "report" in run.gaps else None,
        map_data(run, layouts, shown),
        element("div", controls, element("div", class_="map-live"), class_="needs-script map-tools"),
        element("div", legends, class_="legends"),
        element("div", stills, class_="stills"),
        _table(run, layouts),
        class_="map",
    )


def _table(run: RunRecord, layouts: Sequence[Drawn]) -> Markup:
    """How much of the truth each layout keeps."""
    rows: list[list[Child]] = []
    for layout in layouts:
        is_tsne, made = layout.name.startswith("t-SNE"), run.layouts
        trust = None
        if made:
            pca = made.pca_trustworthiness.get(layout.place)
            trust = made.tsne[layout.place].trustworthiness if is_tsne else pca
        kept = "–" if is_tsne else percent(float(run.samples.variance[layout.place][:2].sum()))
        rows.append([layout.name, kept, "not measured" if trust is None else f"{trust:.3f}"])
    head = ["map", "variance kept by its two axes", "trustworthiness"]
    return data_table("How far the maps can be trusted", head, rows)


FILLS = [partial(map_section, step=step) for step in range(len(SHARES))]
SECTION = Section(62, "map", "Map", "What lies beside what?", FILLS[0], map_answer, smaller=FILLS[1:])
