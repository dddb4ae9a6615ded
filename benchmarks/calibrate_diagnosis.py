"""Try the diagnosis on trainings whose fault is known.

    python benchmarks/calibrate_diagnosis.py cifar10 --out calibration
    python benchmarks/calibrate_diagnosis.py photos/ --set publishing --seeds 20 --out calibration

Trains small encoders on pictures with one fault each (collapse, a wrong temperature, copies, a shortcut, ...),
diagnoses them, and counts how often the fault is among the first two findings, and how often the first remedy improves
the figure it names. Two sets: limits of the checks were chosen by the first; the second has other faults, another
encoder and other settings, and published figures are of it. Trainings that the folder already has are not done again,
so that an interrupted calibration goes on.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

from calibration.calibration import CalibrationSettings, calibrate

from counterpoint.core.errors import CounterpointError
from counterpoint.core.terminal_text import shown_lines
from counterpoint.core.validation import build
from counterpoint.engine.progress import Reporter


def main(words: Sequence[str] | None = None) -> None:
    """Train, diagnose, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
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
    parser.add_argument("-q", "--quiet", action="store_true", help="show no progress")
    flags = parser.parse_args(words)
    named = {name: getattr(flags, name) for name in ("kind", "seeds", "first_seed", "jobs")}
    settings = {**named, "remedies": not flags.no_remedies, "faults": tuple(flags.faults)}
    try:
        asked = build(CalibrationSettings, settings, "calibrate")
        found = calibrate(flags.data, Path(flags.out), asked, reporter=Reporter(quiet=flags.quiet))
    except CounterpointError as error:
        parser.error(str(error))
    print(shown_lines(found.to_markdown()))


if __name__ == "__main__":
    main()
