"""One call on files fails, or all from it on: the command says so in a line, loses nothing, and works afterwards."""

import errno

import numpy as np

from campaign.kind import KEPT, Case, Kind, Place, Verdict
from campaign.oracle import judge
from campaign.processes import Outcome, run_command
from campaign.work import ACTIONS, TRAINING, begin_work, calls_of, digests, lost, prepare_work, unfinished
from failing_disk import FailingDisk
from system_calls import intercept

ERRORS = ("ENOSPC", "EIO", "EACCES", "EROFS", "EINTR", "EMFILE", "EDQUOT")


def next_case(draw: np.random.Generator) -> Case:
    """An action, and which of its calls fails how."""
    return {
        "action": str(draw.choice(list(TRAINING) if draw.random() < 0.3 else list(ACTIONS))),
        "at": float(draw.random()),
        "error": str(draw.choice(ERRORS)),
        "is_lasting": bool(draw.random() < 0.3),
    }


def run(case: Case, place: Place) -> Verdict:
    """Let the call fail, and then repeat the command with nothing in its way."""
    action, folder = case["action"], place.folder / "work"
    words = begin_work(action, place.material, folder)
    before = digests(folder)
    first = 1 + int(case["at"] * calls_of(action, place.material))
    disk = FailingDisk(getattr(errno, case["error"]), first, case["is_lasting"], is_read=True)
    outcome = run_command(words, place.folder / "said", prepare=lambda: intercept(disk.answer))
    return after_failure(action, place, before, outcome, words)


def after_failure(action: str, place: Place, before: dict[str, str], outcome: Outcome, words: list[str]) -> Verdict:
    """Whether a command that met a refusal ended as it must, and works where nothing refuses any more."""
    folder, material = place.folder / "work", place.material
    if (verdict := judge(outcome)).fault:
        return verdict
    if outcome.code == 0 and (other := unfinished(action, material, folder)):
        if action == "report" and "The map could not be kept" in (folder / "page.html").read_text():
            return KEPT  # the page is whole but for the layouts, and says so
        return Verdict("silent", f"{action}: {other}; {outcome}")
    if gone := lost(action, material, folder, before):
        return Verdict("lost", f"{action}: {gone}; {outcome}")
    return KEPT if outcome.code == 0 else works_again(action, place, words, outcome)


def works_again(action: str, place: Place, words: list[str], first: Outcome) -> Verdict:
    """The same command, or `resume` after a training, works and computes what it would have."""
    folder, said = place.folder / "work", []
    attempts = [["resume", str(folder / "run"), "-q"]] if action in ("train", "train over") else []
    for attempt in [*attempts, words]:
        outcome = run_command(attempt, place.folder / "again")
        if (verdict := judge(outcome)).fault:
            return Verdict(verdict.fault, f"{action}, afterwards: {verdict.detail}")
        if outcome.code == 0:
            other = unfinished(action, place.material, folder)
            return Verdict("other bits", f"{action}: {other}; first {first}") if other else KEPT
        said.append(f"{attempt[0]}: {outcome}")
    return Verdict("stuck", f"{action}: {'; '.join(said)}; first {first}")


KIND = Kind("failing_calls", next_case, run, prepare_work, share=2, material="work")
