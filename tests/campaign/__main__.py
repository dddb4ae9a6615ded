"""`python -m campaign`: attack for so many minutes, and say what was tried and found."""

import argparse
import datetime
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

# Before torch is loaded: each try has one thread, and tries run side by side.
os.environ["OMP_NUM_THREADS"] = "1"
os.environ["OMP_WAIT_POLICY"] = "PASSIVE"
os.environ["TORCH_CPP_LOG_LEVEL"] = "FATAL"  # as the command of several ranks sets it

from campaign.kind import kind_of
from campaign.processes import load_all
from campaign.session import Session, replay

KINDS = ("kills", "interleavings", "failing_calls", "run_files", "data_files", "flags", "tensors", "growth")
KINDS += ("code_names", "swapped_files", "stale_data", "leftovers", "limits", "markdown")


def main(words: Sequence[str] | None = None) -> int:
    """Attack; returns 1 if a promise was broken."""
    flags = _flags(words)
    load_all()
    if flags.replay:
        verdict = replay(flags.replay, flags.folder)
        sys.stdout.write(f"{verdict.fault or 'kept'}: {verdict.detail}\n")
        return bool(verdict.fault)
    session = Session(flags.folder, [kind_of(name) for name in flags.kinds], flags.seed)
    try:
        session.go(60 * flags.minutes, flags.tries)
    except KeyboardInterrupt:
        sys.stdout.write("interrupted; the same command goes on\n")
    sys.stdout.write(table(session))
    return any(tally.findings for tally in session.tallies.values())


def table(session: Session) -> str:
    """What was tried and found, by kind."""
    lines = [f"Seed {session.seed}, commit {_commit()}, {datetime.date.today()}, {os.cpu_count()} cores.", ""]
    lines += ["| kind | tries | kept | broken | seconds per try |", "|---|---|---|---|---|"]
    for name, tally in session.tallies.items():
        broken, each = len(tally.findings), tally.seconds / max(1, tally.tries)
        lines.append(f"| `{name}` | {tally.tries:,} | {tally.tries - broken:,} | {broken:,} | {each:.2g} |")
    skipped = sum((tally.skipped for tally in session.tallies.values()), Counter[str]())
    lines += ["", *(f"{reason} ({many} tries)" for reason, many in skipped.items())] if skipped else []
    found = [f"{session.folder / 'findings' / name}" for tally in session.tallies.values() for name in tally.findings]
    return "\n".join([*lines, "", *found]).rstrip() + "\n"


def _flags(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m campaign", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS)
    parser.add_argument("--tries", type=int, help="of each kind, at most")
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "counterpoint-campaign")
    parser.add_argument("--replay", type=Path, metavar="CASE", help="try one kept case again")
    return parser.parse_args(words)


def _commit() -> str:
    command = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty", "--abbrev=12"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip() or "unknown"


if __name__ == "__main__":
    sys.exit(main())
