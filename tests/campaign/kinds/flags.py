"""Flags and settings files that no user means to write: an answer in time, a line where there is none.

Flags are read from the parsers, so that a new one joins by itself. What a try may touch lies in the folder of
``prepare``, in which it runs.
"""

import argparse
import random
import shutil
from pathlib import Path

import numpy as np

import counterpoint as cp
from campaign.kind import Case, Kind, Place, Verdict
from campaign.oracle import judge
from campaign.processes import run_command
from counterpoint.cli.arguments import build_parser
from counterpoint.core.settings import TrainSettings
from counterpoint.core.validation import leaf_fields

PLAIN_NUMBERS = """
nan .nan -nan inf -inf .inf Infinity 0 -0 -0.0 1 -1 2 0.5 1e-3 1e308 -1e308 1e309 1e-320 -1e-320 1e30 1e-30 1e400
2147483648 9223372036854775807 9223372036854775808 -9223372036854775809 0x10 0b1 1_000 1e 1.2.3 1,5 １２ ٣ 1/0 0/0 1/3
1e400/1 ½ 1j +1
"""
PLAIN_WORDS = """
- -- --- -q -x = == auto none null ~ true yes None * . [] {} [ { ] 1,2 1,2,3 nan,1 inf,1 0,0 1e-320,1 -1,2 , a,b *a
!!python/name:os.system %TAG %s % é 🎵 ＝1 s3://x ~nobody/x /dev/null /dev/zero os:system json:loads builtins:exec
a.b:c : timm: timm:../x out out/new notes.md/new nowhere/new.csv
"""
NUMBERS = (*PLAIN_NUMBERS.split(), "1" + "0" * 25, "1" + "0" * 400, "9" * 5000, "9" * 400 + "/3", " 1 ")
WORDS = (
    *PLAIN_WORDS.split(),
    *("", " ", "[1, 2]", "[1, 2", "{a: 1}", "{margin: 1e400}", "{temperature: 1}", "{1: 2}", "{a: {b: 1}}", "{a: [1]}"),
    *("{margin: null}", "a: 1", "&a b", "!!int ''", "!!bool maybe", "!!binary x", "!!timestamp 1", "? a", "a b"),
    *("\x00", "a\x00b", "\x1b[31mred\x1b[0m", "a\nb", "a\rb", "\x07", "\x9b31m", "\u202eabc", "\udcff", "\u2028"),
    *("x" * 300, "a/" * 3000, "[" * 3000, "{a: " * 1500),
)
NAMES = ("images.npz", "vectors.npy", "labels.npy", "photos", "run", "notes.md", "empty", "nowhere", "settings.yaml")
# What each verb needs to run at all, as little as it can do, of the files that are prepared.
BASES = {
    "train": "--data images.npz --out out/run --batch-size 8 --overwrite -q",
    "resume": "run -q",
    "evaluate": "run -q",
    "diagnose": "vectors.npy -q",
    "spectrum": "run --batch-size 4 --steps 2 -q",
    "embed": "run --out out/table.csv --overwrite -q",
    "verify": "run -q",
    "report": "run --out out/page.html -q",
    "preview": "--data images.npz --out out/sheet.png --overwrite --samples 2 --columns 2 -q",
    "geometry": "0.5 0.3 0.2 -q",
    "list": "methods",
    "demo": "--out empty -q",
}
# What keeps a command short comes last, where it counts whatever was drawn before it.
ENDS = {"train": ("--epochs", "1"), "demo": ("--epochs", "1")}
# Valid, and as long as they say: no fault can be found by waiting.
PATIENT = ("--epochs", "--phase-diagram", "--threshold")
# What costs little and takes many numbers is tried often, what trains or draws whole figures seldom.
SELDOM = ("demo", "verify", "report", "resume", "list")
OFTEN = ("train", "evaluate", "diagnose", "preview", "geometry", "embed")
SECONDS, DEMO_SECONDS, MEMORY_MB = 60, 180, 1024  # of a processor; a demo trains three times and draws two pages
CONFIG = "config.yaml"
TRAIN = ["train", "--config", CONFIG, "--data", "images.npz", "--out", "out/run", "--overwrite", "-q", *ENDS["train"]]
FIELDS = [path for path, _ in leaf_fields(TrainSettings)]


def next_case(draw: np.random.Generator) -> Case:
    """A command line, or a settings file."""
    own = random.Random(int(draw.integers(1 << 32)))
    # A system's command line holds no NUL, and `main` is also called from Python: a NUL may come, too.
    if own.random() < 0.7:
        return {"words": _command(own)}
    return {"words": TRAIN, "yaml": _yaml(own)}


def prepare(folder: Path) -> None:
    """The files and the run that the command lines name, in the folder in which they run."""
    draw = np.random.default_rng(0)
    images, labels = draw.integers(0, 256, (40, 8, 8), dtype=np.uint8), np.arange(40) % 3
    np.savez(folder / "images.npz", images=images, labels=labels)
    np.save(folder / "vectors.npy", draw.normal(size=(40, 5)).astype(np.float32))
    np.save(folder / "labels.npy", labels)
    for name in ("photos", "empty", "out"):
        (folder / name).mkdir()
    (folder / "notes.md").write_text("years of work")
    (folder / "settings.yaml").write_text("epochs: 1\nbatch_size: 8\n")
    cp.train(folder / "images.npz", out=folder / "run", epochs=1, batch_size=8, quiet=True)


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


def _command(draw: random.Random) -> list[str]:
    """The words of one command line."""
    verb = draw.choice(OFTEN if draw.random() < 0.9 else SELDOM)
    words = BASES[verb].split()
    flags = [action for action in build_parser(verb)._actions if _is_drawn(action)]
    for _ in range(draw.choice((1, 1, 1, 2, 3))):
        if draw.random() < 0.1:  # in place of some word
            place = draw.randrange(len(words))
            words[place : place + 1] = [_hostile(draw)]
        elif flags:
            words += _given(draw, draw.choice(flags))
    return [verb, *words, *ENDS.get(verb, ())]


def _hostile(draw: random.Random) -> str:
    """One value that no flag expects, or that few do."""
    kind = draw.random()
    if kind < 0.1:
        return draw.choice(NAMES)
    if kind < 0.2:
        return "".join(chr(draw.randrange(0x300)) for _ in range(draw.randrange(8)))
    return draw.choice(NUMBERS if kind < 0.6 else WORDS)


def _is_drawn(action: argparse.Action) -> bool:
    """Whether it is a flag that may be varied: help ends at once, and some flags only make the work longer."""
    return (
        bool(action.option_strings)
        and action.nargs != argparse.SUPPRESS
        and not {*PATIENT, "-h"} & {*action.option_strings}
    )


def _given(draw: random.Random, action: argparse.Action) -> list[str]:
    """A flag as it may be written: alone, with its value beside it or behind a sign of equality."""
    flag = draw.choice(action.option_strings)
    takes_none = action.nargs == 0
    form = draw.random()
    if form < 0.05 or (takes_none and form < 0.8):
        return [flag]
    value = draw.choice(list(map(str, action.choices))) if action.choices and form < 0.3 else _hostile(draw)
    return [f"{flag}={value}"] if form < 0.6 else [flag, value]


def _yaml(draw: random.Random) -> str:
    """A settings file with one to three fields or lines that are wrong, or hardly right."""
    lines = ["batch_size: 8"]
    for _ in range(draw.choice((1, 1, 2, 3))):
        value = "".join(
            letter if "\udc80" <= letter <= "\udcff" or letter < "\ud800" else "?" for letter in _hostile(draw)
        )
        *above, name = draw.choice(FIELDS).split(".")
        line = "".join(f"{part}: {{" for part in above) + f"{name}: {value}" + "}" * len(above)
        lines.insert(
            draw.randrange(len(lines) + 1), draw.choice([line, line, line, value, f"{value}: 1", f"- {value}"])
        )
    return "\n".join(lines) + "\n"


KIND = Kind("flags", next_case, run, prepare)
