"""Helper of evaluation.py: metrics of a table of features beside the libraries that do the same work.

Every peer must give the same figure within the case's tolerance, else it is not timed.
"""

# N samples, D features

import importlib.util
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

import torch
from measuring import Plan, Quartiles, paired_ratio, quartiles, take_turns, wall_seconds
from sklearn.neighbors import NearestNeighbors
from torch import Tensor

from counterpoint.evaluation.retrieval import retrieved_hits

OURS = "Counterpoint"
CLASSES, RETRIEVED = 100, 10
PLAN = Plan(warm_ups=1, short_rounds=3, long_rounds=3, sample_seconds=0.0)


@dataclass(frozen=True)
class Case:
    """One figure of one table.

    Attributes:
        title: heading.
        ours: computes the figure.
        peers: the same by others; a text where one cannot be asked says why.
        limit: seconds that ours may take; None for no limit.
        close: how far figures may be apart.
    """

    title: str
    ours: Callable[[], float]
    peers: Mapping[str, Callable[[], float] | str] = field(default_factory=dict)
    limit: float | None = None
    close: float = 1e-4


def faiss_neighbours(queries_QD: Tensor, bank_ND: Tensor) -> Tensor:
    """The ten nearest samples of the bank by inner product of unit rows, from an exhaustive index."""
    import faiss  # deferred: optional

    unit = [torch.nn.functional.normalize(rows).numpy() for rows in (queries_QD, bank_ND)]
    index = faiss.IndexFlatIP(unit[1].shape[1])
    index.add(unit[1])
    return torch.from_numpy(index.search(unit[0], RETRIEVED)[1])


def sklearn_neighbours(queries_QD: Tensor, bank_ND: Tensor) -> Tensor:
    """The ten nearest samples of the bank by scikit-learn's exhaustive search."""
    search = NearestNeighbors(n_neighbors=RETRIEVED, metric="cosine", algorithm="brute").fit(bank_ND.numpy())
    return torch.from_numpy(search.kneighbors(queries_QD.numpy(), return_distance=False))


def found_precision(neighbours: Callable[[Tensor, Tensor], Tensor], data: tuple[Tensor, ...]) -> float:
    """Precision of the ten nearest, in a few lines of torch."""
    queries_QD, labels_Q, bank_ND, labels_N = data
    return float((labels_N[neighbours(queries_QD, bank_ND)] == labels_Q[:, None]).double().mean())


def cases(*, is_quick: bool) -> list[Case]:
    """The cases in full size, or in a size that takes a second."""
    generator = torch.Generator().manual_seed(1)
    num_samples, width = (400, 16) if is_quick else (50_000, 128)
    labels = torch.randint(CLASSES, (num_samples,), generator=generator)
    centres = torch.randn(CLASSES, width, generator=generator)
    features = 0.3 * centres[labels] + torch.randn(num_samples, width, generator=generator)
    num_queries = num_samples // 5
    data = features[:num_queries], labels[:num_queries], features[num_queries:], labels[num_queries:]
    lacks_faiss = "" if importlib.util.find_spec("faiss") else "not installed: faiss-cpu"
    return [
        Case(
            f"precision@{RETRIEVED} of {num_queries:,} queries against {num_samples - num_queries:,} x {width}",
            lambda: float(retrieved_hits(*data, k=RETRIEVED).mean()),
            {
                "faiss flat": lacks_faiss or partial(found_precision, faiss_neighbours, data),
                "scikit-learn, brute force": partial(found_precision, sklearn_neighbours, data),
            },
            limit=60.0,
        ),
    ]


def measured(case: Case) -> tuple[list[str], list[str]]:
    """Lines of the case's table, and what is wrong: figures that differ, and a limit that is passed."""
    figure, wrong = case.ours(), []
    steps: dict[str, Callable[[], object]] = {OURS: case.ours}
    notes = {name: peer for name, peer in case.peers.items() if isinstance(peer, str)}
    for name, peer in case.peers.items():
        if isinstance(peer, str):
            continue
        if abs((theirs := peer()) - figure) <= case.close:
            steps[name] = peer
        else:
            notes[name] = "another figure, not timed"
            wrong.append(f"{case.title}: {name} gives {theirs:.6f}, we {figure:.6f}")
    seconds = take_turns({name: partial(_call, step) for name, step in steps.items()}, wall_seconds, PLAN)
    lines = [f"### {case.title}", "", "| implementation | seconds | time / ours |", "|---|---:|---:|"]
    for name in [OURS, *case.peers]:
        time, ratio = notes.get(name, "-"), "-"
        if name in seconds:
            time = _written(quartiles(seconds[name]))
            ratio = "-" if name == OURS else _written(paired_ratio(seconds[name], seconds[OURS]))
        lines.append(f"| {name} | {time} | {ratio} |")
    median = quartiles(seconds[OURS]).median
    if case.limit is not None:
        lines += ["", f"At most {case.limit:g} s: {'met' if median <= case.limit else 'missed'}."]
        wrong += [f"{case.title}: {median:.1f} s, at most {case.limit:g}"] if median > case.limit else []
    return lines, wrong


def _call(step: Callable[[], object]) -> None:
    step()


def _written(value: Quartiles) -> str:
    return f"{value.median:.3g} [{value.low:.3g}, {value.high:.3g}]"
