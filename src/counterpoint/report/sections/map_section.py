"""What lies beside what? A map of the samples, one for all runs of the same samples, with a search and a slider."""

from collections.abc import Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from counterpoint.core.map_samples import NUM_NEIGHBOURS, Collection
from counterpoint.core.markup import Child, Markup, element, join
from counterpoint.report.charts.figures import absences, data_table
from counterpoint.report.charts.series_style import run_tag
from counterpoint.report.picture_sheets import SHARES, PicturePlaces, drawn_sheets, pictures_of
from counterpoint.report.run_record import RunRecord
from counterpoint.report.sections import Section
from counterpoint.report.sections.map_drawing import (
    Drawn,
    chosen_words,
    class_data,
    class_groups,
    dimension_groups,
    drawn_data,
    layouts_of,
    legend,
    still_map,
    turned,
)
from counterpoint.report.wording import percent

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
COLOURS = (("class", "class"), ("dimension", "strongest dimension"), ("none", "nothing"))


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
    groups: list[list[RunRecord]] = []
    for run in known:
        same = next((group for group in groups if is_same_samples(group[0], run)), None)
        groups.append([run]) if same is None else same.append(run)
    apart = None
    if len(groups) > 1:
        apart = element(
            "p", "Not all of these runs saw the same samples, so that each has a map of its own.", class_="notice"
        )
    maps = [_map(place, group, pictures, len(runs)) for place, group in enumerate(groups)]
    return join(drawn_sheets(pictures, step), _search(), apart, maps, element("p", LIMITS, class_="protocol"), absent)


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


def _map(place: int, runs: Sequence[RunRecord], pictures: dict[int, PicturePlaces], num_runs: int) -> Markup:
    """One map of all runs of the same samples."""
    first = runs[0].samples
    layouts = _in_step(runs)
    shown = pictures.get(runs[0].order)
    sheet = {"data_sheet": shown.name, "data_columns": shown.sheet.columns} if shown else {}
    pixelated = {"data_pixelated": True} if shown and shown.is_pixelated else {}
    data = element(
        "div",
        [drawn_data(run, layouts[run.order]) for run in runs],
        hidden=True,
        class_="map-data",
        data_names="\n".join(first.names),
        **class_data(first),
        **sheet,
        **pixelated,
    )
    live = element("div", class_="map-live", id=f"map-live-{place}")
    parts = [
        element("p", chosen_words(first), class_="note"),
        data,
        element("div", _controls(place, runs, layouts), live, class_="needs-script map-tools"),
        _legends(runs, first),
        element("div", _stills(runs, layouts, num_runs), class_="stills"),
        element("p", HOW_TO_USE, class_="note needs-script"),
        _table(runs, layouts, num_runs),
        changed_neighbours(runs, pictures) if len(runs) > 1 else None,
    ]
    return element("div", parts, class_="map")


def _in_step(runs: Sequence[RunRecord]) -> dict[int, list[Drawn]]:
    """The layouts of all runs, each turned as that of the first run."""
    models = {each.name: each for each in layouts_of(runs[0])}
    return {
        run.order: [
            turned(each, models[each.name]) if run is not runs[0] and each.name in models else each
            for each in layouts_of(run)
        ]
        for run in runs
    }


def _controls(place: int, runs: Sequence[RunRecord], layouts: dict[int, list[Drawn]]) -> list[Markup]:
    """What chooses layout, colours and runs; a script fills the map in."""
    # Of these all runs have a layout.
    names = [each.name for each in layouts[runs[0].order]]
    names = [name for name in names if all(any(each.name == name for each in layouts[run.order]) for run in runs)]
    can_colour = {"class": len(runs[0].samples.labels_N) > 0, "none": True}
    can_colour["dimension"] = any(dimension_groups(run.samples) for run in runs)
    colours = [(key, words) for key, words in COLOURS if can_colour[key]]
    chosen = [_choice(f"map-layout-{place}", "layout", "Layout", list(zip(names, names, strict=True)))]
    chosen.append(_choice(f"map-colour-{place}", "colour", "Colour by", colours))
    if len(runs) > 1:
        chosen.append(_slider(place, runs))
    return chosen


def _choice(name: str, key: str, words: str, options: Sequence[tuple[str, str]], chosen: int = 0) -> Markup:
    """A list to choose from."""
    listed = [
        element("option", told, value=value, selected=number == chosen) for number, (value, told) in enumerate(options)
    ]
    return element("p", element("label", words, for_=name), element("select", listed, id=name, data_key=key))


def _slider(place: int, runs: Sequence[RunRecord]) -> Markup:
    """From one run to another."""
    options = [(str(number), run.name) for number, run in enumerate(runs)]
    name = f"map-between-{place}"
    field = element(
        "input", id=name, type="range", min=0, max=100, value=0, data_key="between", aria_valuetext=runs[0].name
    )
    return element(
        "div",
        _choice(f"map-before-{place}", "before", "From", options),
        element("p", element("label", "Before and after", for_=name), field),
        _choice(f"map-after-{place}", "after", "To", options, len(runs) - 1),
        class_="between",
    )


def _legends(runs: Sequence[RunRecord], known: Collection) -> Markup:
    """The legend by class, and that by strongest dimension of each run, of which a script shows one."""
    classes = class_groups(known)
    found = [element("div", legend(classes, len(known)), data_legend="class")] if classes else []
    # The maps without a script are coloured by class where there are classes.
    only = "needs-script" if classes else None
    for number, run in enumerate(runs):
        dims = dimension_groups(run.samples)
        if dims:
            title = element("p", "Strongest dimension", _of(run, len(runs)), class_="note")
            listed = legend(dims, len(known))
            found.append(element("div", title, listed, data_legend=f"dimension-{number}", class_=only))
    return element("div", found, class_="legends")


def _stills(runs: Sequence[RunRecord], layouts: dict[int, list[Drawn]], num_runs: int) -> list[Markup]:
    """The maps of the embedding without a script and on paper; the same layout of all runs side by side."""
    drawn = [(each, run) for run in runs for each in layouts[run.order] if each.place == "embedding"]
    names = [each.name for each in layouts[runs[0].order]]
    drawn.sort(key=lambda pair: names.index(pair[0].name) if pair[0].name in names else len(names))
    return [_still(each, run, num_runs) for each, run in drawn]


def _still(layout: Drawn, run: RunRecord, num_runs: int) -> Markup:
    """One map without a script."""
    known = run.samples
    classes, dims = class_groups(known), dimension_groups(known)
    by = "Coloured by class." if classes else "Coloured by strongest dimension." if dims else ""
    caption = element("figcaption", element("strong", layout.name), _of(run, num_runs))
    return element("figure", caption, still_map(layout, classes or dims, f"{chosen_words(known)} {by}".strip()))


def _of(run: RunRecord, num_runs: int) -> Markup | None:
    """Name a run where there are several."""
    return join(" of ", run_tag(run.name, run.order)) if num_runs > 1 else None


def _table(runs: Sequence[RunRecord], layouts: dict[int, list[Drawn]], num_runs: int) -> Markup:
    """How much of the truth each layout keeps."""
    rows = []
    for run in runs:
        for layout in layouts[run.order]:
            share_K, made = run.samples.variance[layout.place], run.layouts
            is_tsne = layout.name.startswith("t-SNE")
            trust = None
            if made:
                trust = (
                    made.tsne[layout.place].trustworthiness if is_tsne else made.pca_trustworthiness.get(layout.place)
                )
            name = join(layout.name, _of(run, num_runs))
            kept = "–" if is_tsne else percent(float(share_K[:2].sum()))
            rows.append([name, kept, "not measured" if trust is None else f"{trust:.3f}"])
    return data_table(
        "How far the maps can be trusted", ["map", "variance kept by its two axes", "trustworthiness"], rows
    )


NUM_SHOWN = 12


def is_same_samples(first: RunRecord, second: RunRecord) -> bool:
    """Whether the maps of two runs are of the same samples."""
    one, other = first.samples, second.samples
    prints = {run.card.data_fingerprint for run in (first, second)} - {None}
    return len(prints) < 2 and one.names == other.names and np.array_equal(one.rows_N, other.rows_N)


def shared_neighbours(first: Collection, second: Collection) -> NDArray[np.float64]:
    """Share of the nearest others of each sample that are the same in both runs, (N,)."""
    has_other_NM = first.neighbours_NM >= 0
    is_shared_NM = (first.neighbours_NM[:, :, None] == second.neighbours_NM[:, None, :]).any(axis=2) & has_other_NM
    return is_shared_NM.sum(axis=1) / np.maximum(has_other_NM.sum(axis=1), 1)


def changed_neighbours(runs: Sequence[RunRecord], pictures: dict[int, PicturePlaces]) -> Markup | None:
    """Say how many neighbours the first and the last run share, and show samples for which they share fewest."""
    before, after = runs[0], runs[-1]
    one, other = before.samples, after.samples
    if len(one) < 3:
        return None
    shared_N = shared_neighbours(one, other)
    by_chance = min(NUM_NEIGHBOURS / (len(one) - 1), 1.0)
    told = (
        f"On average {percent(float(shared_N.mean()))} of the {NUM_NEIGHBOURS} nearest others by the embedding are the "
        f"same in both; by chance it would be {percent(by_chance)}. Shown are samples for which fewest are, from "
        "everywhere in the collection."
    )
    title = element(
        "h3", "Neighbours in ", run_tag(before.name, before.order), " and in ", run_tag(after.name, after.order)
    )
    heads = ["sample", *(run_tag(run.name, run.order) for run in (before, after))]
    rows: list[list[Child]] = [
        [
            _sample(one, at, pictures.get(before.order)),
            _strip(one, at, pictures.get(before.order)),
            _strip(other, at, pictures.get(after.order)),
        ]
        for at in most_changed(shared_N).tolist()
    ]
    table = data_table("Samples with other neighbours", heads, rows)
    return join(title, element("p", told, class_="reading"), element("div", table, class_="neighbours"))


def most_changed(shared_N: NDArray[np.float64], num: int = NUM_SHOWN) -> NDArray[np.int64]:
    """Samples that share fewest neighbours, evenly spaced among those that share as few.

    >>> most_changed(np.array([1.0, 0.0, 0.5, 0.0, 0.0]), num=2).tolist()
    [1, 4]
    """
    order_N = np.argsort(shared_N, kind="stable")
    equal = order_N[shared_N[order_N] <= shared_N[order_N[min(num, len(order_N)) - 1]]]
    return np.sort(equal[np.linspace(0, len(equal) - 1, min(num, len(equal))).astype(int)])


def _sample(known: Collection, at: int, shown: PicturePlaces | None) -> Markup:
    """One sample with its name and class."""
    label = int(known.labels_N[at]) if len(known.labels_N) else -1
    told = known.class_names[label] if label >= 0 else ""
    picture = shown.shown(at, known.names[at], told or "no class") if shown else None
    name = element("bdi", known.names[at], class_="name")
    return element("span", picture, name, element("span", told, class_="note") if told else None, class_="sample")


def _strip(known: Collection, at: int, shown: PicturePlaces | None) -> Markup:
    """The neighbours of one sample, the nearest first."""
    near = [other for other in known.neighbours_NM[at].tolist() if other >= 0]
    if shown is None:
        return element("span", ", ".join(known.names[other] for other in near))
    return element(
        "span",
        [shown.shown(other, known.names[other], f"neighbour {rank}") for rank, other in enumerate(near, 1)],
        class_="strip",
    )


FILLS = [partial(map_section, step=step) for step in range(len(SHARES))]
SECTION = Section(62, "map", "Map", "What lies beside what?", FILLS[0], smaller=FILLS[1:])
