"""Faults are what they say: copies are copies, tints stay, classes have their sizes, held-out pictures are others."""

import numpy as np
import pytest
import torch
from calibration.spoiled_samples import (
    HELD_OUT,
    Sample,
    Spoil,
    half_noise,
    held_out_inverted,
    labelled_by_tint,
    nearly_copied,
    of_faint_noise,
    of_noise,
    one_class_of,
    shaded,
    tinted,
    with_classes,
    wrongly_labelled,
)
from calibration.trained_faults import HEALTHY, TRAINED_FAULTS

from counterpoint.core.settings import TrainSettings
from counterpoint.core.validation import leaf_fields
from counterpoint.data.order import split_source


def sample(num: int = 200) -> Sample:
    draws = np.random.default_rng(0)
    return Sample(draws.integers(0, 256, (num, 6, 6, 3), dtype=np.uint8), draws.integers(0, 10, num))


def spoiled(spoil: Spoil, num: int = 200) -> Sample:
    return spoil(sample(num), np.random.default_rng(1))


def num_distinct(pictures: np.ndarray) -> int:
    return len(np.unique(pictures.reshape(len(pictures), -1), axis=0))


def test_near_copies_are_near_and_no_copies() -> None:
    found = spoiled(nearly_copied(8, noise=2))
    assert num_distinct(found.pictures) > 190
    apart = np.abs(found.pictures[:25].astype(int) - found.pictures[25:50].astype(int))
    assert apart.max() <= 4
    assert num_distinct(spoiled(nearly_copied(2, noise=0)).pictures) == 100


def test_a_tint_and_a_light_are_one_number_for_all_pixels_of_a_picture() -> None:
    plain = sample().pictures.astype(float)
    tint = spoiled(tinted(0.5)).pictures - 0.5 * plain
    assert np.ptp(tint, axis=(1, 2)).max() <= 1.0  # of rounding
    light = spoiled(shaded(0.2)).pictures.astype(float)
    slopes = [np.polyfit(plain[i].ravel(), light[i].ravel(), 1) for i in range(20)]
    residuals = [np.abs(np.polyval(slopes[i], plain[i].ravel()) - light[i].ravel()).max() for i in range(20)]
    assert max(residuals) < 2


def test_classes_have_the_sizes_asked_for_and_tints_are_the_classes() -> None:
    found = spoiled(with_classes((50, 7, 5)))
    assert np.bincount(found.classes).tolist() == [50, 7, 5]
    coloured = spoiled(labelled_by_tint(3, 0.9))
    assert (coloured.pictures.mean(axis=(1, 2)).argmax(axis=1) == coloured.classes).all()


def test_noise_has_nothing_of_the_pictures_and_keeps_the_classes() -> None:
    for spoil in (of_noise, of_faint_noise):
        found = spoiled(spoil)
        assert (found.classes == sample().classes).all()
        assert abs(np.corrcoef(found.pictures.ravel(), sample().pictures.ravel())[0, 1]) < 0.02
        assert abs(found.pictures.mean() - 127.5) < 2


def test_labels_and_half_of_the_pictures_are_changed_and_one_class_has_most() -> None:
    assert 0.3 < (spoiled(wrongly_labelled(0.4)).classes != sample().classes).mean() <= 0.4
    is_same = (spoiled(half_noise).pictures == sample().pictures).all(axis=(1, 2, 3))
    assert is_same.sum() == 100
    sizes = np.bincount(spoiled(one_class_of(0.9)).classes)
    assert len(sizes) == 3
    assert sizes[0] / sizes.sum() == pytest.approx(0.9, abs=0.01)


def test_only_pictures_that_a_training_holds_out_are_inverted() -> None:
    found, before = spoiled(held_out_inverted).pictures, sample().pictures
    is_changed = (found != before).any(axis=(1, 2, 3))
    held_out = split_source(200, torch.from_numpy(sample().classes), HELD_OUT).held_out.numpy()
    assert np.flatnonzero(is_changed).tolist() == held_out.tolist()
    assert (found[held_out] == 255 - before[held_out]).all()


@pytest.mark.parametrize("name", TRAINED_FAULTS)
def test_each_trained_fault_has_settings_that_exist_and_findings_that_name_it(name: str) -> None:
    fault = TRAINED_FAULTS[name]
    assert (fault.found_as == ()) == (name == HEALTHY)
    paths = {path for path, _ in leaf_fields(TrainSettings)}
    for form in (fault.choosing, fault.publishing):
        assert set(form.settings) <= paths
