"""What watching costs a training: the same run with and without `counterpoint watch`, whose page is polled each second.

    python benchmarks/watched_training.py                         # 7 pairs on the digits
    python benchmarks/watched_training.py --bare                  # the watcher opens neither data nor checkpoints
    python benchmarks/watched_training.py --quick                 # one short pair, to see that it works

Each training is a process of its own, in pairs whose order is drawn. Compared are the seconds that the runs themselves
record: their steps, and all of it with saving. Both write the same figures, which is checked first. Where other
programs make these ratios vary, the watcher's own processor seconds (its start included) say how much it can cost.
"""

import argparse
import contextlib
import datetime
import json
import os
import platform
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from measuring import Quartiles, paired_ratio

from counterpoint.core.rundir import RunFolder

LIMIT = 1.02  # promised


@dataclass
class Reader:
    """Stands for a browser: loads the page once, then asks for its words each second, and for the page when it changed.

    Attributes:
        pages: how often the page was loaded.
        polls: how often its words were.
        samples: how many checkpoints had been looked at.
        processor_seconds: of the watcher and the process that looks at checkpoints.
    """

    pages: int = 0
    polls: int = 0
    samples: set[str] = field(default_factory=set)
    processor_seconds: float = 0.0

    def read(self, address: str, ended: threading.Event) -> None:
        """Until the training has ended."""
        version = ""
        while not ended.wait(1.0):
            state = json.loads(_load(f"{address}state.json"))
            self.polls += 1
            if "by the checkpoint after epoch" in state["note"]:
                self.samples.add(state["note"])
            if state["version"] != version:
                version = state["version"]
                _load(address)
                self.pages += 1


@dataclass(frozen=True)
class Trained:
    """One training: seconds of its steps, seconds of all of it, and its figures without the clock."""

    steps: float
    total: float
    figures: list[dict[str, object]]


def main() -> None:
    """Train in pairs and print the ratios."""
    flags = _flags()
    if flags.quick:
        flags.pairs, flags.epochs = 1, 3
    print("| pair | alone (s) | watched (s) | steps watched / alone | pages | polls | checkpoints | watcher (s) |")
    print("|---" * 8 + "|")
    alone, watched, order = [], [], random.Random(0)
    for pair in range(1, flags.pairs + 1):
        found, reader = {}, Reader()
        for is_watched in order.sample([False, True], 2):
            with tempfile.TemporaryDirectory() as place:
                run = Path(place) / "run"
                with _watching(run, reader, flags.bare) if is_watched else contextlib.nullcontext():
                    found[is_watched] = _train(run, flags)
        if found[True].figures != found[False].figures:
            raise SystemExit("the watched run has other figures than the one alone: watching is not harmless")
        alone.append(found[False])
        watched.append(found[True])
        ratio = found[True].steps / found[False].steps
        times = f"{found[False].steps:.2f} | {found[True].steps:.2f} | {ratio:.3f}"
        asked = f"{reader.pages} | {reader.polls} | {len(reader.samples)} | {reader.processor_seconds:.2f}"
        print(f"| {pair} | {times} | {asked} |", flush=True)
    for what in ("steps", "total"):
        ratios = paired_ratio([getattr(run, what) for run in watched], [getattr(run, what) for run in alone])
        print(f"\n{what}: {_words(ratios)}; promised: at most {LIMIT}")
    today = datetime.datetime.now(datetime.UTC)
    print(
        f"\nMeasured {today:%Y-%m-%d} on {platform.machine()}, {os.cpu_count()} processors, "
        f"load {os.getloadavg()[0]:.1f}, with `python benchmarks/{Path(__file__).name} {' '.join(sys.argv[1:])}`"
    )


def _flags() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="digits", help="anything that `counterpoint train` takes")
    parser.add_argument("--method", default="ncl")
    parser.add_argument("--epochs", type=int, default=400)
    parser.add_argument("--checkpoint-every", type=int, default=1, help="each one is looked at, if there is time")
    parser.add_argument("--pairs", type=int, default=7)
    parser.add_argument("--bare", action="store_true")
    parser.add_argument("--quick", action="store_true")
    return parser.parse_args()


def _train(run: Path, flags: argparse.Namespace) -> Trained:
    """Train in a process of its own."""
    words = ["--data", flags.data, "--method", flags.method, "--epochs", str(flags.epochs), "--out", str(run), "-q"]
    words += ["--engine.checkpoint-every", str(flags.checkpoint_every)]
    _call("train", *words)
    folder = RunFolder(run)
    epochs = folder.read_metrics()
    figures = [{name: value for name, value in epoch.items() if name in ("epoch", "loss", "step")} for epoch in epochs]
    return Trained(sum(epoch["seconds"] for epoch in epochs), folder.read_status().seconds or 0.0, figures)


@contextlib.contextmanager
def _watching(run: Path, reader: Reader, bare: bool) -> Iterator[None]:
    """Watch the run before it begins, with a reader of the page."""
    command = [sys.executable, "-m", "counterpoint", "watch", str(run), "--wait", "-q", *["--bare"] * bare]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        ended = threading.Event()
        thread = threading.Thread(target=reader.read, args=(process.stdout.readline().strip(), ended))
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()
            process.send_signal(signal.SIGINT)  # as Ctrl-C, upon which it ends what it has started
            used = os.wait4(process.pid, 0)[2]
            reader.processor_seconds = used.ru_utime + used.ru_stime


def _call(*words: str) -> None:
    """Run a command of ours."""
    done = subprocess.run([sys.executable, "-m", "counterpoint", *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"training failed: {done.stderr[-500:]}")


def _load(address: str) -> bytes:
    """What stands at an address of the watcher."""
    with urllib.request.urlopen(address, timeout=60) as answer:
        return answer.read()


def _words(found: Quartiles) -> str:
    """Median and quartiles."""
    return f"watched / alone {found.median:.3f} [{found.low:.3f}, {found.high:.3f}]"


if __name__ == "__main__":
    started = time.perf_counter()
    main()
    print(f"It took {time.perf_counter() - started:.0f} s.", file=sys.stderr)
