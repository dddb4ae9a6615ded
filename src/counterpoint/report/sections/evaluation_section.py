"""Section 7: what is it good for? Accuracies with intervals, beside the baselines."""

from collections.abc import Sequence

from counterpoint.report.charts.chart_frame import ChartText
from counterpoint.report.charts.figures import absences, data_table, figure, readings
from counterpoint.report.charts.interval_chart import IntervalGroup, IntervalRow, interval_chart
from counterpoint.report.charts.series_style import Style, run_style, run_tag
from counterpoint.report.charts.ticks import percent_axis
from counterpoint.report.markup import Child, Markup, element, join
from counterpoint.report.run_record import REPRESENTATION, EvaluationRow, RunRecord
from counterpoint.report.sections.headline import BASELINES, accuracy_row
from counterpoint.report.wording import count, interval, listing, number, percent, sentence

MAX_ROWS = 60
WIDTH = 820.0
PROTOCOLS = {"knn": "kNN"}


def evaluation_section(runs: Sequence[RunRecord]) -> Markup:
    """Draw every accuracy with its interval, list them, and state the protocols in words."""
    evaluated = [run for run in runs if run.evaluation and run.evaluation.rows]
    absent = absences([run for run in runs if run not in evaluated], "evaluation (which needs labels)", "evaluate")
    if not evaluated:
        return join(absent)
    return join(readings(runs, baseline_words), _figure(evaluated, len(runs)), _protocols(evaluated), absent)


def baseline_words(run: RunRecord) -> str:
    """Compare the representation with the best baseline, protocol by protocol."""
    if run.evaluation is None:
        return ""
    protocols = dict.fromkeys(row.protocol for row in run.evaluation.rows)
    return " ".join(words for protocol in protocols if (words := _protocol_comparison(run, protocol)))


def _protocol_comparison(run: RunRecord, protocol: str) -> str:
    """Say how the representation fares against the best baseline under one protocol."""
    own = accuracy_row(run, protocol)
    if own is None or own.accuracy is None:
        return ""
    words = f"By {_protocol_name(protocol)}, the representation reaches {percent(own.accuracy)}"
    rated = [row for name in BASELINES if (row := accuracy_row(run, protocol, name)) and row.accuracy is not None]
    if not rated:
        return f"{words}; there is no baseline beside it."
    best = max(rated, key=lambda row: row.accuracy or 0.0)
    gain = 100 * (own.accuracy - (best.accuracy or 0.0))
    side = "above" if gain > 0 else "below"
    distance = f"{number(abs(gain), 2)} points {side} {best.features} ({percent(best.accuracy)})"
    return f"{words}, {distance}; {_overlap_words(own, best)}."


def _overlap_words(own: EvaluationRow, other: EvaluationRow) -> str:
    """Say whether two intervals overlap."""
    ends = (own.low, own.high, other.low, other.high)
    if any(end is None for end in ends):
        return "without intervals, the difference may be chance"
    own_low, own_high, low, high = (end or 0.0 for end in ends)
    if own_low > high or own_high < low:
        return "the intervals do not overlap"
    return "the intervals overlap, so this test does not tell them apart"


def _figure(runs: Sequence[RunRecord], num_runs: int) -> Markup:
    """Draw all accuracies on one axis, grouped by protocol."""
    rows = [row for run in runs if run.evaluation for row in run.evaluation.rows[:MAX_ROWS]]
    ends = [end for row in rows for end in (row.low, row.accuracy, row.high)]
    groups = [_group(protocol, runs, num_runs) for protocol in dict.fromkeys(row.protocol for row in rows)]
    axis = percent_axis("accuracy", ends)
    words = ChartText("Accuracy with 95 % intervals", " ".join(baseline_words(run) for run in runs))

    def draw(width: float) -> Markup:
        return interval_chart(width, axis, groups, words)

    tags = [(run_tag(run.name, run.order), " ") for run in runs]
    legend = element("span", tags, class_="of-what") if num_runs > 1 else None
    is_held_out = all("held out of training" in run.evaluation.split.how for run in runs if run.evaluation)
    title = "Accuracy on held-out queries" if is_held_out else "Accuracy on the queries described below"
    note = join("Whiskers are 95 % Wilson intervals over the queries. Hollow marks are baselines.", legend)
    chart = figure(title, note, draw, WIDTH, None)
    return join(chart, _table(runs, num_runs))


def _group(protocol: str, runs: Sequence[RunRecord], num_runs: int) -> IntervalGroup:
    """Collect one protocol's rows: a label, and an interval per run."""
    own = [(run, row) for run in runs if run.evaluation for row in run.evaluation.rows if row.protocol == protocol]
    labels = list(dict.fromkeys(row.features for _, row in own))[:MAX_ROWS]
    rows = [
        IntervalRow(
            label,
            [_interval(run, row, num_runs) for run, row in own if row.features == label and row.accuracy is not None],
        )
        for label in labels
    ]
    return IntervalGroup(_protocol_name(protocol), [row for row in rows if row.intervals])


def _interval(run: RunRecord, row: EvaluationRow, num_runs: int) -> tuple[float, float, float, Style]:
    """Give the ends of one interval; baselines of a single run are muted."""
    accuracy = row.accuracy or 0.0
    low = accuracy if row.low is None else row.low
    high = accuracy if row.high is None else row.high
    is_baseline = row.features in BASELINES
    style = run_style(run.order)
    if num_runs == 1 and row.features != REPRESENTATION:
        style = Style("muted" if is_baseline else "c2", "", "square", is_hollow=is_baseline)
    return low, accuracy, high, Style(style.colour, "", style.marker, is_hollow=is_baseline)


def _table(runs: Sequence[RunRecord], num_runs: int) -> Markup:
    """List every accuracy: protocols and features in rows, runs in columns."""
    keys = dict.fromkeys(
        (row.protocol, row.features) for run in runs if run.evaluation for row in run.evaluation.rows[:MAX_ROWS]
    )
    protocols = list(dict.fromkeys(protocol for protocol, _ in keys))
    rows = [
        [_protocol_name(protocol), features, *(_cell(accuracy_row(run, protocol, features)) for run in runs)]
        for protocol, features in sorted(keys, key=lambda key: protocols.index(key[0]))
    ]
    heads = [run_tag(run.name, run.order) for run in runs] if num_runs > 1 else ["accuracy, 95 % interval, correct"]
    return element("div", data_table("Accuracies", ["protocol", "features", *heads], rows), class_="accuracies")


def _cell(row: EvaluationRow | None) -> Child:
    """Write an accuracy with its interval and its count."""
    if row is None:
        return "–"
    correct = "" if row.correct is None else f"{number(row.correct)} of {number(row.total)}"
    details = ", ".join(part for part in (interval(row.low, row.high), correct) if part)
    return join(element("strong", percent(row.accuracy)), " ", element("span", details, class_="aside"))


def _protocol_name(protocol: str) -> str:
    return PROTOCOLS.get(protocol, protocol)


def _protocols(runs: Sequence[RunRecord]) -> Markup:
    """State split and protocols in words; what all runs share is said once."""
    words = {run.name: _protocol_words(run) for run in runs}
    if len(set(words.values())) == 1:
        return element("p", next(iter(words.values())), class_="protocol")
    return join(element("p", run_tag(run.name, run.order), " ", words[run.name], class_="protocol") for run in runs)


def _protocol_words(run: RunRecord) -> str:
    """State one run's split and protocols."""
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
    parts = [f"Split: {listing(sizes)}{classes}.{how}" if sizes else how.strip(), _knn_words(protocols.get("knn"))]
    parts += [_other_words(name, row) for name, row in protocols.items() if name != "knn"]
    return " ".join(part for part in parts if part)


def _knn_words(row: EvaluationRow | None) -> str:
    """State the nearest-neighbour protocol with its settings."""
    if row is None:
        return ""
    neighbours = f"{row.settings['k']} nearest" if "k" in row.settings else "nearest"
    similarity = f" by {row.settings['similarity']} similarity" if "similarity" in row.settings else ""
    temperature = row.settings.get("temperature")
    weights = f", weighted by exp(similarity / {temperature})" if temperature else ""
    return f"kNN: the {neighbours} samples of the bank{similarity} vote on each query{weights}."


def _other_words(name: str, row: EvaluationRow) -> str:
    """State any other protocol; its settings speak for themselves."""
    settings = ", ".join(f"{key} {value}" for key, value in row.settings.items())
    what = (
        "a linear classifier fitted to the frozen vectors of the bank names each query"
        if name == "linear probe"
        else ""
    )
    details = "; ".join(part for part in (what, settings) if part)
    return f"{sentence(name).removesuffix('.')}: {details}." if details else ""
