"""Linear probe: multinomial logistic regression on frozen, standardised features."""

# N training samples, Q queries, D features

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import Tensor

from counterpoint.core.checks import check_features, check_labels, check_positive
from counterpoint.core.metric import Metric
from counterpoint.core.thread_parts import one_thread
from counterpoint.evaluation.scoring import Labelled, Score, share_correct

MAX_ITERATIONS = 1000
INVERSE_PENALTY = 0.1


def probe_predict(
    train_ND: Tensor, labels_N: Tensor, queries_QD: Tensor, *, inverse_penalty: float = INVERSE_PENALTY
) -> Tensor:
    """Fit on labelled features and predict the queries' classes, with one thread: the solver's products are small.

    Features are standardised by the training samples' mean and deviation; the solver is L-BFGS, so nothing
    is random and no learning rate is to be tuned.

    Args:
        train_ND: features of labelled samples.
        labels_N: their classes, int64.
        queries_QD: features to classify.
        inverse_penalty: C > 0 of the squared penalty on the weights.

    Returns:
        Classes (q,), int64.

    Raises:
        ValueError: fewer than two classes, or an argument out of range.
    """
    check_features(train_ND, "train")
    check_features(queries_QD, "queries", min_rows=1)
    check_labels(labels_N, len(train_ND))
    check_positive(inverse_penalty, "inverse_penalty")
    if len(labels_N.unique()) < 2:
        raise ValueError("a linear probe needs samples of at least 2 classes")
    # One pipeline: queries are standardised by the training samples' moments.
    probe = make_pipeline(StandardScaler(), LogisticRegression(C=inverse_penalty, max_iter=MAX_ITERATIONS))
    with one_thread(), settled():
        probe.fit(train_ND.numpy(), labels_N.numpy())
        return torch.from_numpy(probe.predict(queries_QD.numpy()))


@contextmanager
def settled() -> Iterator[None]:
    """No warning where the solver stops early: the accuracy has long settled when its tolerance is met.

    Filters belong to the process. Threads that probe side by side are therefore started within one such block, and
    their own change nothing.
    """
    # ``catch_warnings`` puts back what it found; of threads that overlap, that may be another thread's filter.
    if any(entry[0] == "ignore" and entry[2] is ConvergenceWarning for entry in warnings.filters):
        yield
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        yield


def probe_score(known: Labelled) -> Score:
    """Accuracy of the probe on the queries."""
    predicted_Q = probe_predict(known.bank_ND, known.labels_N, known.queries_QD)
    settings = {"model": "logistic regression", "C": INVERSE_PENALTY, "features": "standardised"}
    return Score(share_correct(predicted_Q, known.labels_Q), settings)


METRICS = (
    Metric(
        name="linear probe",
        title="Linear probe",
        short="linear probe",
        definition="Share of queries that get their own class from a linear classifier that was fitted to the frozen "
        "features of labelled samples.",
        source="alain2017",
        measure=probe_score,
        low=0.0,
        high=1.0,
        unit="share",
        interval="95 % Wilson interval over the queries",
        is_higher_better=True,
        wording="a linear classifier fitted to the frozen vectors of the bank names each query",
        headline="representation",
        leads="is ahead",
    ),
)
