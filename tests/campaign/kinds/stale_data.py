"""The data of a run change between two commands: the second answers of what is there now, or refuses."""

import os
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from campaign.data_files import write_table
from campaign.kind import KEPT, Case, Kind, Place, Verdict
from campaign.oracle import FAILED, USAGE, judge
from campaign.processes import Outcome, run_command
from data import shard_files
from data.picture_files import encoded

NUM_SAMPLES = 60
SMALL = ["--epochs", "1", "--batch-size", "16", "--projector.hidden", "8", "--projector.features", "4", "-q"]
CHANGES = ("replaced", "replaced, same time", "touched", "appended", "removed", "exchanged", "gone", "labels")
# What was kept from before: an evaluation, a diagnosis, features in the cache.
READERS = {
    "search": ["search", "run", "0", "1", "--json", "-q"],
    "search duplicates": ["search", "run", "--duplicates", "--threshold", "0.5", "--json", "-q"],
    "search others": ["search", "run", "0", "--to", "DATA", "--json", "-q"],
    "evaluate": ["evaluate", "run", "--json", "-q"],
    "evaluate others": ["evaluate", "run", "--data", "DATA", "--json", "-q"],
    "diagnose": ["diagnose", "run", "--json", "-q"],
    "embed": ["embed", "run", "--out", "out.csv", "-q"],
    "report": ["report", "run", "--out", "out.html", "-q"],
}
BEFORE = ("evaluate", "evaluate others", "diagnose", "search", "search others")
KEPT_RESULTS = (
    "evaluation.json",
    "evaluations",
    "findings.json",
    "arrays.npz",
    "collection.npz",
    "map.json",
)

SAID = re.compile("not those|have changed|has changed|were changed|other samples|differ from")  # in a report


def next_case(draw: np.random.Generator) -> Case:
    """A form of data, what happens to it, and the command that comes next."""
    form, reader = str(draw.choice(list(FORMS))), str(draw.choice(list(READERS)))
    if form == UNLABELLED and "evaluate" in reader:
        reader = "search"
    return {"form": form, "reader": reader, "change": str(draw.choice(CHANGES)), "seed": int(draw.integers(1 << 32))}


@dataclass(frozen=True)
class Sample:
    """A picture with its name and class."""

    name: str
    pixels: np.ndarray
    label: int

    @property
    def png(self) -> bytes:
        """As a file has it."""
        return encoded(self.pixels, "PNG")


def _sample(number: int, draw: np.random.Generator) -> Sample:
    return Sample(f"{number:03d}", draw.integers(0, 256, (8, 8, 3), dtype=np.uint8), number % 2)


def prepare(material: Path) -> None:
    """A run on each form of data that was evaluated, diagnosed and searched, with its features in the cache."""
    draw = np.random.default_rng(3)
    samples = [_sample(number, draw) for number in range(NUM_SAMPLES)]
    for form, (data, write) in FORMS.items():
        place = material / form
        place.mkdir()
        write(place / data, samples)
        words = ["train", "--data", data, "--out", "run", *SMALL]
        before = [READERS[name] for name in BEFORE if form != UNLABELLED or "evaluate" not in name]
        for each in (words, *before):
            outcome = _do(each, form, place)
            assert outcome.code == 0, (form, each, outcome)


def run(case: Case, place: Place) -> Verdict:
    """Change the data, ask, and ask somebody who knows nothing of before."""
    form, change, folder = case["form"], case["change"], place.folder / "warm"
    shutil.copytree(place.material / form, folder)  # with the times of files
    _change(folder, form, change, np.random.default_rng(case["seed"]))
    cold = place.folder / "cold"
    shutil.copytree(folder, cold)
    for name in KEPT_RESULTS:
        kept = cold / "run" / name
        shutil.rmtree(kept) if kept.is_dir() else kept.unlink(missing_ok=True)
    shutil.rmtree(cold / "cache", ignore_errors=True)
    outcome = _do(READERS[case["reader"]], form, folder)
    if (verdict := judge(outcome)).fault:
        return verdict
    detail = f"{form}, {change}, {case['reader']}"
    if outcome.code in (FAILED, USAGE):
        return Verdict("refused", f"{detail}, the same data: {outcome}") if change == "touched" else KEPT
    expected = _do(READERS[case["reader"]], form, cold)
    if expected.code == 0 and _answer(folder) == _answer(cold):
        return Verdict(detail=detail)
    is_said = case["reader"] == "report" and SAID.search(outcome.err + (folder / "out.html").read_text())
    pairs = zip(*(b"\n".join(_answer(each)).splitlines() for each in (folder, cold)), strict=False)
    other = next(((one, two) for one, two in pairs if one != two), expected.err)
    return KEPT if is_said else Verdict("silent", f"{detail}: {other}"[:400])


def _change(folder: Path, form: str, change: str, draw: np.random.Generator) -> None:
    """Let the data be others, or only look so."""
    data, write = FORMS[form]
    seed = np.random.default_rng(3)
    samples = [_sample(number, seed) for number in range(NUM_SAMPLES)]
    times = {path: path.stat() for path in _data_files(folder, data)}
    first, second = (int(place) for place in draw.choice(NUM_SAMPLES, 2, replace=False))
    match change:
        case "replaced" | "replaced, same time":
            samples[first] = replace(samples[first], pixels=_sample(0, draw).pixels)
        case "appended":
            samples.append(_sample(NUM_SAMPLES, draw))
        case "removed":
            samples.pop(first)
        case "exchanged":
            one, other = samples[first], samples[second]
            samples[first], samples[second] = replace(one, pixels=other.pixels), replace(other, pixels=one.pixels)
        case "labels":
            samples[first] = replace(samples[first], label=1 - samples[first].label)
    for path in times:
        path.unlink()
    if change != "gone":
        write(folder / data, samples)
    if change == "replaced, same time":
        for path, known in times.items():
            os.utime(path, ns=(known.st_atime_ns, known.st_mtime_ns))


def _data_files(folder: Path, data: str) -> list[Path]:
    """All files of the data."""
    return [path for path in (folder / data.partition("/")[0]).rglob("*") if path.is_file()] or [folder / data]


def _folder(path: Path, samples: list[Sample]) -> None:
    for sample in samples:
        file = path / "ab"[sample.label] / f"{sample.name}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(sample.png)


def _npy(path: Path, samples: list[Sample]) -> None:
    np.save(path, np.stack([sample.pixels for sample in samples]))


def _npz(path: Path, samples: list[Sample]) -> None:
    labels = np.array([sample.label for sample in samples])
    np.savez(path, images=np.stack([sample.pixels for sample in samples]), labels=labels)


def _tar(path: Path, samples: list[Sample]) -> None:
    members = [(f"{each.name}.png", each.png) for each in samples]
    classes = [(f"{each.name}.cls", str(each.label).encode()) for each in samples]
    shard_files.write_shard(path, dict(sorted(members + classes)))


def _table(path: Path, samples: list[Sample]) -> None:
    write_table(path, [sample.png for sample in samples], [sample.label for sample in samples])


UNLABELLED = "npy"
FORMS: dict[str, tuple[str, Callable[[Path, list[Sample]], object]]] = {
    "folder": ("data", _folder),
    "npy": ("data.npy", _npy),
    "npz": ("data.npz", _npz),
    "tar": ("data.tar", _tar),
    "parquet": ("data.parquet", _table),
    "arrow": ("data.arrow", _table),
}


def _do(words: list[str], form: str, folder: Path) -> Outcome:
    """Run a command in a folder with a cache of its own."""
    given = [FORMS[form][0] if word == "DATA" else word for word in words]
    environment = {"COUNTERPOINT_CACHE": str(folder / "cache")}
    return run_command(given, folder / "said", prepare=lambda: os.chdir(folder), environment=environment)


def _answer(folder: Path) -> list[bytes]:
    """What a command printed and wrote, without times."""
    paths = [folder / name for name in ("said.out", "out.csv", "out.html")]
    found = [path.read_text() if path.exists() else "" for path in paths]
    return [
        re.sub(r'"(seconds|built)": [^,}]*|20\d\d-[-0-9T:+ ]*|\d[\d.]* (s|MB)\b', "", text).encode() for text in found
    ]


KIND = Kind("stale_data", next_case, run, prepare)
