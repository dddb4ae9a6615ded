"""Faults are what they say: copies are copies, tints stay, classes have their sizes, encoders are silent."""

import numpy as np
import pytest
import torch
from calibration.faults import CATALOGUE, HEALTHY
from calibration.spoiled_encoders import Repeated, Silenced, Spoiled
from calibration.spoiled_features import with_offset, with_rows_moved, with_rows_shuffled
from calibration.spoiled_samples import (
    Sample,
    Spoil,
    copied,
    labelled_by_tint,
    nearly_copied,
    of_faint_noise,
    of_noise,
    shaded,
    tinted,
    with_classes,
)

from counterpoint.core.settings import TrainSettings
from counterpoint.core.validation import leaf_fields
from counterpoint.diagnostics.findings import CATALOGUE as CHECKS


def sample(num: int = 200) -> Sample:
    draws = np.random.default_rng(0)
    return Sample(draws.integers(0, 256, (num, 6, 6, 3), dtype=np.uint8), draws.integers(0, 10, num))


def spoiled(spoil: Spoil, num: int = 200) -> Sample:
    return spoil(sample(num), np.random.default_rng(1))


def num_distinct(pictures: np.ndarray) -> int:
    return len(np.unique(pictures.reshape(len(pictures), -1), axis=0))


def test_copies_leave_the_number_and_take_the_variety() -> None:
    found = spoiled(copied(0.4))
    assert len(found.pictures) == 200
    assert num_distinct(found.pictures) == 120


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


def test_encoders_are_silent_and_repeat_themselves() -> None:
    images = torch.rand(16, 3, 16, 16)
    silent = Spoiled(Silenced(0.6))(images)
    assert int((silent == 0).all(dim=0).sum()) == 39
    twice = Spoiled(Repeated((1.0, -0.7)))(images)
    assert torch.allclose(twice[:, 64:], -0.7 * twice[:, :64])


def test_features_are_moved_and_shuffled() -> None:
    z = torch.randn(50, 4)
    draws = np.random.default_rng(0)
    moved, other = with_offset(6.0)(z, z, draws)
    assert torch.allclose(moved - z, torch.full_like(z, 6 * float(z.std(dim=0).mean())))
    assert other is not None
    _, shuffled = with_rows_shuffled(z, z, draws)
    _, rolled = with_rows_moved(z, z, draws)
    assert shuffled is not None
    assert rolled is not None
    assert not torch.equal(shuffled, z)
    assert torch.equal(shuffled.sort(dim=0).values, z.sort(dim=0).values)
    assert torch.equal(rolled[1:], z[:-1])


@pytest.mark.parametrize("name", CATALOGUE)
def test_each_fault_has_settings_that_exist_and_checks_that_find_it(name: str) -> None:
    fault = CATALOGUE[name]
    assert (fault.found_as == ()) == (name == HEALTHY)
    assert set(fault.found_as) <= set(CHECKS)
    paths = {path for path, _ in leaf_fields(TrainSettings)}
    for form in (fault.choosing, fault.publishing):
        assert set(form.settings) <= paths
