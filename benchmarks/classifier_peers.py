"""Helper of evaluation.py: kNN and linear probe on drawn features, beside faiss, lightly, solo-learn and scikit-learn.

As a command it prints what the linear probe takes in one thread, alone and beside a busy process. With the words task,
implementation, samples, queries and features it prints, as JSON, the extra peak memory of one in a fresh process.
"""

# N labelled samples, Q queries, D features, K neighbours

import contextlib
import dataclasses
import functools
import importlib.util
import json
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import torch
from measuring import Plan, Step, extra_of_call, paired_ratio, quartiles, take_turns, wall_seconds
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from threadpoolctl import threadpool_limits
from torch import Tensor

from counterpoint.core.stored_rows import load
from counterpoint.evaluation.knn import Vote, knn_predict
from counterpoint.evaluation.linear_probe import SoftmaxRegression, fit, fit_scaling

OURS = "Counterpoint"
CLASSES, NEIGHBOURS, TEMPERATURE, INVERSE_PENALTY = 10, 200, 0.1, 0.1
CHUNK = 512  # queries that lightly takes at a time, as in its benchmarks
SAME_VOTES, SAME_LOSS = 0.999, 1e-5
PLAN = Plan(warm_ups=1, short_rounds=5, long_rounds=2, sample_seconds=0.0)
HEADER = "| implementation | seconds | time / ours | extra peak, MiB | remark |\n|---|---:|---:|---:|---|"


@dataclass(frozen=True)
class Sizes:
    """Numbers of samples, queries and features of a table."""

    num_samples: int
    num_queries: int
    num_features: int


FULL, QUICK = Sizes(50_000, 10_000, 512), Sizes(2_000, 500, 32)
ONE_THREAD = (Sizes(2_000, 10, 64), Sizes(8_000, 10, 256), Sizes(50_000, 10, 512))


@dataclass(frozen=True)
class Drawn:
    """Features behind a random ReLU layer, correlated and overlapping, as those of a network are."""

    bank_ND: Tensor
    labels_N: Tensor
    queries_QD: Tensor

    @functools.cached_property
    def problem(self) -> SoftmaxRegression:
        """Problem of the linear probe."""
        return SoftmaxRegression(fit_scaling(self.bank_ND)(self.bank_ND), self.labels_N, INVERSE_PENALTY)

    @functools.cached_property
    def votes(self) -> Tensor:
        """Our classes of the queries, for a peer that tells only how many queries get a given class."""
        return knn_predict(self.bank_ND, self.labels_N, self.queries_QD, Vote(NEIGHBOURS, TEMPERATURE))


def draw(sizes: Sizes) -> Drawn:
    """Draw features, the same in every process."""
    generator = torch.Generator().manual_seed(0)
    centres = 0.25 * torch.randn(CLASSES, 64, generator=generator)
    first = torch.randn(64, 512, generator=generator) / 8
    second = torch.randn(512, sizes.num_features, generator=generator) / 512**0.5

    def features(labels: Tensor) -> Tensor:
        hidden = torch.relu((centres[labels] + torch.randn(len(labels), 64, generator=generator)) @ first)
        return torch.relu(hidden @ second) + 0.02 * torch.randn(len(labels), sizes.num_features, generator=generator)

    labels = torch.randint(CLASSES, (sizes.num_samples + sizes.num_queries,), generator=generator)
    values = features(labels)
    return Drawn(values[: sizes.num_samples], labels[: sizes.num_samples], values[sizes.num_samples :])


def by_faiss(drawn: Drawn) -> Tensor:
    """Classes by an exact inner-product index of unit vectors, and the vote in torch."""
    import faiss  # deferred: optional

    faiss.omp_set_num_threads(torch.get_num_threads())
    unit = [torch.nn.functional.normalize(part).numpy() for part in (drawn.bank_ND, drawn.queries_QD)]
    index = faiss.IndexFlatIP(unit[0].shape[1])
    index.add(unit[0])
    cosine_QK, place_QK = (torch.from_numpy(part) for part in index.search(unit[1], NEIGHBOURS))
    votes_QC = torch.zeros(len(cosine_QK), CLASSES)
    return votes_QC.scatter_add_(1, drawn.labels_N[place_QK], (cosine_QK / TEMPERATURE).exp()).argmax(dim=1)


def by_lightly(drawn: Drawn) -> Tensor:
    """Classes by lightly's ``knn_predict``."""
    from lightly.utils.benchmarking.knn import knn_predict as predict  # deferred: optional

    bank_DN = torch.nn.functional.normalize(drawn.bank_ND).T.contiguous()
    queries_QD = torch.nn.functional.normalize(drawn.queries_QD)
    options = {"num_classes": CLASSES, "knn_k": NEIGHBOURS, "knn_t": TEMPERATURE}
    return torch.cat([predict(part, bank_DN, drawn.labels_N, **options)[:, 0] for part in queries_QD.split(CHUNK)])


def by_solo_learn(drawn: Drawn) -> Tensor:
    """Classes by solo-learn's weighted kNN, from its file alone: the package needs others that torch 2 left behind.

    It tells how many queries get a given class, each of which must occur; votes of ours that it does not find are -1.
    """
    place = importlib.util.find_spec("solo")
    if place is None or place.submodule_search_locations is None:
        raise ImportError("solo-learn is not installed")
    file = Path(place.submodule_search_locations[0]) / "utils" / "knn.py"
    described = importlib.util.spec_from_file_location("solo_knn", file)
    assert described is not None
    assert described.loader is not None
    module = importlib.util.module_from_spec(described)
    described.loader.exec_module(module)
    unit = [torch.nn.functional.normalize(part) for part in (drawn.bank_ND, drawn.queries_QD)]
    votes_Q = drawn.votes.clone()
    # Its constructor has an argument that torchmetrics has dropped; the figure needs its states only.
    states = {"train_features": [unit[0]], "train_targets": [drawn.labels_N], "test_features": [unit[1]]}
    options = {"k": NEIGHBOURS, "T": TEMPERATURE, "max_distance_matrix_size": int(5e6), "distance_fx": "cosine"}
    classifier = SimpleNamespace(**states, **options, test_targets=[votes_Q], epsilon=0.0, reset=lambda: None)
    percent, _ = module.WeightedKNNClassifier.compute(classifier)
    votes_Q[: round((1 - percent / 100) * len(votes_Q))] = -1
    return votes_Q


def by_scikit_learn(drawn: Drawn) -> Tensor:
    """Classes by scikit-learn's classifier by cosine distance, with the same weights."""

    def weights(distances: np.ndarray) -> np.ndarray:
        return np.exp(-distances / TEMPERATURE)

    peer = KNeighborsClassifier(NEIGHBOURS, metric="cosine", weights=weights)  # pyright: ignore[reportArgumentType]
    return torch.from_numpy(peer.fit(drawn.bank_ND.numpy(), drawn.labels_N.numpy()).predict(drawn.queries_QD.numpy()))


def loss_of_ours(drawn: Drawn) -> float:
    """The loss at the weights at which our solver ends."""
    return fit(drawn.problem).loss


def weights_of_scikit_learn(drawn: Drawn, tolerance: float, dtype: torch.dtype = torch.float32) -> Tensor:
    """Weights at which scikit-learn's solver ends."""
    problem = drawn.problem
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        peer = LogisticRegression(C=INVERSE_PENALTY, max_iter=1000, tol=tolerance)
        peer.fit(load(problem.x_ND).to(dtype).numpy(), problem.class_N.numpy())
    return torch.cat([torch.from_numpy(peer.coef_), torch.from_numpy(peer.intercept_)[:, None]], dim=1).double()


def loss_of_scikit_learn(drawn: Drawn, tolerance: float) -> float:
    """The loss at the weights at which scikit-learn's solver ends."""
    return drawn.problem.loss_and_slope(weights_of_scikit_learn(drawn, tolerance))[0]


Call = Callable[[Drawn], Tensor | float]
KNN: Mapping[str, Call] = {
    OURS: lambda drawn: knn_predict(drawn.bank_ND, drawn.labels_N, drawn.queries_QD, Vote(NEIGHBOURS, TEMPERATURE)),
    "faiss flat": by_faiss,
    "lightly": by_lightly,
    "solo-learn": by_solo_learn,
    "scikit-learn": by_scikit_learn,
}
PROBE: Mapping[str, Call] = {
    OURS: loss_of_ours,
    "scikit-learn, tol 1e-4 (default)": lambda drawn: loss_of_scikit_learn(drawn, 1e-4),
    "scikit-learn, tol 1e-6": lambda drawn: loss_of_scikit_learn(drawn, 1e-6),
}
TASKS = {"knn": KNN, "probe": PROBE}


def compare_classifiers(sizes: Sizes) -> bool:
    """Print a table for each task, and tell whether the implementations agree."""
    drawn, agree = draw(sizes), True
    _ = drawn.problem, drawn.votes  # once, for all
    shape = f"{sizes.num_samples:,} x {sizes.num_features}"
    for task, title in (
        ("knn", f"kNN-{NEIGHBOURS}, {sizes.num_queries:,} queries against {shape}"),
        ("probe", f"linear probe, {shape}, {CLASSES} classes, C = {INVERSE_PENALTY}"),
    ):
        calls, absent = installed(TASKS[task], drawn)
        results = {name: call(drawn) for name, call in calls.items()}
        remarks = {name: difference(results[OURS], other) for name, other in results.items()}
        steps = {name: _step(call, drawn) for name, call in calls.items()}
        seconds = take_turns(steps, wall_seconds, PLAN)
        print(f"\n### {title}\n\n{HEADER}")
        for name in calls:
            ratio = paired_ratio(seconds[name], seconds[OURS]).median
            memory = _extra_mib(task, name, sizes)
            print(f"| {name} | {quartiles(seconds[name]).median:.2f} | {ratio:.2f} | {memory:.0f} | {remarks[name]} |")
            agree &= name == OURS or "differs" not in remarks[name]
        for name in absent:
            print(f"| {name} | - | - | - | not installed |")
        sys.stdout.flush()
    return agree


def _step(call: Call, drawn: Drawn) -> Step:
    """A step that makes the call, and drops its result."""

    def step() -> None:
        call(drawn)

    return step


def installed(calls: Mapping[str, Call], drawn: Drawn) -> tuple[dict[str, Call], list[str]]:
    """Calls whose package is installed, and the names of the others."""
    few = Drawn(drawn.bank_ND[:300], drawn.labels_N[:300], drawn.queries_QD[:200])
    present, absent = {}, []
    for name, call in calls.items():
        try:
            call(few)
            present[name] = call
        except ImportError:
            absent.append(name)
    return present, absent


def difference(ours: Tensor | float, theirs: Tensor | float) -> str:
    """How the results of two implementations differ, in words."""
    if isinstance(ours, Tensor):
        share = float((ours == theirs).double().mean())
        return f"{'differs: ' if share < SAME_VOTES else ''}{share:.2%} the same classes"
    gap = float(theirs) - ours
    # Ours above theirs is a fault of ours; theirs above ours only says where they stop.
    return f"{'differs: ' if gap < -SAME_LOSS else ''}loss {float(theirs):.7f}, {gap:+.1e} from ours" + (
        " (not at the optimum)" if gap > SAME_LOSS else ""
    )


def _extra_mib(task: str, name: str, sizes: Sizes) -> float:
    """Peak memory of one call in a fresh process, above that of the features."""
    words = [task, name, *map(str, dataclasses.astuple(sizes)), str(torch.get_num_threads())]
    finished = subprocess.run([sys.executable, __file__, *words], capture_output=True, text=True, check=True)
    return float(json.loads(finished.stdout.splitlines()[-1])["extra_mib"])


def weights_of_ours(drawn: Drawn) -> Tensor:
    """Weights at which our solver ends."""
    fitted = fit(drawn.problem)
    return torch.cat([fitted.weight_CD, fitted.intercept_C[:, None]], dim=1)


@contextlib.contextmanager
def busy_process() -> Iterator[None]:
    """Run the body beside one process that computes without end."""
    process = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        yield
    finally:
        process.kill()
        process.wait()


def compare_in_one_thread() -> None:
    """Print a line for each size and solver: medians of seconds, and the norm of the gradient where it ends."""
    print("| samples x features | one thread | seconds | of a processor | beside a busy process | gradient norm |")
    print("|---|---|---:|---:|---:|---:|")
    solvers: dict[str, Callable[[Drawn], Tensor]] = {
        OURS: weights_of_ours,
        "scikit-learn, float32, tol 1e-5": lambda drawn: weights_of_scikit_learn(drawn, 1e-5),
        "scikit-learn, float64, tol 1e-6": lambda drawn: weights_of_scikit_learn(drawn, 1e-6, torch.float64),
    }
    for sizes in ONE_THREAD:
        drawn = draw(sizes)
        rounds = 3 if sizes.num_samples >= FULL.num_samples else 9
        for name, solve in solvers.items():
            with threadpool_limits(1):
                norm = float(drawn.problem.loss_and_slope(solve(drawn))[1].norm())
                wall, processor = _seconds(solve, drawn, rounds)
                with busy_process():
                    beside, _ = _seconds(solve, drawn, rounds)
            shape = f"{sizes.num_samples:,} x {sizes.num_features}"
            print(f"| {shape} | {name} | {wall:.3f} | {processor:.3f} | {beside:.3f} | {norm:.1e} |", flush=True)


def _seconds(solve: Callable[[Drawn], Tensor], drawn: Drawn, rounds: int) -> tuple[float, float]:
    """Median seconds of a call, by the clock and of the processor."""
    walls, processors = [], []
    for _ in range(rounds):
        start, own = time.perf_counter(), time.process_time()
        solve(drawn)
        walls.append(time.perf_counter() - start)
        processors.append(time.process_time() - own)
    return statistics.median(walls), statistics.median(processors)


def main() -> None:
    """Compare in one thread; or load code on a few samples, then measure."""
    if len(sys.argv) == 1:
        compare_in_one_thread()
        return
    task, name, *sizes, threads = sys.argv[1:]
    torch.set_num_threads(int(threads))
    drawn, call = draw(Sizes(*map(int, sizes))), TASKS[task][name]
    _ = drawn.problem, drawn.votes
    call(Drawn(drawn.bank_ND[:300], drawn.labels_N[:300], drawn.queries_QD[:200]))
    print(json.dumps(dataclasses.asdict(extra_of_call(_step(call, drawn)))))


if __name__ == "__main__":
    main()
