"""Some steps of training by each method, written from the papers in plain torch: weights in a dict, SGD by hand.

Weights are named as a module's ``state_dict`` would name them: a backbone of one linear layer and tanh, a linear
projector, and what the method adds.
"""

# N samples, K queued keys, D features, C classes

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import Tensor

Weights = dict[str, Tensor]
LEARNING_RATE = 0.5
BATCH_NORM_EPSILON = 1e-5


@dataclass(frozen=True)
class Batch:
    """Two views of some samples, and their classes (-1: unknown)."""

    view0: Tensor
    view1: Tensor
    labels: Tensor


@dataclass
class Course:
    """What training did: the loss of each step, all weights at the end, and what follows them."""

    weights: Weights
    losses: list[Tensor] = field(default_factory=list)
    target: Weights = field(default_factory=dict)
    queue_KD: Tensor = field(default_factory=lambda: torch.empty(0))
    pointer: int = 0


LossOf = Callable[[Weights, Batch, Course], Tensor]


def embedding(weights: Weights, x: Tensor, prefix: str = "") -> Tensor:
    """Backbone and projector."""
    r = torch.tanh(x @ weights[f"{prefix}backbone.0.weight"].T + weights[f"{prefix}backbone.0.bias"])
    return r @ weights[f"{prefix}projector.weight"].T + weights[f"{prefix}projector.bias"]


def prediction(weights: Weights, z_ND: Tensor) -> Tensor:
    """Linear without bias, BatchNorm with the batch's biased variance, ReLU, linear."""
    hidden = z_ND @ weights["predictor.0.weight"].T
    centred = hidden - hidden.mean(0)
    normed = centred / (centred.square().mean(0) + BATCH_NORM_EPSILON).sqrt()
    active = (normed * weights["predictor.1.weight"] + weights["predictor.1.bias"]).clamp(min=0)
    return active @ weights["predictor.3.weight"].T + weights["predictor.3.bias"]


def unit(z_ND: Tensor) -> Tensor:
    """Rows of unit length."""
    return z_ND / z_ND.square().sum(1, keepdim=True).sqrt()


def train(
    weights: Weights,
    batches: Iterable[Batch],
    loss_of: LossOf,
    after: Callable[[Course, int], None] = lambda course, step: None,
) -> Course:
    """Plain gradient descent."""
    course = Course({name: value.clone().requires_grad_() for name, value in weights.items()})
    course.target = {name: value.clone() for name, value in weights.items()}
    for step, batch in enumerate(batches, start=1):
        loss = loss_of(course.weights, batch, course)
        gradients = torch.autograd.grad(loss, list(course.weights.values()), allow_unused=True)
        course.losses.append(loss.detach())
        with torch.no_grad():
            for value, gradient in zip(course.weights.values(), gradients, strict=True):
                if gradient is not None:
                    value.sub_(LEARNING_RATE * gradient)
            after(course, step)
    return course


def follow(course: Course, momentum: float) -> None:
    """xi <- m xi + (1 - m) theta."""
    for name, value in course.weights.items():
        course.target[name] = momentum * course.target[name] + (1 - momentum) * value


# --- joint embedding


def simclr(temperature: float) -> LossOf:
    """NT-Xent: cross-entropy of the partner among all other vectors."""

    def loss(weights: Weights, batch: Batch, course: Course) -> Tensor:
        z = unit(torch.cat([embedding(weights, batch.view0), embedding(weights, batch.view1)]))
        n = len(batch.view0)
        logits = (z @ z.T / temperature).fill_diagonal_(-math.inf)
        return F.cross_entropy(logits, torch.arange(2 * n).roll(n))

    return loss


def supcon(temperature: float) -> LossOf:
    """Mean log-probability of all vectors of the anchor's class; an unknown sample has its own other view only."""

    def loss(weights: Weights, batch: Batch, course: Course) -> Tensor:
        z = unit(torch.cat([embedding(weights, batch.view0), embedding(weights, batch.view1)]))
        sample, label = torch.arange(len(batch.view0)).repeat(2), batch.labels.repeat(2)
        log_p = F.log_softmax((z @ z.T / temperature).fill_diagonal_(-math.inf), dim=1)
        total = torch.zeros((), dtype=z.dtype)
        for i in range(len(z)):
            same = (sample == sample[i]) | ((label == label[i]) & (label[i] >= 0))
            same[i] = False
            total = total - log_p[i, same].mean()
        return total / len(z)

    return loss


# --- MoCo


def moco(weights: Weights, batches: Iterable[Batch], first_queue_KD: Tensor, momentum: float, tau: float) -> Course:
    """he2020, Algorithm 1: own key at column 0, the queue behind it."""
    keys: list[Tensor] = []

    def loss(weights: Weights, batch: Batch, course: Course) -> Tensor:
        if not course.queue_KD.numel():
            course.queue_KD = first_queue_KD.clone()
        query = unit(embedding(weights, batch.view0))
        keys.append(unit(embedding(course.target, batch.view1)))
        logits = torch.cat([(query * keys[-1]).sum(1, keepdim=True), query @ course.queue_KD.T], dim=1) / tau
        return F.cross_entropy(logits, torch.zeros(len(query), dtype=torch.int64))

    def after(course: Course, step: int) -> None:
        course.queue_KD = course.queue_KD.clone()
        for key in keys[-1]:
            course.queue_KD[course.pointer] = key
            course.pointer = (course.pointer + 1) % len(course.queue_KD)
        follow(course, momentum)

    return train(weights, batches, loss, after)


# --- BYOL and SimSiam


def byol(weights: Weights, batches: list[Batch], momentum: float) -> Course:
    """grill2020, Algorithm 1: both directions summed, momentum 1 - (1 - m) (cos(pi k / K) + 1) / 2."""

    def loss(weights: Weights, batch: Batch, course: Course) -> Tensor:
        p0, p1 = (unit(prediction(weights, embedding(weights, x))) for x in (batch.view0, batch.view1))
        t0, t1 = (unit(embedding(course.target, x)) for x in (batch.view0, batch.view1))
        return ((p0 - t1).square().sum(1) + (p1 - t0).square().sum(1)).mean()

    def after(course: Course, step: int) -> None:
        follow(course, 1 - (1 - momentum) * (math.cos(math.pi * step / len(batches)) + 1) / 2)

    return train(weights, batches, loss, after)


def simsiam(weights: Weights, batches: list[Batch]) -> Course:
    """chen2021, Algorithm 1: half of each direction, targets held fixed."""

    def loss(weights: Weights, batch: Batch, course: Course) -> Tensor:
        z0, z1 = (embedding(weights, x) for x in (batch.view0, batch.view1))
        p0, p1 = unit(prediction(weights, z0)), unit(prediction(weights, z1))
        d0, d1 = -(p0 * unit(z1).detach()).sum(1).mean(), -(p1 * unit(z0).detach()).sum(1).mean()
        return d0 / 2 + d1 / 2

    return train(weights, batches, loss)


# --- two kinds of data


def clip(weights: Weights, batch: Batch, course: Course) -> Tensor:
    """radford2021, Fig. 3: symmetric cross-entropy with a learned scale."""
    x, y = unit(embedding(weights, batch.view0)), unit(embedding(weights, batch.view1, "second_"))
    logits, partner = weights["loss.scale.log"].exp() * x @ y.T, torch.arange(len(x))
    return (F.cross_entropy(logits, partner) + F.cross_entropy(logits.T, partner)) / 2


# --- labels


def supervised(weights: Weights, batch: Batch, course: Course) -> Tensor:
    """Softmax cross-entropy of both views of the samples whose class is known."""
    z = torch.cat([embedding(weights, batch.view0), embedding(weights, batch.view1)])
    logits = z @ weights["loss.class_weights"].T + weights["loss.class_biases"]
    return _known(logits, batch.labels)


def nonnegative_supervised(weights: Weights, batch: Batch, course: Course) -> Tensor:
    """ncl2024, section 6: ReLU on features and on class weights."""
    z = torch.cat([embedding(weights, batch.view0), embedding(weights, batch.view1)]).clamp(min=0)
    return _known(z @ weights["loss.class_weights"].clamp(min=0).T, batch.labels)


def _known(logits: Tensor, labels: Tensor) -> Tensor:
    twice = labels.repeat(2)
    rows = [i for i in range(len(twice)) if twice[i] >= 0]
    if not rows:
        return 0 * logits.sum()
    return torch.stack([logits[i].logsumexp(0) - logits[i, twice[i]] for i in rows]).mean()
