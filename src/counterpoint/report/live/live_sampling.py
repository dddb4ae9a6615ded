"""Asks a process of low priority for spectra, kNN and concepts of the newest checkpoint; no server waits for it."""

import base64
import io
import json
import math
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from counterpoint.core.errors import CounterpointError, first_line
from counterpoint.core.markup import printable
from counterpoint.core.run_records import read_record
from counterpoint.diagnostics.findings import Findings
from counterpoint.report.run_record import Arrays, arrays_of, fit

MODULE = "counterpoint.runs.live_sample"
# Of the time while a run trains. A thread of the lowest priority still takes caches, memory and half of a core that two
# processors share: a third of a training's speed at worst, of which this leaves 1 %; another 1 % is the page's.
SHARE = 0.03
FIRST_SECONDS = 4.0  # about what the first answer costs


@dataclass(frozen=True)
class LiveSample:
    """What the newest checkpoint makes of a small sample.

    Attributes:
        step: of the checkpoint.
        epoch: whole epochs that were done then.
        num_samples: that were looked at.
        findings: about them.
        arrays: spectra and pictures.
        knn: accuracy on held-out samples, by epoch; of the checkpoints that were looked at.
    """

    step: int
    epoch: int
    num_samples: int
    findings: Findings
    arrays: Arrays
    knn: Mapping[int, float]


@dataclass
class Sampler:
    """One process beside the server, which is started when first asked and ends with it.

    Attributes:
        found: the last sample of each run.
        why: why there is none, by run.
    """

    found: dict[Path, LiveSample] = field(default_factory=dict)
    why: dict[Path, str] = field(default_factory=dict)
    _process: subprocess.Popen[str] | None = None
    _spent: float = 0.0
    _rests_until: float = 0.0
    _is_busy: bool = False
    _steps: dict[Path, str] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def ask(self, path: Path, newest: str, age: float = math.inf) -> None:
        """Ask for a sample, unless this checkpoint was looked at, one is being looked at, or it is too early.

        Args:
            path: of the run.
            newest: name of its newest checkpoint; empty for none.
            age: seconds since a run began that trains; infinite for one that does not, which nothing can slow down.
        """
        with self._lock:
            is_known = not newest or self._steps.get(path) == newest
            is_early = math.isfinite(age) and (time.monotonic() < self._rests_until or age < FIRST_SECONDS / SHARE)
            if self._is_busy or is_known or is_early:
                return
            self._is_busy, self._steps[path] = True, newest
        threading.Thread(target=self._wait, args=(path,), daemon=True).start()

    def mark(self, path: Path) -> str:
        """Changes where there is something new about a run."""
        return str(self.found[path].step) if path in self.found else self.why.get(path, "")

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def _wait(self, path: Path) -> None:
        """Ask, and take the answer."""
        try:
            told = self._answer(path)
            self._rests_until = time.monotonic() + (told["seconds"] - self._spent) / SHARE
            self._spent = told["seconds"]
            self._take(path, told)
        except (OSError, ValueError, KeyError, TypeError, CounterpointError) as error:
            self.why[path] = printable(first_line(error))
        finally:
            self._is_busy = False

    def _answer(self, path: Path) -> dict[str, Any]:
        """One line to the process, one line back."""
        if self._process is None or self._process.poll() is not None:
            # A session of its own: Ctrl-C is for the server, which then ends it.
            self._spent = 0.0
            self._process = subprocess.Popen(
                [sys.executable, "-m", MODULE],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                start_new_session=True,
            )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(str(path)) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise OSError("the process that looks at checkpoints has died; memory may have run out")
        return json.loads(line)

    def _take(self, path: Path, told: Mapping[str, Any]) -> None:
        """Check and keep an answer."""
        if "why" in told:
            self.why[path] = printable(str(told["why"]))
            return
        with np.load(io.BytesIO(base64.b64decode(told["arrays"])), allow_pickle=False) as stored:
            arrays = arrays_of({name: stored[name] for name in stored.files})
        findings = read_record(Findings, fit(told["findings"]), "the sample")
        before = self.found[path].knn if path in self.found else {}
        # A run that was resumed from an earlier checkpoint takes epochs again.
        earlier = {epoch: value for epoch, value in before.items() if epoch < told["epoch"]}
        knn = earlier if told["knn"] is None else {**earlier, int(told["epoch"]): float(told["knn"])}
        self.found[path] = LiveSample(told["step"], told["epoch"], told["num_samples"], findings, arrays, knn)
        self.why.pop(path, None)
