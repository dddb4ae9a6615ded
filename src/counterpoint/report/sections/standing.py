"""Is it better than references that need no training? kNN and probe beside baselines and chance."""

from counterpoint.core.run_records import EvaluationRow
from counterpoint.diagnostics.gain import CLASSIFIERS, LEARNED, gains
from counterpoint.report.charts.figures import data_table
from counterpoint.report.markup import Child, Markup, element, join
from counterpoint.report.run_record import RunRecord
from counterpoint.report.sections.headline import baselines, chance_of, evaluated, metric_of
from counterpoint.report.wording import interval, percent


def plain_answer(run: RunRecord) -> str:
    """The answer in a few words."""
    found = gains(run.evaluation.rows if run.evaluation else ())
    judged = [gain for gain in found if gain.difference is not None]
    if not judged:
        return "Not known"
    better = [gain for gain in judged if gain.is_better]
    is_faulty = run.diagnosis is not None and run.diagnosis.level == "severe"
    if better and is_faulty:
        return "Better, but with a serious fault"
    if better:
        return "Yes" if len(better) == len(found) else f"By {better[0].classifier} only"
    return "No" if any(gain.is_worse for gain in judged) else "Not clearly"


def standing(run: RunRecord) -> Markup | None:
    """Set the learned features beside the baselines and chance; None without an accuracy."""
    known = [protocol for protocol in CLASSIFIERS if evaluated(run, protocol)]
    if not known:
        return None
    learned = {protocol: evaluated(run, protocol, LEARNED) for protocol in known}
    found = {protocol: dict(baselines(run, protocol)) for protocol in known}
    names = dict.fromkeys(name for each in found.values() for name in each)
    rows: list[list[Child]] = [[element("strong", "learned"), *(_cell(learned[each], "bar own") for each in known)]]
    rows += [[name, *(_cell(found[each].get(name), "bar") for each in known)] for name in names]
    if (chance := chance_of(run)) is not None:
        rows.append(["chance", *([_share(chance, "bar")] * len(known))])
    head = ["accuracy", *(metric_of(each).short for each in known)]
    return element("div", data_table("Accuracy beside references that need no training", head, rows), class_="standing")


def _cell(row: EvaluationRow | None, look: str) -> Child:
    if row is None or row.figure is None:
        return "–"
    ends = interval(row.low, row.high) if "own" in look else ""
    return join(_share(row.figure, look), element("span", ends, class_="of-what") if ends else None)


def _share(share: float, look: str) -> Markup:
    """A share as a number and a bar."""
    words = percent(share)
    bar = element("rect", class_=look, width=100 * min(max(share, 0.0), 1.0), height=6)
    track = element("rect", class_="track", width=100, height=6)
    described = [element("title", words), element("desc", "The share as a bar.")]
    box = {"viewBox": "0 0 100 6", "preserveAspectRatio": "none", "aria_hidden": "true"}
    return join(element("b", words), element("svg", described, track, bar, class_="share", role="img", **box))
