"""Helper of geometry.py --beside-load: solves in a fresh process; prints seconds and the bits of the matrix.

Arguments: solver, number of negatives, classes, calls, threads (0: what torch takes).
"""

import hashlib
import json
import math
import sys
import time

import torch
from geometry_peers import SOLVERS, Task


def main() -> None:
    """Time the calls."""
    name, negatives, num_classes, num_calls, num_threads = sys.argv[1:]
    if int(num_threads):
        torch.set_num_threads(int(num_threads))
    k = math.inf if negatives == "inf" else int(float(negatives))
    task, seconds, bits = Task(int(num_classes), k, False, 1e-8), [], ""
    for _ in range(int(num_calls)):
        start = time.perf_counter()
        solved = SOLVERS[name](task)
        seconds.append(time.perf_counter() - start)
        bits = hashlib.sha256(solved.gram.tobytes()).hexdigest()
    print(json.dumps({"seconds": seconds, "bits": bits}))


if __name__ == "__main__":
    main()
