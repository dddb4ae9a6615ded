"""Search of a large table beside faiss: seconds to build, recall of the ten nearest, milliseconds of a query.

The exact answers of both are compared before anything is timed: a hit that differs must have the same cosine to 1e-5.
Three sets, all at unit length and of 128 dimensions by default; queries are drawn as the rows are and are none of them:

- clustered: 1,000 clusters of unequal sizes, each in 24 directions of its own of falling variance, as embeddings of
  pictures with classes lie;
- broad: 20 wide clusters in 48 directions each: neighbours of a query lie all around it;
- planted: a cloud without clusters whose variance falls as 1/i, in which each query has ten planted neighbours at
  cosines from 0.6 to 0.95 (how many of these are found is told, too): the hardest of the three.

Usage: python benchmarks/search_peers.py [--rows 1000000] [--width 128] [--queries 1000]
    [--sets clustered,broad,planted] [--threads 2] [--no-peer]
"""

# N rows, Q queries, D features

import argparse
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

THREADS = next((sys.argv[at + 1] for at, word in enumerate(sys.argv[:-1]) if word == "--threads"), "2")
os.environ.update(OMP_NUM_THREADS=THREADS, OMP_WAIT_POLICY="PASSIVE")  # before torch and faiss are loaded

import faiss  # noqa: E402
import numpy as np  # noqa: E402
import torch  # noqa: E402
from measuring import Plan, paired_ratio, quartiles, take_turns, wall_seconds  # noqa: E402

from counterpoint.evaluation.knn import DOT, nearest  # noqa: E402

K, NUM_SINGLE = 10, 300
PLAN = Plan(warm_ups=1, short_rounds=5, long_rounds=5, sample_seconds=0.0)
FEW = 100  # queries of the exact search of a batch: faiss takes seconds for more
CONNECTIVITY, EF_ADD, EF_SEARCH = 16, 40, (32, 64, 128, 256)  # of faiss's HNSW; 32 and 40 are its defaults
TOLERANCE = 1e-5
HEAD = "| set | method | build s (processor s) | recall@10 | one query ms, median (p99) | batch ms per query |"
EXACT_HEAD = "| set | search | ours ms per query | faiss flat ms per query | ratio [quartiles] |"


@dataclass(frozen=True)
class Data:
    """Rows and queries, and the rows of each query's planted neighbours."""

    rows_ND: np.ndarray
    queries_QD: np.ndarray
    planted_QK: np.ndarray | None = None


def unit(rows: np.ndarray) -> np.ndarray:
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def clusters(num_rows: int, num_queries: int, width: int, *, number: int, rank: int) -> Data:
    """Rows of unequal clusters, each with directions of its own; the last ones are the queries."""
    rng, total = np.random.default_rng(0), num_rows + num_queries
    rank = min(rank, width)
    weights = np.arange(1, number + 1) ** -0.5
    cluster = rng.choice(number, total, p=weights / weights.sum())
    falling = (np.arange(1, width + 1) ** -0.5).astype(np.float32)
    rows = np.empty((total, width), np.float32)
    for own in range(number):
        places = np.flatnonzero(cluster == own)
        centre = rng.standard_normal(width, np.float32) * falling
        directions = rng.standard_normal((rank, width), np.float32) / np.sqrt(rank * width)
        inside = rng.standard_normal((len(places), rank), np.float32) * falling[:rank]
        noise = 0.02 * rng.standard_normal((len(places), width), np.float32)
        rows[places] = centre / np.linalg.norm(centre) + 1.2 * inside @ directions + noise
    rows = unit(rows)
    return Data(rows[:num_rows], rows[num_rows:])


def planted(num_rows: int, num_queries: int, width: int) -> Data:
    """A cloud without clusters; ten rows of each query lie at known cosines from it."""
    rng = np.random.default_rng(1)
    falling = (np.arange(1, width + 1) ** -0.5).astype(np.float32)
    rows = unit(rng.standard_normal((num_rows, width), np.float32) * falling)
    queries = unit(rng.standard_normal((num_queries, width), np.float32) * falling)
    places = rng.permutation(num_rows)[: num_queries * K].reshape(num_queries, K)
    for rank, cosine in enumerate(np.linspace(0.95, 0.6, K, dtype=np.float32)):
        other = rng.standard_normal((num_queries, width), np.float32) * falling
        other = unit(other - (other * queries).sum(1, keepdims=True) * queries)
        rows[places[:, rank]] = cosine * queries + np.sqrt(1 - cosine**2) * other
    return Data(rows, queries, places)


SETS: dict[str, Callable[[int, int, int], Data]] = {
    "clustered": lambda n, q, d: clusters(n, q, d, number=max(2, min(1000, n // 50)), rank=24),
    "broad": lambda n, q, d: clusters(n, q, d, number=20, rank=48),
    "planted": planted,
}


def check_exact(data: Data, flat: "faiss.IndexFlatIP") -> torch.Tensor:
    """The exact answer of ours, after it was compared with that of faiss; rows (q, k)."""
    rows, queries = torch.from_numpy(data.rows_ND), torch.from_numpy(data.queries_QD)
    ours = nearest(rows, queries, K, similarity=DOT)
    theirs = np.concatenate([flat.search(part, K)[1] for part in np.array_split(data.queries_QD, 10) if len(part)])
    for query, (own, other) in enumerate(zip(ours.positions_QK.numpy(), theirs, strict=True)):
        left = data.rows_ND[own].astype(np.float64) @ data.queries_QD[query]
        right = data.rows_ND[other].astype(np.float64) @ data.queries_QD[query]
        if np.abs(left - right).max() > TOLERANCE:
            raise SystemExit(f"query {query}: ours and faiss differ by {np.abs(left - right).max():.1e}")
    return ours.positions_QK


def exact_table(name: str, data: Data, flat: "faiss.IndexFlatIP") -> None:
    """Exact search beside faiss flat, in turns: one query, and a batch."""
    rows = torch.from_numpy(data.rows_ND)
    for title, number in (("one query", 1), (f"batch of {min(FEW, len(data.queries_QD))}", FEW)):
        queries = np.ascontiguousarray(data.queries_QD[:number])
        tensor = torch.from_numpy(queries)
        steps = {
            "ours": lambda tensor=tensor: nearest(rows, tensor, K, similarity=DOT) and None,
            "faiss flat": lambda queries=queries: flat.search(queries, K) and None,
        }
        seconds = take_turns(steps, wall_seconds, PLAN)
        ratio = paired_ratio(seconds["ours"], seconds["faiss flat"])
        own, other = (1e3 * quartiles(seconds[key]).median / len(queries) for key in steps)
        print(
            f"| {name} | exact, {title} | {own:.3f} | {other:.3f} | "
            f"{ratio.median:.2f} [{ratio.low:.2f}, {ratio.high:.2f}] |",
            flush=True,
        )


def measure(search: Callable[[np.ndarray], np.ndarray], data: Data, truth_QK: torch.Tensor) -> str:
    """Cells of the table: recall, and milliseconds of a query alone and in a batch."""
    start = time.perf_counter()
    positions_QK = search(data.queries_QD)
    batch = 1e3 * (time.perf_counter() - start) / len(positions_QK)
    singles = []
    for query in data.queries_QD[:NUM_SINGLE]:
        start = time.perf_counter()
        search(query[None])
        singles.append(1e3 * (time.perf_counter() - start))
    words = f"{recall(truth_QK.numpy(), positions_QK):.4f}"
    if data.planted_QK is not None:
        words += f", planted {recall(data.planted_QK, positions_QK):.4f}"
    return f"{words} | {np.median(singles):.3f} ({np.quantile(singles, 0.99):.3f}) | {batch:.3f} |"


def recall(truth_QK: np.ndarray, found_QK: np.ndarray) -> float:
    """Mean share of the true neighbours that were found."""
    return float(np.mean([np.isin(*each).mean() for each in zip(truth_QK, found_QK, strict=True)]))


def faiss_hnsw(name: str, data: Data, truth_QK: torch.Tensor) -> None:
    """The graph of faiss, at several efforts."""
    graph = faiss.IndexHNSWFlat(data.rows_ND.shape[1], CONNECTIVITY, faiss.METRIC_INNER_PRODUCT)
    graph.hnsw.efConstruction = EF_ADD
    start, work = time.perf_counter(), time.process_time()
    graph.add(data.rows_ND)  # pyright: ignore[reportCallIssue]
    spent = f"{time.perf_counter() - start:.1f} ({time.process_time() - work:.1f})"
    for effort in EF_SEARCH:
        graph.hnsw.efSearch = effort
        told = measure(lambda queries: graph.search(queries, K)[1], data, truth_QK)  # pyright: ignore[reportCallIssue]
        print(f"| {name} | faiss HNSW {CONNECTIVITY}, effort {effort} | {spent} | {told}", flush=True)
        spent = "as above"


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--queries", type=int, default=1000)
    parser.add_argument("--sets", default="clustered,broad,planted", help=f"of {', '.join(SETS)}")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--no-peer", action="store_true", help="without the graph of faiss, which builds for minutes")
    flags = parser.parse_args()
    torch.set_num_threads(flags.threads)
    faiss.omp_set_num_threads(flags.threads)
    print(
        f"{flags.rows:,} x {flags.width}, {flags.queries:,} queries, {flags.threads} threads, faiss {faiss.__version__}"
    )
    for name in flags.sets.split(","):
        data = SETS[name](flags.rows, flags.queries, flags.width)
        flat = faiss.IndexFlatIP(flags.width)
        flat.add(data.rows_ND)  # pyright: ignore[reportCallIssue]
        truth_QK = check_exact(data, flat)
        print(f"\n{EXACT_HEAD}\n|---|---|---|---|---|")
        exact_table(name, data, flat)
        del flat
        if not flags.no_peer:
            print(f"\n{HEAD}\n|---|---|---|---|---|---|")
            faiss_hnsw(name, data, truth_QK)


if __name__ == "__main__":
    main()
