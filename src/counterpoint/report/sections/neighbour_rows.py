"""What lies nearest to what? Some samples, chosen by a rule, each beside its neighbours in the embedding."""

import numpy as np

from counterpoint.evaluation.map_samples import NOBODY, Collection
from counterpoint.report.charts.ticks import evenly_chosen
from counterpoint.report.markup import Markup, element
from counterpoint.report.picture_sheets import PicturePlaces
from counterpoint.report.run_record import RunRecord
from counterpoint.report.wording import count, percent

NUM_QUERIES = 6


def neighbour_rows(run: RunRecord, shown: PicturePlaces | None, num_queries: int = NUM_QUERIES) -> Markup | None:
    """Show samples beside their neighbours: as pictures, or by name and class where there are none.

    Args:
        run: that the page is about.
        shown: its pictures.
        num_queries: how many samples.
    """
    known = run.collection
    if known is None or len(known) < 2:
        return None
    items = [_row(known, query, shown) for query in chosen_queries(known, num_queries)]
    caption = element("figcaption", element("strong", "What lies nearest"), " ", _words(known, shown is not None))
    look = "nearest" if shown else "nearest in-words"
    return element("figure", caption, element("ol", items, class_=look))


def chosen_queries(known: Collection, number: int) -> list[int]:
    """Samples by a rule that looks at no result: evenly spaced in the order of their classes."""
    order_N = np.argsort(known.labels_N, kind="stable") if len(known.labels_N) else np.arange(len(known))
    inner = evenly_chosen(len(order_N), number + 2)[1:-1]
    return [int(order_N[at]) for at in inner or range(len(order_N))][:number]


def same_class_share(known: Collection) -> tuple[float, float] | None:
    """Share of the neighbours that have the class of their sample, and of all pairs; None without labels."""
    labels_N = known.labels_N
    if not (labels_N >= 0).any():
        return None
    is_known_NM = (known.neighbours_NM >= 0) & (labels_N[:, None] >= 0) & (labels_N[known.neighbours_NM] >= 0)
    if not is_known_NM.any():
        return None
    is_same_NM = labels_N[known.neighbours_NM] == labels_N[:, None]
    counts = np.bincount(labels_N[labels_N >= 0])
    total = counts.sum()
    chance = float((counts * (counts - 1)).sum() / max(total * (total - 1), 1))
    return float(is_same_NM[is_known_NM].mean()), chance


def same_class_words(known: Collection) -> str:
    """How many of the nearest are of the same class, in a few words; empty without labels."""
    found = same_class_share(known)
    if found is None:
        return ""
    return f"{percent(found[0])} of the nearest have the same class (chance {percent(found[1])})"


def _words(known: Collection, has_pictures: bool) -> Markup:
    number = count(known.neighbours_NM.shape[1], "nearest other", "nearest others")
    words = same_class_words(known)
    how = element("span", f"Each sample with its {number} in the embedding. ", class_="how")
    marks = "Dashed: of another class." if words and has_pictures else ""
    return element("span", f"{words}. " if words else None, how, marks, class_="of-what")


def _row(known: Collection, query: int, shown: PicturePlaces | None) -> Markup:
    near = [int(at) for at in known.neighbours_NM[query] if at != NOBODY]
    if shown is None:
        told = [_named(known, at) for at in near]
        return element("li", element("strong", _named(known, query)), ": ", ", ".join(told))
    own = element("span", shown.shown(query, known.names[query], _class_of(known, query) or "query"), class_="query")
    pictures = [
        element(
            "span",
            shown.shown(at, known.names[at], _class_of(known, at) or "neighbour"),
            class_="other" if _is_other(known, query, at) else None,
        )
        for at in near
    ]
    return element("li", own, pictures)


def _class_of(known: Collection, at: int) -> str:
    is_labelled = len(known.labels_N) and known.labels_N[at] >= 0
    return known.class_names[known.labels_N[at]] if is_labelled else ""


def _is_other(known: Collection, query: int, at: int) -> bool:
    labels_N = known.labels_N
    return bool(len(labels_N) and labels_N[query] >= 0 and labels_N[at] >= 0 and labels_N[query] != labels_N[at])


def _named(known: Collection, at: int) -> str:
    its_class = _class_of(known, at)
    return f"{known.names[at]} ({its_class})" if its_class else known.names[at]
