"""What commands write, action by action: how a user's folder begins, the command line, and what must lie there then."""

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

from campaign.calls import num_calls
from campaign.kinds.interleavings import FINISHED, INTERRUPTED, begin, interrupt
from campaign.small_runs import BATCH, DATA, PICTURES, SIMCLR, WORDS, difference, make_runs, must, whole

OWN = "my notes.txt"  # a file that the user keeps in a run folder
TRAINING = {
    "train": ["train", "--data", "{data}", "--out", "{run}", *SIMCLR, *WORDS],
    "train over": ["train", "--data", "{data}", "--out", "{run}", *SIMCLR, *WORDS, "--overwrite"],
    "resume": ["resume", "{run}"],
}
BEGUN = {"train": "absent", "resume": INTERRUPTED}  # all others: a run that is finished and evaluated
EMBEDDED = {f"embed {name}": ["embed", "{run}", "--out", f"{{f}}/table.{name}"] for name in ("npz", "csv", "parquet")}
FORMATS = ("onnx", "safetensors", "folder")
EXPORTED = {f"export {name}": ["export", "{run}", "--to", name, "--out", f"{{f}}/{name}"] for name in FORMATS}
OVER = {name: [*words, "--overwrite"] for name, words in {**EMBEDDED, **EXPORTED}.items()}
READING = {
    "evaluate": ["evaluate", "{run}"],
    "diagnose": ["diagnose", "{run}"],
    "fix": ["diagnose", "{run}", "--fix", "{f}/fixed.yaml"],
    "report": ["report", "{run}", "--out", "{f}/page.html"],
    "compare": ["compare", "{run}", "{m}/whole-1"],
    "spectrum": ["spectrum", "{run}", "--steps", "2", "--batch-size", "8"],
    "search": ["search", "{run}", "0", "--no-cache"],
    "search page": ["search", "{run}", "0", "--out", "{f}/hits.html"],
    "shards": ["embed", "{run}", "--out", "{f}/shards", "--shards", "16"],
    "verify": ["verify", "{run}"],
    "preview": ["preview", "--data", "{pictures}", "--out", "{f}/sheet.png", "--samples", "2", "--overwrite"],
    "audit": ["audit", "{data}", "--out", "{f}/audit.html", "--json", "{f}/audit.json", "--overwrite"],
    "geometry": ["geometry", "0.5", "0.3", "0.2"],
    "fine-tune": ["fine-tune", "{run}", "--out", "{f}/tuned", "--epochs", "1", "--batch-size", str(BATCH)],
    "reproduce": ["reproduce", "alphacl-fig2", "--quick", "--out", "{f}/figures"],
}
OVER["fine-tune"] = [*READING.pop("fine-tune"), "--engine.device", "cpu", "--overwrite"]
ACTIONS = {name: [*words, "-q"] for name, words in {**TRAINING, **READING, **OVER}.items()}
# They say how long something took.
OF_THE_CLOCK = (
    "run.json",
    "timings.jsonl",
    "export.json",
    "audit.json",
    "alphacl-fig2-quick.json",
)


def prepare_work(material: Path) -> None:
    """Runs, what earlier commands have written, and of each action what it leaves and how many calls that takes."""
    make_runs(material, SIMCLR)
    interrupt(material, material / INTERRUPTED, SIMCLR)
    for seed in (0, 1):
        must(["evaluate", str(whole(material, seed)), "-q"], material)
    must(["diagnose", str(whole(material)), "-q"], material)
    old, earlier = material / "old", shutil.copytree(whole(material, 1), material / "earlier")
    old.mkdir()
    for action in [*OVER, "report", "geometry", "audit", "preview", "compare"]:  # what users make again and again
        must(_words(action, material, old, earlier), material)
    calls = {}
    for action in ACTIONS:
        calls[action] = num_calls(begin_work(action, material, material / "first" / action), material / "said")
    for action in ACTIONS:
        must(begin_work(action, material, material / "again" / action), material)
    made = {action: {"calls": calls[action], **_stable(action, material)} for action in ACTIONS}
    (material / "made.json").write_text(json.dumps(made))


def begin_work(action: str, material: Path, folder: Path) -> list[str]:
    """A user's folder: a run, own files, and what earlier commands have written; returns the command line."""
    shutil.copytree(material / "old", folder, dirs_exist_ok=True)
    begin(BEGUN.get(action, FINISHED), material, folder / "run")
    if (folder / "run").exists():
        (folder / "run" / OWN).write_text("years of work")
    return _words(action, material, folder, folder / "run")


def calls_of(action: str, material: Path) -> int:
    """Calls on files that an action makes."""
    return _made(action, material)["calls"]


def unfinished(action: str, material: Path, folder: Path) -> str:
    """What an action should have left and has not; empty where all is there."""
    wanted = _made(action, material)["files"]
    found = digests(folder)
    names = [name for name, digest in wanted.items() if name not in found or (digest and digest != found[name])]
    if action in TRAINING:  # an old checkpoint that could not be dropped may still be there
        other = difference(folder / "run", material / "first" / action / "run", may_have_more=True)
        names += [other] if other else []
    return ", ".join(names)


def left_over(action: str, material: Path, folder: Path) -> str:
    """What lies there that an action does not leave; empty where there is nothing."""
    made = _made(action, material)
    names = set(digests(folder)) - set(made["files"])
    return ", ".join(sorted(name for name in names if str(Path(name).parent) not in made["random"]))


def lost(action: str, material: Path, folder: Path, before: dict[str, str]) -> str:
    """What the user had and has no more: own files, earlier outputs, the run itself."""
    wanted = _made(action, material)
    now = digests(folder)
    gone = []
    for name, digest in before.items():
        is_made_anew = action in TRAINING or not name.startswith("run/checkpoints")
        if name.startswith("tuned/") or (name.startswith("run/") and not name.endswith(OWN) and is_made_anew):
            continue  # a run that is to be overwritten, or what can be made again of one that is there
        is_replaced = name in wanted["files"] and wanted["files"][name] in ("", now.get(name))
        is_random = str(Path(name).parent) in wanted["random"]
        if now.get(name) != digest and not is_replaced and not is_random:
            gone.append(name)
    return ", ".join(gone)


def digests(folder: Path) -> dict[str, str]:
    """Hash of every file that is there; a page names its run from the working folder, above it in a try alone."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    contents = {path: path.read_bytes().replace(b"work/run", b"run") for path in paths}
    return {str(path.relative_to(folder)): hashlib.sha256(each).hexdigest() for path, each in contents.items()}


def _words(action: str, material: Path, folder: Path, run: Path) -> list[str]:
    names = {"f": folder, "m": material, "run": run, "data": material / DATA, "pictures": material / PICTURES}
    return [word.format(**names) for word in ACTIONS[action]]


def _made(action: str, material: Path) -> dict[str, Any]:
    """What an action makes: calls on files, and see ``_stable``."""
    return json.loads((material / "made.json").read_text())[action]


def _stable(action: str, material: Path) -> dict[str, object]:
    """Names of files that an action leaves, with a hash where that is always the same; folders with random names."""
    first, again = (digests(material / which / action) for which in ("first", "again"))
    files = {name: digest if digest == again[name] else "" for name, digest in first.items() if name in again}
    files |= dict.fromkeys((name for name in files if Path(name).name in OF_THE_CLOCK), "")
    return {"files": files, "random": sorted({str(Path(name).parent) for name in first.keys() ^ again.keys()})}
