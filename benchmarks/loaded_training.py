"""Helper of training.py --beside-load: trains in a fresh process; prints the seconds of its steps, the first included.

Arguments: implementation, encoder, precision, samples per step, steps.
"""

import json
import sys
import tempfile
from pathlib import Path

from training_runs import Setup, random_pictures, step_seconds

OURS = "counterpoint"


def main() -> None:
    """Time the steps."""
    name, encoder, precision, batch_size, num_steps = sys.argv[1:]
    setup = Setup(random_pictures(int(batch_size) * int(num_steps)), encoder, int(batch_size), precision, "cpu")
    if name == OURS:
        with tempfile.TemporaryDirectory() as folder:
            seconds = step_seconds(setup, Path(folder) / "run", with_bare=False, skip=0)["ours"]
    else:
        from lightly_simclr import lightly_seconds  # deferred: a peer that may not be installed

        seconds = lightly_seconds(setup, loads=True, skip=0)
    print(json.dumps({"seconds": seconds}))


if __name__ == "__main__":
    main()
