"""The page of runs in progress: what happens now, then the sections of the report that can be drawn already."""

import hashlib
import math
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from counterpoint.core.errors import RunError
from counterpoint.core.markup import Child, Markup, element, join, printable
from counterpoint.core.run_names import display_names
from counterpoint.core.rundir import RunFolder, seed_folders
from counterpoint.report.charts.chart_frame import ChartText, Frame
from counterpoint.report.charts.figures import data_table, figure, panel_width
from counterpoint.report.charts.line_chart import Line, label_room, line_chart
from counterpoint.report.charts.series_style import MAX_RUNS, Style, run_style
from counterpoint.report.charts.ticks import linear_axis, percent_axis
from counterpoint.report.document import PageKind, Part, document, plain_header
from counterpoint.report.live.life_signs import LifeSigns, life_signs, worst_first
from counterpoint.report.live.live_sampling import LiveSample, Sampler
from counterpoint.report.run_record import RunRecord, read_run
from counterpoint.report.sections import Section, all_sections
from counterpoint.report.wording import count, percent

EVERY = 10  # seconds between two loads of the page without a script
SHARE = 0.01  # of one processor's time that making the page takes while a run trains
LIVE_PAGE = PageKind(
    "live page",
    "live.html",
    Markup('<meta name="generator" content="counterpoint watch">'),
    styles=("style.css", "live.css"),
    scripts=("live.js",),
    head=Markup(f'<noscript><meta http-equiv="refresh" content="{EVERY}"></noscript>'),
    is_live=True,
)
KNN_FIGURE = "knn20"  # in metrics.jsonl, where training measures it
FROM_FOLDER, FROM_SAMPLE = ("training", "configuration"), ("findings", "spectra", "concepts")


@dataclass
class Watched:
    """A run, or the runs of several seeds, as the server shows them.

    The page is made when someone asks for it and something has changed; otherwise the last one is given again. While a
    run trains, so is it for a hundred times as long as making it took: where epochs take a second, not each has a page.

    Attributes:
        path: of the run or of the folder of several seeds.
        sampler: looks at checkpoints; None leaves that out.
    """

    path: Path
    sampler: Sampler | None
    _made: tuple[str, bytes] = ("", b"")
    _rests_until: float = 0.0
    _sections: Sequence[Section] = field(default_factory=all_sections)
    _knn: dict[Path, dict[int, float]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def runs(self) -> list[Path]:
        """The run; of several seeds those that have begun, at most the last ``MAX_RUNS``."""
        if not RunFolder(self.path).holds_seeds:
            return [self.path]
        begun = [path for path in seed_folders(self.path) if RunFolder(path).status.exists()]
        return begun[-MAX_RUNS:]

    def signs(self) -> list[LifeSigns]:
        """How each of them stands."""
        paths = self.runs()
        if not paths:
            return [LifeSigns(self.path.name, "waiting", "waits for the first seed to begin", mark="waiting")]
        return [life_signs(path, printable(name)) for path, name in zip(paths, display_names(paths), strict=True)]

    def state(self) -> dict[str, Any]:
        """What the page's script asks for: small, and without a model or a picture."""
        signs = self.signs()
        return {
            "version": self._version(signs),
            "lines": [_line(each, len(signs)) for each in signs],
            "state": worst_first(signs).state,
            "note": self._note(),
        }

    def page(self) -> bytes:
        """The page as it stands now."""
        with self._lock:
            signs = self.signs()
            version = self._version(signs)
            if self._made[0] != version:
                started = time.thread_time()
                self._made = (version, self._render(signs, version).encode())
                self._rests_until = time.monotonic() + (time.thread_time() - started) / SHARE
            return self._made[1]

    def _version(self, signs: Sequence[LifeSigns]) -> str:
        """Changes when the page does; asking also has new checkpoints looked at."""
        paths = self.runs()
        marks = [each.mark for each in signs]
        if self.sampler is not None:
            for path, sign in zip(paths, signs, strict=False):
                # What `counterpoint diagnose` found is shown instead: it is of all samples.
                if not RunFolder(path).findings.exists():
                    self.sampler.ask(path, _newest_checkpoint(path), math.inf if sign.is_over else _age(path))
            marks += [self.sampler.mark(path) for path in paths]
        if self._made[0] and time.monotonic() < self._rests_until and not all(each.is_over for each in signs):
            return self._made[0]
        return hashlib.sha256(repr(marks).encode()).hexdigest()[:16]

    def _note(self) -> str:
        """What stands below the lines: why there are no pictures yet, or of how many samples they are."""
        paths = self.runs()
        if paths and all(RunFolder(path).findings.exists() for path in paths):
            return "Findings, spectra and concepts are those of `counterpoint diagnose`."
        if self.sampler is None:
            return "Curves alone were asked for (--bare)."
        known = [self.sampler.found[path] for path in paths if path in self.sampler.found]
        if known:
            last = known[-1]
            return (
                f"Findings, spectra and concepts: {count(last.num_samples, 'sample')} by the checkpoint after epoch "
                f"{last.epoch}, computed beside the training at the lowest priority; the report's can differ."
            )
        why = next((self.sampler.why[path] for path in paths if path in self.sampler.why), "")
        later = "Findings, spectra and concepts follow once a checkpoint was looked at; a young run is left alone."
        return f"No spectra yet: {why}." if why else later

    def _render(self, signs: Sequence[LifeSigns], version: str) -> Markup:
        """Draw what can be drawn."""
        paths = [path for path in self.runs() if RunFolder(path).status.exists()]
        names = dict(zip(paths, display_names(paths), strict=True))
        parts, problem = [], None
        try:
            records = [self._record(path, names[path], order) for order, path in enumerate(paths)]
            parts = [part for section in self._sections if (part := _part(section, records))]
            if not any(part.name == "verdict" for part in parts):  # while it trains, its curves are asked for first
                parts.sort(key=lambda part: part.name != "training")
            place = next((at for at, part in enumerate(parts, 1) if part.name == "training"), 0)
            parts[place:place] = filter(None, [self._knn_part(paths, records)])
        except RunError as error:  # a file is damaged, or of another version
            problem = element("p", printable(str(error)), class_="notice")
        header = plain_header("Counterpoint, live", printable(self.path.resolve().name), "")
        lines = [element("li", _line(each, len(signs))) for each in signs]
        state = worst_first(signs).state
        strip = element(
            "div",
            element("ul", lines, id="live-lines"),
            element("p", self._note(), id="live-note", class_="note"),
            id="live",
            class_=f"live state-{state}",
            data_version=version,
            role="status",
        )
        return document(LIVE_PAGE, f"{self.path.name}: {state}", join(header, strip, problem), parts)

    def _record(self, path: Path, name: str, order: int) -> RunRecord:
        """What the folder holds; what a diagnosis would make of it is taken from the sample until there is one."""
        record = read_run(path, name=name, order=order)
        sample = self._sample(path)
        if record.diagnosis is not None or sample is None:
            return record
        return replace(record, diagnosis=sample.findings, arrays=sample.arrays)

    def _sample(self, path: Path) -> LiveSample | None:
        """The last sample of a run, if checkpoints are looked at."""
        return None if self.sampler is None else self.sampler.found.get(path)

    def _knn_part(self, paths: Sequence[Path], records: Sequence[RunRecord]) -> Part | None:
        """KNN accuracy by epoch: what training measured, else that of the samples."""
        lines, is_sampled = [], False
        for path, record in zip(paths, records, strict=True):
            logged = {line["epoch"]: line[KNN_FIGURE] for line in RunFolder(path).read_metrics() if KNN_FIGURE in line}
            sample = self._sample(path)
            values = logged or (dict(sample.knn) if sample else {})
            is_sampled |= not logged and bool(values)
            if values:
                style = run_style(record.order) if len(records) > 1 else Style("c1")
                epochs = sorted(values)
                label = record.name if len(records) > 1 else "kNN"
                lines.append(Line(label, [float(at) for at in epochs], [values[at] for at in epochs], style))
        return _knn_section(lines, is_sampled=is_sampled) if lines else None


def _part(section: Section, records: Sequence[RunRecord]) -> Part | None:
    """A section of the report, where its content is there."""
    has_sample = all(record.diagnosis is not None for record in records)
    is_evaluated = all(record.evaluation is not None for record in records)
    wanted = FROM_FOLDER + (FROM_SAMPLE if has_sample else ())
    # Once all is there, the page is the report.
    if not records or not ((has_sample and is_evaluated) or section.name in wanted):
        return None
    content: Child = section.fill(records)
    return Part(section.name, section.title, section.question, content) if content else None


def _knn_section(lines: Sequence[Line], *, is_sampled: bool) -> Part:
    """Draw kNN accuracies by epoch."""
    x_axis = linear_axis("epoch", [at for line in lines for at in line.x], num_ticks=6, is_whole=True)
    y_axis = percent_axis("kNN-20 accuracy on held-out samples", [value for line in lines for value in line.y])
    words = ChartText("kNN accuracy by epoch", "; ".join(f"{line.label}: {percent(line.y[-1])}" for line in lines))

    def draw(width: float) -> Markup:
        frame = Frame(
            width, min(280, 150 + width / 3), x_axis, y_axis, right=label_room([line.label for line in lines])
        )
        return line_chart(frame, words, lines)

    positions = sorted({at for line in lines for at in line.x})
    by_epoch = [dict(zip(line.x, line.y, strict=True)) for line in lines]
    rows = [[f"epoch {at:g}", *(percent(known[at]) if at in known else "–" for known in by_epoch)] for at in positions]
    table = data_table("kNN accuracy", ["epoch", *(line.label for line in lines)], rows, positions)
    note = "Of the small sample of each checkpoint that was looked at." if is_sampled else "As training measured it."
    content = figure("kNN accuracy by epoch", note, draw, panel_width(1), table)
    return Part("knn", "kNN", "Are neighbours of one class?", content)


def _line(signs: LifeSigns, num_runs: int) -> str:
    """How a run stands, named where there are several."""
    return f"{signs.name}: {signs.words}" if num_runs > 1 else signs.words[:1].upper() + signs.words[1:]


def _age(path: Path) -> float:
    """Seconds since a run was begun."""
    try:
        return time.time() - RunFolder(path).marker.stat().st_mtime
    except OSError:  # one of 0.1.0
        return math.inf


def _newest_checkpoint(path: Path) -> str:
    """Name of the newest whole checkpoint; what is being written has another kind of name."""
    return max((each.name for each in RunFolder(path).checkpoints.glob("step-*")), default="")
