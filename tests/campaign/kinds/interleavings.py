"""Two processes in one run folder: one is stopped at a call, the other goes on, then the first is continued."""

import json
import os
import shutil
import signal
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from campaign.calls import num_calls, signal_at
from campaign.kind import KEPT, Case, Kind, Place, Verdict
from campaign.oracle import judge
from campaign.processes import SECONDS, Outcome, run_command, start_command
from campaign.small_runs import MOCO, SEEDS, difference, make_runs, must, train_words, whole

ABSENT, EMPTY, FINISHED, INTERRUPTED = "absent", "empty", "finished", "interrupted"
BEGUN = (ABSENT, EMPTY, FINISHED, INTERRUPTED)
TRAINING = ("train 0", "train 1", "train 0 --resume", "train 0 --overwrite", "train 1 --overwrite", "resume")
READING = ("report", "evaluate", "verify", "diagnose")
# Both write to one folder below or beside a finished run.
BESIDE = (*((other, other) for other in ("export", "shards")), *((("export", "train 1 --overwrite"),) * 2))
SHARED = sorted({action for pair in BESIDE for action in pair} - {*TRAINING})


def next_case(draw: np.random.Generator) -> Case:
    """Two commands, of which the first trains, and the call before which one of them is stopped."""
    if draw.random() < 0.4:
        pair = BESIDE[int(draw.integers(len(BESIDE)))]
        first, second = pair if draw.random() < 0.8 else pair[::-1]
        return {"begun": FINISHED, "stopped": first, "other": second, "at": float(draw.random())}
    both = [str(draw.choice(TRAINING)), str(draw.choice(TRAINING if draw.random() < 0.8 else READING))]
    draw.shuffle(both)
    # What decides who owns a folder is done early.
    return {"begun": str(draw.choice(BEGUN)), "stopped": both[0], "other": both[1], "at": float(draw.random() ** 2)}


def prepare(material: Path) -> None:
    """Whole runs of two seeds, one that was killed in the middle, and how many calls each command makes."""
    make_runs(material)
    interrupt(material, material / INTERRUPTED)
    calls: dict[str, int] = {}
    pairs = [(begun, action) for begun in BEGUN for action in (*TRAINING, *READING)]
    for begun, action in [*pairs, *((FINISHED, action) for action in SHARED)]:
        run = material / f"counted-{len(calls)}"
        begin(begun, material, run)
        words = words_of(action, material, run)
        calls[f"{begun} {action}"] = num_calls(words, material / "said", may_refuse=True)
        shutil.rmtree(run, ignore_errors=True)
    for seed in SEEDS:
        run = whole(material, seed)
        must(words_of("export", material, run), material)
        must(words_of("shards", material, run), material)
    (material / "calls.json").write_text(json.dumps(calls))


def interrupt(material: Path, run: Path, method: Sequence[str] = MOCO) -> None:
    """Make a run that was killed in the middle."""
    words = train_words(material, run, method=method)
    half = num_calls(words, material / "said") // 2
    shutil.rmtree(run)
    outcome = run_command(words, material / "said", prepare=signal_at(half, signal.SIGKILL))
    assert outcome.code == -signal.SIGKILL, outcome
    # Where two runs are compared, one more kill must not be what makes them differ.
    probe = material / "probe"
    shutil.copytree(run, probe)
    must(["resume", str(probe), "-q"], material)
    assert difference(probe, whole(material)) == ""
    shutil.rmtree(probe)


def begin(begun: str, material: Path, run: Path) -> None:
    """Bring the folder into the state in which both commands find it."""
    if begun == EMPTY:
        run.mkdir()
    elif begun == FINISHED:
        shutil.copytree(whole(material), run)
    elif begun == INTERRUPTED:
        shutil.copytree(material / INTERRUPTED, run)


def words_of(action: str, material: Path, run: Path) -> list[str]:
    """Command line of an action."""
    verb, *more = action.split()
    if verb == "train":
        seed, *flags = more
        return train_words(material, run, *flags, seed=int(seed))
    match verb:
        case "export":
            return ["export", str(run), "--to", "folder", "--out", f"{run}-model", "--overwrite", "-q"]
        case "shards":
            return ["embed", str(run), "--out", f"{run}-shards", "--shards", "16", "-q"]
    out = ["--out", f"{run}.html"] if verb == "report" else []
    return [verb, str(run), *out, "-q"]


def run(case: Case, place: Place) -> Verdict:
    """Stop one process, let the other end, continue the first; the folder then holds one run, whole."""
    path = place.folder / "run"
    begin(case["begun"], place.material, path)
    calls = json.loads((place.material / "calls.json").read_text())[f"{case['begun']} {case['stopped']}"]
    stop = signal_at(1 + int(case["at"] * calls), signal.SIGSTOP)
    stopped = start_command(words_of(case["stopped"], place.material, path), place.folder / "stopped", prepare=stop)
    has_stopped = stopped.is_stopped(SECONDS)
    other = run_command(words_of(case["other"], place.material, path), place.folder / "other")
    if has_stopped:
        os.kill(stopped.pid, signal.SIGCONT)
    outcomes = {case["stopped"]: stopped.wait(), case["other"]: other}
    for action, outcome in [(case["stopped"], stopped.wait()), (case["other"], other)]:
        if (verdict := judge(outcome)).fault:
            return Verdict(f"{verdict.fault}", f"{action}: {verdict.detail}")
    look = _look_beside if {case["stopped"], case["other"]} & {*SHARED} else _look
    verdict = look(path, place.material, outcomes)
    if verdict.fault:
        told = "; ".join(f"{action}: {outcome}" for action, outcome in outcomes.items())
        return Verdict(verdict.fault, f"{verdict.detail}; {told}")
    return Verdict(detail="stopped" if has_stopped else "ended before")


def _look(path: Path, material: Path, outcomes: dict[str, Outcome]) -> Verdict:
    """Whether the folder holds one of the runs that were asked for, and nothing of another."""
    if not path.exists() or not any(path.iterdir()):
        return KEPT
    if json.loads((path / "run.json").read_text())["status"] != "finished":
        onwards = run_command(["resume", str(path), "-q"], path.with_name("onwards"))
        if onwards.code != 0:
            return Verdict("stuck", str(onwards))
    verified = run_command(["verify", str(path), "-q"], path.with_name("verified"))
    if verified.code != 0:
        return Verdict("not verified", f"{verified}; {verified.out}")
    others = {seed: difference(path, whole(material, seed)) for seed in SEEDS}
    alike = [seed for seed, other in others.items() if not other]
    if not alike:
        return Verdict("mixed run", str(others))
    trained = {int(action.split()[1]) for action, end in outcomes.items() if action[:5] == "train" and end.code == 0}
    # A run that went on from what stood there has the seed of that.
    is_from_before = "resume" in outcomes or "train 0 --resume" in outcomes
    if trained and not set(alike) & (trained | ({0, 1} if is_from_before else set())):
        return Verdict("lost", f"the run of seed {alike} is there, seeds {trained} ended well")
    return KEPT


def _look_beside(path: Path, material: Path, outcomes: dict[str, Outcome]) -> Verdict:
    """Whether shards and an exported folder are each of one making."""
    if "export" in outcomes:
        model = path.with_name("run-model")
        if outcomes["export"].code != 0 and not model.exists():
            return KEPT  # it was refused before it wrote anything
        found = _files(model)
        if found not in [_files(Path(f"{whole(material, seed)}-model")) for seed in SEEDS]:
            return Verdict("mixed export", ", ".join(found))
    if "shards" in outcomes:
        found, expected = (
            {each.name: each.read_bytes() for each in sorted(Path(f"{run}-shards").iterdir())}
            for run in (path, whole(material))
        )
        if found != expected:
            return Verdict("mixed shards", ", ".join(found))
    return KEPT


def _files(folder: Path) -> dict[str, bytes]:
    """What an export consists of, without what says when and of which folder it was made."""
    told = ("README.md", "export.json")
    return {each.name: each.read_bytes() for each in sorted(folder.iterdir()) if each.name not in told}


KIND = Kind("interleavings", next_case, run, prepare)
