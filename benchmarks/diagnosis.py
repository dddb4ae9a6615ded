"""Seconds and memory of a diagnosis of many features, with labels and a second view, in processes of their own.

    python benchmarks/diagnosis.py                       # 50,000 x 512, three times; a minute
    python benchmarks/diagnosis.py --loads idle "one busy process" "two-thread torch"    # beside other work; minutes
    python benchmarks/diagnosis.py --rows 500 --rounds 1    # seconds; shows that it runs

A small diagnosis comes first, so that imports do not count; memory is the peak above what was held then.
"""

import argparse
import statistics
import subprocess
import sys
from collections.abc import Sequence

from beside_load import IDLE, LOADS, beside, clean_environment

PROGRAM = """
import resource, sys, time
import numpy as np
import counterpoint as cp
rows, features = map(int, sys.argv[1:])
draw = np.random.default_rng(0)
labels = draw.integers(0, 10, rows)
z = draw.standard_normal((10, features), dtype=np.float32)[labels] + draw.standard_normal((rows, features), np.float32)
view = z + 0.3 * draw.standard_normal((rows, features), dtype=np.float32)
cp.diagnose(z[:200], views=view[:200], labels=labels[:200], quiet=True)
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
before, start = peak(), time.perf_counter()
cp.diagnose(z, views=view, labels=labels, quiet=True)
print(time.perf_counter() - start, peak() - before)
"""


def main() -> None:
    """Print the median of rounds, under each load."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=50_000, help="rows (default 50,000)")
    parser.add_argument("--features", type=int, default=512, help="of each row (default 512)")
    parser.add_argument("--rounds", type=int, default=3, help="how often (default 3)")
    parser.add_argument("--loads", nargs="+", choices=LOADS, default=[IDLE], help="what runs beside it (default idle)")
    flags = parser.parse_args()
    words = [sys.executable, "-c", PROGRAM, str(flags.rows), str(flags.features)]
    for load in flags.loads:
        with beside(load):
            figures = [measured(words) for _ in range(flags.rounds)]
        seconds, memory = map(statistics.median, zip(*figures, strict=True))
        print(f"{flags.rows:,} x {flags.features}, {load}: {seconds:.1f} s, {memory:,.0f} MiB", flush=True)


def measured(words: Sequence[str]) -> tuple[float, float]:
    """Seconds and MiB of one diagnosis in a process that knows no variable for threads."""
    done = subprocess.run(words, capture_output=True, text=True, check=True, env=clean_environment())
    seconds, memory = map(float, done.stdout.split())
    return seconds, memory


if __name__ == "__main__":
    main()
