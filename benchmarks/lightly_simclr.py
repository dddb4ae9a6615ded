"""Lightly's SimCLR example in Lightning, on the images and the encoder that we train on.

Taken over from its documentation: views on PIL images in loader processes, one forward pass per view, SGD, a head with
BatchNorm. Ours: its own ResNet for small images in place of torchvision's, at the sizes of the comparison, and no
progress bar, logger or checkpoint, which would only slow it down.
"""

import logging
import math
import os
import time
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytorch_lightning as pl
import torch
from lightly.loss import NTXentLoss
from lightly.models import ResNetGenerator
from lightly.models.modules.heads import SimCLRProjectionHead
from lightly.transforms import SimCLRTransform
from PIL import Image
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset
from training_runs import EMBEDDING_DIMS, LEARNING_RATE, TEMPERATURE, WARM_UPS, Setup

from counterpoint.nn.method import Method

NAMES = {"resnet9": "resnet-9", "resnet18": "resnet-18"}
PRECISIONS = {"fp32": "32-true", "bf16": "bf16-mixed"}
WIDTH = 512
MOST_WORKERS = 8  # of the example


class SimCLR(pl.LightningModule):
    """Encoder, head and loss of the example."""

    def __init__(self, encoder: str) -> None:
        super().__init__()
        resnet = ResNetGenerator(NAMES[encoder])
        self.backbone = nn.Sequential(*list(resnet.children())[:-1], nn.AdaptiveAvgPool2d(1))
        self.head = SimCLRProjectionHead(WIDTH, WIDTH, EMBEDDING_DIMS)
        self.criterion = NTXentLoss(TEMPERATURE)

    def forward(self, images: Tensor) -> Tensor:
        return self.head(self.backbone(images).flatten(start_dim=1))

    def training_step(self, batch: Any, batch_index: int) -> Tensor:
        view0, view1 = batch[0]
        return self.criterion(self.forward(view0), self.forward(view1))

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=LEARNING_RATE)


class Pictures(Dataset[Any]):
    """PIL images with a transform, as torchvision's data sets give them."""

    def __init__(self, images: np.ndarray, transform: Any) -> None:
        self._images = images
        self._transform = transform

    def __len__(self) -> int:
        return len(self._images)

    def __getitem__(self, index: int) -> tuple[Any, int]:
        return self._transform(Image.fromarray(self._images[index])), 0


class StepClock(pl.Callback):
    """Notes when each step ended."""

    def __init__(self) -> None:
        self.ends: list[float] = []  # the beginning of the first before them

    def on_train_start(self, *_: Any) -> None:
        self.ends.append(time.perf_counter())

    def on_train_batch_end(self, *_: Any) -> None:
        if torch.cuda.is_initialized():
            torch.cuda.synchronize()
        self.ends.append(time.perf_counter())


def picture_loader(setup: Setup) -> DataLoader[Any]:
    """Views drawn in loader processes."""
    transform = SimCLRTransform(input_size=setup.images.shape[1], gaussian_blur=0.0)
    return DataLoader(
        Pictures(setup.images, transform),
        batch_size=setup.batch_size,
        shuffle=True,
        drop_last=True,
        num_workers=min(MOST_WORKERS, os.cpu_count() or 1),
    )


class ReadyBatches:
    """The same views drawn before the clock starts; a few batches, taken again and again."""

    def __init__(self, setup: Setup) -> None:
        self._batches = list(picture_loader(replace(setup, images=setup.images[: 2 * setup.batch_size])))
        self._num_steps = setup.num_steps

    def __len__(self) -> int:
        return self._num_steps

    def __iter__(self) -> Iterator[Any]:
        return (self._batches[number % len(self._batches)] for number in range(self._num_steps))


def lightly_seconds(setup: Setup, *, loads: bool, skip: int = WARM_UPS) -> list[float]:
    """Seconds from the end of one step to the end of the next, without the first.

    Args:
        setup: what is trained.
        loads: draw the views while training, as the example does.
        skip: steps that do not count.
    """
    batches: Iterable[Any] = picture_loader(setup) if loads else ReadyBatches(setup)
    clock = StepClock()
    for name in ("pytorch_lightning", "lightning.pytorch", "lightning_fabric"):
        logging.getLogger(name).setLevel(logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trainer = pl.Trainer(
            max_steps=setup.num_steps,
            accelerator="gpu" if setup.device == "cuda" else "cpu",
            devices=1,
            precision=PRECISIONS[setup.precision],  # pyright: ignore[reportArgumentType]
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            callbacks=[clock],
        )
        trainer.fit(SimCLR(setup.encoder), train_dataloaders=batches)
    assert len(clock.ends) == setup.num_steps + 1
    return [after - before for before, after in zip(clock.ends, clock.ends[1:], strict=False)][skip:]


def differences(method: Method, encoder: str) -> list[str]:
    """Sentences about what differs between the example and what we train; empty if both can be compared."""
    theirs = SimCLR(encoder)
    sentences = []
    sizes = [sorted(tuple(p.shape) for p in part.parameters()) for part in (method.backbone, theirs.backbone)]
    if sizes[0] != sizes[1]:
        ours, other = (sum(map(math.prod, shapes)) for shapes in sizes)
        sentences.append(f"the encoders have other weights: {ours} and {other} numbers")
    views = torch.randn(2, 32, EMBEDDING_DIMS, generator=torch.Generator().manual_seed(0))
    ours, other = float(method.loss(*views)), float(theirs.criterion(*views))
    if abs(ours - other) > 1e-5 * abs(other):
        sentences.append(f"the losses differ: {ours:.7g} and {other:.7g}")
    return sentences
