"""Gives each kind its share of the time, tries cases side by side, and writes down what became of each."""

import contextlib
import json
import os
import shutil
import signal
import time
import zlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from campaign.kind import Case, Kind, Place, Verdict, kind_of
from campaign.processes import Process

SKIPPED = "skipped: "  # detail of a try that this system cannot make
PATIENCE = 0.005  # seconds between two looks at what runs


@dataclass
class Tally:
    """What became of one kind so far.

    Attributes:
        tries: cases tried.
        number: of the next case.
        seconds: of all tries together.
        findings: files of the cases that broke the promise.
        skipped: tries that this system cannot make, by the reason.
    """

    tries: int = 0
    number: int = 0
    seconds: float = 0.0
    findings: list[str] = field(default_factory=list)
    skipped: Counter[str] = field(default_factory=Counter)

    def count(self, line: dict[str, Any]) -> None:
        """Count a try as the record has it."""
        self.tries += 1
        self.number = max(self.number, line["number"] + 1)
        self.seconds += line["seconds"]
        self.findings += [line["finding"]] if line["fault"] else []
        if (detail := line.get("detail", "")).startswith(SKIPPED):
            self.skipped[detail] += 1


@dataclass
class Try:
    """A case that is being tried."""

    kind: Kind
    number: int
    case: Case
    folder: Path
    process: Process
    started: float


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
        folder.mkdir(parents=True, exist_ok=True)
        lines = self.record.read_text(encoding="utf-8").split("\n") if self.record.exists() else [""]
        for line in map(json.loads, lines[:-1]):  # the last one may be torn
            if line["kind"] in self.tallies:
                self.tallies[line["kind"]].count(line)

    def go(self, seconds: float, tries: int | None = None) -> None:
        """Try cases until the time is over, or so many of each kind were tried."""
        for kind in self.kinds:
            prepared(kind, self.folder)
        deadline, running = time.monotonic() + seconds, []
        while True:
            running = [each for each in running if not self._has_ended(each)]
            chosen = self._next(running, tries) if time.monotonic() < deadline else None
            if chosen is not None and len(running) < (os.cpu_count() or 1):
                running.append(self._start(chosen))
            elif running:
                time.sleep(PATIENCE)
            else:
                return

    def _next(self, running: list[Try], tries: int | None) -> Kind | None:
        """The kind that has had least of its share; None if each has had its tries."""
        spent = {name: tally.seconds for name, tally in self.tallies.items()}
        for each in running:
            spent[each.kind.name] += 0.1 + time.monotonic() - each.started
        left = [kind for kind in self.kinds if tries is None or self.tallies[kind.name].number < tries]
        return min(left, key=lambda kind: spent[kind.name] / kind.share, default=None)

    def _start(self, kind: Kind) -> Try:
        number = self.tallies[kind.name].number
        self.tallies[kind.name].number += 1
        case = kind.next_case(np.random.default_rng([self.seed, zlib.crc32(kind.name.encode()), number]))
        folder, started = self.folder / "tries" / f"{kind.name}-{number}", time.monotonic()
        return Try(kind, number, case, folder, start(kind, case, folder, prepared(kind, self.folder)), started)

    def _has_ended(self, each: Try) -> bool:
        """Whether a try is over; then it is written down."""
        seconds = time.monotonic() - each.started
        if seconds < each.kind.seconds and each.process.is_running():
            return False
        verdict = finish(each.process, each.folder)
        line = {"kind": each.kind.name, "number": each.number, "seconds": round(seconds, 2), "fault": verdict.fault}
        if verdict.detail:
            line["detail"] = verdict.detail[-500:]
        if verdict.fault:
            line["finding"] = self._keep(each, verdict)
        self.tallies[each.kind.name].count(line)
        with self.record.open("a", encoding="utf-8") as stream:
            stream.write(json.dumps(line) + "\n")
        return True

    def _keep(self, each: Try, verdict: Verdict) -> str:
        """Write a failing case down as a file that can be tried alone."""
        path = self.folder / "findings" / f"{each.kind.name}-{self.seed}-{each.number}.json"
        path.parent.mkdir(exist_ok=True)
        kept = {"kind": each.kind.name, **asdict(verdict), "case": verdict.case or each.case}
        path.write_text(json.dumps(kept, indent=1) + "\n")
        words = " ".join(verdict.detail.split())
        words = words if len(words) <= 400 else f"{words[:150]} ... {words[-250:]}"
        print(f"{path.name}: {verdict.fault}: {words}", flush=True)
        return path.name


def replay(path: Path, folder: Path) -> Verdict:
    """Try the case of a file again, in a folder for the kind's material and the try."""
    kept = json.loads(path.read_text(encoding="utf-8"))
    kind, place = kind_of(kept["kind"]), folder / "tries" / path.stem
    process = start(kind, kept["case"], place, prepared(kind, folder))
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


def prepared(kind: Kind, folder: Path) -> Path:
    """The folder that all tries of a kind read, filled unless that was done before."""
    material = folder / "material" / (kind.material or kind.name)
    if (material / ".done").exists():
        return material
    shutil.rmtree(material, ignore_errors=True)
    material.mkdir(parents=True)
    os.environ["COUNTERPOINT_CACHE"] = str(material / "cache")

    def act() -> int:
        kind.prepare(material)
        return 0

    outcome = Process(act, material / ".said", is_limited=False).wait(600)
    if outcome.code != 0:
        raise RuntimeError(f"{kind.name} cannot be prepared: {outcome}")
    (material / ".done").touch()
    return material
