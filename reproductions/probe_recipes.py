"""Linear probes and votes as papers have them; a probe has minibatches, a learning rate and epochs: the last counts."""

# N labelled samples, Q queries, D features, C classes, E epochs, B samples of a batch

import itertools
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor
from torch.optim import SGD, Adam, Optimizer

from counterpoint.core.metric import accuracy_metric
from counterpoint.core.thread_parts import one_thread
from counterpoint.data.order import random_order
from counterpoint.engine.optimisers import LARS, Schedule
from counterpoint.evaluation.knn import knn_score
from counterpoint.evaluation.linear_probe import errors, fit_scaling, numbered
from counterpoint.evaluation.metric_types import Labelled, Score, accuracy, check_known

MOMENTUM = 0.9  # of SGD and LARS
TRUST = 0.02  # of LARS
SEED = 0
TEMPERATURE = 0.1  # of votes


@dataclass(frozen=True)
class ProbeRecipe:
    """Optimiser, rates and epochs of a linear classifier's training.

    Attributes:
        optimizer: ``adam`` and ``sgd`` decay weights and intercept alike, ``lars`` the weights alone.
        learning_rate: at its highest.
        weight_decay: added to the gradient.
        batch_size: samples of a step; the last batch of an epoch may have fewer.
        epochs: passes over the samples, each in an order of its own.
        is_standardised: whether features are standardised by the labelled samples; else they are as they are.
        schedule: ``constant``, ``epoch-cosine`` (one rate for an epoch), or ``cosine`` after ``warmup_epochs``.
        warmup_epochs: of a linear rise.
        deviation: of the normal distribution of the first weights, with intercepts 0; None for torch's uniform one,
            with entries up to the inverse root of the number of features.
    """

    optimizer: Literal["adam", "sgd", "lars"]
    learning_rate: float
    weight_decay: float
    batch_size: int
    epochs: int
    is_standardised: bool = False
    schedule: Literal["constant", "epoch-cosine", "cosine"] = "constant"
    warmup_epochs: int = 0
    deviation: float | None = None

    def rates(self, batches_per_epoch: int) -> Schedule:
        """The learning rate of each step."""
        return Schedule(
            self.learning_rate,
            num_steps=self.epochs * batches_per_epoch,
            num_warmup=self.warmup_epochs * batches_per_epoch,
            final_share=1.0 if self.schedule == "constant" else 0.0,
            held_for=batches_per_epoch if self.schedule == "epoch-cosine" else 1,
        )

    def first_weights(self, num_classes: int, num_features: int, seed: int) -> tuple[Tensor, Tensor]:
        """Draw weights (classes, features) and intercepts, which depend on nothing but the arguments."""
        generator = torch.Generator().manual_seed(seed)
        weight_CD, intercept_C = torch.empty(num_classes, num_features), torch.zeros(num_classes)
        if self.deviation is not None:
            return weight_CD.normal_(std=self.deviation, generator=generator), intercept_C
        bound = num_features**-0.5
        weight_CD.uniform_(-bound, bound, generator=generator)
        return weight_CD, intercept_C.uniform_(-bound, bound, generator=generator)

    def optimiser(self, weight_CD: Tensor, intercept_C: Tensor) -> Optimizer:
        """Build the optimiser of weights and intercepts; its learning rate is set before each step."""
        both: dict[str, Any] = {"lr": self.learning_rate, "weight_decay": self.weight_decay}
        if self.optimizer == "lars":
            plain = {**both, "params": [intercept_C], "weight_decay": 0.0, "is_adapted": False}
            groups = [{**both, "params": [weight_CD]}, plain]
            return LARS(groups, self.learning_rate, momentum=MOMENTUM, trust=TRUST, is_clipped=True)
        groups = [{**both, "params": [weight_CD, intercept_C]}]
        return Adam(groups, fused=True) if self.optimizer == "adam" else SGD(groups, momentum=MOMENTUM, fused=True)


@torch.no_grad()
def train_probe(bank_ND: Tensor, labels_N: Tensor, queries_QD: Tensor, recipe: ProbeRecipe, *, seed: int = 0) -> Tensor:
    """Train a softmax classifier on labelled features and predict the queries' classes after each epoch.

    Args:
        bank_ND: features of labelled samples.
        labels_N: their classes, whole numbers from 0.
        queries_QD: features to classify.
        recipe: how it is trained.
        seed: of the first weights and of the orders.

    Returns:
        Classes (epochs, q), int64. The last row is the result; to choose among rows by the queries' own labels is to
        train on them. The same bits for any number of threads.

    Raises:
        ValueError: fewer than two classes, or rows that are not finite.

    >>> recipe = ProbeRecipe("sgd", 0.1, 0.0, batch_size=2, epochs=3)
    >>> bank, labels = torch.tensor([[-2.0], [-1.0], [1.0], [2.0]]), torch.tensor([4, 4, 9, 9])
    >>> train_probe(bank, labels, torch.tensor([[-3.0], [3.0]]), recipe)[-1]
    tensor([4, 9])
    """
    check_known(bank_ND, labels_N, queries_QD)
    classes_C, class_N = numbered(labels_N)
    predicted = []
    with one_thread():  # steps are small: with more threads they would wait for each other
        x_ND = bank_ND
        if recipe.is_standardised:
            scaling = fit_scaling(bank_ND)
            x_ND, queries_QD = scaling(bank_ND), scaling(queries_QD)
        drawn = recipe.first_weights(len(classes_C), bank_ND.shape[1], seed)
        weight_CD, intercept_C = (part.to(bank_ND.dtype) for part in drawn)
        optimiser = recipe.optimiser(weight_CD, intercept_C)

        def descend(place_B: Tensor, rate: float) -> None:
            x_BD = x_ND[place_B]
            logits_CB = torch.addmm(intercept_C[:, None], weight_CD, x_BD.T)
            error_CB = errors(logits_CB.softmax(dim=0), class_N[None, place_B]) / len(place_B)
            weight_CD.grad, intercept_C.grad = error_CB @ x_BD, error_CB.sum(dim=1)
            for group in optimiser.param_groups:
                group["lr"] = rate
            optimiser.step()

        rates = recipe.rates(-(-len(class_N) // recipe.batch_size))
        steps = itertools.count()
        for epoch in range(recipe.epochs):
            for place_B in random_order(seed, epoch, len(class_N)).split(recipe.batch_size):
                descend(place_B, rates(next(steps)))
            logits_QC = torch.addmm(intercept_C, queries_QD, weight_CD.T)
            predicted.append(classes_C[logits_QC.argmax(dim=1)])
    return torch.stack(predicted)


def recipe_score(labelled: Labelled, recipe: ProbeRecipe) -> Score:
    """Accuracy on the queries after the last epoch; the best epoch, chosen by their labels, is a setting."""
    predicted_EQ = train_probe(labelled.bank_ND, labelled.labels_N, labelled.queries_QD, recipe, seed=SEED)
    share_E = (predicted_EQ == labelled.labels_Q).double().mean(dim=1)
    best = int(share_E.argmax())
    settings = {
        "optimiser": recipe.optimizer,
        "learning rate": recipe.learning_rate,
        "weight decay": recipe.weight_decay,
        "batch size": recipe.batch_size,
        "epochs": recipe.epochs,
        "schedule": recipe.schedule,
        "warm-up epochs": recipe.warmup_epochs,
        "features": "standardised" if recipe.is_standardised else "raw",
        "seed": SEED,
        "best epoch, chosen on the queries": f"{share_E[best]:.1%} after epoch {best + 1}",
    }
    return accuracy(predicted_EQ[-1], labelled.labels_Q, settings)


# Differs from the papers' probes where those saw crops and flips of pictures: here features are those of the pictures.
ADAM = ProbeRecipe("adam", 3e-4, 1e-3, batch_size=128, epochs=50, is_standardised=True)
# Differs from directclr2022's code, which makes this schedule and never steps it: its rate stays 0.1.
SGD_COSINE = ProbeRecipe("sgd", 0.1, 1e-6, batch_size=256, epochs=100, schedule="epoch-cosine", deviation=0.01)
# Its code lowers the rate after epochs 60 and 80, and trains for 50.
SGD_CONSTANT = ProbeRecipe("sgd", 1.0, 0.0, batch_size=256, epochs=50)
# Differs from ncl2024's code in the first rate of the warm-up, 3e-5 there.
LARS_COSINE = ProbeRecipe("lars", 0.4, 1e-4, batch_size=256, epochs=50, schedule="cosine", warmup_epochs=10)

METRICS = (
    accuracy_metric(
        name="adam probe",
        title="Adam probe",
        short="Adam probe",
        definition="Share of queries that a linear classifier, trained by Adam for 50 epochs on standardised "
        "features, classifies correctly.",
        source="alphacl2022",
        measure=lambda labelled: recipe_score(labelled, ADAM),
        wording="a softmax classifier trained by Adam on standardised features names each query",
        on_request=True,
    ),
    accuracy_metric(
        name="sgd probe",
        title="SGD probe",
        short="SGD probe",
        definition="Share of queries that a linear classifier, trained by SGD for 100 epochs with a cosine "
        "schedule, classifies correctly.",
        source="directclr2022",
        measure=lambda labelled: recipe_score(labelled, SGD_COSINE),
        wording="a softmax classifier trained by SGD along a cosine names each query",
        on_request=True,
    ),
    accuracy_metric(
        name="fast sgd probe",
        title="SGD probe at a constant rate",
        short="fast SGD probe",
        definition="Share of queries that a linear classifier, trained by SGD for 50 epochs at a learning rate of "
        "1, classifies correctly.",
        source="ncl2024",
        measure=lambda labelled: recipe_score(labelled, SGD_CONSTANT),
        wording="a softmax classifier trained by SGD at a constant rate names each query",
        on_request=True,
    ),
    accuracy_metric(
        name="lars probe",
        title="LARS probe",
        short="LARS probe",
        definition="Share of queries that a linear classifier, trained by LARS for 50 epochs, classifies correctly.",
        source="ncl2024",
        measure=lambda labelled: recipe_score(labelled, LARS_COSINE),
        wording="a softmax classifier trained by LARS with warm-up and a cosine names each query",
        on_request=True,
    ),
    accuracy_metric(
        name="knn-20",
        title="kNN-20 accuracy",
        short="kNN-20",
        definition="Share of queries that the vote of the 20 nearest labelled samples by cosine classifies "
        "correctly, at temperature 0.1.",
        source="wu2018",
        measure=lambda labelled: knn_score(replace(labelled, k=20, temperature=TEMPERATURE)),
        wording="the [{k} ]nearest samples of the bank[ by {similarity} similarity] vote on each query[, weighted by "
        "exp(similarity / {temperature})]",
        on_request=True,
    ),
    accuracy_metric(
        name="knn-200",
        title="kNN-200 accuracy",
        short="kNN-200",
        definition="Share of queries that the vote of the 200 nearest labelled samples by cosine classifies "
        "correctly, at temperature 0.1, as in lightly's benchmarks and in MIO.",
        source="wu2018",
        measure=lambda labelled: knn_score(replace(labelled, k=200, temperature=TEMPERATURE)),
        wording="the [{k} ]nearest samples of the bank[ by {similarity} similarity] vote on each query[, weighted by "
        "exp(similarity / {temperature})]",
        on_request=True,
    ),
)
