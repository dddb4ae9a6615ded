"""Which samples have other neighbours in one run than in another: before and after, side by side."""

# N samples of the map, M nearest others

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from counterpoint.core.collection import NUM_NEIGHBOURS, Collection
from counterpoint.core.markup import Child, Markup, element, join
from counterpoint.report.charts.figures import data_table
from counterpoint.report.charts.series_style import run_tag
from counterpoint.report.picture_sheets import Pictures
from counterpoint.report.run_record import RunRecord
from counterpoint.report.wording import percent

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


def changed_neighbours(runs: Sequence[RunRecord], pictures: dict[int, Pictures]) -> Markup | None:
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


def _sample(known: Collection, at: int, shown: Pictures | None) -> Markup:
    """One sample with its name and class."""
    label = int(known.labels_N[at]) if len(known.labels_N) else -1
    told = known.class_names[label] if label >= 0 else ""
    picture = shown.shown(at, known.names[at], told or "no class") if shown else None
    name = element("bdi", known.names[at], class_="name")
    return element("span", picture, name, element("span", told, class_="note") if told else None, class_="sample")


def _strip(known: Collection, at: int, shown: Pictures | None) -> Markup:
    """The neighbours of one sample, the nearest first."""
    near = [other for other in known.neighbours_NM[at].tolist() if other >= 0]
    if shown is None:
        return element("span", ", ".join(known.names[other] for other in near))
    return element(
        "span",
        [shown.shown(other, known.names[other], f"neighbour {rank}") for rank, other in enumerate(near, 1)],
        class_="strip",
    )
