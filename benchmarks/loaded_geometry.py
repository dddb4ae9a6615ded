"""Helper of geometry.py --beside-load: solves in a fresh process; prints seconds and the bits of the matrix.

Arguments: solver, number of negatives, classes, calls, threads (0: what torch takes).
"""

import hashlib
import json
import math
import sys

import torch
from beside_load import timed_calls
from geometry_peers import SOLVERS, Task


def main() -> None:
    """Time the calls."""
    name, negatives, num_classes, num_calls, num_threads = sys.argv[1:]
    if int(num_threads):
        torch.set_num_threads(int(num_threads))
    k = math.inf if negatives == "inf" else int(float(negatives))
    task = Task(int(num_classes), k, False, 1e-8)
    seconds, solved = timed_calls(lambda: SOLVERS[name](task), int(num_calls))
    bits = hashlib.sha256(solved.gram.tobytes()).hexdigest()
    print(json.dumps({"seconds": seconds, "bits": bits}))


if __name__ == "__main__":
    main()
