"""Sparse codes: time and bytes of an exact search, and accuracy beside other codes of equal bytes.

python benchmarks/sparse_codes.py search [--rows 1000000] [--graph-rows 100000]
    beside an exact search of as many rows of 512 features, and usearch, whose graph takes long to build, of fewer
python benchmarks/sparse_codes.py accuracy simclr=runs/simclr plain=runs/simclr:features text --out figures
    [--seeds 3] [--epochs N] [--dims 1024] [--texts N]

Codes are trained at all k together, and at the largest k alone.
DATA of accuracy is NAME=RUN (codes are trained with two views of each picture), NAME=RUN:features (the same features
with noise instead of views), or text: docstrings of NumPy, SciPy, scikit-learn and PyTorch, labelled by module.
Intervals are of 95 %, over the held-out samples of each seed, in pairs; what is printed also goes to
accuracy.csv and accuracy.png in --out. Peers: faiss-cpu, usearch.
"""

# N rows, D features, H units

import argparse
import csv
import importlib
import inspect
import os
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.sparse import csr_matrix
from sklearn.cluster import MiniBatchKMeans
from sklearn.decomposition import PCA, TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.random_projection import GaussianRandomProjection
from torch import Tensor

import counterpoint as cp
from counterpoint.core.paired_shares import compare_hits
from counterpoint.core.run import as_run
from counterpoint.data.order import Split, split_source
from counterpoint.diagnostics.concepts import expected_activation
from counterpoint.evaluation.knn import Vote, knn_predict
from counterpoint.evaluation.linear_probe import fit_probe
from counterpoint.evaluation.trained_run import read_resolved
from counterpoint.nn.heads import keep_largest
from counterpoint.search.sparse_search import CodeIndex

SIZES = (2, 4, 8, 16)
MODULES = ("numpy", "numpy.linalg", "scipy.stats", "scipy.signal", "scipy.sparse", "scipy.optimize", "torch",
           "torch.nn", "scipy.special", "sklearn.metrics")  # fmt: skip
BEHIND = ("knn minus ours", "low", "high")
COLUMNS: tuple[str, ...] = (
    "data",
    "seed",
    "code",
    "k",
    "bytes",
    "knn",
    "probe",
    *BEHIND,
    "silent",
    "minutes",
)


def median_ms(search: Any, queries: list[Any]) -> float:
    """Median milliseconds of a query."""
    milliseconds = []
    for query in queries:
        begun = time.perf_counter()
        search(query)
        milliseconds.append(1000 * (time.perf_counter() - begun))
    return float(np.median(milliseconds))


def random_codes(num_rows: int, dims: int, k: int) -> csr_matrix:
    """Codes whose units have unequal loads: the largest has some ten times as many as the mean."""
    draws = np.random.default_rng(0)
    ends = np.cumsum(1 / (np.arange(dims) + dims / 20))
    units_NK = np.searchsorted(ends / ends[-1], draws.random((num_rows, k))).clip(0, dims - 1)
    values = draws.random(num_rows * k, dtype=np.float32)
    codes = csr_matrix((values, units_NK.ravel(), np.arange(0, num_rows * k + 1, k)), shape=(num_rows, dims))
    codes.sum_duplicates()
    return codes


def search(num_rows: int, graph_rows: int, num_queries: int = 200) -> None:
    """Print time and bytes of each search, one query at a time, ten neighbours."""
    import faiss
    from usearch.index import Index

    faiss.omp_set_num_threads(1)
    codes, draws = random_codes(num_rows, 4096, 8), np.random.default_rng(1)
    chosen = draws.choice(num_rows, num_queries, replace=num_queries > num_rows)
    begun = time.perf_counter()
    index = CodeIndex(codes)
    built = time.perf_counter() - begun
    of_codes = median_ms(lambda query: index.search(query, 10), [codes[row] for row in chosen])
    first = index.search(codes[chosen[:3]], 10).similarity_QK.numpy()
    lengths = np.sqrt(np.asarray(codes.multiply(codes).sum(axis=1)).ravel())
    for place, row in enumerate(chosen[:3]):
        cosines = (codes @ codes[row].T).toarray()[:, 0] / (lengths * lengths[row])
        np.testing.assert_allclose(first[place], np.sort(cosines)[::-1][:10], rtol=1e-5)
    print("| search | ms per query | bytes per row | seconds to build |\n|---|---:|---:|---:|")
    print(f"| CodeIndex, exact, k = 8 of 4,096 | {of_codes:.1f} | {index.num_bytes / num_rows:.0f} | {built:.1f} |")
    rows_ND = draws.standard_normal((num_rows, 512), dtype=np.float32)
    rows_ND /= np.linalg.norm(rows_ND, axis=1, keepdims=True)
    queries = [rows_ND[row : row + 1] for row in chosen]
    begun = time.perf_counter()
    flat = faiss.IndexFlatIP(512)
    flat.add(rows_ND)
    built = time.perf_counter() - begun
    dense = median_ms(lambda query: flat.search(query, 10), queries[:20])
    print(f"| faiss flat, exact, 512 float32 | {dense:.1f} | 2048 | {built:.1f} |", flush=True)
    rows_ND, queries = rows_ND[:graph_rows].copy(), queries[:100]
    num_rows = len(rows_ND)
    begun = time.perf_counter()
    graph = Index(ndim=512, metric="ip", dtype="f16", connectivity=16, expansion_add=64, expansion_search=512)
    graph.add(np.arange(num_rows), rows_ND, threads=1)
    built = time.perf_counter() - begun
    near = median_ms(lambda query: graph.search(query[0], 10), queries)
    name, num_bytes = f"usearch, approximate, 512 float16, {num_rows:,} rows", graph.memory_usage / num_rows
    print(f"| {name} | {near:.1f} | {num_bytes:.0f} | {built:.1f} |")


@dataclass(frozen=True)
class Features:
    """Features of one data set."""

    name: str
    x_ND: Tensor
    labels_N: Tensor
    split: Split
    run: str | None = None  # whose pictures have views


def read(word: str, num_texts: int | None) -> Features:
    """A data set by the words of the command line."""
    if word == "text":
        x_ND, labels_N = docstrings(num_texts)
        return Features("text", x_ND, labels_N, split_source(len(x_ND), labels_N, 0.2))
    name, _, run = word.partition("=")
    run, _, kind = run.partition(":")
    table = cp.embed(run, quiet=True)
    assert table.labels is not None
    labels_N = torch.from_numpy(np.unique([str(each) for each in table.labels], return_inverse=True)[1])
    holdout = float(read_resolved(as_run(run).folder).source.holdout)
    x_ND = torch.from_numpy(table.vectors)
    return Features(name, x_ND, labels_N, split_source(len(x_ND), labels_N, holdout), None if kind else run)


def docstrings(most: int | None = None) -> tuple[Tensor, Tensor]:
    """256 components of TF-IDF of the paragraphs of docstrings, and the module of each; without names of packages.

    Args:
        most: evenly spaced paragraphs; None takes all.
    """
    texts, labels = [], []
    for label, module in enumerate(MODULES):
        imported = importlib.import_module(module)
        for name in sorted(vars(imported)):
            words = "" if name.startswith("_") else inspect.getdoc(getattr(imported, name, None)) or ""
            parts = [part for part in words.split("\n\n") if len(part) > 80]
            texts += parts
            labels += [label] * len(parts)
    chosen = np.linspace(0, len(texts) - 1, min(len(texts), most or len(texts))).astype(int)
    texts, labels = [texts[place] for place in chosen], [labels[place] for place in chosen]
    texts = [text.replace("numpy", " ").replace("scipy", " ").replace("torch", " ") for text in texts]
    table = TfidfVectorizer(max_features=20_000, sublinear_tf=True).fit_transform(texts)
    x_ND = TruncatedSVD(256, random_state=0).fit_transform(table).astype(np.float32)
    is_nonzero = np.linalg.norm(x_ND, axis=1) > 0
    return torch.from_numpy(x_ND[is_nonzero]), torch.from_numpy(np.array(labels)[is_nonzero])


def others(x_ND: Tensor, train: Tensor, k: int, dims: int, seed: int) -> Iterator[tuple[str, int, Tensor]]:
    """Names, bytes and rows of codes as large as k entries of 8 bytes."""
    centred = (x_ND - x_ND[train].mean(dim=0)).numpy()
    fitted, width = centred[train.numpy()], min(2 * k, x_ND.shape[1])
    linear: dict[str, Any] = {"PCA": PCA, "random projection": GaussianRandomProjection}
    for name, model in linear.items():
        projected = model(width, random_state=seed).fit(fitted).transform(centred)
        yield name, 4 * width, torch.from_numpy(np.asarray(projected, np.float32))
    best = expected_activation(torch.from_numpy(fitted)).argsort(descending=True, stable=True)[:width]
    yield "truncation", 4 * width, torch.from_numpy(centred)[:, best]
    if k == SIZES[0]:
        model = MiniBatchKMeans(dims, random_state=seed, batch_size=4096).fit(fitted)
        cluster_N = torch.from_numpy(model.predict(centred)).long()
        yield "k-means (k = 1)", 8, torch.nn.functional.one_hot(cluster_N, dims).float()


def accuracy(data: Features, seed: int, dims: int, out: Path, more: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield a row for each code and k."""
    options = {"dims": dims, "seed": seed, "out": str(out), "overwrite": True, "quiet": True, **more}

    def trained(sizes: tuple[int, ...]) -> tuple[Tensor, dict[int | None, tuple[float, float]]]:
        """Codes at the largest k; share of silent units at each k, and minutes."""
        begun = time.perf_counter()
        if data.run is None:
            share = len(data.split.held_out) / len(data.x_ND)
            data_options = {"labels": data.labels_N.numpy(), "source": {"holdout": share}}
            made = cp.sparsify(data.x_ND.numpy(), k=sizes, **data_options, **options)
        else:
            made = cp.sparsify(data.run, k=sizes, **options)
        minutes = (time.perf_counter() - begun) / 60
        own = [each for each in made.figures if each.code == "sparse code"]
        return torch.from_numpy(made.codes.toarray()), {each.k: (each.silent or 0.0, minutes) for each in own}

    codes_ND, facts = trained(SIZES)
    train, held_out, labels_N = data.split.train, data.split.held_out, data.labels_N

    def minus_ours(hits: int, own: int) -> dict[str, Any]:
        difference = compare_hits(hits, own, len(held_out))
        ends = (difference.value, difference.low, difference.high)
        return dict(zip(BEHIND, (round(each, 4) for each in ends), strict=True))

    def row(
        code: str,
        k: int | None,
        num_bytes: int,
        z_ND: Tensor,
        own: int | None,
        facts: tuple[float, float] | None = None,
    ) -> tuple[dict[str, Any], int]:
        predicted = knn_predict(z_ND[train], labels_N[train], z_ND[held_out], Vote(20))
        is_right = predicted == labels_N[held_out]
        hits = int("".join("01"[each] for each in is_right.tolist()), 2)
        probe = fit_probe(z_ND[train], labels_N[train]).predict(z_ND[held_out])
        right = float((probe == labels_N[held_out]).float().mean())
        figures = [float(is_right.float().mean()), right]
        behind = dict.fromkeys(BEHIND, "") if own is None else minus_ours(hits, own)
        ours = ["", ""] if facts is None else [round(facts[0], 4), round(facts[1], 2)]
        cells = [
            data.name,
            seed,
            code,
            k or "",
            num_bytes,
            *(round(each, 4) for each in figures),
            *behind.values(),
            *ours,
        ]
        return dict(zip(COLUMNS, cells, strict=True)), hits

    dense, dense_hits = row("dense", None, 4 * data.x_ND.shape[1], data.x_ND - data.x_ND[train].mean(dim=0), None)
    yield dense
    for k in SIZES:
        ours, hits = row("ours", k, 8 * k, keep_largest(codes_ND, k), None, facts[k])
        yield ours
        yield {**dense, "k": k, **minus_ours(dense_hits, hits)}
        for code, num_bytes, rows in others(data.x_ND, train, k, dims, seed):
            yield row(code, k, num_bytes, rows, hits)[0]
    k = SIZES[-1]
    alone_ND, facts = trained((k,))
    ours, hits = row("ours, k alone", k, 8 * k, alone_ND, None, facts[k])
    yield {**ours, **minus_ours(dense_hits, hits)}


def figure(results: list[dict[str, Any]], path: Path) -> None:
    """Draw kNN against k, a panel for each data set; means of the seeds."""
    import matplotlib.pyplot as plt

    names = list(dict.fromkeys(row["data"] for row in results))
    picture, axes = plt.subplots(1, len(names), figsize=(3.2 * len(names), 3), squeeze=False)
    for axis, name in zip(axes[0], names, strict=True):
        for code in ("ours", "PCA", "random projection", "truncation", "dense"):
            own = {k: [row["knn"] for row in results if (row["data"], row["code"], row["k"]) == (name, code, k)]
                   for k in SIZES}  # fmt: skip
            axis.plot(
                SIZES, [100 * float(np.mean(own[k])) for k in SIZES], "--" if code == "dense" else "o-", label=code
            )
        axis.set(title=name, xlabel="k", xscale="log", ylabel="kNN, %")
        axis.set_xticks(SIZES, [str(k) for k in SIZES])
        axis.minorticks_off()
    axes[0][0].legend(fontsize=7)
    picture.tight_layout()
    picture.savefig(path, dpi=90)


def table(results: list[dict[str, Any]]) -> str:
    """Means of the seeds in Markdown; the ends of an interval are means, too, since all seeds have the same queries."""
    codes = ("dense", "ours", "PCA", "random projection", "truncation")
    lines = [f"| data | k | bytes | {' | '.join(codes)} | dense - ours | silent | minutes |", "|---|" + 10 * "---:|"]

    def mean(rows: list[dict[str, Any]], name: str) -> float:
        return float(np.mean([float(row[name]) for row in rows]))

    for data in dict.fromkeys(row["data"] for row in results):
        for k in SIZES:
            by = {code: [row for row in results if (row["data"], row["code"], row["k"]) == (data, code, k)]
                  for code in codes}  # fmt: skip
            accuracies = [f"{100 * mean(by[code], 'knn'):.1f}, {100 * mean(by[code], 'probe'):.1f}" for code in codes]
            ends = [f"{100 * mean(by['dense'], name):+.1f}" for name in BEHIND]
            silent, minutes = 100 * mean(by["ours"], "silent"), mean(by["ours"], "minutes")
            cells = [data, str(k), str(8 * k), *accuracies, f"{ends[0]} ({ends[1]} to {ends[2]})", f"{silent:.1f}%"]
            lines.append(f"| {' | '.join(cells)} | {minutes:.1f} |")
        alone = [row for row in results if row["data"] == data and row["code"] == "ours, k alone"]
        own = f"{100 * mean(alone, 'knn'):.1f}, {100 * mean(alone, 'probe'):.1f}"
        ends = [f"{100 * mean(alone, name):+.1f}" for name in BEHIND]
        cells = [
            data,
            f"{SIZES[-1]} alone",
            str(8 * SIZES[-1]),
            "",
            own,
            "",
            "",
            "",
            f"{ends[0]} ({ends[1]} to {ends[2]})",
        ]
        lines.append(f"| {' | '.join(cells)} | {100 * mean(alone, 'silent'):.1f}% | {mean(alone, 'minutes'):.1f} |")
    return "\n".join(lines)


def main(words: list[str]) -> None:
    """Run a command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=("search", "accuracy"))
    parser.add_argument("data", nargs="*")
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--graph-rows", type=int, default=100_000)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--dims", type=int, default=1024)
    parser.add_argument("--texts", type=int)
    parser.add_argument("--out", type=Path, default=Path("sparse-codes"))
    flags = parser.parse_args(words)
    if flags.command == "search":
        search(flags.rows, flags.graph_rows)
        return
    if not flags.data:
        parser.error("accuracy needs DATA, such as text")
    flags.out.mkdir(parents=True, exist_ok=True)
    more = {} if flags.epochs is None else {"epochs": flags.epochs}
    results = []
    with (flags.out / "accuracy.csv").open("w", newline="", encoding="utf-8") as stream:
        writer = csv.DictWriter(stream, COLUMNS)
        writer.writeheader()
        for data in (read(word, flags.texts) for word in flags.data):
            for seed in range(flags.seeds):
                for row in accuracy(data, seed, flags.dims, flags.out / "code", more):
                    results.append(row)
                    writer.writerow(row)
                    stream.flush()
                    print(*row.values(), sep="  ", flush=True)
    figure(results, flags.out / "accuracy.png")
    print(f"kNN, linear probe, in percent; {flags.seeds} seeds\n\n{table(results)}")


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main(sys.argv[1:])
