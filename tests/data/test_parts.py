"""Samples of some classes, and two sources end to end: what is fetched, how classes are numbered, what is refused."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from counterpoint.core.errors import DataError, UsageError
from counterpoint.core.settings import SourceSettings
from counterpoint.data.source import Source
from counterpoint.data.sources import joined, open_source
from data.opened_data import silent

ROWS = np.arange(12, dtype=np.float32).reshape(6, 2)


def opened(rows: np.ndarray = ROWS, labels: list[str] | None = None, classes: str = "all") -> Source:
    labels = ["dog", "cat", "ship", "cat", "dog", "ship"] if labels is None else labels
    return open_source(rows, SourceSettings(classes=classes), labels=labels, progress=silent)


def test_the_samples_of_some_classes_are_numbered_anew_in_the_order_of_the_source() -> None:
    part = opened(classes="ship, cat")
    assert part.class_names == ("cat", "ship")
    assert part.labels is not None
    assert part.labels.tolist() == [0, 1, 0, 1]
    assert part.sample_names == ("1", "2", "3", "5")
    assert torch.equal(part.store.fetch([3, 0]), torch.from_numpy(ROWS[[5, 1]]))
    assert len({part.fingerprint, opened().fingerprint, opened(classes="cat").fingerprint}) == 3


def test_a_class_that_is_not_there_is_named() -> None:
    with pytest.raises(UsageError, match="has no class 'shop'; did you mean 'ship'"):
        opened(classes="cat,shop")
    unlabelled = SourceSettings(classes="cat")
    with pytest.raises(UsageError, match="array has no labels"):
        open_source(ROWS, unlabelled, progress=silent)


def test_two_sources_end_to_end_share_the_classes_of_the_first() -> None:
    both = joined(opened(), opened(ROWS[:3] + 100, ["ship", "cat", "ship"]))
    assert both.class_names == ("cat", "dog", "ship")
    assert both.labels is not None
    assert both.labels.tolist() == [1, 0, 2, 0, 1, 2, 2, 0, 2]
    assert both.store.fetch([7, 0, 6, 5])[:, 0].tolist() == [102, 0, 100, 10]
    assert len(both) == len(both.sample_names) == 9


@pytest.mark.parametrize(
    ("rows", "labels", "words"),
    [
        (ROWS, ["cat", "emu", "cat", "yak", "dog", "cat"], "2 of 4 classes of array are not in array: emu, yak; what "
         "both have: --source.classes cat,dog"),
        (ROWS[:, :1], ["cat"] * 6, "samples of array have the shape (1,), those of array (2,)"),
    ],
)  # fmt: skip
def test_what_does_not_fit_together_is_refused(rows: np.ndarray, labels: list[str], words: str) -> None:
    with pytest.raises(DataError) as caught:
        joined(opened(), opened(rows, labels))
    assert words in str(caught.value)


def test_classes_that_the_first_has_no_sample_of_are_refused() -> None:
    bank, queries = opened(), opened(ROWS[:4], ["ship", "emu", "cat", "emu"])
    named_only = replace(bank, class_names=(*bank.class_names, "emu"))  # named, without a sample
    for source in (bank, named_only):
        with pytest.raises(DataError, match="1 of 3 classes of array are not in array: emu"):
            joined(source, queries)
