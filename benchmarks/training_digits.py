"""Training from Python and by the command beside other work: `cp.train(data="digits", method="ncl")`, epoch by epoch.

    python benchmarks/training_digits.py                     # about four minutes on 2 cores
    python benchmarks/training_digits.py --loads idle --ways "cp.train" "counterpoint train"

Each way runs in a fresh process that knows no variable of OpenMP. The peer is the same call with waiting switched off
by hand (`OMP_WAIT_POLICY=PASSIVE`). A call is an epoch of 1,437 digits.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from beside_load import LOADS, compare

WAYS = ("cp.train", "cp.train, torch first", "counterpoint train", "cp.train, PASSIVE by hand", "cp.train, TUNE=0")
EPOCHS = 10


def train(way: str) -> list[float]:
    """Seconds of each epoch."""
    with tempfile.TemporaryDirectory() as place:
        settings = {"data": "digits", "method": "ncl", "out": str(Path(place) / "run"), "epochs": EPOCHS, "seed": 0}
        if way == "counterpoint train":
            words = [word for name, value in settings.items() for word in (f"--{name}", str(value))]
            subprocess.run([sys.executable, "-m", "counterpoint", "train", *words, "-q"], check=True)
        else:
            if "torch first" in way:
                import torch  # noqa: F401 # deferred: the order is what is measured
            if "by hand" in way:
                os.environ["OMP_WAIT_POLICY"] = "PASSIVE"
            if "TUNE" in way:
                os.environ["COUNTERPOINT_TUNE"] = "0"
            import counterpoint as cp  # deferred: see above

            cp.train(**settings, quiet=True)
        from counterpoint import Run  # deferred: see above

        return [line["seconds"] for line in Run(Path(place) / "run").metrics]


def main() -> None:
    """Print the table, or in a fresh process the seconds of one way."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--loads", nargs="+", choices=LOADS, default=list(LOADS), help="what runs beside it")
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=WAYS, help="who is compared, ours first")
    parser.add_argument("--way", choices=WAYS, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.way:
        print(json.dumps({"seconds": train(arguments.way)}))
        return
    commands = {way: (Path(__file__), ("--way", way)) for way in arguments.ways}
    print(compare("An epoch of NCL on 1,437 digits", commands, arguments.loads))


if __name__ == "__main__":
    main()
