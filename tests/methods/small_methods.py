"""Every wiring around the same small networks in float64, and some batches for them."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from counterpoint.losses import BarlowTwins, CrossEntropy, CrossModal, InfoNCE, Loss, NonNegativeCrossEntropy, SupCon
from counterpoint.losses.noncontrastive import Form, Regression
from counterpoint.methods.catalogue import CATALOGUE
from counterpoint.methods.encoding import Chunks, Head
from counterpoint.methods.joint import Classification, JointEmbedding, TwoTowers
from counterpoint.methods.target_branch import MomentumQueue, Predictive, QueueContrast
from counterpoint.methods.wiring import Wiring
from counterpoint.nn.heads import OutputMap, ProjectorDetails, build_projector, perceptron
from counterpoint.nn.synced_norm import with_synced_norm
from oracles.method_steps import LEARNING_RATE, Batch

NUM_SAMPLES, NUM_FEATURES, NUM_SECOND, WIDTH, DIMS, NUM_CLASSES = 6, 3, 2, 5, 4, 3
NUM_KEYS = 13  # neither a multiple of the batch nor larger than three of them
NUM_STEPS = 3
TEMPERATURE, MOMENTUM = 0.4, 0.7
LABELS = ([0, 1, 2, 0, 1, -1], [-1, -1, 1, 1, -1, 2], [2, 2, -1, 0, 1, 1])


def numbers(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def batches(*, second: int = NUM_FEATURES, num_steps: int = NUM_STEPS) -> list[Batch]:
    """The same batches every time; the second view of related kind, or of another width."""
    found = []
    for step in range(num_steps):
        view0 = numbers(100 + step, NUM_SAMPLES, NUM_FEATURES)
        view1 = view0 + 0.5 * numbers(200 + step, NUM_SAMPLES, NUM_FEATURES)
        found.append(Batch(view0, view1[:, :second], torch.tensor(LABELS[step % len(LABELS)])))
    return found


def seeded(module: nn.Module, seed: int) -> nn.Module:
    """The same weights every time, in float64."""
    with torch.no_grad():
        for place, parameter in enumerate(module.double().parameters()):
            parameter.copy_(0.7 * numbers(seed + place, *parameter.shape))
    return module


def backbone(seed: int = 1, num_features: int = NUM_FEATURES) -> nn.Module:
    return seeded(nn.Sequential(nn.Linear(num_features, WIDTH), nn.Tanh()), seed)


def projector(seed: int = 11) -> nn.Module:
    return seeded(nn.Linear(WIDTH, DIMS), seed)


def projector_of(name: str, width: int, kind: str | None = None) -> nn.Module:
    """As a recipe builds it: everything as the method's entry has it."""
    entry, features = CATALOGUE[name], CATALOGUE[name].features_for(width)
    last = entry.projector_output_norm
    details = ProjectorDetails(
        entry.projector_layers, entry.projector_norm, last != "none", output_scale=last == "batch"
    )
    hidden = entry.hidden_for(width, features)
    return build_projector(kind or entry.projector, width, hidden=hidden, features=features, details=details)


def head() -> Head:
    return Head(projector(), OutputMap(normalize=False))


def joint(loss: Loss, chunks: Chunks | None = None, *, is_apart: bool = False) -> JointEmbedding:
    how = {"chunks": chunks, "is_apart": is_apart}
    return JointEmbedding(backbone(), head(), loss.double(), **how)


def normed(*, is_apart: bool) -> JointEmbedding:
    """SimCLR around a BatchNorm, over all ranks if there are several."""
    method = joint(InfoNCE(TEMPERATURE), is_apart=is_apart)
    method.backbone = nn.Sequential(method.backbone, nn.BatchNorm1d(WIDTH).double())
    with_synced_norm(method)
    return method


def queue(chunks: Chunks | None = None) -> MomentumQueue:
    loss = QueueContrast(NUM_KEYS, DIMS, TEMPERATURE).double()
    return MomentumQueue(backbone(), head(), loss, momentum=MOMENTUM, chunks=chunks)


def predictive(
    form: Form, momentum: float | None, chunks: Chunks | None = None, *, has_norm: bool = True
) -> Predictive:
    norm = perceptron([DIMS, WIDTH, DIMS], norm="batch")
    plain = nn.Sequential(nn.Linear(DIMS, WIDTH), nn.ReLU(), nn.Linear(WIDTH, DIMS))
    predictor = seeded(norm if has_norm else plain, 21)
    return Predictive(backbone(), head(), predictor, Regression(form), momentum=momentum, chunks=chunks)


def towers(chunks: Chunks | None = None) -> TwoTowers:
    loss = CrossModal(temperature=TEMPERATURE).double()
    return TwoTowers(backbone(), head(), backbone(31, NUM_SECOND), projector(41), loss, chunks=chunks)


def classification(*, nonnegative: bool, chunks: Chunks | None = None, is_apart: bool = False) -> Classification:
    how = {"chunks": chunks, "is_apart": is_apart}
    loss = (NonNegativeCrossEntropy if nonnegative else CrossEntropy)(NUM_CLASSES, DIMS).double()
    return Classification(backbone(), head(), loss, **how)


# Without BatchNorm, so that ranks and chunks need not share statistics.
WIRINGS: dict[str, Callable[[Chunks | None], Wiring]] = {
    "simclr": lambda chunks: joint(InfoNCE(TEMPERATURE), chunks),
    "simclr, apart": lambda chunks: joint(InfoNCE(TEMPERATURE), chunks, is_apart=True),
    "barlow-twins": lambda chunks: joint(BarlowTwins(), chunks),
    "supcon": lambda chunks: joint(SupCon(TEMPERATURE), chunks),
    "moco": queue,
    "byol": lambda chunks: predictive("squared", MOMENTUM, chunks, has_norm=False),
    "simsiam": lambda chunks: predictive("cosine", None, chunks, has_norm=False),
    "cross-modal": towers,
    "supervised": lambda chunks: classification(nonnegative=False, chunks=chunks),
    "supervised, apart": lambda chunks: classification(nonnegative=False, chunks=chunks, is_apart=True),
    "nonnegative-supervised": lambda chunks: classification(nonnegative=True, chunks=chunks),
}


def batches_of(name: str, num_steps: int = NUM_STEPS) -> list[Batch]:
    return batches(second=NUM_SECOND if name == "cross-modal" else NUM_FEATURES, num_steps=num_steps)


def train(
    method: Wiring,
    given: list[Batch],
    *,
    rows: slice = slice(None),
    share_gradient: Callable[[Tensor], Tensor] = lambda gradient: gradient,
    progress: Callable[[int], float] = lambda step: step / NUM_STEPS,
) -> list[Tensor]:
    """Plain gradient descent on a part of each batch; returns the losses."""
    method.train()
    optimizer = torch.optim.SGD([p for p in method.parameters() if p.requires_grad], lr=LEARNING_RATE)
    losses = []
    for step, batch in enumerate(given, start=1):
        optimizer.zero_grad()
        loss = method(batch.view0[rows], batch.view1[rows], batch.labels[rows])
        loss.backward()
        for parameter in method.parameters():
            if parameter.requires_grad:
                assert parameter.grad is not None
                parameter.grad = share_gradient(parameter.grad)
        optimizer.step()
        method.after_step(progress(step))
        losses.append(loss.detach())
    return losses
