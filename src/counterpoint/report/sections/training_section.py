"""Did it learn? The loss between its chance level and its floor."""

from collections.abc import Sequence

from counterpoint.core.schemas import EpochRecord
from counterpoint.report.charts.chart_frame import Axis, ChartText, evenly_chosen, linear_axis
from counterpoint.report.charts.drawings import MAX_VERTICES, Line, Reference, line_drawing
from counterpoint.report.charts.figures import (
    Style,
    absences,
    data_table,
    figure,
    max_rows,
    panel_width,
    panels,
    readings,
    run_style,
    run_tag,
)
from counterpoint.report.markup import Markup, join
from counterpoint.report.run_reading import RunRecord
from counterpoint.report.sections import Section
from counterpoint.report.wording import count, number, percent

SAME_AXIS = "Same axis for all runs."
OWN_AXIS = "Each run has its own axis, since losses under different settings do not compare."
AT_CHANCE = 0.02  # share of the way from chance to the floor below which nothing was learned
STILL_FALLING = 0.02  # share of the whole fall that the last tenth of the epochs must add


def _fill(runs: Sequence[RunRecord]) -> Markup:
    trained = [run for run in runs if any(epoch.loss is not None for epoch in run.epochs)]
    untrained = absences([run for run in runs if run not in trained], "losses", "resume")
    if not trained:
        return join(untrained)
    # Chance follows from the loss and the number of negatives: where it differs, losses do not compare.
    levels = [run.epochs[-1].chance for run in trained]
    chances = [level for level in levels if level is not None]
    is_alike = len(chances) == len(levels) and max(chances) - min(chances) <= 0.01 * abs(max(chances))
    axis = _loss_axis([epoch for run in trained for epoch in run.epochs]) if is_alike else None
    losses = [_loss_figure(run, axis, len(runs)) for run in trained]
    note = "" if len(runs) == 1 else SAME_AXIS if axis else OWN_AXIS
    return join(readings(runs, loss_reading), panels(losses, "Loss by epoch", note), untrained)


def loss_reading(run: RunRecord) -> str:
    """Say where the loss began and ended, how far it came, and whether it still falls."""
    losses = [epoch.loss for epoch in run.epochs if epoch.loss is not None]
    if not losses:
        return ""
    words = f"After {count(len(run.epochs), 'epoch')} the loss is {number(losses[-1])}"
    words += f" (first epoch: {number(losses[0])})" if len(losses) > 1 else ""
    return f"{words}. {_way_words(run.epochs[-1])} {_trend_words(losses)}".strip()


def _way_words(last: EpochRecord) -> str:
    if last.loss is None or last.chance is None:
        return ""
    way = _way(last)
    if way is None:
        side = "below" if last.loss < last.chance else "not below"
        return f"That is {side} chance ({number(last.chance)})."
    if way < AT_CHANCE:
        return f"That is at chance ({number(last.chance)}): the encoder does not tell samples apart."
    ends = f"from chance ({number(last.chance)}; all samples look alike) to the floor ({number(last.floor)})"
    return f"That is {percent(way, 0)} of the way {ends}, which no embedding can pass."


def _way(last: EpochRecord) -> float | None:
    """Share of the way from chance to the floor, at most 1; None if one of them is not known."""
    if last.loss is None or last.chance is None or last.floor is None or last.chance <= last.floor:
        return None
    return min((last.chance - last.loss) / (last.chance - last.floor), 1.0)


def _trend_words(losses: Sequence[float]) -> str:
    tenth = len(losses) // 10
    # Fewer than 10 epochs show no trend, and a loss that rose does not level off.
    if tenth < 1 or losses[0] <= losses[-1]:
        return ""
    recent, before = losses[-tenth:], losses[-2 * tenth : -tenth]
    gain = (sum(before) - sum(recent)) / tenth  # fall of the mean loss from one tenth to the next
    if gain > STILL_FALLING * (losses[0] - losses[-1]):
        return "It is still falling: more epochs may help."
    return "It has levelled off under this learning-rate schedule."


def _loss_axis(epochs: Sequence[EpochRecord]) -> Axis:
    levels = [value for epoch in epochs for value in (epoch.loss, epoch.chance, epoch.floor)]
    return linear_axis("loss", levels, num_ticks=6)


def _loss_figure(run: RunRecord, shared: Axis | None, num_runs: int) -> Markup:
    rows = [run.epochs[place] for place in evenly_chosen(len(run.epochs), MAX_VERTICES)]
    positions = [float(row.epoch or 0) for row in rows]
    axis = shared or _loss_axis(rows)
    style = run_style(run.order) if num_runs > 1 else Style("c1")
    line = Line("loss", positions, [epoch.loss for epoch in rows], style)
    words = ChartText(f"Loss of {run.name} by epoch", loss_reading(run))
    x_axis = linear_axis("epoch", positions, num_ticks=6, is_whole=True)
    levels = (("chance", rows[-1].chance, False), ("floor", rows[-1].floor, True))
    references = [Reference(f"{name} {number(at)}", at, is_below) for name, at, is_below in levels if at is not None]
    draw = line_drawing(words, (x_axis, axis), [line], references)
    title = run_tag(run) if num_runs > 1 else ""
    listed = [run.epochs[place] for place in evenly_chosen(len(run.epochs), max_rows(num_runs))]
    keys = [float(row.epoch or 0) for row in listed]
    cells = [
        [f"epoch {number(at)}", *map(number, (row.loss, row.chance, row.floor, row.learning_rate))]
        for at, row in zip(keys, listed, strict=True)
    ]
    table = data_table(f"Loss of {run.name}", ["epoch", "loss", "chance", "floor", "learning rate"], cells, keys)
    return figure(title, "", draw, panel_width(num_runs), table)


def _answer(run: RunRecord) -> str:
    last = next((epoch for epoch in reversed(run.epochs) if epoch.loss is not None), None)
    if last is None:
        return ""
    share = _way(last)
    where = "" if share is None else ", at chance" if share < AT_CHANCE else f", {percent(share, 0)} of the way down"
    return f"Loss {number(last.loss)} after {count(len(run.epochs), 'epoch')}{where}"


def _is_at_chance(run: RunRecord) -> bool:
    share = _way(run.epochs[-1]) if run.epochs else None
    return share is not None and share < AT_CHANCE


SECTION = Section(30, "training", "Training", "Did it learn?", _fill, _answer, _is_at_chance)
