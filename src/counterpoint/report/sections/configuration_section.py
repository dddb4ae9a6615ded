"""How was it made? The run card, and every setting with its value and why."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from statistics import median

from counterpoint.core.markup import Child, Markup, element, join
from counterpoint.core.run_records import RunStatus
from counterpoint.report.charts.figures import absences, data_table
from counterpoint.report.charts.series_style import run_tag
from counterpoint.report.run_record import RunRecord
from counterpoint.report.sections import Section
from counterpoint.report.wording import count, duration, listing, number

MAX_SKIPPED = 50
MAX_SETTINGS = 300
ASKED, DEFAULT, UNKNOWN = "asked for", "default", "not known"


def configuration_section(runs: Sequence[RunRecord]) -> Markup:
    """Show the run cards, the settings that matter, and all others folded."""
    configured = [run for run in runs if run.settings]
    absent = absences([run for run in runs if not run.settings], "settings", "train")
    tables = _settings_of_one(configured[0]) if len(runs) == 1 and configured else _settings_of_many(configured)
    return join(element("h3", "Run card"), _run_card(runs), _skipped(runs), element("h3", "Settings"), tables, absent)


def why(run: RunRecord, name: str) -> str:
    """Say why a setting has its value: the reason of an automatic choice, asked for, or default."""
    if reason := run.reasons.get(name):
        return reason
    return UNKNOWN if run.asked is None else ASKED if name in run.asked else DEFAULT


def _settings_of_one(run: RunRecord) -> Markup:
    """Set what was asked for or chosen automatically in the open, and fold the defaults."""
    names = list(run.settings)[:MAX_SETTINGS]
    decided = [name for name in names if why(run, name) != DEFAULT]
    defaults = [name for name in names if why(run, name) == DEFAULT]
    asked = sum(why(run, name) in (ASKED, UNKNOWN) for name in names)
    automatic = f"{len(decided) - asked} chosen automatically for a reason given below"
    words = f"{count(len(names), 'setting')}: {asked} asked for, {automatic}, {len(defaults)} left at the default."
    if run.asked is None:
        words = (
            f"{count(len(names), 'setting')}: {automatic}. config.yaml is missing: which others were asked for is not "
            "known."
        )
    shown = data_table("Settings", ["setting", "value", "why"], [_one_row(run, name) for name in decided])
    rest = data_table("Default settings", ["setting", "value", "why"], [_one_row(run, name) for name in defaults])
    return join(
        element("p", words, class_="reading"),
        element("div", shown, class_="settings"),
        _fold(len(defaults), "default", rest),
    )


def _one_row(run: RunRecord, name: str) -> list[Child]:
    return [element("code", name), element("code", run.settings[name]), why(run, name)]


def _settings_of_many(runs: Sequence[RunRecord]) -> Markup:
    """Set what differs between the runs in the open, and fold what they share."""
    # In the order of the first run that has it.
    names = list(dict.fromkeys(name for run in runs for name in run.settings))[:MAX_SETTINGS]
    differing = [name for name in names if len({run.settings.get(name) for run in runs}) > 1]
    shared = [name for name in names if name not in differing]
    if not names:
        return join()
    verb = "differs" if len(differing) == 1 else "differ"
    words = f"{count(len(differing), 'setting')} {verb} between the runs: {listing(differing[:8])}" if differing else ""
    words = words or "All settings are the same in these runs"
    more = f" and {len(differing) - 8} more" if len(differing) > 8 else ""
    head = ["setting", *(run_tag(run.name, run.order) for run in runs)]
    shown = (
        data_table("Settings that differ", head, [_many_row(runs, name) for name in differing]) if differing else None
    )
    rest = data_table("Settings all runs share", head, [_many_row(runs, name) for name in shared])
    marked = element("div", shown, class_="settings differing") if shown else None
    return join(element("p", f"{words}{more}.", class_="reading"), marked, _fold(len(shared), "shared setting", rest))


def _many_row(runs: Sequence[RunRecord], name: str) -> list[Child]:
    """One setting in every run, each value with its reason below."""
    differs = len({run.settings.get(name) for run in runs}) > 1
    mark = element("span", "≠ differs", class_="differs") if differs else None
    return [join(element("code", name), " ", mark), *(_many_cell(run, name) for run in runs)]


def _many_cell(run: RunRecord, name: str) -> Markup:
    value = run.settings.get(name)
    if value is None:
        return join("–")
    return join(element("code", value), element("span", why(run, name), class_="of-what"))


def _fold(quantity: int, noun: str, table: Markup) -> Markup | None:
    return element("details", element("summary", count(quantity, noun)), table, class_="more") if quantity else None


def _run_card(runs: Sequence[RunRecord]) -> Markup:
    """Set the facts of one run in a grid, of several side by side; a fact no run has is left out."""
    known = [(title, [fact(run) for run in runs]) for title, fact in FACTS if any(fact(run) for run in runs)]
    if len(runs) == 1:
        facts = [element("div", element("dt", title), element("dd", values[0])) for title, values in known]
        return element("dl", facts, class_="run-card")
    head = ["", *(run_tag(run.name, run.order) for run in runs)]
    rows = [[title, *(value or "–" for value in values)] for title, values in known]
    return element("div", data_table("Run card", head, rows), class_="run-card-table")


def _counted(name: str, unit: str = "") -> Callable[[RunRecord], str]:
    """Make the reader of a number of the run card."""

    def read(run: RunRecord) -> str:
        value = getattr(run.card, name)
        return "" if value is None else number(value) + unit

    return read


def _samples(run: RunRecord) -> str:
    card = run.card
    if card.num_samples is None:
        return ""
    trained = f", {number(card.num_train)} for training" if card.num_train is not None else ""
    return number(card.num_samples) + trained


def _speed(run: RunRecord) -> str:
    speeds = [epoch.images_per_second for epoch in run.epochs if epoch.images_per_second is not None]
    if not speeds:
        return "not recorded" if run.epochs else ""
    known = "" if len(speeds) == len(run.epochs) else f" of {len(speeds)} epochs; the others are not recorded"
    return f"{number(round(median(speeds)))} images per second (median{known})"


def _started(run: RunRecord) -> str:
    """Write the start in UTC to the minute; a time that does not parse stays as it is."""
    started = run.card.started or ""
    try:
        moment = datetime.fromisoformat(started)
    except ValueError:
        return started
    # A time without a zone is taken for UTC.
    return f"{moment.astimezone(UTC) if moment.tzinfo else moment:%Y-%m-%d %H:%M} UTC"


def _versions(run: RunRecord) -> str:
    parts = [
        f"{name} {value}" for name, value in (("counterpoint", run.card.version), ("torch", run.card.torch)) if value
    ]
    return ", ".join(parts)


def _joined(*names: str) -> Callable[[RunRecord], str]:
    """Make the reader of some texts of the run card."""
    # 0 is a value; only None and "" are absent.
    return lambda run: ", ".join(str(value) for name in names if (value := getattr(run.card, name)) not in (None, ""))


FACTS: tuple[tuple[str, Callable[[RunRecord], str]], ...] = (
    ("status", _joined("status")),
    ("method", _joined("method")),
    ("data", _joined("data")),
    ("samples", _samples),
    ("data fingerprint", _joined("data_fingerprint")),
    ("negatives per anchor", _counted("negatives_per_anchor")),
    ("parameters", _counted("num_parameters")),
    ("representation dimensions", _counted("width")),
    ("embedding dimensions", _counted("embedding_dims")),
    ("device and precision", _joined("device", "precision")),
    ("training time", lambda run: "" if run.card.seconds is None else duration(run.card.seconds)),
    ("speed", _speed),
    ("peak memory", _counted("peak_memory_mb", " MB")),
    ("seed", _joined("seed")),
    ("started", _started),
    ("versions", _versions),
    ("command", _joined("command")),
)


def _skipped(runs: Sequence[RunRecord]) -> Markup:
    """List the files that could not be read."""
    return join(_skipped_of(run.card, run.name, len(runs)) for run in runs if run.card.skipped)


def _skipped_of(card: RunStatus, name: str, num_runs: int) -> Markup:
    rows = [[item.name, item.reason] for item in card.skipped[:MAX_SKIPPED]]
    rest = len(card.skipped) - len(rows)
    more = element("p", f"and {count(rest, 'more file')}, listed in run.json", class_="note") if rest else None
    of_run = f" in {name}" if num_runs > 1 else ""
    summary = element("summary", f"{count(len(card.skipped), 'file')} skipped{of_run}")
    return element(
        "details", summary, data_table(f"Skipped files of {name}", ["file", "reason"], rows), more, class_="more"
    )


SECTION = Section(80, "configuration", "Configuration", "How was it made?", configuration_section)
