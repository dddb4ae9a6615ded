"""How was it made? The run card, and every setting with its value and why."""

from collections.abc import Callable, Sequence
from statistics import median

from counterpoint.report.charts.figures import data_table, run_tag
from counterpoint.report.markup import Markup, element, join
from counterpoint.report.run_reading import RunRecord
from counterpoint.report.sections import Section
from counterpoint.report.wording import count, duration, number

MAX_SKIPPED = 50
MAX_SETTINGS = 300
ASKED, DEFAULT, UNKNOWN = "given", "default", "not known"


def configuration_section(runs: Sequence[RunRecord]) -> Markup:
    """Show the run cards, the settings that matter, and all others folded."""
    configured = [run for run in runs if run.settings]
    lost = ", ".join(run.name for run in runs if not run.settings)
    absent = element("p", f"resolved.yaml is missing: the settings of {lost} are not known.") if lost else None
    tables = _settings(configured) if configured else None
    entries = [(title, [fact(run) for run in runs]) for title, fact in FACTS if any(fact(run) for run in runs)]
    if len(runs) == 1:
        facts = [element("div", element("dt", title), element("dd", values[0])) for title, values in entries]
        card = element("dl", facts, class_="run-card")
    else:
        rows = [[title, *(value or "–" for value in values)] for title, values in entries]
        card = data_table("Run card", ["", *(run_tag(run) for run in runs)], rows)
        card = element("div", card, class_="run-card-table")
    folds = []
    for run in runs:
        if skipped := run.card.skipped:
            rows = [[item.name, item.reason] for item in skipped[:MAX_SKIPPED]]
            summary = element("summary", f"{count(len(skipped), 'file')} of {run.name} skipped")
            table = data_table(f"Skipped files of {run.name}", ["file", "reason"], rows)
            more = len(skipped) - len(rows)
            rest = f"{count(more, 'more file')}, listed in run.json" if more else ""
            folds.append(element("details", summary, table, element("p", rest, class_="note"), class_="more"))
    return join(element("h3", "Run card"), card, folds, element("h3", "Settings"), tables, absent)


def why(run: RunRecord, name: str) -> str:
    """Say why a setting has its value: the reason of an automatic choice, given, or default."""
    if reason := run.reasons.get(name):
        return reason
    return UNKNOWN if run.config_names is None else ASKED if name in run.config_names else DEFAULT


def _settings(runs: Sequence[RunRecord]) -> Markup:
    """Show the settings that differ between the runs, or, for one run, those that were given; fold the rest."""
    # The order is that of the first run that has the setting.
    names = list(dict.fromkeys(name for run in runs for name in run.settings))[:MAX_SETTINGS]
    if len(runs) == 1:
        listed = [name for name in names if why(runs[0], name) in (ASKED, UNKNOWN)]
        words = f"{count(len(names), 'setting')}, {len(listed)} of them given."
        if runs[0].config_names is None:
            words = "config.yaml is missing: which settings were given is not known."
    else:
        listed = [name for name in names if len({run.settings.get(name) for run in runs}) > 1]
        words = f"{count(len(listed), 'setting')} {'differs' if len(listed) == 1 else 'differ'} between the runs."
    folded = [name for name in names if name not in listed]
    head = ["setting", *(run_tag(run) if len(runs) > 1 else "value" for run in runs)]
    rows = {name: [element("code", name), *(_cell(run, name) for run in runs)] for name in names}
    tables = [data_table("Settings", head, [rows[name] for name in group]) for group in (listed, folded)]
    fold = element("details", element("summary", count(len(folded), "other setting")), tables[1], class_="more")
    opened = element("div", tables[0], class_="settings") if listed else None
    return join(element("p", words, class_="reading"), opened, fold if folded else None)


def _cell(run: RunRecord, name: str) -> Markup:
    value = run.settings.get(name)
    if value is None:
        return join("–")
    return join(element("code", value), element("span", why(run, name), class_="of-what"))


def _joined(*names: str) -> Callable[[RunRecord], str]:
    """Make a function that reads fields of the run card; numbers get their commas, the seed stays as it is."""

    def read(run: RunRecord) -> str:
        values = [(name, getattr(run.card, name)) for name in names]
        # 0 is a value; only None and "" are absent.
        return ", ".join(
            number(value) if isinstance(value, int | float) and name != "seed" else str(value)
            for name, value in values
            if value not in (None, "")
        )

    return read


def _speed(run: RunRecord) -> str:
    speeds = [epoch.images_per_second for epoch in run.epochs if epoch.images_per_second is not None]
    if not speeds:
        return "not recorded" if run.epochs else ""
    num_lost = len(run.epochs) - len(speeds)
    lost = f"; {number(num_lost)} of {number(len(run.epochs))} epochs not recorded" if num_lost else ""
    return f"{number(round(median(speeds)))} samples per second (median{lost})"


def _versions(run: RunRecord) -> str:
    versions = {"counterpoint": run.card.version, "torch": run.card.torch}
    return ", ".join(f"{name} {value}" for name, value in versions.items() if value)


FACTS: tuple[tuple[str, Callable[[RunRecord], str]], ...] = (
    ("status", _joined("status")),
    ("method", _joined("method")),
    ("loss of your own", lambda run: str(run.card.own_loss.get("name") or "")),
    ("data", _joined("data")),
    ("samples", _joined("num_samples")),
    ("for training", _joined("num_train")),
    ("data fingerprint", _joined("data_fingerprint")),
    ("negatives per anchor", _joined("negatives_per_anchor")),
    ("parameters", _joined("num_parameters")),
    ("representation dimensions", _joined("width")),
    ("embedding dimensions", _joined("embedding_dims")),
    ("device and precision", _joined("device", "precision")),
    ("training time", lambda run: "" if run.card.seconds is None else duration(run.card.seconds)),
    ("speed", _speed),
    ("peak memory, MB", _joined("peak_memory_mb")),
    ("seed", _joined("seed")),
    ("started", lambda run: f"{run.card.started[:16].replace('T', ' ')} UTC" if run.card.started else ""),
    ("versions", _versions),
    ("command", _joined("command")),
)


def _answer(run: RunRecord) -> str:
    choices = (run.card.method, run.settings.get("encoder"), run.settings.get("optim.name"))
    seed = "" if run.card.seed is None else f"seed {run.card.seed}"
    return ", ".join(filter(None, (*choices, seed))) or "not known"


SECTION = Section(80, "configuration", "Configuration", "How was it made?", configuration_section, _answer)
