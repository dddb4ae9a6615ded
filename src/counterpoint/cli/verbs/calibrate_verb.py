"""`counterpoint calibrate`."""

import argparse
from pathlib import Path

from counterpoint.cli.parsers import Parser
from counterpoint.core.shown import shown_lines

PLACE, SUMMARY = 45, "try the diagnosis on trainings whose fault is known"
TEACH = """Train small encoders on your pictures with one fault each (collapse, a wrong temperature, copies, a shortcut,
...), diagnose them, and count how often the fault is among the first two findings, and how often the first remedy
improves the figure it names. Two sets: limits of the checks were chosen by the first; the second has other faults,
another encoder and other settings, and published figures are of it.

examples:
  counterpoint calibrate cifar10 --out calibration
  counterpoint calibrate photos/ --set publishing --seeds 20 --out calibration

Trainings that the folder already has are not done again, so that an interrupted calibration goes on."""


def add_flags(parser: Parser) -> None:
    """Add the arguments."""
    parser.add_argument("data", help="pictures with classes, at least 1,200: anything that train takes")
    parser.add_argument(
        "--set", dest="kind", choices=("choosing", "publishing"), default="choosing", help="which faults (choosing)"
    )
    parser.add_argument("--seeds", type=int, default=5, metavar="N", help="trainings of each fault (default 5)")
    parser.add_argument("--first-seed", type=int, default=0, metavar="N", help="seed of the first (default 0)")
    parser.add_argument("--faults", nargs="+", default=(), metavar="NAME", help="some faults only (default: all)")
    parser.add_argument("--no-remedies", action="store_true", help="do not try what the findings advise")
    parser.add_argument("--jobs", type=int, default=0, metavar="N", help="trainings side by side (default: all cores)")
    parser.add_argument("--out", default="calibration", help="folder of the record (default calibration)")


def run(flags: argparse.Namespace) -> int:
    """Train, diagnose, and print the table."""
    from counterpoint.calibration.calibration import CalibrationSettings, calibrate  # deferred: loads torch
    from counterpoint.core.validation import build  # deferred: loads pydantic
    from counterpoint.engine.progress import Reporter  # deferred: see `cli.verbs`

    names = {"kind", "seeds", "first_seed", "jobs"}
    given = {name: getattr(flags, name) for name in names} | {"remedies": not flags.no_remedies}
    asked = build(CalibrationSettings, {**given, "faults": tuple(flags.faults)}, "calibrate")
    found = calibrate(flags.data, Path(flags.out), asked, reporter=Reporter(quiet=flags.quiet))
    print(shown_lines(found.to_markdown()))
    return 0
