"""Near-duplicates within k-means buckets beside comparing all rows: pairs, planted copies, recall, and seconds.

    python benchmarks/near_duplicates.py                  100,000 rendered pictures, 2,000 copies: minutes
    python benchmarks/near_duplicates.py --pictures 10000 --copies 200 --buckets 20

Copies differ from their pictures by at most 2 levels. An encoder that was trained for an epoch embeds the pictures.
With ``--workers N`` the buckets are compared once more by workers of Ray, which must find the same.
"""

# N pictures, P pairs

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from killed_embedding import Plan, render, run

import counterpoint as cp
from counterpoint.core.pieces import HERE
from counterpoint.integrations.ray_jobs import RayEngine
from counterpoint.search.bucket_pairs import bucket_pairs, direct_groups


def embedded(folder: Path, num_pictures: int, num_copies: int) -> torch.Tensor:
    """Rendered pictures with copies of the first ones at their end, as vectors."""
    plan = Plan(folder, num_pictures, 0)
    render(plan)
    images = np.load(folder / "pictures.npz")["images"]
    noise = np.random.default_rng(0).integers(-2, 3, images[:num_copies].shape)
    images[-num_copies:] = (images[:num_copies] + noise).clip(0, 255)
    np.save(folder / "copied.npy", images)
    run(plan, "train --data few.npz --encoder convnet --epochs 1 --out run")
    return torch.from_numpy(cp.embed(folder / "run", images, cache=False, quiet=True).vectors)


def main() -> None:
    """Embed, compare, and count."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pictures", type=int, default=100_000, help="how many (default 100,000)")
    parser.add_argument("--copies", type=int, default=2_000, help="of them are copies (default 2,000)")
    parser.add_argument("--buckets", type=int, default=100, help="of k-means (default 100)")
    parser.add_argument("--threshold", type=float, default=0.9999, help="least cosine of a pair (default 0.9999)")
    parser.add_argument("--workers", type=int, default=0, help="of Ray (default: none)")
    flags = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        rows = embedded(Path(folder), flags.pictures, flags.copies)
    copies = torch.stack(
        [torch.arange(flags.copies), torch.arange(flags.pictures - flags.copies, flags.pictures)], dim=1
    )
    print(f"{len(rows):,} rows of {rows.shape[1]}, {flags.copies:,} copies, cosine >= {flags.threshold}\n")
    print("| compared | seconds | pairs | copies with a pair | groups | recall (95 % interval) |")
    print(f"|{'---|' * 6}")
    ways = [("all rows", 1, HERE), (f"{flags.buckets} buckets", flags.buckets, HERE)]
    if flags.workers:
        ways.append((f"the same, {flags.workers} workers", flags.buckets, RayEngine(workers=flags.workers)))
    answers = []
    for name, number, engine in ways:
        begun = time.perf_counter()
        found = bucket_pairs(rows, flags.threshold, num_buckets=number, engine=engine)
        seconds, recall = time.perf_counter() - begun, found.recall
        has_pair = torch.isin(copies[:, 1], found.pairs_P2)
        told = (
            "-" if recall is None else f"{recall.value:.4f} ({recall.low:.4f} to {recall.high:.4f}) of {recall.total}"
        )
        counts = f"{len(found.pairs_P2):,} | {int(has_pair.sum()):,} | {len(direct_groups(found)):,}"
        print(f"| {name} | {seconds:.1f} | {counts} | {told} |", flush=True)
        answers.append(found)
    whole, by_buckets, *others = (
        torch.cat([each.pairs_P2.double(), each.cosine_P[:, None]], dim=1) for each in answers
    )
    if any(not torch.equal(by_buckets, other) for other in others):
        raise SystemExit("workers of Ray found other pairs")
    rows_with_pair = [set(pairs[:, :2].flatten().tolist()) for pairs in (whole, by_buckets)]
    share = len(rows_with_pair[0] & rows_with_pair[1]) / max(1, len(rows_with_pair[0]))
    print(f"\nOf the rows with a pair among all rows, {share:.4f} have one among the buckets.")


if __name__ == "__main__":
    main()
