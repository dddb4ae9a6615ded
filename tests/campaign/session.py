"""Gives each kind its share of the time, tries cases side by side, and writes down what became of each."""

import contextlib
import json
import os
import shutil
import signal
import sys
import time
import traceback
import zlib
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np

from campaign.kind import Case, Kind, Place, Verdict
from campaign.processes import Process

SKIPPED = "skipped: "  # detail of a try that this system cannot make
PATIENCE = 0.005  # seconds between two looks at what runs


@dataclass
class Tally:
    """What became of one kind so far.

    Attributes:
        tries: cases tried, which is also the number of the next one.
        seconds: of all tries together.
        findings: files of the cases that broke the promise.
        skipped: tries that this system cannot make, by the reason.
    """

    tries: int = 0
    seconds: float = 0.0
    findings: list[str] = field(default_factory=list)
    skipped: dict[str, int] = field(default_factory=dict)

    def count_skipped(self, detail: str) -> None:
        """Count a try whose detail says that it was none."""
        if detail.startswith(SKIPPED):
            self.skipped[detail] = self.skipped.get(detail, 0) + 1


@dataclass
class Try:
    """A case that is being tried."""

    kind: Kind
    number: int
    case: Case
    folder: Path
    process: Process


class Session:
    """A campaign of one seed; started again in the same folder it goes on where it was.

    Args:
        folder: holds its record, the material of each kind, and ``findings``.
        kinds: what is tried.
        seed: what is drawn.
    """

    def __init__(self, folder: Path, kinds: Sequence[Kind], seed: int) -> None:
        self.folder, self.kinds, self.seed = folder, kinds, seed
        self.record = folder / f"record-{seed}.jsonl"
        self.tallies = {kind.name: Tally() for kind in kinds}
        self._numbers = dict.fromkeys(self.tallies, 0)  # of the next case
        self._started: dict[str, float] = {}
        folder.mkdir(parents=True, exist_ok=True)
        self._read_record()

    def go(self, seconds: float, tries: int | None = None) -> None:
        """Try cases until the time is over, or so many of each kind were tried."""
        for kind in self.kinds:
            _prepare(kind, self._material(kind))
        deadline, running, places = time.monotonic() + seconds, [], os.cpu_count() or 1
        while running or (time.monotonic() < deadline and self._next(running, tries)):
            chosen = self._next(running, tries) if time.monotonic() < deadline else None
            if chosen is not None and len(running) < places:
                running.append(self._start(chosen))
                continue
            running = [each for each in running if not self._has_ended(each)]
            time.sleep(PATIENCE)

    def _next(self, running: list[Try], tries: int | None) -> Kind | None:
        """The kind that has had least of its share; None if each has had its tries."""
        now = time.monotonic()
        spent = {name: tally.seconds for name, tally in self.tallies.items()}
        for each in running:
            spent[each.kind.name] += 0.1 + now - self._started[str(each.folder)]
        left = [kind for kind in self.kinds if tries is None or self._numbers[kind.name] < tries]
        return min(left, key=lambda kind: spent[kind.name] / kind.share, default=None)

    def _start(self, kind: Kind) -> Try:
        number = self._numbers[kind.name]
        self._numbers[kind.name] += 1
        draw = np.random.default_rng([self.seed, zlib.crc32(kind.name.encode()), number])
        case, folder = kind.next_case(draw), self.folder / "tries" / f"{kind.name}-{number}"
        self._started[str(folder)] = time.monotonic()
        return Try(kind, number, case, folder, start(kind, case, folder, self._material(kind)))

    def _has_ended(self, each: Try) -> bool:
        """Whether a try is over; then it is written down."""
        seconds = time.monotonic() - self._started[str(each.folder)]
        if seconds < each.kind.seconds and each.process.is_running():
            return False
        verdict = finish(each.process, each.folder)
        tally = self.tallies[each.kind.name]
        tally.tries += 1
        tally.seconds += seconds
        tally.count_skipped(verdict.detail)
        line = {"kind": each.kind.name, "number": each.number, "seconds": round(seconds, 2), "fault": verdict.fault}
        if verdict.detail:
            line["detail"] = verdict.detail[-500:]
        if verdict.fault:
            line["finding"] = self._keep(each, verdict)
            tally.findings.append(line["finding"])
        with self.record.open("a", encoding="utf-8") as stream:
            stream.write(json.dumps(line) + "\n")
        return True

    def _keep(self, each: Try, verdict: Verdict) -> str:
        """Write a failing case down as a file that can be tried alone."""
        path = self.folder / "findings" / f"{each.kind.name}-{self.seed}-{each.number}.json"
        path.parent.mkdir(exist_ok=True)
        path.write_text(
            json.dumps({"kind": each.kind.name, **asdict(verdict), "case": verdict.case or each.case}, indent=1) + "\n"
        )
        sys.stdout.write(f"{path.name}: {verdict.fault}: {_shortened(verdict.detail)}\n")
        sys.stdout.flush()
        return path.name

    def _read_record(self) -> None:
        """Go on from the tries that were written down; the last line may be torn."""
        lines = self.record.read_text(encoding="utf-8").split("\n")[:-1] if self.record.exists() else []
        for line in lines:
            told = json.loads(line)
            if (tally := self.tallies.get(told["kind"])) is None:
                continue
            tally.tries += 1
            tally.seconds += told["seconds"]
            tally.count_skipped(told.get("detail", ""))
            tally.findings += [told["finding"]] if told["fault"] else []
            self._numbers[told["kind"]] = max(self._numbers[told["kind"]], told["number"] + 1)

    def _material(self, kind: Kind) -> Path:
        return self.folder / "material" / (kind.material or kind.name)


def _shortened(detail: str) -> str:
    words = " ".join(detail.split())
    return words if len(words) <= 400 else f"{words[:150]} ... {words[-250:]}"


def replay(path: Path, kind_of: Callable[[str], Kind], folder: Path) -> Verdict:
    """Try a kept case again.

    Args:
        path: its file.
        kind_of: finds a kind by its name.
        folder: for the kind's material and the try.
    """
    kept = json.loads(path.read_text(encoding="utf-8"))
    kind = kind_of(kept["kind"])
    material, place = folder / "material" / (kind.material or kind.name), folder / "tries" / path.stem
    _prepare(kind, material)
    process = start(kind, kept["case"], place, material)
    process.wait(kind.seconds)
    return finish(process, place)


def start(kind: Kind, case: Case, folder: Path, material: Path) -> Process:
    """Try a case in a process of its own, which leaves its verdict in the folder."""
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "here").mkdir(parents=True)

    def act() -> int:
        os.setpgid(0, 0)  # whatever it starts ends with it
        os.environ["COUNTERPOINT_CACHE"] = str(folder / "cache")
        os.chdir(folder / "here")
        verdict = kind.run(case, Place(folder / "here", material))
        (folder / "verdict.json").write_text(json.dumps(asdict(verdict)))
        return 0

    return Process(act, folder / "said", is_limited=False)


def finish(process: Process, folder: Path) -> Verdict:
    """The verdict of a try that has ended, or has no time left; nothing of it stays."""
    outcome = process.wait(0)
    with contextlib.suppress(OSError):  # nothing of it is left
        os.killpg(process.pid, signal.SIGKILL)
    path = folder / "verdict.json"
    if path.exists():
        verdict = Verdict(**json.loads(path.read_text()))
    elif outcome.code is None:
        verdict = Verdict("hang", f"not done after {outcome.seconds:.0f} s")
    else:
        verdict = Verdict("no verdict", str(outcome))  # the attack itself is broken
    shutil.rmtree(folder, ignore_errors=True)
    return verdict


def _prepare(kind: Kind, material: Path) -> None:
    """Fill the folder that all tries of a kind read, unless that was done before."""
    done = material / ".done"
    if done.exists():
        return
    shutil.rmtree(material, ignore_errors=True)
    material.mkdir(parents=True)
    os.environ["COUNTERPOINT_CACHE"] = str(material / "cache")

    def act() -> int:
        try:
            kind.prepare(material)
        except Exception:
            traceback.print_exc()
            return 1
        return 0

    outcome = Process(act, material / ".said", is_limited=False).wait(600)
    if outcome.code != 0:
        raise RuntimeError(f"{kind.name} cannot be prepared: {outcome}")
    done.touch()
