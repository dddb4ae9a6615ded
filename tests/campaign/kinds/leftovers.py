"""Kills and requests to stop, of every verb that writes: called again it leaves what it always leaves, and no more."""

import signal

import numpy as np

from campaign.calls import signal_at
from campaign.kind import Case, Kind, Place, Verdict
from campaign.kinds.failing_calls import works_again
from campaign.oracle import judge
from campaign.processes import run_command
from campaign.work import ACTIONS, TRAINING, begin_work, calls_of, digests, left_over, lost, prepare_work

SIGNALS = {"SIGKILL": signal.SIGKILL, "SIGTERM": signal.SIGTERM}
KINDS_OF_WORK = [action for action in ACTIONS if action not in TRAINING and action != "verify"]  # `kills` trains


def next_case(draw: np.random.Generator) -> Case:
    """An action, the signal, and the call before which it comes."""
    action, name = str(draw.choice(KINDS_OF_WORK)), str(draw.choice(list(SIGNALS)))
    # What is written is written late.
    return {"action": action, "signal": name, "at": float(1 - draw.random() ** 2)}


def run(case: Case, place: Place) -> Verdict:
    """End the command, then run it whole."""
    action, folder = case["action"], place.folder / "work"
    words = begin_work(action, place.material, folder)
    before = digests(folder)
    call = 1 + int(case["at"] * calls_of(action, place.material))
    stop = signal_at(call, SIGNALS[case["signal"]])
    first = run_command(words, place.folder / "said", prepare=stop)
    told = f"{action}, {case['signal']} before call {call}"
    is_killed = first.code in (-signal.SIGKILL, -signal.SIGTERM, 128 + signal.SIGTERM)
    if not is_killed and (verdict := judge(first)).fault:
        return Verdict(verdict.fault, f"{told}: {verdict.detail}")
    if gone := lost(action, place.material, folder, before):
        return Verdict("lost", f"{told}: {gone}")
    if (verdict := works_again(action, place, words, first)).fault:
        return Verdict(verdict.fault, f"{told}: {verdict.detail}")
    more = left_over(action, place.material, folder)
    return Verdict("leftovers", f"{told}: {more}") if more else Verdict(detail=told)


KIND = Kind("leftovers", next_case, run, prepare_work, share=2, material="work")
