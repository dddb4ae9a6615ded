"""Flags and settings files that no user means to write: an answer in time, a line where there is none."""

import random
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np

from campaign.flags import ENDS, hostile, tries, write_world
from campaign.kind import Case, Kind, Place, Verdict
from campaign.oracle import judge
from campaign.processes import Process, run_command
from counterpoint.core.settings import TrainSettings
from counterpoint.core.validation import leaf_fields

SECONDS, DEMO_SECONDS, MEMORY_MB = 60, 180, 1024  # of a processor; a demo trains three times and draws two pages
CONFIG = "config.yaml"
TRAIN = ["train", "--config", CONFIG, "--data", "images.npz", "--out", "out/run", "--overwrite", "-q", *ENDS["train"]]
FIELDS = [path for path, _ in leaf_fields(TrainSettings)]


def next_case(draw: np.random.Generator) -> Case:
    """A command line, or a settings file."""
    own = random.Random(int(draw.integers(1 << 32)))
    # A system's command line holds no NUL, and `main` is also called from Python: a NUL may come, too.
    if own.random() < 0.7:
        return {"words": tries(own)}
    return {"words": TRAIN, "yaml": _yaml(own)}


def prepare(material: Path) -> None:
    """The folder in which the command lines are tried."""
    outcome = Process(_worked(lambda: write_world(material)), material / "said").wait()
    assert outcome.code == 0, outcome


def run(case: Case, place: Place) -> Verdict:
    """Run the command in a folder of its own."""
    shutil.copytree(place.material, place.folder, dirs_exist_ok=True)
    if "yaml" in case:
        (place.folder / CONFIG).write_bytes(case["yaml"].encode(errors="surrogateescape"))
    seconds = DEMO_SECONDS if case["words"][:1] == ["demo"] else SECONDS
    outcome = run_command(case["words"], place.folder.parent / "command", seconds=seconds)
    if (place.folder / "notes.md").read_text() != "years of work":
        return Verdict("lost", f"notes.md; {outcome}")
    return judge(outcome, max_peak_mb=MEMORY_MB)


def _worked(act: Callable[[], object]) -> Callable[[], int]:
    def code() -> int:
        act()
        return 0

    return code


def _yaml(draw: random.Random) -> str:
    """A settings file with one to three fields or lines that are wrong, or hardly right."""
    lines = ["batch_size: 8"]
    for _ in range(draw.choice((1, 1, 2, 3))):
        value = "".join(
            letter if "\udc80" <= letter <= "\udcff" or letter < "\ud800" else "?" for letter in hostile(draw)
        )
        *above, name = draw.choice(FIELDS).split(".")
        line = "".join(f"{part}: {{" for part in above) + f"{name}: {value}" + "}" * len(above)
        lines.insert(
            draw.randrange(len(lines) + 1), draw.choice([line, line, line, value, f"{value}: 1", f"- {value}"])
        )
    return "\n".join(lines) + "\n"


KIND = Kind(
    name="flags",
    promise="bad input gets one line, leaves with code 2 and overwrites nothing, whatever is written",
    next_case=next_case,
    run=run,
    prepare=prepare,
)
