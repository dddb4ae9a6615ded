"""Faults are what they say: copies are copies, tints stay, classes have their sizes, encoders are silent."""

import numpy as np
import pytest
from calibration.faults import CATALOGUE, HEALTHY
from calibration.spoiled_samples import (
    Sample,
    Spoil,
    copied,
    labelled_by_tint,
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


def test_classes_have_the_sizes_asked_for_and_tints_are_the_classes() -> None:
    found = spoiled(with_classes((50, 7, 5)))
    assert np.bincount(found.classes).tolist() == [50, 7, 5]
    coloured = spoiled(labelled_by_tint(3, 0.9))
    assert (coloured.pictures.mean(axis=(1, 2)).argmax(axis=1) == coloured.classes).all()


@pytest.mark.parametrize("name", CATALOGUE)
def test_each_fault_has_settings_that_exist_and_checks_that_find_it(name: str) -> None:
    fault = CATALOGUE[name]
    assert (fault.found_as == ()) == (name == HEALTHY)
    assert set(fault.found_as) <= set(CHECKS)
    paths = {path for path, _ in leaf_fields(TrainSettings)}
    for form in (fault.choosing, fault.publishing):
        assert set(form.settings) <= paths
