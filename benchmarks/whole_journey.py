"""The whole journey of a person with 3,000 photographs, by the command line alone: is every step there, and right?

    python benchmarks/whole_journey.py --data DATA                  # DATA/caltech101-64/train.npz and test.npz
    python benchmarks/whole_journey.py --data DATA --archive cifar10-pack --minutes 2 --keep FOLDER

Photographs are written as files with odd names, and copies, near copies and damage are planted among them
(`planted_photos.py`). Then audit, recommend, train, evaluate, diagnose, report, search and export run, each as a
program of its own, and are timed. A table says what was checked of each, and whether it holds. Exit code: 0; 1 if
something does not hold, or all of it took longer than ten minutes.
"""

import argparse
import html
import json
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from planted_photos import NEAR, NUM_EACH, Fault, Planted, plant

import counterpoint as cp

LONGEST = 600.0  # seconds in all
LARGEST_DIFFERENCE = 1e-4  # of ONNX from torch, as a share of the largest value of the same row
NUM_COMPARED = 16
HITS = 10
# Addresses that a browser fetches by itself, unlike a link to follow.
OTHER_HOST = re.compile(r"""src=["']?(?:https?:)?//|<link[^>]+href=["']?(?:https?:)?//|url\(["']?(?:https?:)?//""")


@dataclass(frozen=True)
class Check:
    """One statement, and whether it holds."""

    words: str
    holds: bool


@dataclass
class Journey:
    """The journey so far.

    Attributes:
        folder: where everything lies.
        minutes: that training may take.
        planted: the photographs.
        rows: step, seconds, checks.
        files: that the audit named, by the code of its observation.
    """

    folder: Path
    minutes: float
    planted: Planted
    rows: list[tuple[str, float, list[Check]]] = field(default_factory=list)

    def command(self, *words: str) -> str:
        """Run a command in the folder, and return what it printed.

        Raises:
            SystemExit: it failed; its last words are told.
        """
        done = subprocess.run(
            [sys.executable, "-m", "counterpoint", *words], cwd=self.folder, capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            raise SystemExit(f"counterpoint {' '.join(words)} left with {done.returncode}: {done.stderr[-2000:]}")
        return done.stdout

    def read(self, name: str) -> Any:
        """Content of a JSON file of the folder."""
        return json.loads((self.folder / name).read_text(encoding="utf-8"))


# --- steps: each runs one command and returns what was checked


def audit(journey: Journey) -> Iterator[Check]:
    """Check that everything planted is named."""
    journey.command("audit", "photos", "--json", "audit.json", "--out", "audit.html", "-q")
    result = journey.read("audit.json")
    observations = {each["code"]: each for each in result["observations"]}
    yield Check(
        f"{journey.planted.num_good:,} readable pictures counted, whatever their names",
        result["passport"]["num_good"] == journey.planted.num_good,
    )
    for kind in dict.fromkeys(fault.kind for fault in journey.planted.faults):
        faults = [fault for fault in journey.planted.faults if fault.kind == kind]
        number = sum(is_named(fault, observations) for fault in faults)
        yield Check(f"named {number} of {len(faults)}: {kind}", number == len(faults))


def is_named(fault: Fault, observations: Mapping[str, Any]) -> bool:
    """Tell whether an observation names the file, or, of copies, has all of them in one group."""
    for code in fault.codes:
        entry = observations.get(code)
        if entry is None:
            continue
        groups = [group["names"] for group in entry["groups"]]
        # A file that cannot be read is named with the reason behind it.
        is_there = any(each == fault.names[0] or each.startswith(f"{fault.names[0]} (") for each in entry["names"])
        if any(set(fault.names) <= set(group) for group in groups) or (len(fault.names) == 1 and is_there):
            return True
    return False


def recommend(journey: Journey) -> Iterator[Check]:
    """Check that there is a configuration with reasons."""
    minutes = f"{journey.minutes:g}"
    journey.command("recommend", "photos", "--minutes", minutes, "--out", "recommended.yaml", "-q")
    text = (journey.folder / "recommended.yaml").read_text(encoding="utf-8")
    yield Check("a configuration with a comment on its lines", text.count("#") >= 3 and "data:" in text)


def train(journey: Journey) -> Iterator[Check]:
    """Check that the configuration runs as it is, in the time that was asked for."""
    start = time.perf_counter()
    journey.command("train", "--config", "recommended.yaml", "--out", "run", "-q")
    minutes = (time.perf_counter() - start) / 60
    yield Check("the configuration ran as it is", journey.read("run/run.json")["status"] == "finished")
    yield Check(
        f"{minutes:.1f} minutes, of {journey.minutes:g} asked for",
        minutes <= max(1.5 * journey.minutes, journey.minutes + 1),
    )


def evaluate(journey: Journey) -> Iterator[Check]:
    """Check that there are figures with intervals, beside baselines."""
    rows = json.loads(journey.command("evaluate", "run", "--json", "-q"))["rows"]
    knn = {row["features"]: row for row in rows if row["protocol"] == "knn"}
    told = ", ".join(f"{name} {row['accuracy']:.1%}" for name, row in knn.items())
    yield Check(f"kNN with intervals beside two baselines: {told}", _has_baselines(knn))


def _has_baselines(knn: Mapping[str, Mapping[str, Any]]) -> bool:
    """Tell whether pixels and the untrained encoder stand beside the representation, each with its interval."""
    names = {"representation", "untrained encoder", "pixels (PCA)"}
    return names <= set(knn) and all(knn[name]["low"] <= knn[name]["accuracy"] <= knn[name]["high"] for name in names)


def diagnose(journey: Journey) -> Iterator[Check]:
    """Check that there is a verdict."""
    journey.command("diagnose", "run", "-q")
    findings = journey.read("run/findings.json")
    yield Check(f"{len(findings['findings'])} findings, each with a level", bool(findings["findings"]))


def report(journey: Journey) -> Iterator[Check]:
    """Check that there is one page that needs nothing else."""
    journey.command("report", "run", "-q")
    page = (journey.folder / "run" / "report.html").read_text(encoding="utf-8")
    yield Check(f"one page of {len(page.encode()) / 1e6:.1f} MB, at most 8", len(page.encode()) <= 8_000_000)
    loaded = OTHER_HOST.findall(page)
    yield Check("nothing is loaded from another host", not loaded)


def search(journey: Journey) -> Iterator[Check]:
    """Check that near copies are grouped with their photograph in the training part, and that each leads to it."""
    pairs = journey.planted.near
    # The run left its copies out, as recommended: they are looked for where they still are.
    part = Path(pairs[0][0]).parts[0]
    named = [{Path(name).relative_to(part).as_posix() for name in pair} for pair in pairs]
    common = ("search", "run", "--duplicates", "--to", f"photos/{part}", "-q")
    groups = [set(group["names"]) for group in json.loads(journey.command(*common, "--json"))["groups"]]
    together = sum(any(pair <= group for group in groups) for pair in named)
    yield Check(f"{together} of {len(pairs)} near copies share a group with their photograph", together == len(pairs))
    journey.command(*common, "--out", "copies.html")
    page = html.unescape((journey.folder / "copies.html").read_text(encoding="utf-8"))
    shown = sum(all(name in page for name in pair) for pair in named)
    yield Check(f"the page shows {shown} of {len(pairs)} pairs, with pictures", shown == len(pairs) and "<img" in page)
    queries = [str(Path("photos") / copy) for _, copy in pairs]
    answer = json.loads(journey.command("search", "run", *queries, "-k", str(HITS), "-q", "--json"))
    hit_names = [{hit["name"] for hit in query["hits"]} for query in answer["queries"]]
    number = sum(bool(names & set(pair)) for names, pair in zip(hit_names, pairs, strict=True))
    # By the embedding alone, of a training of minutes: most of them, and the table says how many.
    yield Check(f"{number} of {len(pairs)} near copies as queries find it among {HITS}", number > len(pairs) // 2)


def export(journey: Journey) -> Iterator[Check]:
    """Check that ONNX answers as torch does, by the command's own word and by our own comparison."""
    told = json.loads(journey.command("export", "run", "--to", "onnx", "--out", "exported", "--json", "-q"))
    (onnx,) = (each for each in told["formats"] if each["name"] == "onnx")
    yield Check(f"reported difference {onnx['difference']:.1e}", onnx["difference"] <= LARGEST_DIFFERENCE)
    difference = onnx_difference(journey.folder / "run", journey.folder / "exported" / "model.onnx")
    yield Check(f"measured again with onnxruntime and cp.load: {difference:.1e}", difference <= LARGEST_DIFFERENCE)


def onnx_difference(run: Path, model: Path) -> float:
    """Largest difference of both outputs from torch's, as a share of the largest value of the same row."""
    session = onnxruntime.InferenceSession(str(model), providers=["CPUExecutionProvider"])
    (model_input,) = session.get_inputs()
    side = next((length for length in model_input.shape[1:] if isinstance(length, int) and length > 4), 64)
    pictures = np.random.default_rng(0).integers(0, 256, (NUM_COMPARED, side, side, 3), dtype=np.uint8)
    names = [output.name for output in session.get_outputs()]
    ours = dict(zip(names, session.run(names, {model_input.name: pictures}), strict=True))
    encoder = cp.load(run)
    theirs = {"representation": encoder.represent(pictures), "embedding": encoder.embed(pictures)}
    return max(
        _difference(np.asarray(ours[name]), np.asarray(values)) for name, values in theirs.items() if name in ours
    )


def _difference(ours: np.ndarray, theirs: np.ndarray) -> float:
    scale = np.abs(theirs).max(axis=1, keepdims=True)
    return float((np.abs(ours - theirs) / np.maximum(scale, 1e-12)).max())


STEPS: tuple[Callable[[Journey], Iterator[Check]], ...] = (
    audit,
    recommend,
    train,
    evaluate,
    diagnose,
    report,
    search,
    export,
)


# --- the table


def table(rows: list[tuple[str, float, list[Check]]]) -> str:
    """Step, seconds, what was checked, and whether it holds, as Markdown."""
    lines = ["| step | seconds | checked | holds |", "|---|---:|---|---|"]
    for step, seconds, checks in rows:
        for number, check in enumerate(checks):
            first = (step, f"{seconds:.1f}") if number == 0 else ("", "")
            lines.append(f"| {first[0]} | {first[1]} | {check.words} | {'yes' if check.holds else 'NO'} |")
    return "\n".join(lines)


def travel(journey: Journey) -> None:
    """Take every step in turn; a command that fails ends the journey."""
    for step in STEPS:
        start = time.perf_counter()
        try:
            checks = list(step(journey))
        except SystemExit as failure:
            checks = [Check(" ".join(str(failure).split()), False)]
        journey.rows.append((step.__name__, time.perf_counter() - start, checks))
        print(f"{step.__name__}: {journey.rows[-1][1]:.1f} s", file=sys.stderr, flush=True)
        if not checks[0].holds and step is not audit:
            break
    total = sum(seconds for _, seconds, _ in journey.rows)
    is_whole = len(journey.rows) == len(STEPS)
    end = [Check(f"all steps, in at most {LONGEST:g} seconds", is_whole and total <= LONGEST)]
    journey.rows.append(("in all", total, end))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder of archives of photographs")
    parser.add_argument("--archive", default="caltech101-64", help="sub-folder with train.npz and test.npz")
    parser.add_argument("--minutes", type=float, default=3.0, help="that training may take")
    parser.add_argument("--keep", type=Path, help="work in this new folder and leave it there")
    flags = parser.parse_args()
    folder = flags.keep or Path(tempfile.mkdtemp(prefix="journey-"))
    folder.mkdir(parents=True, exist_ok=True)
    try:
        planted = plant(flags.data / flags.archive, folder / "photos")
        print(
            f"{planted.num_good:,} pictures, {len(planted.faults)} faults ({NUM_EACH} each; {len(NEAR)} kinds of near "
            f"copies)\n"
        )
        journey = Journey(folder, flags.minutes, planted)
        travel(journey)
        print(table(journey.rows))
        return 0 if all(check.holds for _, _, checks in journey.rows for check in checks) else 1
    finally:
        if flags.keep is None:
            shutil.rmtree(folder)


if __name__ == "__main__":
    sys.exit(main())
