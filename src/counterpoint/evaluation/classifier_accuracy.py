"""Accuracy of the classifier that a supervised method trained with its encoder; nothing is fitted to the bank."""

# N samples, Q queries, C classes

from collections.abc import Sequence

import torch
from torch import Tensor

from counterpoint.core.errors import DataError
from counterpoint.core.metric import accuracy_metric
from counterpoint.engine.progress import Reporter
from counterpoint.evaluation.metric_types import Labelled, Score, accuracy
from counterpoint.nn.trained import Encoder

CLASSIFIER = "classifier"
MOST_NAMED = 5  # classes that a sentence lists


def own_classes(
    encoder: Encoder, representations: Tensor, class_names: Sequence[str], reporter: Reporter
) -> Tensor | None:
    """Classes of samples by an encoder's own classifier, as numbers of the samples' classes.

    Args:
        encoder: with a classifier.
        representations: of the samples, (n, width).
        class_names: of the samples' classes, which are known by their names.
        reporter: says where the classifier knows none of these classes.

    Returns:
        Class numbers (n,); -1 for a class that these samples do not have. None where the classifier knows none.
    """
    logits_NC = encoder.class_logits(representations)
    assert encoder.classifier is not None
    known = encoder.classifier.class_names
    number_of = {name: number for number, name in enumerate(class_names)}
    if not number_of.keys() & set(known):
        listed = ", ".join(known[:MOST_NAMED]) + (", ..." if len(known) > MOST_NAMED else "")
        reporter.say(
            f"{CLASSIFIER} is left out: it knows none of the classes of these samples; it was trained with {listed}"
        )
        return None
    return torch.tensor([number_of.get(name, -1) for name in known])[logits_NC.argmax(dim=1)]


def classifier_score(known: Labelled) -> Score:
    """Accuracy on the queries, all of them: one of a class that the classifier does not know counts as wrong."""
    if known.predicted_Q is None:
        raise DataError("this run has no classifier; supervised, nonnegative-supervised and fine-tune keep one")
    return accuracy(known.predicted_Q, known.labels_Q, {"trained": "with the encoder"})


METRICS = (
    accuracy_metric(
        name="classifier",
        title="Own classifier",
        short="own classifier",
        definition="Share of queries that get their own class from the classifier that was trained with the encoder; "
        "of runs that learn from labels.",
        source="ncl2024",
        measure=classifier_score,
        wording="the classifier that was trained with the encoder names each query",
    ),
)
