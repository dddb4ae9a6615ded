"""Hostile names in data, classes and folders: whatever is written as Markdown shows them as text."""

import os
import re
from pathlib import Path

import numpy as np

from campaign.kind import KEPT, Case, Kind, Place, Verdict
from campaign.oracle import OK, judge
from campaign.processes import Outcome, run_command
from data.shard_files import picture

PIECES = (
    "<img src=x onerror=alert(1)>",
    "<script>",
    "</td>",
    "|",
    "a|b",
    "](javascript:alert(1))",
    "`",
    "``",
    "\\",
    "\\|",
)
PIECES += (
    "[x](javascript:alert(1))",
    "![x](javascript:x)",
    "\n| x |",
    "**",
    "_",
    "&lt;",
    "&#60;b&#62;",
    "~~",
    "$x$",
    "x",
)
SAMPLES = 60
SMALL = ["--epochs", "1", "--batch-size", "8", "--projector.hidden", "8", "--projector.features", "4"]
HEAD = re.compile(r"\A---\n.*?\n---\n", re.S)  # YAML
FENCED, SPAN = (
    re.compile(r"^(```+|~~~+).*?^\1", re.M | re.S),
    re.compile(r"(?<![\\`])(`+)(?!`)(.+?)(?<!`)\1(?!`)", re.S),
)
# A backslash before the sign makes it text, unless that is escaped itself.
FREE = r"(?<!\\)(?:\\\\)*"
RAW = re.compile(FREE + r"<(?!br ?/?>)[A-Za-z/!?]")
LINK = re.compile(FREE + r"\]\(\s*<?\s*javascript:", re.I)
PIPE = re.compile(FREE + r"\|")


def next_case(draw: np.random.Generator) -> Case:
    """Names of two classes, of files and of the run, and what is written of them."""
    names = ["".join(draw.choice(PIECES, int(draw.integers(1, 4)))).replace("/", "\u2044") for _ in range(4)]
    return {"names": [f"{number}{name}" for number, name in enumerate(names)]}


def prepare(material: Path) -> None:
    """A proof that with plain names a card is written."""
    folder = material / "card" / "here"
    folder.mkdir(parents=True)
    assert _written({"names": ["one", "two", "file", "run"]}, folder).code == OK


def run(case: Case, place: Place) -> Verdict:
    """Train on such data, and read the model card."""
    outcome = _written(case, place.folder)
    if (verdict := judge(outcome)).fault or outcome.code != OK:
        return Verdict(verdict.fault, str(outcome))  # such a name is refused
    texts = {path.name: path.read_text() for path in place.folder.glob("out/*.md")}
    faults = [f"{name}: {fault}: {fault_line(text)}" for name, text in texts.items() if (fault := fault_of(text))]
    return Verdict("not only text", "; ".join(faults)) if faults else KEPT


def _written(case: Case, folder: Path) -> Outcome:
    """Train on data with these names, evaluate, and export: the first outcome that is none, or the last."""
    *classes, file, run_name = case["names"]
    draw = np.random.default_rng(0)
    for number in range(SAMPLES):
        path = folder / "data" / classes[number % 2] / f"{number:02d}{file}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(picture(draw, 8, "PNG"))
    train = ["train", "--data", "data", "--out", run_name, *SMALL]
    words = ["export", run_name, "--to", "folder", "--out", "out", "--licence", file]
    outcomes = []
    for each in [train, ["evaluate", run_name], words]:
        outcomes.append(run_command([*each, "-q"], folder.parent / "said", prepare=lambda: os.chdir(folder)))
        if outcomes[-1].code != OK:
            break
    return outcomes[-1]


def fault_of(text: str) -> str:
    """What a renderer would take for more than text; empty where there is nothing."""
    text = SPAN.sub("code", FENCED.sub("", HEAD.sub("", text)))
    if RAW.search(text):
        return "raw HTML"
    if LINK.search(text):
        return "script in a link"
    columns = 0
    for line in text.splitlines():
        found = len(PIPE.findall(line)) if line.startswith("|") else 0
        if found and columns and found != columns:
            return "broken table"
        columns = found
    return ""


def fault_line(text: str) -> str:
    """The first line that is at fault by itself, else the beginning."""
    return next((line for line in text.splitlines() if RAW.search(line) or LINK.search(line)), text[:300])[:300]


KIND = Kind("markdown", next_case, run, prepare, share=0.5)
