"""How much a part of the features keeps: orders in which to keep them, and any figure against the number kept."""

# N bank samples, Q queries, D features

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from counterpoint.core.checks import check_choice, check_features
from counterpoint.core.errors import unknown_name
from counterpoint.core.metric import KEEPING, Metric
from counterpoint.core.paired_shares import score_interval
from counterpoint.core.run_records import EvaluationRow
from counterpoint.core.thread_parts import one_thread, side_by_side
from counterpoint.data.order import random_order
from counterpoint.diagnostics.concepts import expected_activation
from counterpoint.evaluation.knn import Vote, knn_predict
from counterpoint.evaluation.metric_types import IntervalEstimate, Labelled, Score, row_of

Arrange = Callable[[Tensor], Tensor]
KEPT_SHARE = 0.25
BY_ACTIVATION = "expected activation"
ALL = "all"  # orders


@dataclass(frozen=True)
class Kept:
    """What a metric found with so many features."""

    num_features: int
    score: Score


def selection_curve(
    known: Labelled,
    order: str,
    measure: Callable[[Labelled], Score],
    *,
    sizes: Sequence[int] | None = None,
    fit_ND: Tensor | None = None,
    seed: int = 0,
) -> tuple[Kept, ...]:
    """A metric with the first k features of an order, for several k.

    With ``knn_score``, ``probe_score`` or a metric of ``retrieval`` as ``measure`` these are the curves of ncl2024:
    accuracy, and retrieval of dynamic length. For transfer, ``known`` has the features of the other data and ``fit_ND``
    those of the data trained on. Rows that are shorter after the selection are not scaled back here; metrics of
    cosines do so themselves, as ncl2024 says (its code does not: it searches by Euclidean distance).

    Source: ncl2024, section 5.1, appendices F.3 and G.4.

    Args:
        known: features with their classes.
        order: "first" (as they come), "random", "expected activation" (mean absolute value in the unit-length rows),
            "non-negative expected activation" (the same of the positive parts, which are then what is kept),
            "variance", or "pca" (principal components of the centred features).
        measure: of a metric, as in its record.
        sizes: numbers of features; None for 1, 2, 4, ... and all.
        fit_ND: features that the order is made from; None for the bank.
        seed: of the random order.

    Raises:
        ValueError: an order that is not known, or sizes out of range.

    >>> from counterpoint.evaluation.knn import knn_score
    >>> bank, queries = torch.tensor([[1.0, 2.0, 9.0], [2.0, 1.0, -9.0]]), torch.tensor([[2.0, 1.0, 9.0]])
    >>> known = Labelled(bank, torch.tensor([0, 1]), queries, torch.tensor([0]), k=1, temperature=0.1)
    >>> [point.score.outcome.value for point in selection_curve(known, "first", knn_score, sizes=[2, 3])]
    [0.0, 1.0]
    """
    check_choice(order, "order", ORDERS)
    num_features = known.bank_ND.shape[1]
    sizes = kept_sizes(num_features) if sizes is None else sizes
    for size in sizes:
        if not 1 <= size <= num_features:
            raise ValueError(f"sizes must be between 1 and the number of features, {num_features}, got {size}")
    fit_ND = known.bank_ND if fit_ND is None else fit_ND
    check_features(fit_ND, "fit")
    with one_thread():
        arrange = ORDERS[order](fit_ND, seed)
        bank_ND, queries_QD = arrange(known.bank_ND), arrange(known.queries_QD)

    def point(size: int) -> Kept:
        first = replace(known, bank_ND=bank_ND[:, :size], queries_QD=queries_QD[:, :size])
        return Kept(size, measure(first))

    return tuple(side_by_side(point, sizes))


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
    BY_ACTIVATION: _by_activation,
    "non-negative expected activation": _by_positive_activation,
    "variance": _by_variance,
    "pca": _by_components,
}


def quarter_score(known: Labelled) -> Score:
    """Accuracy of the kNN vote with a quarter of the features, minus that with all."""
    num_features = known.bank_ND.shape[1]
    num_kept = max(1, round(KEPT_SHARE * num_features))
    with one_thread():
        arrange = _by_activation(known.bank_ND, 0)
    bank_ND, queries_QD = arrange(known.bank_ND)[:, :num_kept], arrange(known.queries_QD)[:, :num_kept]

    def is_right(bank_ND: Tensor, queries_QD: Tensor) -> Tensor:
        vote = Vote(known.k, known.temperature)
        return knn_predict(bank_ND, known.labels_N, queries_QD, vote) == known.labels_Q

    with_all_Q, kept_Q = is_right(known.bank_ND, known.queries_QD), is_right(bank_ND, queries_QD)
    settings = {
        "order": BY_ACTIVATION,
        "kept": num_kept,
        "features": num_features,
        "accuracy": float(kept_Q.double().mean()),
        "accuracy_of_all": float(with_all_Q.double().mean()),
        "k": known.k,
        "temperature": known.temperature,
    }
    gained, lost = int((kept_Q & ~with_all_Q).sum()), int((with_all_Q & ~kept_Q).sum())
    total = len(kept_Q)
    return Score(IntervalEstimate((gained - lost) / total, *score_interval(gained, lost, total)), settings)


@dataclass(frozen=True)
class Selection:
    """Which curves are asked for.

    Attributes:
        orders: of features, names of ``ORDERS``.
        metrics: measured at each size.
        step: sizes are its multiples; None for 1, 2, 4, ...
        ranked_on: what the orders are made from, in words; empty for the bank.
    """

    orders: Sequence[str]
    metrics: Sequence[Metric]
    step: int | None = None
    ranked_on: str = ""


def selection_figures(
    name: str,
    known: Labelled,
    asked: Selection,
    fit_ND: Tensor | None = None,
    advance: Callable[[], None] = lambda: None,
) -> list[EvaluationRow]:
    """Curves of some features: each metric with the first k of each order.

    Args:
        name: of the features.
        known: the features.
        asked: which curves.
        fit_ND: features that the orders are made from; None for the bank.
        advance: called after each curve.
    """
    figures, num_features = [], known.bank_ND.shape[1]
    sizes = kept_sizes(num_features, asked.step)
    for metric in asked.metrics:
        for order in asked.orders:
            for point in selection_curve(known, order, metric.measure, sizes=sizes, fit_ND=fit_ND):
                settings = {"kept": point.num_features, "features": num_features, "order": order}
                settings |= {"ranked on": asked.ranked_on} if asked.ranked_on else {}
                score = replace(point.score, settings={**point.score.settings, **settings})
                figures.append(row_of(name, f"{metric.name} {KEEPING} {point.num_features} by {order}", score))
            advance()
    return figures


METRICS = (
    Metric(
        name="quarter kept",
        title="kNN with a quarter of the features",
        short="quarter kept",
        definition="Accuracy of the kNN vote with the quarter of the features that has the largest expected "
        "activation, minus its accuracy with all of them. 0 means that the others add nothing.",
        source="ncl2024",
        measure=quarter_score,
        low=-1.0,
        high=1.0,
        interval="95 % score interval of the difference of two shares of the same queries",
        is_higher_better=True,
        wording="change of the accuracy of the kNN vote where only the [{kept} ][of {features} ]features with the "
        "largest expected activation are kept",
        on_request=True,
    ),
)
