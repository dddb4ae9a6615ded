"""Three classes of pictures in chosen proportions, and an encoder that puts them into the plane."""

# N samples, B samples of a batch, C channels, H height, W width, D dimensions of the plane

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from counterpoint.core.array_layout import to_unit_float
from counterpoint.core.errors import DataError
from counterpoint.core.numerics import into_ball
from counterpoint.core.settings import SourceSettings
from counterpoint.core.validation import build
from counterpoint.data.order import Order
from counterpoint.data.source import Source
from counterpoint.data.sources import open_source
from counterpoint.engine.optimisers import Schedule
from counterpoint.engine.progress import Reporter
from counterpoint.evaluation.features import calibrate_norms
from counterpoint.losses.imbalanced import GeneralizedContrastive
from counterpoint.nn.encoders import build_encoder, feature_width
from counterpoint.nn.heads import ProjectorDetails, build_projector
from reproductions.study_data import training_split

Progress = Callable[[str], None]
BUNDLED = "digits"
CIFAR_CLASSES = ("bird", "automobile", "airplane")  # imbalanced2026, section 7.1: the majority first
MOST_SAMPLES = 3000  # section 7.1
PLANE = 2  # C - 1, section 7.1
HEAD = ProjectorDetails(norm="batch")
HEAD_WIDTH = 512  # the paper names no head; this is the one of HCL, the public code nearest to it
BATCH_SIZE = 512  # or all samples, where there are fewer
KERNELS = "normal"  # how a ResNet begins, as HCL's
LEARNING_RATE = 1e-3  # of Adam at first; falls to zero along a cosine
NUM_LINES = 5  # of progress per training, unless the plan has another number


@dataclass(frozen=True)
class ClassSamples:
    """Standardised samples of a few classes.

    Attributes:
        samples: images (n, c, h, w) or vectors (n, d).
        labels: 0 for the first class asked for, and so on, (n,).
        class_names: in that order.
        origin: what they are, for people.
    """

    samples: Tensor
    labels: Tensor
    class_names: tuple[str, ...]
    origin: str

    @property
    def counts(self) -> tuple[int, ...]:
        """Samples of each class."""
        return tuple(torch.bincount(self.labels).tolist())


@dataclass(frozen=True)
class PlanePlan:
    """Encoder, epochs, negatives and seed of a training run.

    Attributes:
        epochs: passes over the samples.
        num_negatives: k draws for each anchor.
        encoder: of the library; ``mlp`` takes pictures as rows of pixels.
        seed: of weights, order and draws.
        device: cpu or cuda.
        pass_size: samples that pass the network at once where it is looked at; None takes all.
        num_lines: of progress.
    """

    epochs: int
    num_negatives: int = 512
    encoder: str = "convnet"
    seed: int = 0
    device: str = "cpu"
    pass_size: int | None = None
    num_lines: int = NUM_LINES


@dataclass(frozen=True)
class PlaneEmbedding:
    """Samples in the plane, before and after training an encoder.

    Attributes:
        before: at initialisation, (n, 2).
        after: once trained, (n, 2).
        loss: mean of the last epoch.
    """

    before: Tensor
    after: Tensor
    loss: float


def take_classes(data: str | None, ratio: Sequence[int]) -> ClassSamples:
    """Take the first samples of a few classes, in a fixed ratio: as many as there are, at most 3000 in all.

    Args:
        data: any source with labels, or the folder of CIFAR-10 or of all sets, of which the training split is taken;
            None is the bundled digits. Of CIFAR-10 the paper's bird, automobile and airplane are taken, of others the
            first classes.
        ratio: size of each class over that of the smallest.

    Raises:
        UsageError: no such data.
        DataError: no labels, or a class is too small for the ratio.
    """
    place, source_fields = training_split("cifar10", data or BUNDLED)
    source = open_source(place, build(SourceSettings, source_fields, "source"), progress=Reporter(quiet=True).bar)
    if source.labels is None or len(source.class_names) < len(ratio):
        raise DataError(f"{source.name} must have labels of at least {len(ratio)} classes for this figure")
    is_cifar = set(CIFAR_CLASSES) <= set(source.class_names)
    names = CIFAR_CLASSES if is_cifar else source.class_names[: len(ratio)]
    members = [(source.labels == source.class_names.index(name)).nonzero()[:, 0] for name in names]
    # size of the smallest class: limited by the sum over all, and by each class's own samples
    unit = min(MOST_SAMPLES // sum(ratio), *(len(m) // share for m, share in zip(members, ratio, strict=True)))
    if unit < 2:
        sizes = ", ".join(f"{len(m)} of {name}" for m, name in zip(members, names, strict=True))
        raise DataError(f"{source.name} has too few samples for classes in the ratio {tuple(ratio)}: {sizes}")
    # the first of each class, as in 7.1, not a random draw
    chosen = torch.cat([m[: unit * share] for m, share in zip(members, ratio, strict=True)])
    labels_N = torch.repeat_interleave(torch.arange(len(ratio)), unit * torch.tensor(ratio))
    return ClassSamples(_standardised(source, chosen), labels_N, names, f"{len(chosen)} samples of {source.name}")


def embed_in_plane(classes: ClassSamples, plan: PlanePlan, *, supervised: bool, progress: Progress) -> PlaneEmbedding:
    """Train an encoder with Eq. 20 of imbalanced2026 and say where its samples were before and are after.

    The network is an encoder with a head Linear, BatchNorm, ReLU, Linear to two dimensions; vectors longer than 1 are
    shortened to 1. Each sample has one view, so that a batch is given as both views of the loss: every sample then
    counts twice everywhere, which leaves means over anchors and positives as they are, and each anchor is given two
    independent draws of its k negatives, whose losses are averaged.

    Args:
        classes: the samples of all classes.
        plan: sizes and rates.
        supervised: negatives are of other classes (SCL), or of all (UCL).
        progress: takes a line from time to time.
    """
    samples = (classes.samples.flatten(1) if plan.encoder == "mlp" else classes.samples).to(plan.device)
    labels = classes.labels.to(plan.device)
    network = _build_network(plan, tuple(samples.shape[1:])).to(plan.device)
    before_ND = _embed_samples(network, samples, plan.pass_size)
    # Eq. 20, vectors in the unit ball (A5)
    loss = GeneralizedContrastive(plan.num_negatives, supervised, "ball", seed=plan.seed)
    # all samples are shuffled anew in every epoch, which section 7 asks for (batch-shuffling, kini2024)
    order = Order(torch.arange(len(samples)), min(BATCH_SIZE, len(samples)), plan.seed)
    num_steps = plan.epochs * order.batches_per_epoch
    schedule = Schedule(LEARNING_RATE, num_steps, num_warmup=0)
    optimiser = torch.optim.Adam(network.parameters(), lr=LEARNING_RATE)
    setting, losses = ("SCL" if supervised else "UCL"), deque(maxlen=order.batches_per_epoch)
    batches = (batch_B for epoch in range(plan.epochs) for batch_B in order.batches(epoch))
    network.train()
    started = time.perf_counter()
    for step, batch_B in enumerate(batches):
        optimiser.param_groups[0]["lr"] = schedule(step)
        z_BD = network(samples[batch_B])
        value = loss(z_BD, z_BD, labels[batch_B], step=step)
        optimiser.zero_grad()
        value.backward()
        optimiser.step()
        losses.append(float(value.detach()))
        epoch, place = divmod(step + 1, order.batches_per_epoch)
        if place == 0 and (epoch % max(1, plan.epochs // plan.num_lines) == 0 or epoch == plan.epochs):
            left = (time.perf_counter() - started) / epoch * (plan.epochs - epoch)
            mean = sum(losses) / len(losses)
            progress(f"{setting}: epoch {epoch} of {plan.epochs}, loss {mean:.4f}, {left:.0f} s left")
    return PlaneEmbedding(before_ND, _embed_samples(network, samples, plan.pass_size), sum(losses) / len(losses))


def _build_network(plan: PlanePlan, in_shape: tuple[int, ...]) -> nn.Module:
    """Build encoder and head; the same seed gives the same weights, whatever was drawn before."""
    # the initialisation of torch knows the global generator only; it is put back afterwards
    with torch.random.fork_rng():
        torch.manual_seed(plan.seed)
        encoder = build_encoder(plan.encoder, in_shape, initial=KERNELS)
        width = feature_width(encoder, in_shape)
        head = build_projector("mlp", width, hidden=HEAD_WIDTH, features=PLANE, details=HEAD)
    return nn.Sequential(encoder, head)


@torch.no_grad()
def _embed_samples(network: nn.Module, samples: Tensor, pass_size: int | None) -> Tensor:
    """Embed all samples as the loss sees them; BatchNorm has the statistics of just these samples."""
    if pass_size is None:
        return into_ball(network(samples), 1.0).cpu()
    # large networks: the average over parts in place of the statistics of all at once; samples lie class by class, and
    # every part must have its share of each class
    num_parts = -(-len(samples) // pass_size)
    calibrate_norms(network, [samples[first::num_parts] for first in range(num_parts)])
    return torch.cat([into_ball(network(part), 1.0).cpu() for part in samples.split(pass_size)])


def _standardised(source: Source, chosen: Tensor) -> Tensor:
    """Read the chosen samples, scaled to mean 0 and deviation 1 per channel or feature."""
    samples = source.store.fetch(chosen.tolist())
    samples = to_unit_float(samples) if source.kind == "images" else samples
    axes = [axis for axis in range(samples.ndim) if axis != 1]
    deviation = samples.std(axes, correction=0, keepdim=True)
    # a feature that is the same in all samples becomes 0
    return (samples - samples.mean(axes, keepdim=True)) / deviation.clamp(min=1e-6)
