"""How accurate is it? Accuracies with intervals, beside the baselines."""

import re
from collections.abc import Sequence
from dataclasses import replace

from counterpoint.core.metric import KEEPING, in_condition, is_apart
from counterpoint.core.schemas import EvaluationRow, corruption_means
from counterpoint.report.charts.chart_frame import ChartText, percent_axis
from counterpoint.report.charts.drawings import IntervalGroup, IntervalRow, interval_drawing
from counterpoint.report.charts.figures import Style, absences, data_table, figure, readings, run_style, run_tag
from counterpoint.report.markup import Child, Markup, element, join
from counterpoint.report.run_reading import REPRESENTATION, RunRecord, flatten
from counterpoint.report.sections import Section
from counterpoint.report.sections.headline import best_baseline, difference_words, evaluated, metric_of, why_unpaired
from counterpoint.report.wording import count, figure_of, interval, listing, number, sized

MAX_ROWS = 300  # enough for every protocol of the papers with eight kinds of features
MAX_TABLES = 6  # most tables of figures with a part of the features
WIDTH = 820.0


def evaluation_section(runs: Sequence[RunRecord]) -> Markup:
    """Draw every accuracy with its interval, list them, and state the protocols in words."""
    evaluated_runs = []
    for run in runs:
        if run.evaluation and run.evaluation.rows:
            # Figures under corruptions, and with a part of the features, have tables of their own.
            rows = tuple(row for row in run.evaluation.rows if not is_apart(row.protocol))
            evaluated_runs.append(replace(run, evaluation=run.evaluation.model_copy(update={"rows": rows})))
    absent = absences([run for run in runs if not run.rows], "evaluation", "evaluate")
    elsewhere = _on_other_data(runs)
    if not evaluated_runs:
        return join(absent, elsewhere)
    drawn = _figure(evaluated_runs, len(runs))
    beyond = join(_under_corruptions(runs), _with_fewer_features(runs))
    protocols = [_protocol_words(run) for run in evaluated_runs]
    tags = [(run_tag(run), " ") for run in evaluated_runs]
    if len(set(protocols)) == 1:  # what all runs share is written once
        protocols, tags = protocols[:1], [None]
    stated = [element("p", tag, words, class_="protocol") for tag, words in zip(tags, protocols, strict=True)]
    return join(readings(runs, baseline_words), drawn, stated, beyond, absent, elsewhere)


def _under_corruptions(runs: Sequence[RunRecord]) -> Markup | None:
    tables = []
    for run in runs:
        for classifier, by_corruption in corruption_means(run.rows).items():
            features = list(dict.fromkeys(name for means in by_corruption.values() for name in means))
            rows = [
                [corruption, *(figure_of("share", means.get(name)) for name in features)]
                for corruption, means in by_corruption.items()
            ]
            label = f"Accuracy of the {metric_of(classifier).short} under corruptions, mean over severities"
            tag = run_tag(run) if len(runs) > 1 else None
            tables.append(join(element("p", tag, " ", label), data_table(label, ["corruption", *features], rows)))
    return join(element("h3", "Under corruptions"), tables) if tables else None


def baseline_words(run: RunRecord) -> str:
    """Compare the representation with the best baseline by each metric that is always measured."""
    # Up to twenty metrics can be requested: their figures are in the table.
    protocols = [name for name in dict.fromkeys(row.protocol for row in run.rows) if not metric_of(name).on_request]
    return " ".join(words for protocol in protocols if (words := _protocol_comparison(run, protocol)))


def _protocol_comparison(run: RunRecord, protocol: str) -> str:
    own, metric = evaluated(run, protocol), metric_of(protocol)
    if own is None or own.figure is None:
        return ""
    words = f"By {metric.short}, the representation reaches {figure_of(metric.unit, own.figure)}"
    best = best_baseline(run, metric)
    if best is None:
        return f"{words}; there is no baseline beside it."
    gain = own.figure - (best.figure or 0.0)
    size = sized(metric.unit, abs(gain))
    side = f"{size} {'above' if gain > 0 else 'below'} {best.features} ({figure_of(metric.unit, best.figure)})"
    difference = own.minus(best)
    if difference is None:
        return f"{words}, {side}; whether that is chance is not known ({why_unpaired(own, best)})."
    verdict = "they are told apart" if difference.is_told_apart else "they are not told apart"
    return f"{words}, {side}; on the same queries {verdict} ({difference_words(difference, metric.unit)})."


def _figure(runs: Sequence[RunRecord], num_runs: int) -> Markup:
    rows = [row for run in runs for row in run.rows[:MAX_ROWS]]
    # Only shares can share one axis.
    drawn = [row for row in rows if metric_of(row.protocol).unit == "share"]
    if not drawn:
        return _figure_table(runs, num_runs)
    ends = [end for row in drawn for end in (row.low, row.figure, row.high)]
    groups = [_interval_group(protocol, runs, num_runs) for protocol in dict.fromkeys(row.protocol for row in drawn)]
    axis = percent_axis("accuracy", ends)
    words = ChartText("Accuracy with 95 % intervals", " ".join(baseline_words(run) for run in runs))
    tags = [(run_tag(run), " ") for run in runs]
    legend = element("span", tags, class_="of-what") if num_runs > 1 else None
    # Queries that were in training must not be called held out, and one such run is enough.
    is_held_out = all("held out of training" in run.evaluation.split.how for run in runs if run.evaluation)
    title = "Accuracy on held-out queries" if is_held_out else "Accuracy on the queries described below"
    note = join(
        "Whiskers are 95 % intervals of each figure alone; whether they overlap is not a test. Hollow marks are "
        "baselines.",
        legend,
    )
    return figure(title, note, interval_drawing(axis, groups, words), WIDTH, _figure_table(runs, num_runs))


def _interval_group(protocol: str, runs: Sequence[RunRecord], num_runs: int) -> IntervalGroup:
    own = [(run, row) for run in runs for row in run.rows if row.protocol == protocol]
    labels = list(dict.fromkeys(row.features for _, row in own))[:MAX_ROWS]
    rows = [
        IntervalRow(
            label,
            [_interval(run, row, num_runs) for run, row in own if row.features == label and row.figure is not None],
        )
        for label in labels
    ]
    return IntervalGroup(metric_of(protocol).short, [row for row in rows if row.intervals])


def _interval(run: RunRecord, row: EvaluationRow, num_runs: int) -> tuple[float, float, float, Style]:
    value = row.figure or 0.0
    # Without an interval the whisker has length 0.
    low = value if row.low is None else row.low
    high = value if row.high is None else row.high
    style = run_style(run.order)
    # One run: colour means the features. Several: it means the run, in every chart.
    if num_runs == 1 and row.features != REPRESENTATION:
        style = Style("muted" if row.is_baseline else "c2", marker="square")
    return low, value, high, Style(style.colour, "", style.marker, is_hollow=row.is_baseline)


def _figure_table(runs: Sequence[RunRecord], num_runs: int) -> Markup:
    keys = dict.fromkeys((row.protocol, row.features) for run in runs for row in run.rows[:MAX_ROWS])
    protocols = list(dict.fromkeys(protocol for protocol, _ in keys))
    rows = [
        [metric_of(protocol).short, features, *(_cell(evaluated(run, protocol, features)) for run in runs)]
        # Stable: features keep their order within a protocol.
        for protocol, features in sorted(keys, key=lambda key: protocols.index(key[0]))
    ]
    heads = [run_tag(run) for run in runs] if num_runs > 1 else ["figure, 95 % interval, correct"]
    return data_table("Figures of the evaluation", ["protocol", "features", *heads], rows)


def _cell(row: EvaluationRow | None) -> Child:
    if row is None:
        return "–"
    unit = metric_of(row.protocol).unit
    correct = "" if row.correct is None else f"{number(row.correct)} of {number(row.total)}"
    details = ", ".join(part for part in (interval(row.low, row.high, unit), correct) if part)
    return join(element("strong", figure_of(unit, row.figure)), " ", element("span", details, class_="aside"))


def _on_other_data(runs: Sequence[RunRecord]) -> Markup | None:
    evaluations = [(run, other) for run in runs for other in run.other_evaluations][:MAX_ROWS]
    if not evaluations:
        return None
    protocols = list(dict.fromkeys(row.protocol for _, other in evaluations for row in other.rows))
    rows = [
        [
            join(run_tag(run) if len(runs) > 1 else None, " ", element("bdi", other.split.source)),
            number(other.split.num_queries),
            *(_cell(other.find_row(REPRESENTATION, protocol)) for protocol in protocols),
        ]
        for run, other in evaluations
    ]
    head = ["data", "queries", *(metric_of(protocol).short for protocol in protocols)]
    note = element("p", "The representation on samples or labels that are not the run’s own.", class_="note")
    return join(element("h3", "On other data"), note, data_table("Evaluations on other data", head, rows))


def _protocol_words(run: RunRecord) -> str:
    assert run.evaluation is not None
    split = run.evaluation.split
    protocols: dict[str, EvaluationRow] = {}
    for row in run.evaluation.rows:
        protocols.setdefault(row.protocol, row)  # stated with the settings of its first row
    parts = ((split.num_bank, "in the bank"), (split.num_queries, "as queries"))
    sizes = [f"{count(quantity, 'sample')} {use}" for quantity, use in parts if quantity is not None]
    classes = f", {count(split.num_classes, 'class', 'classes')}" if split.num_classes else ""
    how = f" Queries: {split.how}." if split.how else ""
    if split.num_unlabelled:
        how += f" {count(split.num_unlabelled, 'sample')} without a label took no part."
    opening = f"Split: {listing(sizes)}{classes}.{how}" if sizes else how.strip()
    return " ".join(filter(None, [opening, *map(_metric_words, protocols.values())]))


def _metric_words(row: EvaluationRow) -> str:
    """State a metric: its words with the settings they name, then the settings that they do not."""
    metric, settings = metric_of(row.protocol), flatten(row.settings)
    # "[ by {similarity} similarity]" stays only where the settings of the row name a similarity.
    wording = re.sub(
        r"\[(.*?)\]", lambda part: part[1] if _settings_in(part[1]) <= settings.keys() else "", metric.wording
    )
    rest = [f"{key} {value}" for key, value in settings.items() if key not in _settings_in(wording)]
    details = "; ".join(part for part in (wording.format_map(settings), ", ".join(rest)) if part)
    return f"{metric.title}: {details}." if details else ""


def _settings_in(words: str) -> set[str]:
    return set(re.findall(r"{(\w+)}", words))


def _with_fewer_features(runs: Sequence[RunRecord]) -> Markup | None:
    tables = []
    for run in runs:
        points: dict[tuple[str, str], list[EvaluationRow]] = {}
        for row in run.rows:
            name, condition = in_condition(row.protocol)
            if condition.startswith(KEEPING) and {"kept", "order"} <= row.settings.keys():
                points.setdefault((name, row.features), []).append(row)
        tag = run_tag(run) if len(runs) > 1 else None
        for (name, features), rows in points.items():
            metric = metric_of(name)
            label = f"{metric.title}, {features}"
            orders = list(dict.fromkeys(str(row.settings["order"]) for row in rows))
            figures = {(int(row.settings["kept"]), str(row.settings["order"])): row.figure for row in rows}
            cells = [
                [number(size), *(figure_of(metric.unit, figures.get((size, order))) for order in orders)]
                for size in sorted({size for size, _ in figures})
            ]
            table = data_table(label, ["features kept", *orders], cells)
            tables.append(join(element("p", tag, " ", label), table))
    return join(element("h3", "With a part of the features"), tables[:MAX_TABLES]) if tables else None


def _answer(run: RunRecord) -> str:
    measured = [metric_of(row.protocol) for row in run.rows]
    metrics = {metric.name: metric for metric in measured if not metric.on_request}
    figures = [(metric, evaluated(run, metric.name)) for metric in metrics.values()]
    return ", ".join(f"{metric.short} {figure_of(metric.unit, row.figure)}" for metric, row in figures if row)


SECTION = Section(70, "evaluation", "Evaluation", "How accurate is it?", evaluation_section, _answer)
