"""What README promises of any command: no crash, no hang, one line where it cannot work, bounds of memory."""

import re

from campaign.kind import KEPT, Verdict
from campaign.processes import Outcome

MAX_PEAK_MB = 512
PROGRAMS = ("counterpoint", "python -m reproductions")
OK, FAILED, USAGE, UNHEALTHY = 0, 1, 2, 3
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def judge(outcome: Outcome, *, max_peak_mb: float = MAX_PEAK_MB, max_seconds: float | None = None) -> Verdict:
    """Whether a process of the command ended as any must."""
    if outcome.code is None:
        return Verdict("hang", str(outcome))
    if "Traceback (most recent call last)" in outcome.err + outcome.out:
        return Verdict("traceback", str(outcome))
    if outcome.code < 0:
        return Verdict("crash", str(outcome))
    if outcome.code not in (OK, FAILED, USAGE, UNHEALTHY):
        return Verdict("exit code", str(outcome))
    if outcome.peak_mb > max_peak_mb:
        return Verdict("memory", f"{outcome.peak_mb:.0f} MB; {outcome}")
    if max_seconds is not None and outcome.seconds > max_seconds:
        return Verdict("slow", str(outcome))
    return _judge_words(outcome)


def _judge_words(outcome: Outcome) -> Verdict:
    """Whether what was printed is as promised."""
    lines = outcome.err.splitlines()
    # `verify` says in its table, on standard output, what differs.
    is_told = (len(lines) == 1 and lines[0].startswith(PROGRAMS)) or (outcome.code == FAILED and outcome.out)
    if outcome.code in (FAILED, USAGE) and not is_told:
        return Verdict("not one line", str(outcome))
    if found := CONTROL.search(re.sub(r"\r|\x1b\[[0-9;?]*[A-Za-z]", "", outcome.err) if not lines else lines[-1]):
        return Verdict("control character", f"{found.group()!r} in {lines[-1]!r}")
    return KEPT
