"""Verify a run: check every file against its hash, its run and the present weights, compare settings and data
with those at the start of the run, and replay one saved step bit for bit. Exits with code 1 if anything differs.
Nothing in the run is changed.

examples:
  counterpoint verify runs/ncl
  counterpoint verify runs/ncl --json"""

import counterpoint as cp
from counterpoint.cli.arguments import RunFlags
from counterpoint.cli.outputs import print_found

DIFFERS = 1  # exit code

PLACE, SUMMARY = 60, "re-hash a run and replay one saved step"


def run(flags: RunFlags) -> int:
    """Verify the run, and print the result."""
    verification = cp.verify(flags.run, quiet=flags.quiet)
    print_found(verification, as_json=flags.as_json)
    return 0 if verification.is_intact else DIFFERS
