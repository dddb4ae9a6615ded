"""The same work again and again in one process: memory, open files and threads stay what they were."""

import gc
import os
import shutil
import sys
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import torch

import counterpoint as cp
from campaign.kind import Case, Kind, Place, Verdict
from campaign.kinds.tensors import FEATURES, LOSSES, ROWS, built
from campaign.oracle import judge
from campaign.processes import Process, resident_mb
from campaign.small_runs import DATA, NUM_SAMPLES, must, train_words, whole, write_data

WARM_UP = 8  # rounds in which caches fill
MAX_MB_PER_ROUND = 0.05  # a record of a run, kept, would be more
MAX_MB = 8.0  # of the allocator's own
SECONDS = 300
Work = Callable[[Path, Path, int], object]  # material, own folder, number of the round


def next_case(draw: np.random.Generator) -> Case:
    """Some work, and how often it is done."""
    work = str(draw.choice(list(WORKS)))
    return {"work": work, "rounds": int(draw.integers(12, 24) if work in LONG else draw.integers(60, 120))}


def prepare(material: Path) -> None:
    """Data, and a run."""
    write_data(material)
    must(train_words(material, whole(material)), material)
    must(["evaluate", str(whole(material)), "-q"], material)


def run(case: Case, place: Place) -> Verdict:
    """Do the work, and compare what the process holds in the middle and at the end."""
    outcome = Process(lambda: _repeat(case, place), place.folder / "said").wait(SECONDS)
    verdict = judge(outcome, max_peak_mb=2048)
    return Verdict("growth", outcome.err) if outcome.code == GREW else verdict


GREW = 4  # exit code


def _repeat(case: Case, place: Place) -> int:
    """Work in this process; says what grew."""
    work, rounds, run = WORKS[case["work"]], case["rounds"], place.folder / "run"
    shutil.copytree(whole(place.material), run)
    before: tuple[float, int, int] | None = None
    for number in range(WARM_UP + rounds):
        if number == WARM_UP + rounds // 2:
            before = _held()
        work(place.material, run, number)
    assert before is not None
    after, measured = _held(), rounds - rounds // 2
    grown = after[0] - before[0]
    if grown > max(MAX_MB, measured * MAX_MB_PER_ROUND) or after[1:] != before[1:]:
        sys.stderr.write(f"{measured} rounds: {grown:.1f} MB; files, threads {before[1:]}, then {after[1:]}\n")
        return GREW
    return 0


def _held() -> tuple[float, int, int]:
    """Memory in MB, open files, and threads."""
    gc.collect()
    return resident_mb(), len(os.listdir("/proc/self/fd")), threading.active_count()


def _train(material: Path, run: Path, number: int, *, epochs: int = 1) -> None:
    shutil.rmtree(run)
    cp.train(material / DATA, out=run, epochs=epochs, batch_size=16, engine={"device": "cpu"}, quiet=True)


def _embed(material: Path, run: Path, number: int) -> None:
    cp.load(run).embed(torch.ones(NUM_SAMPLES, 6))


def _losses(material: Path, run: Path, number: int) -> None:
    """One loss after the other, forward and back."""
    labels = torch.arange(ROWS) % 3
    for loss in map(built, LOSSES):
        views = torch.randn(2, ROWS, FEATURES, generator=torch.Generator().manual_seed(number), requires_grad=True)
        loss(views[0], views[1], labels=labels if loss.uses_labels else None).backward()


def _refused(material: Path, run: Path, number: int) -> None:
    """What cannot be done leaves nothing behind either."""
    for act in (lambda: cp.load(run / "none"), lambda: cp.train(material / "none.npy", out=run, quiet=True)):
        try:
            act()
        except cp.CounterpointError:
            continue


WORKS: dict[str, Work] = {
    "train": _train,
    "epochs": partial(_train, epochs=20),  # a round
    "evaluate": lambda material, run, number: cp.evaluate(run, quiet=True),
    "diagnose": lambda material, run, number: cp.diagnose(run, quiet=True),
    "report": lambda material, run, number: cp.report(run, out=run.with_name("page.html"), quiet=True),
    "embed": _embed,
    "losses": _losses,
    "refused": _refused,
}
LONG = frozenset({"train", "epochs"})  # a second or more

KIND = Kind("growth", next_case, run, prepare, share=0.5)
