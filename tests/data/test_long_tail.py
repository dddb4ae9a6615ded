"""Long-tailed sources: exact sizes, the same samples every time, smaller sets within larger ones."""

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from counterpoint.core.errors import UsageError
from counterpoint.core.settings import SourceSettings
from counterpoint.data.order import class_counts_for, class_sizes, split_source, thin

NAMES = tuple("abcdefghij")


def asked(**fields: Any) -> SourceSettings:
    return SourceSettings(**fields)


def shuffled_labels(sizes: list[int], unlabelled: int = 0) -> Tensor:
    labels = torch.cat([torch.full((size,), number) for number, size in enumerate([unlabelled, *sizes])]) - 1
    return labels[torch.randperm(len(labels), generator=torch.Generator().manual_seed(3))]


def cut(labels: Tensor, **fields: Any) -> Tensor:
    return thin(torch.arange(len(labels)), labels, asked(**fields), NAMES[: int(labels.max()) + 1])


# --- how many


@pytest.mark.parametrize(
    ("ratio", "counts"),
    [  # sizes of CIFAR-10-LT as its papers print them
        (100.0, (5000, 2997, 1796, 1077, 645, 387, 232, 139, 83, 50)),
        (10.0, (5000, 3871, 2997, 2320, 1796, 1391, 1077, 834, 645, 500)),
        (50.0, (5000, 3237, 2096, 1357, 878, 568, 368, 238, 154, 100)),
        (1.0, (5000,) * 10),
    ],
)
def test_the_exponential_profile_is_that_of_cifar_10_lt(ratio: float, counts: tuple[int, ...]) -> None:
    settings = asked(imbalance="exponential", imbalance_ratio=ratio)
    assert class_counts_for([5000] * 10, settings, NAMES) == counts


@pytest.mark.parametrize(("num_classes", "num_large"), [(2, 1), (3, 2), (10, 5), (1, 1)])
def test_the_step_profile_has_two_sizes(num_classes: int, num_large: int) -> None:
    settings = asked(imbalance="step", imbalance_ratio=20.0)
    counts = class_counts_for([200] * num_classes, settings, NAMES[:num_classes])
    assert counts == (200,) * num_large + (10,) * (num_classes - num_large)


@given(st.data())
def test_no_class_gives_more_than_it_has_and_the_ratio_is_kept(data: st.DataObject) -> None:
    sizes = data.draw(st.lists(st.integers(40, 3000), min_size=2, max_size=10))
    kind, ratio = data.draw(st.sampled_from(["exponential", "step"])), data.draw(st.floats(1, 40))
    counts = class_counts_for(sizes, asked(imbalance=kind, imbalance_ratio=ratio), NAMES[: len(sizes)])
    assert all(1 <= count <= size for count, size in zip(counts, sizes, strict=True))
    assert list(counts) == sorted(counts, reverse=True)
    assert counts[0] / (counts[-1] + 1) < ratio * (1 + 1e-6)  # the last is rounded down
    assert ratio * (1 - 1e-6) <= counts[0] / counts[-1]
    if kind == "step":
        shares = [1.0 if 2 * number < len(sizes) else 1 / ratio for number in range(len(sizes))]
    else:
        shares = [ratio ** (-number / (len(sizes) - 1)) for number in range(len(sizes))]
    one_more = [(counts[0] + 1) * share for share in shares]
    assert any(more > size for more, size in zip(one_more, sizes, strict=True)), "a larger set was possible"


# --- which


def test_explicit_counts_are_kept_to_the_sample() -> None:
    labels = shuffled_labels([50, 40, 30], unlabelled=5)
    kept = cut(labels, class_counts=[50, 7, 1])
    assert class_sizes(labels, kept, 3) == (50, 7, 1)
    assert len(kept) == 58
    assert torch.equal(kept, kept.unique())


def test_what_is_kept_of_a_class_depends_on_that_class_alone() -> None:
    labels = shuffled_labels([80, 80, 80])
    torch.manual_seed(5)
    first = cut(labels, class_counts=[20, 30, 40])
    torch.manual_seed(6)  # the global generator has no say
    others = cut(labels, class_counts=[80, 30, 1])
    assert torch.equal(first[labels[first] == 1], others[labels[others] == 1])
    renumbered = torch.tensor([2, 1, 0])[labels]
    third = cut(renumbered, class_counts=[5, 30, 5])
    assert torch.equal(first[labels[first] == 1], third[renumbered[third] == 1])


def test_the_held_out_split_stays_as_it_is() -> None:
    labels = shuffled_labels([100] * 4, unlabelled=7)
    split = split_source(len(labels), labels, 0.2)
    settings = asked(imbalance="exponential", imbalance_ratio=8.0)
    kept = thin(split.train, labels, settings, NAMES[:4])
    assert class_sizes(labels, kept, 4) == (80, 40, 20, 10)
    assert not set(kept.tolist()) & set(split.held_out.tolist())
    assert class_sizes(labels, split.held_out, 4) == (20,) * 4


# --- what cannot be


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"class_counts": [10, 21]}, "asks for 21 samples of class 'b', which has 20 for training"),
        ({"class_counts": [10]}, "one number for each of the 2 classes, got 1"),
        ({"class_counts": [1, 1], "imbalance": "step"}, "exclude each other"),
        ({"imbalance": "step", "imbalance_ratio": 21.0}, "no sample of class 'b', which has 20 .* at most about 20"),
        ({"imbalance": "exponential", "imbalance_ratio": 1e6}, "leaves no sample of class 'b'"),
    ],
)
def test_impossible_counts_name_the_class_and_its_size(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        cut(shuffled_labels([20, 20]), **fields)


@pytest.mark.parametrize("fields", [{"imbalance": "step"}, {"class_counts": [3]}])
def test_data_without_labels_have_no_classes_to_cut(fields: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="need labels"):
        thin(torch.arange(6), None, asked(**fields), ())
