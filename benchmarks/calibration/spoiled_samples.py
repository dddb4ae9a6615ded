"""Samples with a fault: copies, near copies, tints, noise, labels that say something else."""

# N samples, H, W pixels, 3 channels

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from counterpoint.data.order import split_source

Pictures = NDArray[np.uint8]
Classes = NDArray[np.int64]


@dataclass(frozen=True)
class Sample:
    """Pictures (n, h, w, 3) and their classes."""

    pictures: Pictures
    classes: Classes

    def at(self, places: NDArray[np.int64]) -> "Sample":
        """The samples at some places."""
        return Sample(self.pictures[places], self.classes[places])


HELD_OUT = 0.4  # of each training's samples: enough queries to tell accuracies apart
HUES = np.array([[255, 0, 0], [0, 255, 0], [0, 0, 255], [255, 255, 0], [0, 255, 255], [255, 0, 255]])
Spoil = Callable[[Sample, np.random.Generator], Sample]


def copied(share: float) -> Spoil:
    """Some samples are exact copies of others; their number stays."""

    def spoil(sample: Sample, draws: np.random.Generator) -> Sample:
        num = len(sample.classes)
        originals = draws.permutation(num)[: max(round(num * (1 - share)), 1)]
        return sample.at(np.concatenate([originals, draws.choice(originals, num - len(originals))]))

    return spoil


def nearly_copied(times: int, noise: int) -> Spoil:
    """Each sample occurs several times, apart by a little noise; the number of samples stays."""

    def spoil(sample: Sample, draws: np.random.Generator) -> Sample:
        num = len(sample.classes)
        repeated = sample.at(np.resize(draws.permutation(num)[: max(num // times, 1)], num))
        noisy = repeated.pictures.astype(np.int64) + draws.integers(-noise, noise + 1, repeated.pictures.shape)
        return Sample(noisy.clip(0, 255).astype(np.uint8), repeated.classes)

    return spoil


def tinted(strength: float) -> Spoil:
    """Each picture has a tint of its own, which its views share."""

    def spoil(sample: Sample, draws: np.random.Generator) -> Sample:
        tint = draws.uniform(0, 255, (len(sample.classes), 1, 1, 3))
        mixed = (1 - strength) * sample.pictures + strength * tint
        return Sample(mixed.round().astype(np.uint8), sample.classes)

    return spoil


def shaded(least: float) -> Spoil:
    """Each picture has a brightness and a contrast of its own."""

    def spoil(sample: Sample, draws: np.random.Generator) -> Sample:
        contrast = draws.uniform(least, 1, (len(sample.classes), 1, 1, 1))
        light = draws.uniform(0, 1, contrast.shape) * 255 * (1 - contrast)
        return Sample((sample.pictures * contrast + light).clip(0, 255).astype(np.uint8), sample.classes)

    return spoil


def labelled_by_tint(num_classes: int, strength: float) -> Spoil:
    """Classes are groups by a tint that is laid over each picture, which views change."""

    def spoil(sample: Sample, draws: np.random.Generator) -> Sample:
        classes = draws.integers(0, num_classes, len(sample.classes))
        return Sample(_lay_tint(sample.pictures, classes, strength), classes)

    return spoil


def _lay_tint(pictures: Pictures, groups: Classes, strength: float) -> Pictures:
    """Lay a tint over the pictures of each group."""
    mixed = (1 - strength) * pictures + strength * HUES[groups][:, None, None, :]
    return mixed.round().astype(np.uint8)


def with_classes(counts: tuple[int, ...]) -> Spoil:
    """Classes of given sizes: the most frequent ones of the samples, merged by number where each is too small."""

    def spoil(sample: Sample, draws: np.random.Generator) -> Sample:
        merged = sample.classes % len(counts)
        chosen = [draws.permutation(np.flatnonzero(merged == label))[:size] for label, size in enumerate(counts)]
        places = draws.permutation(np.concatenate(chosen))
        return Sample(sample.pictures[places], merged[places])

    return spoil


def of_noise(sample: Sample, draws: np.random.Generator) -> Sample:
    """Noise in place of pictures: each value uniform by itself."""
    return Sample(draws.integers(0, 256, sample.pictures.shape, dtype=np.uint8), sample.classes)


def of_faint_noise(sample: Sample, draws: np.random.Generator) -> Sample:
    """Noise in place of pictures: each value normal by itself, around middle grey."""
    noise = draws.normal(128, 40, sample.pictures.shape)
    return Sample(noise.round().clip(0, 255).astype(np.uint8), sample.classes)


def half_noise(sample: Sample, draws: np.random.Generator) -> Sample:
    """Noise in place of half of the pictures."""
    pictures = sample.pictures.copy()
    places = draws.permutation(len(pictures))[: len(pictures) // 2]
    pictures[places] = of_noise(sample.at(places), draws).pictures
    return Sample(pictures, sample.classes)


def labels_shuffled(sample: Sample, draws: np.random.Generator) -> Sample:
    """Labels are those of other pictures."""
    return Sample(sample.pictures, draws.permutation(sample.classes))


def wrongly_labelled(share: float) -> Spoil:
    """A share of the labels is that of any other class."""

    def spoil(sample: Sample, draws: np.random.Generator) -> Sample:
        classes, num_classes = sample.classes.copy(), int(sample.classes.max()) + 1
        places = draws.permutation(len(classes))[: round(share * len(classes))]
        classes[places] = (classes[places] + draws.integers(1, num_classes, len(places))) % num_classes
        return Sample(sample.pictures, classes)

    return spoil


def one_class_of(share: float) -> Spoil:
    """One label has most of the pictures, all but two tenths of the classes; a few pictures of two others are left."""

    def spoil(sample: Sample, draws: np.random.Generator) -> Sample:
        classes = np.where(sample.classes % 10 < 2, sample.classes % 10 + 1, 0)
        num_common = int((classes == 0).sum())
        num_rare = round(num_common * (1 - share) / share / 2)
        chosen = [draws.permutation(np.flatnonzero(classes == label))[:num_rare] for label in (1, 2)]
        places = draws.permutation(np.concatenate([np.flatnonzero(classes == 0), *chosen]))
        return Sample(sample.pictures[places], classes[places])

    return spoil


def held_out_darker(sample: Sample, draws: np.random.Generator) -> Sample:
    """Pictures that a training holds out have a third of the light."""
    return _change_held_out(sample, lambda pictures: pictures // 3)


def held_out_inverted(sample: Sample, draws: np.random.Generator) -> Sample:
    """Pictures that a training holds out are inverted."""
    return _change_held_out(sample, inverted)


def _change_held_out(sample: Sample, change: Callable[[Pictures], Pictures]) -> Sample:
    pictures = sample.pictures.copy()
    held_out = split_source(len(pictures), torch.from_numpy(sample.classes), HELD_OUT).held_out.numpy()
    pictures[held_out] = change(pictures[held_out])
    return Sample(pictures, sample.classes)


def inverted(pictures: Pictures) -> Pictures:
    """Pictures whose white is black."""
    return 255 - pictures


def channels_turned(pictures: Pictures) -> Pictures:
    """Pictures whose channels are blue, green, red."""
    return np.ascontiguousarray(pictures[..., ::-1])
