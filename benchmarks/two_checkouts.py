"""Compare two checkouts of the package: the same bits, and the time of each verb in pairs.

    git worktree add ../before COMMIT
    python benchmarks/two_checkouts.py ../before .                  five minutes on two idle cores
    python benchmarks/two_checkouts.py ../before . --rounds 3       a minute

Each checkout works in a process of its own, which answers one request after the other; the two take turns in random
order, and a ratio is taken within a round. Only names of the public interface are called, so that versions far apart
can be compared.
"""

# N samples, D features

import argparse
import hashlib
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

NUM_SAMPLES, WIDTH, NUM_CLASSES = 4096, 64, 8
TRAINING: dict[str, Any] = {"method": "ncl", "encoder": "mlp", "batch_size": 256, "seed": 0, "quiet": True}
HEADER = "| what | before, s | after, s | after / before (quartiles) | result |\n|---|---:|---:|---|---|"


class Worker:
    """The answers of one checkout; it runs in a process of its own with that checkout first on its path."""

    def __init__(self) -> None:
        import numpy as np  # deferred: the process that only compares needs none of it

        import counterpoint as cp  # deferred: of the checkout that the process was started for

        self.cp, draw = cp, np.random.default_rng(0)
        self.labels_N = np.arange(NUM_SAMPLES) % NUM_CLASSES
        centres = draw.normal(size=(NUM_CLASSES, WIDTH))
        self.data_ND = (centres[self.labels_N] + draw.normal(size=(NUM_SAMPLES, WIDTH))).astype("float32")
        self.run = self._train("run", epochs=4)
        cp.search(self.run, [0], quiet=True)

    def _train(self, name: str, **settings: Any) -> Any:
        done = self.cp.train(self.data_ND, labels=self.labels_N, out=name, overwrite=True, **{**TRAINING, **settings})
        return self.cp.Run(done.path, data=self.data_ND, labels=self.labels_N)

    def training(self) -> str:
        """Weights after four epochs."""
        return _hash((self._train("again", epochs=4).path / "encoder.safetensors").read_bytes())

    def checkpoints(self) -> str:
        """Weights after one epoch that saves after each step."""
        done = self._train("saved", epochs=1, engine={"checkpoint_steps": 1})
        return _hash((done.path / "encoder.safetensors").read_bytes())

    def evaluation(self) -> str:
        """Accuracies, without features that were kept."""
        rows = self.cp.evaluate(self.run, cache=False, quiet=True).to_dict()["rows"]  # all digits, and no layout
        return _hash(json.dumps(rows, sort_keys=True).encode())

    def diagnosis(self) -> str:
        """Findings with their figures."""
        return _hash(str(self.cp.diagnose(self.run, quiet=True)).encode())

    def report(self) -> str:
        """Size of the page."""
        return str(self.cp.report(self.run, out="page.html").stat().st_size)

    def index(self) -> str:
        """Answer of an index that is made again."""
        return _hash(str(self.cp.search(self.run, [1], cache=False, quiet=True)).encode())

    def search(self) -> str:
        """Answers of an existing index."""
        return _hash("".join(str(self.cp.search(self.run, [row], quiet=True)) for row in range(20)).encode())

    def embedding(self) -> str:
        """Embeddings of all samples at once, by the loaded encoder."""
        return _hash(self.cp.load(self.run).embed(self.data_ND).tobytes())


SIDES = ("before", "after")
REQUESTS = ("training", "checkpoints", "evaluation", "diagnosis", "report", "index", "search", "embedding")


def _hash(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:12]


def serve() -> None:
    """Answer requests of standard input, one name a line, with seconds and result."""
    worker = Worker()
    for line in sys.stdin:
        answer: Callable[[], str] = getattr(worker, line.strip())
        start = time.perf_counter()
        result = answer()
        sys.stderr.write(json.dumps([time.perf_counter() - start, result]) + "\n")
        sys.stderr.flush()


def started(checkout: Path, folder: Path) -> "subprocess.Popen[str]":
    """A process that serves one checkout, in an empty folder."""
    folder.mkdir()
    environment = {
        **os.environ,
        "PYTHONPATH": str(checkout.resolve() / "src"),
        "OMP_WAIT_POLICY": "PASSIVE",
        "COUNTERPOINT_CACHE": str(folder.parent / f"{folder.name}-cache"),
    }
    command = [sys.executable, str(Path(__file__).resolve()), "--serve"]
    pipe, dropped = subprocess.PIPE, subprocess.DEVNULL
    return subprocess.Popen(command, cwd=folder, env=environment, text=True, stdin=pipe, stdout=dropped, stderr=pipe)


def answer_of(process: "subprocess.Popen[str]", name: str) -> tuple[float, str]:
    """Seconds and result of one request.

    Raises:
        RuntimeError: the process ended; with what it wrote.
    """
    assert process.stdin is not None
    assert process.stderr is not None
    process.stdin.write(name + "\n")
    process.stdin.flush()
    said = []
    for line in process.stderr:
        said.append(line)
        if line.startswith("["):
            seconds, result = json.loads(line)
            return seconds, result
    raise RuntimeError(f"{name}: {''.join(said)[-2000:]}")


def main() -> None:
    """Ask both in turns and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkouts", nargs=2, type=Path, metavar="CHECKOUT", help="before and after")
    parser.add_argument("--rounds", type=int, default=15)
    flags = parser.parse_args()
    folder, order = Path(tempfile.mkdtemp()), random.Random(0)
    workers = [started(checkout, folder / name) for checkout, name in zip(flags.checkouts, SIDES, strict=True)]
    try:
        print(HEADER)
        for name in REQUESTS:
            print(measured(name, workers, order, flags.rounds), flush=True)
    finally:
        for process in workers:
            process.kill()
            process.wait()
        shutil.rmtree(folder)


def measured(name: str, workers: "list[subprocess.Popen[str]]", order: random.Random, num_rounds: int) -> str:
    """A line of the table; the first round warms up and does not count."""
    from measuring import paired_ratio, quartiles  # deferred: it loads torch, which workers load by themselves

    seconds, results = ([], []), (set[str](), set[str]())
    for number in range(num_rounds + 1):
        for place in order.sample((0, 1), 2):
            took, result = answer_of(workers[place], name)
            results[place].add(result)
            if number:
                seconds[place].append(took)
    ratio = paired_ratio(seconds[1], seconds[0])
    before, after = (quartiles(values).median for values in seconds)
    same = "the same" if results[0] == results[1] else f"differs: {results[0]} {results[1]}"
    told = f"{ratio.median:.3f} ({ratio.low:.3f} to {ratio.high:.3f})"
    return f"| {name} | {before:.4f} | {after:.4f} | {told} | {same} |"


if __name__ == "__main__":
    serve() if "--serve" in sys.argv else main()
