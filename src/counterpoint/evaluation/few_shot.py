"""Few-shot accuracy: a linear probe on a few labelled samples of each class, drawn again and again."""

# N labelled samples, Q queries

import statistics
from dataclasses import replace

import torch
from torch import Tensor

from counterpoint.core.errors import UsageError
from counterpoint.core.metric import accuracy_metric
from counterpoint.data.order import random_order
from counterpoint.evaluation.linear_probe import probe_score
from counterpoint.evaluation.metric_types import Labelled, Score, t_interval

REPETITIONS = 10


def draw_shots(labels_N: Tensor, shots: int, *, seed: int) -> Tensor:
    """Positions of some samples of each class, ascending; more shots of one seed contain the fewer.

    Args:
        labels_N: classes of the samples, from 0.
        shots: samples of each class.
        seed: the draw.

    Raises:
        UsageError: a class has fewer samples; it is named.

    >>> labels = torch.tensor([1, 0, 1, 0, 1, 0])
    >>> labels[draw_shots(labels, 2, seed=0)].bincount()
    tensor([2, 2])
    """
    drawn, short = [], {}
    for label in labels_N.unique().tolist():
        members = (labels_N == label).nonzero()[:, 0]
        if len(members) < shots:
            short[label] = len(members)
        drawn.append(members[random_order(seed, label, len(members))[:shots]])
    if short:
        first = ", ".join(f"class {label} has {count}" for label, count in list(short.items())[:5])
        raise UsageError(
            f"{shots}-shot accuracy needs {shots} labelled samples of each class; {len(short)} of {len(drawn)} have "
            f"fewer: {first}; ask for fewer shots, or leave these classes out"
        )
    return torch.cat(drawn).sort().values


def few_shot_score(known: Labelled, shots: int) -> Score:
    """Mean accuracy of the probe over ten draws, with Student's interval: it says how much depends on the draw.

    The queries are the same for all draws, so it does not say how much depends on them.
    """
    scores = []
    for seed in range(REPETITIONS):
        own = draw_shots(known.labels_N, shots, seed=seed)
        scores.append(probe_score(replace(known, bank_ND=known.bank_ND[own], labels_N=known.labels_N[own])))
    values = [score.outcome.value for score in scores]
    settings = {
        "shots": shots,
        "repetitions": REPETITIONS,
        "seeds": f"0 to {REPETITIONS - 1}",
        "standard deviation": round(statistics.stdev(values), 4),
    }
    mean = t_interval(values)
    assert mean.low is not None
    assert mean.high is not None
    # An accuracy outside of [0, 1] is none.
    within = replace(mean, low=max(0.0, mean.low), high=min(1.0, mean.high))
    return Score(within, {**scores[0].settings, **settings})


METRICS = (
    accuracy_metric(
        name="1-shot",
        title="1-shot accuracy",
        short="1-shot",
        definition="Share of queries that get their own class from a linear classifier that was fitted to "
        "one sample of each class, mean of ten draws.",
        source="student1908",
        measure=lambda known: few_shot_score(known, 1),
        interval="95 % t interval over the draws",
        wording="a linear classifier fitted to one sample of each class names each query, in ten draws",
        on_request=True,
    ),
    accuracy_metric(
        name="5-shot",
        title="5-shot accuracy",
        short="5-shot",
        definition="Share of queries that get their own class from a linear classifier that was fitted to "
        "five samples of each class, mean of ten draws.",
        source="student1908",
        measure=lambda known: few_shot_score(known, 5),
        interval="95 % t interval over the draws",
        wording="a linear classifier fitted to five samples of each class names each query, in ten draws",
        on_request=True,
    ),
    accuracy_metric(
        name="20-shot",
        title="20-shot accuracy",
        short="20-shot",
        definition="Share of queries that get their own class from a linear classifier that was fitted to "
        "twenty samples of each class, mean of ten draws.",
        source="student1908",
        measure=lambda known: few_shot_score(known, 20),
        interval="95 % t interval over the draws",
        wording="a linear classifier fitted to twenty samples of each class names each query, in ten draws",
        on_request=True,
    ),
)
