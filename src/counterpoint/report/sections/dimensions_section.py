"""What does every dimension show? All of them as on a light table: strongest samples and figures, side by side."""

import math
from collections.abc import Sequence
from functools import partial

import numpy as np

from counterpoint.evaluation.map_samples import Collection
from counterpoint.report.charts.figures import absences, choice, columns, readings, run_title
from counterpoint.report.markup import Markup, element, join
from counterpoint.report.picture_sheets import SHARES, PicturePlaces, pictures_of
from counterpoint.report.run_reading import RunRecord
from counterpoint.report.sections import Section
from counterpoint.report.wording import NO_BREAK, count, number, percent

PURE = 0.8
ALMOST_ALWAYS = 0.9
SELECTIVE = 0.1  # share of the samples up to which an active dimension is called selective
MOST_PICTURES = 4096  # most pictures of all dimensions and runs; more make a page slow to open
MOST_DIMS = 4096  # most dimensions of all runs, for the same reason
NUM_NAMES = 3
SORTS = (("expected", "expected activation"), ("fires", "share active"), ("purity", "purity"), ("dim", "number"))
KINDS = (
    ("all", "all"),
    ("named", "named after a class"),
    ("pure", f"at least 80{NO_BREAK}% one class"),
    ("selective", f"active on at most 10{NO_BREAK}% of the samples"),
    ("always", f"active on more than 90{NO_BREAK}%"),
    ("silent", "silent"),
)


def dimensions_section(runs: Sequence[RunRecord], step: int) -> Markup:
    """List all dimensions of all runs.

    Args:
        runs: the runs of the page.
        step: number of times that the page was shrunk.
    """
    sampled = [run for run in runs if run.collection]
    absent = absences([run for run in runs if not run.collection], "table of dimensions", "diagnose")
    if not sampled:
        return join(absent)
    pictures = pictures_of(runs, step)
    lists = [join(run_title(run, len(runs)), _list(run, pictures.get(run.order), len(sampled))) for run in sampled]
    is_part = any(len(run.samples) < run.samples.num_samples for run in sampled)
    strongest = "the strongest of the samples on the map" if is_part else "the samples with the largest values"
    how_to_read = (
        f"Each dimension of the embedding with {strongest}, the strongest first. Share active, expected activation "
        "(mean absolute value at unit length), and the commonest class with its share of the samples that it is active "
        "on are of all samples. No class is named where that share is not beyond chance."
    )
    note = element("p", how_to_read, class_="note")
    is_labelled = any(len(run.samples.labels_N) for run in sampled)
    controls = [
        choice("dims-sort", "Sort by", [pair for pair in SORTS if is_labelled or pair[0] != "purity"]),
        choice("dims-kind", "Show", [pair for pair in KINDS if is_labelled or pair[0] not in ("named", "pure")]),
        element("output", id="dims-count"),
    ]
    tools = element("div", controls, class_="needs-script table-tools")
    return join(readings(sampled, dimension_words), note, tools, columns(lists), absent)


def dimension_words(run: RunRecord) -> str:
    """Say how many dimensions are silent or represent one class, and how often the others are active."""
    collection, dims = run.samples, run.samples.dims
    silent, active = (dims.fires_D == 0).sum(), dims.fires_D[dims.fires_D > 0]
    words = f"Of {count(len(dims), 'dimension')} {number(int(silent))} {'is' if silent == 1 else 'are'} silent"
    if len(collection.labels_N):
        own = dims.class_D[(dims.purity_D >= PURE) & (dims.class_D >= 0)]
        covered = f"{len(set(own.tolist()))} of {count(len(collection.class_names), 'class', 'classes')}"
        verb = "represents" if len(own) == 1 else "represent"
        words += f", and {len(own)} {verb} one class (at least 80{NO_BREAK}% of it)"
        words += f": {covered} together" if len(own) else ""
    if not len(active):
        return f"{words}."
    words += f". The median active one is active on {percent(float(np.median(active)))} of the samples."
    if np.median(active) > ALMOST_ALWAYS:
        words += " A dimension that is almost always active is not a concept: its top samples are only its extremes."
    return words


def _answer(run: RunRecord) -> str:
    if run.collection is None:
        return ""
    dims = run.collection.dims
    if not run.is_readable:
        return f"No single meaning is expected of each: the {number(len(dims))} have both signs"
    pure = int(((dims.purity_D >= PURE) & (dims.class_D >= 0)).sum())
    silent = f"{number(int((dims.fires_D == 0).sum()))} silent"
    if not len(run.collection.labels_N):
        return f"{count(len(dims), 'dimension')}, {silent}"
    return f"{number(pure)} of {count(len(dims), 'dimension')} represent one class, {silent}"


def kinds_of(collection: Collection, dim: int) -> list[str]:
    """List the ``KINDS`` of a dimension."""
    fires, purity = collection.dims.fires_D[dim], collection.dims.purity_D[dim]
    holds = {
        "named": collection.dims.class_D[dim] >= 0,
        "pure": purity >= PURE,  # NaN is not
        "selective": 0 < fires <= SELECTIVE,
        "always": fires > ALMOST_ALWAYS,
        "silent": fires == 0,
    }
    return [kind for kind, does in holds.items() if does]


def _list(run: RunRecord, pictures: PicturePlaces | None, num_runs: int) -> Markup:
    """List the dimensions of one run by their expected activation, as many as a page can hold."""
    samples = run.samples
    total, limit = len(samples.dims), MOST_DIMS // num_runs
    order = sorted(range(total), key=lambda dim: (-samples.dims.expected_D[dim], dim))[:limit]
    per_dim = max(1, min(samples.dims.top_DT.shape[1], MOST_PICTURES // (len(order) * num_runs)))
    items = [_item(samples, dim, pictures, per_dim) for dim in order]
    note = f"Shown are the {number(limit)} with the largest expected activation." if total > limit else ""
    look = f"light-table{'' if pictures else ' in-words'}"
    table = element("ol", items, class_=look, tabindex=0, aria_label=f"Dimensions of {run.name}")
    return join(element("p", note, class_="note") if note else None, table)


def _item(samples: Collection, dim: int, pictures: PicturePlaces | None, per_dim: int) -> Markup:
    dims = samples.dims
    fires, expected, purity = (float(figures[dim]) for figures in (dims.fires_D, dims.expected_D, dims.purity_D))
    its_class = int(dims.class_D[dim])
    name = samples.class_names[its_class] if its_class >= 0 else ""
    class_words = join("· ", element("bdi", name), f" {percent(purity, 0)}") if name else None
    head = element("p", element("b", number(dim)), " ", class_words, class_="head")
    top = [
        (at, value)
        for at, value in zip(dims.top_DT[dim].tolist(), dims.values_DT[dim].tolist(), strict=True)
        if at >= 0
    ]
    facts = "silent" if fires == 0 else f"active on {percent(fires)}, expected {number(expected, 2)}"
    return element(
        "li",
        head,
        _pictures(samples, top[:per_dim], pictures),
        element("p", facts, class_="facts"),
        data_dim=dim,
        data_fires=f"{fires:.6g}",
        data_expected=f"{expected:.6g}",
        data_purity=-1 if math.isnan(purity) else f"{purity:.6g}",
        data_kind=" ".join(kinds_of(samples, dim)) or None,
        data_class=name or None,
    )


def _pictures(samples: Collection, top: Sequence[tuple[int, float]], pictures: PicturePlaces | None) -> Markup | None:
    if not top:
        return None
    if pictures is None:
        return element("p", ", ".join(samples.names[at] for at, _ in top[:NUM_NAMES]), class_="names")
    drawn = [pictures.shown(at, samples.names[at], f"activation {number(value, 2)}") for at, value in top]
    return element("div", drawn, class_="strip")


FILLS = [partial(dimensions_section, step=step) for step in range(len(SHARES))]
SECTION = Section(
    64, "dimensions", "Dimensions", "What does each dimension show?", FILLS[0], _answer,
    lambda run: run.is_readable, smaller=FILLS[1:],
)  # fmt: skip
