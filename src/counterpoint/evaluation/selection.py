"""How much a part of the features keeps: orders in which to keep them, and any figure against the number kept."""

# N bank samples, Q queries, D features

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from counterpoint.core.checks import check_choice
from counterpoint.core.errors import unknown_name
from counterpoint.core.metric import KEEPING, Metric
from counterpoint.core.run_records import EvaluationRow
from counterpoint.core.thread_parts import one_thread, side_by_side
from counterpoint.data.order import random_order
from counterpoint.diagnostics.concepts import expected_activation
from counterpoint.evaluation.metric_types import Labelled, Score, row_of

Arrange = Callable[[Tensor], Tensor]
ALL = "all"  # orders


def selection_curve(
    known: Labelled,
    order: str,
    measure: Callable[[Labelled], Score],
    *,
    sizes: Sequence[int] | None = None,
    seed: int = 0,
) -> dict[int, Score]:
    """A metric with the first k features of an order, by k.

    With ``knn_score``, ``probe_score`` or a metric of ``retrieval`` as ``measure`` these are the curves of ncl2024:
    accuracy, and retrieval of dynamic length. Rows that are shorter after the selection are not scaled back here;
    metrics of cosines do so themselves, as ncl2024 says (its code does not: it searches by Euclidean distance).

    Source: ncl2024, section 5.1, appendices F.3 and G.4.

    Args:
        known: features with their classes; the order is made from those of the bank.
        order: "first" (as they come), "random", "expected activation" (mean absolute value in the unit-length rows),
            "non-negative expected activation" (the same of the positive parts, which are then what is kept),
            "variance", or "pca" (principal components of the centred features).
        measure: of a metric, as in its record.
        sizes: numbers of features; None for 1, 2, 4, ... and all.
        seed: of the random order.

    Raises:
        ValueError: an order that is not known, or sizes out of range.

    >>> from counterpoint.evaluation.knn import knn_score
    >>> bank, queries = torch.tensor([[1.0, 2.0, 9.0], [2.0, 1.0, -9.0]]), torch.tensor([[2.0, 1.0, 9.0]])
    >>> known = Labelled(bank, torch.tensor([0, 1]), queries, torch.tensor([0]), k=1, temperature=0.1)
    >>> found = selection_curve(known, "first", knn_score, sizes=[2, 3])
    >>> {size: score.outcome.value for size, score in found.items()}
    {2: 0.0, 3: 1.0}
    """
    check_choice(order, "order", ORDERS)
    num_features = known.bank_ND.shape[1]
    sizes = kept_sizes(num_features) if sizes is None else sizes
    for size in sizes:
        if not 1 <= size <= num_features:
            raise ValueError(f"sizes must be between 1 and the number of features, {num_features}, got {size}")
    with one_thread():
        arrange = ORDERS[order](known.bank_ND, seed)
        bank_ND, queries_QD = arrange(known.bank_ND), arrange(known.queries_QD)

    def score(size: int) -> Score:
        return measure(replace(known, bank_ND=bank_ND[:, :size], queries_QD=queries_QD[:, :size]))

    return dict(zip(sizes, side_by_side(score, sizes), strict=True))


def kept_sizes(num_features: int, step: int | None = None) -> list[int]:
    """Numbers of features to keep: 1, 2, 4, ... or the multiples of a step; and all of them.

    >>> kept_sizes(6), kept_sizes(70, 32)
    ([1, 2, 4, 6], [32, 64, 70])
    """
    if step is not None:
        return [*range(step, num_features, step), num_features]
    return [*(2**power for power in range((num_features - 1).bit_length())), num_features]


def chosen_orders(names: Sequence[str]) -> tuple[str, ...]:
    """Orders by their names, also with hyphens for blanks; ``all`` for all of them.

    Raises:
        UsageError: a name that is not known.

    >>> chosen_orders(["pca", "expected-activation"])
    ('expected activation', 'pca')
    """
    known = {name.replace("-", " "): name for name in ORDERS}
    asked = {name.replace("-", " ") for name in names}
    for name in sorted(asked - known.keys() - {ALL}):
        raise unknown_name("order of features", name, (ALL, *ORDERS))
    return tuple(name for spelled, name in known.items() if asked & {spelled, ALL})


def _as_they_come(fit_ND: Tensor, seed: int) -> Arrange:
    return lambda z_ND: z_ND


def _at_random(fit_ND: Tensor, seed: int) -> Arrange:
    places_D = random_order(seed, 0, fit_ND.shape[1])
    return lambda z_ND: z_ND[:, places_D]


def _by_activation(fit_ND: Tensor, seed: int) -> Arrange:
    return _falling(expected_activation(fit_ND))


def _by_positive_activation(fit_ND: Tensor, seed: int) -> Arrange:
    arrange = _falling(expected_activation(fit_ND.relu()))
    return lambda z_ND: arrange(z_ND.relu())


def _by_variance(fit_ND: Tensor, seed: int) -> Arrange:
    return _falling(fit_ND.double().var(dim=0))


def _by_components(fit_ND: Tensor, seed: int) -> Arrange:
    """Principal components, the largest first."""
    mean_D = fit_ND.double().mean(dim=0)
    centred_ND = fit_ND.double() - mean_D
    axes_DD = torch.linalg.eigh(centred_ND.T @ centred_ND).eigenvectors.flip(1)
    return lambda z_ND: ((z_ND.double() - mean_D) @ axes_DD).to(z_ND.dtype)


def _falling(weight_D: Tensor) -> Arrange:
    """The features with the largest weights first; of equal ones the first."""
    places_D = weight_D.argsort(descending=True, stable=True)
    return lambda z_ND: z_ND[:, places_D]


# Each makes an order from features and a seed.
ORDERS: Mapping[str, Callable[[Tensor, int], Arrange]] = {
    "first": _as_they_come,
    "random": _at_random,
    "expected activation": _by_activation,
    "non-negative expected activation": _by_positive_activation,
    "variance": _by_variance,
    "pca": _by_components,
}


def selection_figures(
    name: str, known: Labelled, metric: Metric, order: str, step: int | None = None
) -> list[EvaluationRow]:
    """The curve of some features, called ``name``, in an order; sizes as those of ``kept_sizes``."""
    figures, num_features = [], known.bank_ND.shape[1]
    for size, score in selection_curve(known, order, metric.measure, sizes=kept_sizes(num_features, step)).items():
        settings = {**score.settings, "kept": size, "features": num_features, "order": order}
        figures.append(row_of(name, f"{metric.name} {KEEPING} {size} by {order}", replace(score, settings=settings)))
    return figures
