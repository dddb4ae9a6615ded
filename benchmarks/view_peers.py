"""Drawers of views: ours and the peers, each with lightly's CIFAR-10 recipe, two views of every image per call.

Crop of (0.08, 1) of the area, flip, jitter (0.4, 0.4, 0.4, 0.1) with probability 0.8, grey with 0.2, no blur,
standardised.
"""

# B images

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

OURS = "counterpoint"
PIL_WORKERS = "torchvision v2, PIL, loader with workers"
MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)
SCALE, JITTER, JITTERED, GREY = (0.08, 1.0), (0.4, 0.4, 0.4, 0.1), 0.8, 0.2
Step = Callable[[], None]


@dataclass(frozen=True)
class Work:
    """Images, batch size and threads that every implementation gets.

    Attributes:
        images_B3HW: uint8.
        batch_size: images per batch.
        threads: threads of torch, or processes of a loader.
    """

    images_B3HW: Tensor
    batch_size: int
    threads: int

    @property
    def side(self) -> int:
        return self.images_B3HW.shape[3]

    @property
    def pictures(self) -> list[Image.Image]:
        return [Image.fromarray(image.permute(1, 2, 0).numpy()) for image in self.images_B3HW]


class TwoViews(Dataset[tuple[Tensor, Tensor]]):
    """Pictures and a transform, as a loader wants them."""

    def __init__(self, pictures: Sequence[Image.Image], transform: Callable[[Image.Image], Tensor]) -> None:
        self.pictures, self.transform = pictures, transform

    def __len__(self) -> int:
        return len(self.pictures)

    def __getitem__(self, number: int) -> tuple[Tensor, Tensor]:
        return self.transform(self.pictures[number]), self.transform(self.pictures[number])


def ours(work: Work) -> Step:
    """A step that draws by ``ViewDrawer`` with the preset of that name, random numbers included."""
    from counterpoint.core.settings import ViewSettings  # deferred: likewise
    from counterpoint.data.views.drawer import ViewDrawer  # deferred: a peer is measured without it
    from counterpoint.data.views.presets import plan_views  # deferred: a peer is measured without it

    drawer = ViewDrawer(plan_views(ViewSettings(preset="lightly-cifar")), torch.tensor(MEAN), torch.tensor(STD), 0)
    batches = list(zip(work.images_B3HW.split(work.batch_size), _ids(work), strict=True))

    def step() -> None:
        for images, ids in batches:
            drawer.two_views(images, ids, 0)

    return step


def torchvision_recipe(work: Work, *, is_tensor: bool) -> Any:
    """The recipe in torchvision's transforms v2."""
    from torchvision.transforms import v2  # deferred: may be missing

    changes = [
        v2.RandomResizedCrop(work.side, scale=SCALE, antialias=True),
        v2.RandomHorizontalFlip(),
        v2.RandomApply([v2.ColorJitter(*JITTER)], p=JITTERED),
        v2.RandomGrayscale(GREY),
        *([] if is_tensor else [v2.ToImage()]),
        v2.ToDtype(torch.float32, scale=True),
        v2.Normalize(MEAN, STD),
    ]
    return v2.Compose(changes)


def torchvision_pil(work: Work) -> Step:
    """A step that draws one picture after the other, in this process."""
    recipe, pictures = torchvision_recipe(work, is_tensor=False), work.pictures

    def step() -> None:
        for start in range(0, len(pictures), work.batch_size):
            part = pictures[start : start + work.batch_size]
            _ = [torch.stack([recipe(picture) for picture in part]) for _ in range(2)]

    return step


def torchvision_workers(work: Work) -> Step:
    """A step that draws through a DataLoader whose workers live on."""
    data = TwoViews(work.pictures, torchvision_recipe(work, is_tensor=False))
    loader = DataLoader(data, work.batch_size, num_workers=work.threads, persistent_workers=True)

    def step() -> None:
        for _ in loader:
            pass

    return step


def torchvision_batches(work: Work) -> Step:
    """A step that draws whole batches of bytes, with one draw for a batch, which is less than the recipe wants."""
    recipe, batches = torchvision_recipe(work, is_tensor=True), work.images_B3HW.split(work.batch_size)

    def step() -> None:
        for images in batches:
            _ = recipe(images), recipe(images)

    return step


def kornia_recipe(side: int) -> torch.nn.Module:
    """The recipe in kornia's augmentations, of float batches."""
    import kornia.augmentation as augment  # deferred: may be missing

    return torch.nn.Sequential(
        augment.RandomResizedCrop((side, side), scale=SCALE),
        augment.RandomHorizontalFlip(),
        augment.ColorJitter(*JITTER, p=JITTERED),
        augment.RandomGrayscale(p=GREY),
        augment.Normalize(torch.tensor(MEAN), torch.tensor(STD)),
    )


def kornia_batches(work: Work) -> Step:
    """A step that draws batches of floats, each image with its own draw."""
    recipe, batches = kornia_recipe(work.side), work.images_B3HW.split(work.batch_size)

    def step() -> None:
        for images in batches:
            floats = images.float() / 255
            _ = recipe(floats), recipe(floats)

    return step


def _ids(work: Work) -> tuple[Tensor, ...]:
    return torch.arange(len(work.images_B3HW)).split(work.batch_size)


CATALOGUE: Mapping[str, tuple[Callable[[Work], Step], str]] = {
    OURS: (ours, "random numbers by sample included"),
    "torchvision v2, PIL, one process": (torchvision_pil, "one picture after the other"),
    PIL_WORKERS: (torchvision_workers, "as lightly's loader"),
    "torchvision v2, batches of bytes": (torchvision_batches, "one draw for the whole batch, not one per image"),
    "kornia": (kornia_batches, "a draw per image"),
}
