"""Try the diagnosis on features and on trainings whose fault is known, and on healthy features.

    python benchmarks/calibrate_diagnosis.py caltech.npz --set publishing
    python benchmarks/calibrate_diagnosis.py caltech.npz --set publishing --trained

Without --trained, features of photographs (DATA), digits and tables get one fault each (outliers, copies, wrong labels,
views in another order, ...), and healthy ones of many families get none. It counts how often a finding of the fault is
among the first two and comes first, and of healthy features the severe verdicts and misleading warnings. With
--trained, small encoders are trained with a fault, diagnosed, trained again with what the first finding changes, and
scored by kNN and a linear probe before and after.

Two sets: limits of the checks were chosen by the first; the second has other forms of the faults, other samples and
other maps or encoders, and published figures are of it. Cases that the folder already has are not done again, so that
an interrupted calibration goes on: take another folder where measurements have changed.
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
    """Draw or train, diagnose, and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "data", nargs="?", help="photographs with classes, at least 1,200: anything that train takes (default: none)"
    )
    parser.add_argument(
        "--set", dest="kind", choices=("choosing", "publishing"), default="choosing", help="which faults (choosing)"
    )
    parser.add_argument("--trained", action="store_true", help="trainings with faults, in place of features")
    parser.add_argument("--seeds", type=int, default=0, metavar="N", help="cases of each fault (60; 3 trainings)")
    parser.add_argument("--first-seed", type=int, default=0, metavar="N", help="seed of the first (default 0)")
    parser.add_argument("--healthy", type=int, default=1000, metavar="N", help="healthy feature sets (default 1000)")
    parser.add_argument("--faults", nargs="+", default=(), metavar="NAME", help="some only (default: all)")
    parser.add_argument("--no-remedies", action="store_true", help="do not try what the findings of trainings advise")
    parser.add_argument("--jobs", type=int, default=0, metavar="N", help="cases side by side (default: all cores)")
    parser.add_argument("--out", default="calibration", help="folder of the record (default calibration)")
    parser.add_argument("-q", "--quiet", action="store_true", help="show no progress")
    flags = parser.parse_args(words)
    named = {name: getattr(flags, name) for name in ("kind", "trained", "seeds", "first_seed", "healthy", "jobs")}
    values = {**named, "remedies": not flags.no_remedies, "faults": tuple(flags.faults)}
    try:
        settings = build(CalibrationSettings, values, "calibrate")
        tables = calibrate(flags.data, Path(flags.out), settings, reporter=Reporter(quiet=flags.quiet))
    except CounterpointError as error:
        parser.error(str(error))
    print(shown_lines(tables))


if __name__ == "__main__":
    main()
