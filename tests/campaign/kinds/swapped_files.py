"""Whole files change places between two runs: who reads one says that it is of another run, or answers as before."""

import os
import re
import shutil
from pathlib import Path

import numpy as np

from campaign.kind import KEPT, Case, Kind, Place, Verdict
from campaign.oracle import FAILED, USAGE, judge
from campaign.processes import Outcome, run_command
from campaign.small_runs import make_whole_runs, must, whole

# What change places together: single files, and those that vouch for one another.
DERIVED = ("evaluation.json", "spectrum.json", "map.json", "findings.json", "arrays.npz", "collection.npz")
BEGUN = ("run.json", "resolved.yaml", "config.yaml", "metrics.jsonl", "timings.jsonl")
WEIGHTS = ("encoder.json", "encoder.safetensors", "classifier.json", "classifier.safetensors")
GROUPS = {name: (name,) for name in (*DERIVED, *BEGUN, *WEIGHTS)}
GROUPS |= {f"newest/{name}": (f"newest/{name}",) for name in ("state.json", "model.safetensors", "MANIFEST.json")}
GROUPS |= {
    "encoder": ("encoder.json", "encoder.safetensors"),
    "classifier": ("classifier.json", "classifier.safetensors"),
    "diagnosis": ("findings.json", "arrays.npz", "collection.npz"),
    "settings": ("resolved.yaml", "config.yaml"),
    "newest": ("newest",),
    "checkpoints": ("checkpoints",),
}
TUNED = "tuned-0", "tuned-1"  # runs with a classifier
NOT_COMPUTED = frozenset({"timings.jsonl"})  # of the clock: nothing says of which run it is
VERBS = (
    "compare",
    "report",
    "verify",
    "verify",
    "diagnose",
    "evaluate",
    "runs",
    "search",
    "embed",
    "resume",
    "spectrum",
)
ENDS = {"report": ["--bare", "--out", "out.html"], "embed": ["--out", "out.npz"], "search": ["0", "--json"]}
ENDS |= {"spectrum": ["--steps", "2", "--batch-size", "8"], "compare": ["other", "--json"]}
WRITTEN = ("out.html", "out.npz", "run/evaluation.json", "run/findings.json", "run/spectrum.json", "run/encoder.json")
WRITTEN += ("run/encoder.safetensors",)

NAME = re.compile(r"[\w-]+\.(json|jsonl|yaml|npz|npy|safetensors)|step-\d+")


def next_case(draw: np.random.Generator) -> Case:
    """Which files change places, whether both runs get those of the other, and which verb meets the first one."""
    group, verb = str(draw.choice(list(GROUPS))), str(draw.choice(VERBS))
    return {"group": group, "verb": verb, "is_tuned": "classifier" in group or bool(draw.random() < 0.1)}


def prepare(material: Path) -> None:
    """Two runs that differ in the seed alone, with all that verbs write, and two that were fine-tuned from them."""
    make_whole_runs(material)
    for seed, name in enumerate(TUNED):
        tuned = material / name
        words = ["fine-tune", str(whole(material, seed)), "--epochs", "1", "--seed", str(seed), "--out", str(tuned)]
        must([*words, "--engine.device", "cpu", "-q"], material)
        must(["diagnose", str(tuned), "-q"], material)
        must(["search", str(tuned), "0", "-q"], material)
        must(["report", str(tuned), "--out", str(material / "page.html"), "-q"], material)
    for is_tuned in (False, True):
        for verb in {*VERBS} - ({"spectrum"} if is_tuned else set()):
            folder = material / f"{verb} {is_tuned}"
            folder.mkdir()
            _copy(material, folder, is_tuned=is_tuned)
            outcome = _do(verb, folder)
            assert outcome.code == 0, outcome


def run(case: Case, place: Place) -> Verdict:
    """Exchange the files, and see what the verb says."""
    verb, is_tuned = case["verb"], case["is_tuned"]
    if is_tuned and verb == "spectrum":
        return KEPT  # a classifier's loss is none of pairs
    _copy(place.material, place.folder, is_tuned=is_tuned)
    names = _exchange(case["group"], place.folder)
    if not names:
        return KEPT  # there are none, or they are alike
    outcome = _do(verb, place.folder)
    verdict = judge(outcome)
    if verdict.fault:
        return Verdict(verdict.fault, f"{case['group']}, {verb}: {verdict.detail}")
    told = outcome.out + outcome.err
    if outcome.code in (FAILED, USAGE):
        is_named = NAME.search(told) is not None  # this file, or the one that it does not go with
        return KEPT if is_named else Verdict("not named", f"{case['group']}, {outcome}")
    if verb == "verify" and case["group"] not in NOT_COMPUTED:
        return Verdict("silent", f"verify passes with {case['group']} of another run")
    expected = place.material / f"{verb} {is_tuned}"
    found, wanted = _made(place.folder, names), _made(expected, names)
    other = ", ".join(sorted(name for name in found | wanted if found.get(name) != wanted.get(name)))
    is_named = any(Path(name).name in told for name in names) and verb not in ("verify", "spectrum")
    if not other or is_named or case["group"] in NOT_COMPUTED:
        return KEPT
    return Verdict("silent", f"{verb} with {case['group']} of another run: other {other}; {outcome}")


def _copy(material: Path, folder: Path, *, is_tuned: bool) -> None:
    """Both runs, under names that tell nothing."""
    for seed, name in enumerate(("run", "other")):
        shutil.copytree(material / TUNED[seed] if is_tuned else whole(material, seed), folder / name)


def _exchange(group: str, folder: Path) -> list[str]:
    """Let files of both runs change places; returns the names of those that differ."""
    differing = []
    for name in GROUPS[group]:
        first, second = (_place(folder / run, name) for run in ("run", "other"))
        if not (first.exists() and second.exists()) or (first.is_file() and first.read_bytes() == second.read_bytes()):
            continue
        aside = folder / "aside"
        first.rename(aside)
        second.rename(first)
        aside.rename(second)
        differing.append(name)
    return differing


def _place(run: Path, name: str) -> Path:
    """A file or folder of a run."""
    if name.startswith("newest"):
        return max(run.glob("checkpoints/step-*")) / name.removeprefix("newest").removeprefix("/")
    return run / name


def _do(verb: str, folder: Path) -> Outcome:
    """Let a verb meet the first run; names of files are told as they were given."""
    words = ["runs", ".", "--json"] if verb == "runs" else [verb, "run", *ENDS.get(verb, []), "-q"]
    return run_command(words, folder / "said", prepare=lambda: os.chdir(folder))


def _made(folder: Path, exchanged: list[str]) -> dict[str, bytes]:
    """What the verb printed and wrote, but for files that were exchanged and for the clock."""
    made = {
        name: (folder / name).read_bytes()
        for name in WRITTEN
        if (folder / name).is_file() and name.removeprefix("run/") not in exchanged
    }
    out = (folder / "said.out").read_text()
    return {**made, "output": re.sub(r'"(seconds|bytes|started)": [^,}]*', "", out).encode()}


KIND = Kind("swapped_files", next_case, run, prepare)
