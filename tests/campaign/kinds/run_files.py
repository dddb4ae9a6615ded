"""A file of a run folder is altered: every verb names it in one line, or does what it would have done."""

import contextlib
import os
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file

import counterpoint as cp
from campaign.kind import KEPT, Case, Kind, Place, Verdict
from campaign.kinds.interleavings import INTERRUPTED, interrupt
from campaign.mutations import WAYS, seal_anew, ways_for
from campaign.oracle import FAILED, OK, USAGE, judge
from campaign.processes import Outcome, Process, run_command
from campaign.small_runs import content_of, make_runs, must, whole
from counterpoint.core.errors import CounterpointError

TOP = ("run.json", "resolved.yaml", "config.yaml", "metrics.jsonl", "timings.jsonl")
TRAINED = ("encoder.json", "encoder.safetensors", "evaluation.json", "findings.json", "arrays.npz", "collection.npz")
SAVED = ("MANIFEST.json", "state.json", "model.safetensors", "optimizer.safetensors", "average.safetensors")
# What a user may not have made yet is no loss; of other files that verbs can do without, they say what is gone.
MADE_LATER = ("evaluation.json", "findings.json", "arrays.npz", "collection.npz")
MOVED_AWAY = "metrics.jsonl"  # whoever moves it away goes on without its figures, and says so by that
SAID_WHEN_LOST = {
    "config.yaml": "is missing",
    "resolved.yaml": "resolved.yaml is missing",
    "timings.jsonl": "not recorded",
    "after": "not checked",
}
TAKEN_OVER = "no weight depends on that"
# What `verify` knows from elsewhere, whoever vouches for it: the encoder stands beside the last checkpoint (a momentum
# copy and a queue stand nowhere else), and a step after an older one is taken again.
PROVEN = ("encoder.safetensors", "newest/model.safetensors", "older/model.safetensors")
VERBS = ("resume", "verify", "evaluate", "diagnose", "report", "embed", "search", "load")


def next_case(draw: np.random.Generator) -> Case:
    """One file, what happens to it, and a verb that meets it."""
    file = str(draw.choice([*TOP, *TRAINED, "after", *SAVED]))
    if file in SAVED:
        file = f"{draw.choice(['newest', 'older'])}/{file}"
    verb = str(draw.choice(VERBS))
    case = {"file": file, "how": str(draw.choice(ways_for(file))), "seed": int(draw.integers(1 << 32)), "verb": verb}
    if draw.random() < 0.25:  # by someone who rewrites the hashes, too: `verify` most often
        case |= {"is_sealed": True, "verb": verb if draw.random() < 0.5 else "verify"}
    return case


def prepare(material: Path) -> None:
    """A finished run and an interrupted one, and what each verb makes of them."""
    make_runs(material)
    interrupt(material, material / INTERRUPTED)
    must(["evaluate", str(whole(material)), "-q"], material)
    must(["diagnose", str(whole(material)), "-q"], material)
    must(["search", str(whole(material)), "0", "-q"], material)
    for verb in VERBS:
        folder = material / verb
        folder.mkdir()
        outcome = _do(verb, _copy(verb, material, folder))
        assert outcome.code == 0, outcome


def run(case: Case, place: Place) -> Verdict:
    """Alter the file in a copy, and see what the verb makes of it."""
    verdict = _met(case, place.folder, place.material / case["verb"], _copy(case["verb"], place.material, place.folder))
    told = f"{case['file']}, {case['how']}, {case['verb']}: {verdict.detail}"
    return Verdict(verdict.fault, told) if verdict.fault else KEPT


def _met(case: Case, folder: Path, expected: Path, run: Path) -> Verdict:
    """What the verb makes of a run in a folder, beside what it makes of the whole one."""
    file, verb = case["file"], case["verb"]
    path = _file(file, run)
    if not path.exists():
        return KEPT  # this run has not got so far
    WAYS[case["how"]](path, np.random.default_rng(case["seed"]))
    if is_sealed := case.get("is_sealed", False) and path.is_file() and not path.is_symlink():
        # What cannot be read is not vouched for.
        with contextlib.suppress(ValueError, CounterpointError, RecursionError):
            seal_anew(path, run)
    is_moved = file == MOVED_AWAY and not os.path.lexists(path)
    aside = shutil.copytree(run, folder / "aside" / "run", symlinks=True) if verb == "resume" else run
    outcome = _do(verb, run)
    if not is_sealed:
        verdict = _judge(verb, file, outcome, folder, expected, is_gone=is_moved or not os.path.lexists(path))
        if verdict.fault and verb == "resume":  # another setting of checkpoints, say: -q leaves out that it is named
            told = run_command(["resume", str(aside)], aside.with_name("said"))
            return KEPT if told.code == OK and TAKEN_OVER in told.err else verdict
        return verdict
    is_forged = verb == "verify" and file in PROVEN and outcome.code == OK
    if is_forged and not _has_same_tensors(path, file, expected / "run"):
        return Verdict("forged", str(outcome))
    return judge(outcome)  # other values are not known to anything but the file


def _has_same_tensors(path: Path, name: str, expected: Path) -> bool:
    """Whether a file of weights holds what it held, as far as `verify` can know it."""
    found, wanted = load_file(path), load_file(_file(name, expected))
    known = load_file(expected / "encoder.safetensors") if name.startswith("newest/") else wanted
    return found.keys() == wanted.keys() and all(torch.equal(found[key], wanted[key]) for key in known)


def _copy(verb: str, material: Path, folder: Path) -> Path:
    """The run that a verb meets."""
    begun = material / INTERRUPTED if verb == "resume" else whole(material)
    return Path(shutil.copytree(begun, folder / "run"))


def _file(name: str, run: Path) -> Path:
    """The file that a case names; checkpoints are counted from the newest one."""
    saved = sorted(run.glob("checkpoints/step-*"), reverse=True)
    if name == "after":
        return next(iter(sorted(run.glob("checkpoints/after-*.json"))), run / "none")
    if name.startswith("newest/"):
        return saved[0] / name.removeprefix("newest/")
    if name.startswith("older/"):
        return saved[-1] / name.removeprefix("older/")
    return run / name


def _do(verb: str, run: Path) -> Outcome:
    """Let a verb meet the run; what it makes lies beside it."""
    out, files = str(run.with_name("out")), run.with_name("said")
    if verb == "load":
        return Process(lambda: _load(run), files).wait()
    more = {"report": ["--out", f"{out}.html"], "embed": ["--out", f"{out}.npz"], "search": ["0", "--json"]}
    return run_command([verb, str(run), *more.get(verb, []), "-q"], files)


def _load(run: Path) -> int:
    """Embed some vectors in Python, and end as the command would."""
    try:
        encoder = cp.load(run)
        embedded = encoder.embed(torch.linspace(-2, 2, 60).reshape(10, 6))
    except CounterpointError as error:
        sys.stderr.write(f"counterpoint load: error: {error}\n")
        return USAGE
    run.with_name("out.bin").write_bytes(np.asarray(embedded).tobytes())
    return OK


def _judge(verb: str, file: str, outcome: Outcome, folder: Path, expected: Path, *, is_gone: bool) -> Verdict:
    """Named, or harmless."""
    verdict = judge(outcome)
    if verdict.fault or outcome.code in (FAILED, USAGE):
        return verdict
    look = LOOKS[verb]
    found, wanted = look(folder), look(expected)
    is_said = any(SAID_WHEN_LOST.get(file, "\0").encode() in content for content in found.values())
    if is_said or (is_gone and file in (*MADE_LATER, MOVED_AWAY)):
        return KEPT
    names = [name for name in sorted(found | wanted) if found.get(name) != wanted.get(name) and name != file]
    return Verdict("silent", f"other {', '.join(names)}; {outcome}") if names else KEPT


def _files(*names: str) -> Callable[[Path], dict[str, bytes]]:
    """Contents by name, without the folder of the try, which a page has in its commands."""
    return lambda folder: {
        name: re.sub(rb"(<code>counterpoint \w+ )\S*run\b", rb"\1run", (folder / name).read_bytes())
        for name in names
        if (folder / name).is_file()
    }


LOOKS: dict[str, Callable[[Path], dict[str, bytes]]] = {
    "resume": lambda folder: content_of(folder / "run"),
    "verify": _files("said.out"),
    "evaluate": _files("run/evaluation.json"),
    "diagnose": _files("run/findings.json", "run/arrays.npz"),
    "report": _files("out.html"),
    "embed": _files("out.npz"),
    "search": _files("said.out"),
    "load": _files("out.bin"),
}

KIND = Kind("run_files", next_case, run, prepare, share=3)
