"""Names of code in files and in the environment: whatever reads them imports nothing and calls nothing."""

import builtins
import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import yaml

import counterpoint as cp
from campaign.calls import EXECUTED, forbid_code
from campaign.kind import Case, Kind, Place, Verdict
from campaign.mutations import all_within, edit_values, seal_anew
from campaign.oracle import USAGE, judge
from campaign.processes import Outcome, Process, run_command
from campaign.small_runs import DATA, PICTURES, make_whole_runs, must, whole
from counterpoint.core.errors import CounterpointError
from counterpoint.core.settings import TrainSettings
from counterpoint.core.validation import leaf_fields, nest

PLANTED, NEW = "planted", "new"  # a module in the current folder; what the command makes goes to a folder
NAMES: dict[str, dict[str, Any]] = {  # of code, with arguments that it takes
    "os:system": {"command": "whoami"},
    "subprocess:run": {"args": "whoami"},
    "builtins:exec": {},
    f"{PLANTED}:make": {},
    f"{PLANTED}.inner:make": {},
}
TEXTS = [path for path, field in leaf_fields(TrainSettings) if any(w in str(field.annotation) for w in ("str", "dict"))]
TELLING = ("loss.name", "loss.options", "views.preset", "encoder", "init", "method", "recipe", "data")
FORMS = ("name", "name and options", "rule", "list", "mapping")
RUN_FILES = ("config.yaml", "resolved.yaml", "run.json", "encoder.json", "evaluation.json", "findings.json")
RUN_FILES += ("spectrum.json", "checkpoints/*/state.json", "checkpoints/after-*.json")
EXPORT_FILES = ("export.json", "encoder.json", "config.json")
FIELDS = ("encoder", "architecture", "name", "method", "projector", "norm", "loss", "own_loss", "own_views", "init")
FIELDS += ("origin", "preset", "rule", "type", "library", "data", "device", "kind", "views", "recipe", "init")
VARIABLES = ("COUNTERPOINT_LOSS", "COUNTERPOINT_ENCODER", "COUNTERPOINT_CACHE", "WANDB_PROJECT")
VARIABLES += ("COUNTERPOINT_LOSS_NAME", "COUNTERPOINT_VIEWS_PRESET", "RANK", "LOCAL_RANK", "CUDA_VISIBLE_DEVICES")
SMALL = ["--epochs", "1", "--batch-size", "16", "--engine.device", "cpu", "-q"]
VERBS = {
    "train": ["train", "--config", "CONFIG", "--data", "DATA", "--out", f"{NEW}/run", *SMALL],
    "preview": ["preview", "--config", "CONFIG", "--data", "PICTURES", "--out", f"{NEW}/a.png", "--samples", "2", "-q"],
    "fine-tune": ["fine-tune", "run", "--config", "CONFIG", "--out", f"{NEW}/tuned", *SMALL],
}
READERS = ("resume", "evaluate", "diagnose", "report", "embed", "search", "verify", "spectrum", "export", "compare")
ENDS = {"report": ["--out", f"{NEW}/page.html"], "embed": ["--out", f"{NEW}/e.npz"], "search": ["0"]}
ENDS |= {"export": ["--to", "folder", "--out", f"{NEW}/e"], "spectrum": ["--steps", "2"]}


def next_case(draw: np.random.Generator) -> Case:
    """A name, where it stands, and the verb that reads this."""
    case: Case = {"name": str(draw.choice(list(NAMES))), "form": str(draw.choice(FORMS, p=[0.3, 0.3, 0.2, 0.1, 0.1]))}
    match str(draw.choice(["settings", "run", "export", "environment"], p=[0.45, 0.35, 0.15, 0.05])):
        case "settings":
            file = str(draw.choice(["config", "config", "recipe", "recipe in config", "arm", "extends"]))
            setting = str(draw.choice(TELLING if draw.random() < 0.6 else TEXTS))
            case |= {"file": file, "setting": setting, "verb": str(draw.choice(list(VERBS)))}
        case "run":
            verb = str(draw.choice([*READERS, *READERS, "load", "runs", *VERBS]))
            file = "config.yaml" if verb in VERBS and draw.random() < 0.5 else str(draw.choice(RUN_FILES))
            case |= {"run_file": file, "at": float(draw.random()), "verb": verb}
        case "export":
            verb = str(draw.choice(["load", "load", "train", "fine-tune", "modeling"]))
            case |= {"export_file": str(draw.choice(EXPORT_FILES)), "at": float(draw.random()), "verb": verb}
        case _:
            case |= {"variable": str(draw.choice(VARIABLES)), "verb": str(draw.choice(["train", *READERS]))}
    return case


def prepare(material: Path) -> None:
    """Runs with all that verbs write, an exported folder; and a proof that the watch sees what a flag names."""
    make_whole_runs(material)
    must(
        ["export", str(whole(material)), "--to", "safetensors,folder", "--out", str(material / "export"), "-q"],
        material,
    )
    for name, options in NAMES.items():
        place = Place(material / "probe", material)
        place.folder.mkdir()
        words = ["train", "--data", str(material / DATA), "--loss.name", name, "--out", f"{NEW}/run", *SMALL]
        outcome = _watched([*words, "--loss.options", json.dumps(options)], place)
        assert outcome.code == EXECUTED, (name, outcome)  # the rule: a flag of the command line is followed
        shutil.rmtree(place.folder)


def run(case: Case, place: Place) -> Verdict:
    """Write the name down, and let a verb read it."""
    shutil.copytree(whole(place.material), place.folder / "run")
    (place.folder / NEW).mkdir()
    environment: dict[str, str] = {}
    if "file" in case:
        _write_settings(case, place.folder)
    elif "variable" in case:
        environment[case["variable"]] = case["name"]
    elif "export_file" in case:
        shutil.copytree(place.material / "export", place.folder / "export")
        _edit(place.folder / "export" / case["export_file"], case, place.folder / "export")
    else:
        path = sorted(place.folder.glob(f"run/{case['run_file']}"))[-1]
        _edit(path, case, place.folder / "run")
    outcome = _watched(_words(case, place.material), place, environment)
    if outcome.code == EXECUTED:
        return Verdict("code executed", str(outcome))
    # A launcher's variable may make the command wait for ranks that nobody starts; what it answers is not asked here.
    return Verdict() if "variable" in case else judge(outcome)


def _written(name: str, form: str) -> Any:
    """The name as the value of a setting."""
    options = NAMES[name]
    forms: dict[str, Any] = {"name": name, "list": [name], "rule": {"rule": name, **options}}
    return {**forms, "name and options": {"name": name, "options": options}, "mapping": {name: options}}[form]


def _write_settings(case: Case, folder: Path) -> None:
    """A settings file, or a recipe, with the name in one setting."""
    setting, form, name = case["setting"], case["form"], case["name"]
    section, _, last = setting.rpartition(".")
    if last in ("name", "preset") and form == "name and options":
        values = {section: {last: name, "options": NAMES[name]}}
    elif setting == "loss.options":
        values = {"method": "alpha-cl", "loss": {"name": "alpha-cl", "options": _written(name, "rule")}}
    else:
        values = nest({setting: _written(name, form)})
    values = {"batch_size": 16, **values} if case["verb"] != "preview" else values
    recipe = {"version": 1, "paper": "mio2021", "summary": "x, mlp: x", "reproduces": ["Table 1"], "follows": "x"}
    match case["file"]:
        case "config":
            return _dump(folder / "CONFIG", values)
        case "recipe" | "recipe in config":
            _dump(folder / "own.yaml", {**recipe, "settings": values})
        case "arm":
            _dump(folder / "own.yaml", {**recipe, "settings": {}, "arms": {"a": {"summary": "x", "settings": values}}})
        case "extends":
            _dump(folder / "base.yaml", {**recipe, "settings": values})
            _dump(folder / "own.yaml", {**recipe, "settings": {}, "extends": "base"})
    _dump(folder / "CONFIG", {"recipe": "own.yaml"})


def _dump(path: Path, values: Any) -> None:
    path.write_text(yaml.safe_dump(values))


def _edit(path: Path, case: Case, run: Path) -> None:
    """Let the name stand in one value of a file, and vouch for the file anew."""

    def put(values: dict[str, Any]) -> None:
        held = [each for each in all_within(values) if isinstance(each, dict)]
        # The first ones are the outermost, which most readers look at.
        holder = held[int(case["at"] ** 2 * len(held))]
        texts = sorted(name for name, value in holder.items() if isinstance(value, str | dict) or value is None)
        keys = [*(key for key in texts if isinstance(key, str)), *FIELDS]
        key = keys[int(case["at"] * 7919) % len(keys)]
        holder[key] = _written(case["name"], case["form"] if key not in ("name", "method") else "name")
        if key == "name":
            holder["options"] = NAMES[case["name"]]

    edit_values(path, put)
    seal_anew(path, run)


def _words(case: Case, material: Path) -> list[str]:
    """The command line."""
    verb = case["verb"]
    if "export_file" in case:
        own = {"load": ["load", "export"], "modeling": ["modeling", "export"]}
        new = ["train", "--data", "DATA", "--init", "export", "--out", f"{NEW}/run", *SMALL]
        tuned = ["fine-tune", "export", "--data", "DATA", "--out", f"{NEW}/tuned", *SMALL]
        words = {**own, "train": new, "fine-tune": tuned}[verb]
    elif verb not in VERBS:
        words = {"runs": ["runs", "."], "load": ["load", "run"]}.get(verb, [verb, "run", *ENDS.get(verb, []), "-q"])
    elif case.get("file") == "recipe":
        words = [{"CONFIG": "own.yaml", "--config": "--recipe"}.get(word, word) for word in VERBS[verb]]
    else:
        given = f"run/{case['run_file']}" if "run_file" in case and case["run_file"].endswith("yaml") else "CONFIG"
        words = [given if word == "CONFIG" else word for word in VERBS[verb]]
        words = words if given != "CONFIG" or "file" in case else [w for w in words if w not in ("--config", "CONFIG")]
    return [{"DATA": str(material / DATA), "PICTURES": str(material / PICTURES)}.get(word, word) for word in words]


def _watched(words: list[str], place: Place, environment: dict[str, str] | None = None) -> Outcome:
    """Run the command, or Python's readers, in a process that ends as soon as it begins to run what is named."""
    for name in (f"{PLANTED}/__init__.py", f"{PLANTED}/inner.py"):
        (place.folder / name).parent.mkdir(exist_ok=True)
        (place.folder / name).write_text("import os\nos.system('whoami')\n\n\ndef make(**options):\n    return None\n")
    files = place.folder.parent / "said"

    def watch() -> None:
        os.chdir(place.folder)
        real = builtins.exec

        def exec_given(*args: Any, **options: Any) -> Any:
            return real(*args, **options) if args else os._exit(EXECUTED)  # Python itself always gives some

        builtins.exec = exec_given
        forbid_code()

    if words[0] not in ("load", "modeling"):
        return run_command(words, files, prepare=watch, environment=environment)

    def read() -> int:
        from counterpoint.export import modeling_counterpoint  # deferred: the same text as in an exported folder

        watch()
        try:
            if words[0] == "load":
                cp.load(words[1])
            else:
                modeling_counterpoint.CounterpointEncoder.from_pretrained(Path(words[1]))
        except (CounterpointError, KeyError, TypeError, ValueError, AttributeError) as error:
            # The file that lies in an exported folder may raise what it likes.
            if words[0] == "load" and not isinstance(error, CounterpointError):
                raise
            os.write(2, f"counterpoint load: error: {' '.join(str(error).split())}\n".encode())
            return USAGE
        return 0

    return Process(read, files).wait()


KIND = Kind("code_names", next_case, run, prepare)
