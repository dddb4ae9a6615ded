"""Command lines as a hostile user writes them: every flag of every verb with values that no flag expects.

Flags are read from the parsers, so that a new one joins by itself. What a try may touch lies in the folder of
``write_world``, in which it has to run.
"""

import argparse
import random
from pathlib import Path

import numpy as np

import counterpoint as cp
from counterpoint.cli.arguments import build_parser

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
# What each verb needs to run at all, as little as it can do: RUN and files are of the world below.
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


def write_world(folder: Path) -> None:
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


def tries(draw: random.Random) -> list[str]:
    """The words of one command line, to be given to ``main`` in the folder of ``write_world``.

    Args:
        draw: the same state gives the same words.

    >>> tries(random.Random(0)) == tries(random.Random(0))
    True
    """
    verb = draw.choice(OFTEN if draw.random() < 0.9 else SELDOM)
    words = BASES[verb].split()
    flags = [action for action in build_parser(verb)._actions if _is_drawn(action)]
    for _ in range(draw.choice((1, 1, 1, 2, 3))):
        if draw.random() < 0.1:  # in place of some word, or after all of them
            words[draw.randrange(len(words)) :][:1] = [hostile(draw)]
        elif flags:
            words += _given(draw, draw.choice(flags))
    return [verb, *words, *ENDS.get(verb, ())]


def hostile(draw: random.Random) -> str:
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
    value = draw.choice(list(map(str, action.choices))) if action.choices and form < 0.3 else hostile(draw)
    return [f"{flag}={value}"] if form < 0.6 else [flag, value]
