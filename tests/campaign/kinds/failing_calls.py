"""One call on files fails, or all from it on: the command says so in a line, loses nothing, and works afterwards."""

import errno
import json
import shutil
from pathlib import Path

import numpy as np

from campaign.calls import num_calls
from campaign.kind import KEPT, Case, Kind, Place, Verdict
from campaign.kinds.interleavings import FINISHED, INTERRUPTED, begin, interrupt
from campaign.oracle import judge
from campaign.processes import Outcome, run_command
from campaign.small_runs import PICTURES, difference, make_runs, must, train_words, whole
from failing_disk import FailingDisk
from system_calls import intercept

ERRORS = ("ENOSPC", "EIO", "EACCES", "EROFS", "EINTR", "EMFILE", "EDQUOT")
ACTIONS = ("train", "train over", "resume", "evaluate", "diagnose", "report", "embed", "preview", "verify", "geometry")
BEGUN = {"train": "absent", "resume": INTERRUPTED}  # all others: a run that is finished and evaluated
OUTPUTS = ("table.npz", "page.html", "sheet.png", "geometry.html")  # what the actions write; most are there from before
OWN = "my notes.txt"  # a file that the user keeps in a run folder


def next_case(draw: np.random.Generator) -> Case:
    """An action, and which of its calls fails how."""
    action = str(draw.choice(["train", "train over", "resume"] if draw.random() < 0.5 else ACTIONS))
    return {
        "action": action,
        "at": float(draw.random()),
        "error": str(draw.choice(ERRORS)),
        "is_lasting": bool(draw.random() < 0.3),
    }


def prepare(material: Path) -> None:
    """Runs, what each action leaves where nothing fails, and how many calls that takes."""
    make_runs(material)
    interrupt(material, material / INTERRUPTED)
    must(["evaluate", str(whole(material)), "-q"], material)
    must(["diagnose", str(whole(material)), "-q"], material)
    old = material / "old"  # what earlier commands have written
    old.mkdir()
    must(["report", str(whole(material, 1)), "--out", str(old / "page.html"), "--bare", "-q"], material)
    must(["geometry", "0.6", "0.4", "--out", str(old / "geometry.html"), "-q"], material)
    (old / "table.npz").write_text("from before")
    calls = {}
    for action in ACTIONS:
        folder = material / f"counted {action}"
        _begin(action, material, folder)
        calls[action] = num_calls(_words(action, material, folder), material / "said")
    (material / "calls.json").write_text(json.dumps(calls))


def run(case: Case, place: Place) -> Verdict:
    """Let the call fail, see that nothing is lost, and do the same again."""
    action, material, folder = case["action"], place.material, place.folder / "work"
    _begin(action, material, folder)
    before = _belongings(folder)
    calls = json.loads((material / "calls.json").read_text())[action]
    number = getattr(errno, case["error"])
    disk = FailingDisk(number, 1 + int(case["at"] * calls), case["is_lasting"], is_read=True)
    words = _words(action, material, folder)
    outcome = run_command(words, place.folder / "said", prepare=lambda: intercept(disk.answer))
    if (verdict := judge(outcome)).fault:
        return verdict
    expected = material / f"counted {action}"
    if outcome.code == 0 and (other := _difference(folder, expected)):
        return Verdict("silent", f"{other}; {outcome}")
    if lost := _lost(folder, before, expected, action):
        return Verdict("lost", f"{lost}; {outcome}")
    return _again(action, place, outcome)


def _begin(action: str, material: Path, folder: Path) -> None:
    """A user's folder: a run, own files, and what earlier commands have written."""
    shutil.copytree(material / "old", folder)
    begin(BEGUN.get(action, FINISHED), material, folder / "run")
    if (folder / "run").exists():
        (folder / "run" / OWN).write_text("years of work")


def _words(action: str, material: Path, folder: Path) -> list[str]:
    run, data = folder / "run", str(material / PICTURES)
    out = {name: str(folder / name) for name in OUTPUTS}
    match action:
        case "train":
            return train_words(material, run)
        case "train over":
            return train_words(material, run, "--overwrite")
        case "report":
            return ["report", str(run), "--out", out["page.html"], "-q"]
        case "embed":
            return ["embed", str(run), "--out", out["table.npz"], "--overwrite", "-q"]
        case "preview":
            return ["preview", "--data", data, "--out", out["sheet.png"], "--samples", "2", "-q"]
        case "geometry":
            return ["geometry", "0.5", "0.3", "0.2", "--out", out["geometry.html"], "-q"]
    return [action, str(run), "-q"]


def _belongings(folder: Path) -> dict[str, bytes]:
    """Every file that is there."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def _difference(folder: Path, expected: Path) -> str:
    """In what two folders differ, but for what the clock says and for names of folders."""
    found, wanted = ({name: _belongings(each).get(name) for name in OUTPUTS} for each in (folder, expected))
    names = [name for name in OUTPUTS if found[name] != wanted[name]]
    # An old checkpoint that could not be dropped may still be there.
    return ", ".join([*names, *filter(None, [difference(folder / "run", expected / "run", may_have_more=True)])])


def _lost(folder: Path, before: dict[str, bytes], expected: Path, action: str) -> str:
    """What the user had and has no more: files of his own, earlier outputs, the run itself."""
    now, wanted = _belongings(folder), _belongings(expected)
    kept = {name: content for name, content in before.items() if name.endswith(OWN)}
    names = [name for name in OUTPUTS if name in before and now.get(name) not in (before[name], wanted[name])]
    if "train" not in action and action != "resume":
        kept |= {name: content for name, content in before.items() if name.startswith("run/checkpoints")}
    return ", ".join([*names, *(name for name, content in kept.items() if now.get(name) != content)])


def _again(action: str, place: Place, failed: Outcome) -> Verdict:
    """The same command, or `resume` after a training, works and computes what it would have."""
    folder = place.folder / "work"
    # A sheet that is there, as the user was told, is drawn again over itself.
    is_there = action == "preview" and "does not confirm" in failed.err
    attempts = [[*_words(action, place.material, folder), *(["--overwrite"] if is_there else [])]]
    if failed.code == 0:
        return KEPT
    if action in ("train", "train over"):
        attempts.insert(0, ["resume", str(folder / "run"), "-q"])
    said = []
    for words in attempts:
        outcome = run_command(words, place.folder / "again")
        if (verdict := judge(outcome)).fault:
            return Verdict(verdict.fault, f"afterwards: {verdict.detail}")
        if outcome.code == 0:
            other = _difference(folder, place.material / f"counted {action}")
            return Verdict("other bits", f"{other}; first {failed}") if other else KEPT
        said.append(f"{words[0]}: {outcome}")
    return Verdict("stuck", f"{'; '.join(said)}; first {failed}")


KIND = Kind(
    name="failing_calls",
    promise="a disk that refuses is told in one line; what was saved is untouched, and the command works afterwards",
    next_case=next_case,
    run=run,
    prepare=prepare,
)
