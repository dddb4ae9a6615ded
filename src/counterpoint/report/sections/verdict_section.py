"""Is it good? The first screen: verdict, figures beside their baselines, worst finding, and what lies nearest."""

from collections.abc import Sequence
from functools import partial

import numpy as np

from counterpoint.core.schemas import EvaluationRow
from counterpoint.diagnostics.finding import LEVELS, Finding
from counterpoint.diagnostics.gain import CLASSIFIERS, LEARNED, gains
from counterpoint.evaluation.map_samples import NOBODY, Collection
from counterpoint.report.charts.chart_frame import evenly_chosen
from counterpoint.report.charts.figures import badge, columns, data_table, missing, run_tag, run_title
from counterpoint.report.markup import Child, Markup, element, join, prose
from counterpoint.report.picture_sheets import SHARES, PicturePlaces, drawn_sheet, pictures_of
from counterpoint.report.run_reading import RunRecord
from counterpoint.report.sections import Section
from counterpoint.report.sections.headline import baselines, chance_of, evaluated, metric_of, side_by_side
from counterpoint.report.wording import count, interval, number, percent

NUM_QUERIES = 6
UNFINISHED = {
    "created": "This run has not begun",
    "running": "This run is still training",
    "interrupted": "This run was interrupted",
}


def _same_class_words(samples: Collection) -> str:
    """Say how many of the nearest have the class of their sample, beside chance; empty without labels."""
    labels_N = samples.labels_N
    if not (labels_N >= 0).any():
        return ""
    is_known_NM = (samples.neighbours_NM >= 0) & (labels_N[:, None] >= 0) & (labels_N[samples.neighbours_NM] >= 0)
    if not is_known_NM.any():
        return ""
    is_same_NM = labels_N[samples.neighbours_NM] == labels_N[:, None]
    counts = np.bincount(labels_N[labels_N >= 0])
    total = counts.sum()
    chance = float((counts * (counts - 1)).sum() / max(total * (total - 1), 1))
    share = float(is_same_NM[is_known_NM].mean())
    return f"{percent(share)} of the nearest have the same class (chance {percent(chance)})"


def _words(samples: Collection, has_pictures: bool) -> Markup:
    number = count(samples.neighbours_NM.shape[1], "nearest other", "nearest others")
    words = _same_class_words(samples)
    how = element("span", f"Each sample with its {number} in the embedding. ", class_="how")
    marks = "Dashed: of another class." if words and has_pictures else ""
    return element("span", f"{words}. " if words else None, how, marks, class_="of-what")


def _row(samples: Collection, query: int, places: PicturePlaces | None) -> Markup:
    near = [int(at) for at in samples.neighbours_NM[query] if at != NOBODY]
    if places is None:
        names = [_name_and_class(samples, at) for at in near]
        return element("li", element("strong", _name_and_class(samples, query)), ": ", ", ".join(names))
    class_name = _class_of(samples, query)
    own = element("span", places.shown(query, samples.names[query], class_name or "query"), class_="query")
    labels_N, pictures = samples.labels_N, []
    for at in near:
        is_other = len(labels_N) and labels_N[query] >= 0 and labels_N[at] >= 0 and labels_N[query] != labels_N[at]
        picture = places.shown(at, samples.names[at], _class_of(samples, at) or "neighbour")
        pictures.append(element("span", picture, class_="other" if is_other else None))
    return element("li", own, pictures)


def _class_of(samples: Collection, at: int) -> str:
    is_labelled = len(samples.labels_N) and samples.labels_N[at] >= 0
    return samples.class_names[samples.labels_N[at]] if is_labelled else ""


def _name_and_class(samples: Collection, at: int) -> str:
    its_class = _class_of(samples, at)
    return f"{samples.names[at]} ({its_class})" if its_class else samples.names[at]


def _fill(runs: Sequence[RunRecord], step: int) -> Markup:
    sheets = pictures_of(runs, step)
    verdicts = columns([_verdict(run, len(runs)) for run in runs])
    figures = join(side_by_side(runs), columns([_worst(run) for run in runs])) if len(runs) > 1 else None
    # Samples beside their neighbours: as pictures, or by name and class if there are none. The rows of all runs
    # together fit on the first screen.
    near, num_queries = [], max(1, NUM_QUERIES // len(runs))
    for run in runs:
        samples, pictures = run.collection, sheets.get(run.order)
        if samples is None or len(samples) < 2:
            continue
        # The rule looks at no result: evenly spaced in the order of the classes.
        order_N = np.argsort(samples.labels_N, kind="stable") if len(samples.labels_N) else np.arange(len(samples))
        inner = evenly_chosen(len(order_N), num_queries + 2)[1:-1] or range(len(order_N))
        items = [_row(samples, int(order_N[at]), pictures) for at in inner[:num_queries]]
        words = _words(samples, pictures is not None)
        caption = element("figcaption", element("strong", "What lies nearest"), " ", words)
        rows = element("ol", items, class_="nearest" if pictures else "nearest in-words")
        near.append([run_title(run, len(runs)), element("figure", caption, rows)])
    unique = {places.name: places.sheet for places in sheets.values()}
    drawn = [drawn_sheet(name, sheet, SHARES[step]) for name, sheet in unique.items()]
    return join(drawn, verdicts, figures, columns(near) if near else None)


def finding_anchor(run: RunRecord, place: int) -> str:
    """Name the page's anchor of a finding."""
    return f"finding-{run.order + 1}-{place + 1}"


def by_severity(findings: Sequence[Finding]) -> list[tuple[int, Finding]]:
    """Order findings worst first, each with its place in the file."""
    return sorted(enumerate(findings), key=lambda item: -LEVELS.index(item[1].level))


def _verdict(run: RunRecord, num_runs: int) -> Markup:
    tag = element("p", run_tag(run), class_="verdict-run") if num_runs > 1 else None
    judgement = missing(run, "No diagnosis yet.", "diagnose")
    if run.diagnosis is not None:
        level = run.diagnosis.level
        fault = None if level == "good" else badge(level)  # features without a fault are not yet good
        words = element("p", fault, " ", prose(run.diagnosis.verdict, run.path), class_="lede")
        limits = element("p", run.diagnosis.limits, class_="of-what") if run.diagnosis.limits else None
        judgement = join(element("p", _plain_answer(run), class_="word"), words, limits)
    notice = None
    if run.card.status != "finished":
        # The planned number of epochs is known only if the settings are.
        planned = run.settings.get("epochs", "")
        num_epochs = count(len(run.epochs), "epoch")
        done = f"{len(run.epochs)} of {planned} epochs" if planned.isdigit() else num_epochs
        status = UNFINISHED.get(run.card.status, f"This run is not finished (status: {run.card.status or 'unknown'})")
        state = f"{status}: {done} so far. What follows describes an unfinished encoder."
        notice = element("p", state, class_="notice")
    content = join(tag, notice, judgement)
    if num_runs > 1:  # they have one table of figures
        return element("div", content, class_="verdict")
    unmeasured = missing(run, "Accuracies were not measured.", "evaluate")
    return element("div", content, columns([standing(run) or unmeasured, _worst(run)]), class_="verdict")


def _worst(run: RunRecord) -> Markup | None:
    """Show the worst finding with its remedy, or that the checks found no fault; None without findings."""
    if run.diagnosis is None:
        return None
    (place, finding), *_ = [*by_severity(run.diagnosis.findings), (0, None)]
    if finding is None:
        return None
    if finding.level == "good":
        words = f"{count(len(run.diagnosis.findings), 'check')} found no fault."
        return element("div", element("p", badge("good"), " ", words), class_="card worst level-good")
    more = sum(each.level != "good" for each in run.diagnosis.findings) - 1
    tail = f" ({number(more)} more)" if more else ""
    link = element("a", f"Why, and how to confirm it{tail}", href=f"#{finding_anchor(run, place)}")
    remedy = element("p", element("strong", "Try: "), prose(finding.remedy, run.path)) if finding.remedy else None
    title = element("h3", badge(finding.level), " ", prose(finding.title or finding.name, run.path))
    parts = [title, remedy, element("p", link)]
    return element("div", parts, class_=f"card worst level-{finding.level}")


def _plain_answer(run: RunRecord) -> str:
    all_gains = gains(run.rows)
    judged = [gain for gain in all_gains if gain.difference is not None]
    if not judged:
        return "Not known"
    better = [gain for gain in judged if gain.is_better]
    is_faulty = run.diagnosis is not None and run.diagnosis.level == "severe"
    if better and is_faulty:
        return "Better, but with a serious fault"
    if better:
        return "Yes" if len(better) == len(all_gains) else f"By {better[0].classifier} only"
    return "No" if any(gain.is_worse for gain in judged) else "Not clearly"


def standing(run: RunRecord) -> Markup | None:
    """Set the learned features beside the baselines and chance; None without an accuracy."""
    protocols = [protocol for protocol in CLASSIFIERS if evaluated(run, protocol)]
    if not protocols:
        return None
    learned = [_cell(evaluated(run, protocol, LEARNED), "bar own") for protocol in protocols]
    references = [dict(baselines(run, protocol)) for protocol in protocols]
    names = dict.fromkeys(name for figures in references for name in figures)
    rows: list[list[Child]] = [[element("strong", "learned"), *learned]]
    rows += [[name, *(_cell(figures.get(name), "bar") for figures in references)] for name in names]
    if (chance := chance_of(run)) is not None:
        rows.append(["chance", *([_share_bar(chance, "bar")] * len(protocols))])
    head = ["accuracy", *(metric_of(protocol).short for protocol in protocols)]
    return element("div", data_table("Accuracy beside references that need no training", head, rows), class_="standing")


def _cell(row: EvaluationRow | None, look: str) -> Child:
    if row is None or row.figure is None:
        return "–"
    ends = interval(row.low, row.high) if "own" in look else ""
    return join(_share_bar(row.figure, look), element("span", ends, class_="of-what") if ends else None)


def _share_bar(share: float, look: str) -> Markup:
    words = percent(share)
    bar = element("rect", class_=look, width=100 * min(max(share, 0.0), 1.0), height=6)
    track = element("rect", class_="track", width=100, height=6)
    described = [element("title", words), element("desc", "The share as a bar.")]
    box = {"viewBox": "0 0 100 6", "preserveAspectRatio": "none", "aria_hidden": "true"}
    return join(element("b", words), element("svg", described, track, bar, class_="share", role="img", **box))


FILLS = [partial(_fill, step=step) for step in range(len(SHARES))]
SECTION = Section(10, "verdict", "Verdict", "Is it good?", FILLS[0], smaller=FILLS[1:])
