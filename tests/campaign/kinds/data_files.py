"""A damaged file of data is opened, or refused in one line, within bounds of time and memory; no code of it runs."""

import base64
import logging
import shutil
import sys
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np

from campaign.calls import EXECUTED, forbid_code
from campaign.data_files import EMBEDDINGS, NAMED, SEEDS, damage
from campaign.kind import Case, Kind, Place, Verdict
from campaign.oracle import OK, USAGE, judge
from campaign.processes import Process, run_command
from counterpoint.core.errors import CounterpointError
from counterpoint.core.settings import SourceSettings
from counterpoint.data.sources import open_source
from counterpoint.engine.progress import Reporter

SECONDS, MEMORY_MB = 20, 512
TABLES = [
    form for form in SEEDS if any(word in form for word in ("tar", "csv", "parquet", "arrow", "feather", "saved"))
]
MAX_KEPT_BYTES = 1 << 16  # of a damaged file that is kept with its case


def next_case(draw: np.random.Generator) -> Case:
    """A form of data, the seed of its damage, and what reads it."""
    reader = str(draw.choice(["open", "train"], p=[0.85, 0.15]))
    return {
        "form": str(draw.choice(TABLES if draw.random() < 0.5 else list(SEEDS))),
        "seed": int(draw.integers(1 << 32)),
        "reader": reader,
    }


def prepare(material: Path) -> None:
    """A whole file or folder of each form, which can be read."""
    for form, make in SEEDS.items():
        folder = material / form
        folder.mkdir()
        path = make(folder)
        (folder / ".path").write_text(str(path.relative_to(folder)))
        outcome = run_command(_words(form, path, material / "out"), material / "said", prepare=forbid_code)
        assert outcome.code == 0, (form, outcome)


def run(case: Case, place: Place) -> Verdict:
    """Damage a file, and let the command read it."""
    form, folder = case["form"], place.folder / "data"
    shutil.copytree(place.material / form, folder)
    path = folder / (folder / ".path").read_text()
    (folder / ".path").unlink()
    if "file" in case:  # kept with its content
        damaged = folder / case["file"]
        damaged.write_bytes(base64.b64decode(case["content"]))
    else:
        damaged = damage(path, np.random.default_rng(case["seed"]))
    content = damaged.read_bytes()
    if case["reader"] == "open" and form not in EMBEDDINGS:
        outcome = Process(lambda: _open(form, path), place.folder / "said").wait()
    else:
        outcome = run_command(_words(form, path, place.folder / "out"), place.folder / "said", prepare=forbid_code)
    if outcome.code == EXECUTED:
        verdict = Verdict("code executed", str(outcome))
    else:
        verdict = judge(outcome, max_peak_mb=MEMORY_MB + len(content) / 2**20, max_seconds=SECONDS)
    if not verdict.fault or len(content) > MAX_KEPT_BYTES:
        return verdict
    file = str(damaged.relative_to(folder))
    return replace(verdict, case={**case, "file": file, "content": base64.b64encode(content).decode()})


def _open(form: str, path: Path) -> int:
    """Open the data and read every sample, in a process of its own; ends as the command would."""
    forbid_code()
    warnings.filterwarnings("ignore", module="PIL")  # as the command does
    logging.getLogger("PIL").setLevel(logging.CRITICAL)  # as above
    name, settings = (NAMED[form], SourceSettings(root=str(path))) if form in NAMED else (str(path), SourceSettings())
    try:
        source = open_source(name, settings, progress=Reporter(quiet=True).bar)
        source.store.fetch(list(range(len(source))))
    except CounterpointError as error:
        sys.stderr.write(f"counterpoint: error: {error}\n")
        return USAGE
    return OK


def _words(form: str, path: Path, out: Path) -> list[str]:
    """The command that reads all of the data."""
    if form in EMBEDDINGS:
        return ["diagnose", str(path), "-q"]
    data = ["--data", NAMED[form], "--source.root", str(path)] if form in NAMED else ["--data", str(path)]
    # One step on few samples: each is read, and views are drawn of it.
    small = ["--projector.hidden", "8", "--projector.features", "4", "--batch-size", "2"]
    return ["train", *data, "--out", str(out), *small, "--epochs", "1", "--engine.device", "cpu", "--overwrite", "-q"]


KIND = Kind("data_files", next_case, run, prepare, share=3)
