"""What shards cost beside the encoder: bytes per row, rows written, checked and read per second.

    python benchmarks/shard_rates.py --rows 400000

Vectors are normal (nothing compresses) and non-negative with 95 % zeros (what NCL learns). Rates are of one thread and
in processor seconds, which other programs disturb least.
"""

# N rows, D features

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from counterpoint.evaluation.shard_files import ShardBlock, TablePlan, make_shards

SHARD_ROWS = 50_000
HEADER = "| vectors | dims | bytes per row | rows written/s | checked and read/s |"


def drawn(kind: str, num_rows: int, width: int) -> np.ndarray:
    """Vectors (n, d)."""
    values_ND = np.random.default_rng(0).standard_normal((num_rows, width), dtype=np.float32)
    return values_ND if kind == "dense" else np.maximum(values_ND - np.float32(1.645), 0)


def seconds(work: Callable[[], object]) -> float:
    """Processor seconds of some work."""
    begun = time.process_time()
    work()
    return time.process_time() - begun


def row(folder: Path, kind: str, width: int, num_rows: int) -> str:
    """A row of the table."""
    fixed = {"layer": "representation", "encoder": "e", "data": "d", "software": "s", "has_labels": True}
    plan = TablePlan.model_validate({"num_rows": num_rows, "shard_rows": SHARD_ROWS, **fixed})
    shards = make_shards(folder / f"{kind}-{width}", plan)
    writing = 0.0
    for number in range(plan.num_shards):
        rows = plan.rows(number)
        names = [f"train/class-{place % 1000:04d}/{place:012d}.jpg" for place in range(rows.start, rows.stop)]
        labels = [f"class-{place % 1000:04d}" for place in range(rows.start, rows.stop)]
        block = ShardBlock(names, labels, drawn(kind, rows.stop - rows.start, width))
        writing += seconds(lambda n=number, b=block: shards.write(n, b))
    size = sum(path.stat().st_size for path in shards.path.iterdir())
    reading = seconds(lambda: sum(len(block.names) for block in shards.blocks()))
    rates = [f"{num_rows / spent:,.0f}" for spent in (writing, reading)]
    return f"| {kind} | {width} | {size / num_rows:,.0f} | {' | '.join(rates)} |"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=400_000, help="of each table (default 400,000)")
    flags = parser.parse_args()
    print(f"{flags.rows:,} rows, shards of {SHARD_ROWS:,}\n\n{HEADER}\n|{'---|' * HEADER.count(' | ')}---|", flush=True)
    for width in (128, 512):
        for kind in ("dense", "sparse"):
            with tempfile.TemporaryDirectory() as folder:
                print(row(Path(folder), kind, width, flags.rows), flush=True)


if __name__ == "__main__":
    main()
