"""Who is held out, in which order the others come, shuffled or balanced, and what long tails leave of them.

Balanced sampling has every class equally often in every batch, and no sample twice where that can be avoided.
"""

from collections import Counter
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from counterpoint.core.errors import UsageError
from counterpoint.core.settings import SourceSettings
from counterpoint.data.order import Order, build_order, class_counts_for, class_sizes, split_source, thin

# --- the split


@pytest.mark.parametrize("share", [0.0, 0.1, 0.2, 0.5, 0.9])
@pytest.mark.parametrize("num_samples", [4, 37, 500])
def test_a_split_has_the_share_asked_for_and_loses_no_one(num_samples: int, share: float) -> None:
    split = split_source(num_samples, None, share)
    both = torch.cat([split.train, split.held_out])
    assert torch.equal(both.sort().values, torch.arange(num_samples))
    assert abs(len(split.held_out) - share * num_samples) <= 1
    assert torch.equal(split.train, split.train.sort().values)
    assert torch.equal(split.held_out, split.held_out.sort().values)


def test_samples_without_a_label_stay_in_training() -> None:
    labels = torch.tensor([-1, 0, 0, 0, 0, 0, -1, 1, 1, 1, 1, 1, -1])
    split = split_source(len(labels), labels, 0.4)
    assert bool((labels[split.held_out] >= 0).all())
    assert class_sizes(labels, split.held_out, 2) == (2, 2)


def test_a_larger_share_holds_out_those_of_a_smaller_one_too() -> None:
    small, large = (set(split_source(200, None, share).held_out.tolist()) for share in (0.1, 0.3))
    assert small < large


# --- the order


@pytest.mark.parametrize(("num_samples", "batch_size"), [(10, 2), (10, 3), (10, 10), (97, 32)])
def test_each_sample_comes_at_most_once_per_epoch_in_whole_batches(num_samples: int, batch_size: int) -> None:
    positions = 5 * torch.arange(num_samples) + 3
    order = Order(positions, batch_size, seed=0)
    for epoch in range(3):
        batches = order.batches(epoch)
        assert batches.shape == (num_samples // batch_size, batch_size) == (order.batches_per_epoch, batch_size)
        used = batches.flatten().tolist()
        assert len(set(used)) == len(used)
        assert set(used) <= set(positions.tolist())


@pytest.mark.parametrize("sizes", [None, [40, 9, 3]], ids=["shuffled", "balanced"])
def test_the_order_is_a_function_of_seed_and_epoch_only(sizes: list[int] | None) -> None:
    labels = None if sizes is None else torch.arange(3).repeat_interleave(torch.tensor(sizes))

    def batches(seed: int, epoch: int) -> Tensor:
        return Order(torch.arange(52), 12, seed, labels).batches(epoch)

    before = batches(3, 4)
    torch.manual_seed(9)
    batches(3, 0)
    assert torch.equal(batches(3, 4), before)
    others = [batches(3, 5), batches(4, 4), batches(3 + 2**32, 4), batches(4, 3)]
    assert all(not torch.equal(other, before) for other in others)


def test_a_fixed_order_is_that_of_the_data_in_every_epoch() -> None:
    order = build_order(torch.tensor([2, 3, 5, 7, 11]), None, 2, seed=4, sampling="fixed")
    assert order.batches(0).tolist() == order.batches(1).tolist() == [[2, 3], [5, 7]]


# --- balanced


def balanced(sizes: list[int], batch_size: int) -> tuple[Order, Tensor]:
    """An order over shuffled classes and the labels of the whole source, whose odd positions are not trained on."""
    labels = torch.cat([torch.full((size,), number) for number, size in enumerate(sizes)])
    labels = labels[torch.randperm(len(labels), generator=torch.Generator().manual_seed(1))]
    of_source = labels.repeat_interleave(2)
    order = build_order(2 * torch.arange(len(labels)), of_source, batch_size, 0, "balanced")
    assert isinstance(order, Order)
    return order, of_source


@st.composite
def cases(draw: st.DrawFn) -> tuple[list[int], int]:
    sizes = draw(st.lists(st.integers(1, 40), min_size=1, max_size=6))
    return sizes, draw(st.integers(1, sum(sizes)))


@given(cases(), st.integers(0, 3))
@pytest.mark.thorough
def test_every_batch_draws_the_classes_evenly_and_repeats_only_samples_of_too_small_ones(
    case: tuple[list[int], int], epoch: int
) -> None:
    sizes, batch_size = case
    order, labels = balanced(sizes, batch_size)
    batches = order.batches(epoch)
    assert batches.shape == (sum(sizes) // batch_size, batch_size) == (order.batches_per_epoch, batch_size)
    assert set(batches.flatten().tolist()) <= set(order.positions.tolist())
    for places in (*batches, batches.flatten()):
        counts = torch.bincount(labels[places], minlength=len(sizes))
        assert int(counts.max() - counts.min()) <= 1
    for batch in batches:
        uses = Counter(batch.tolist())
        for number, places in Counter(labels[batch].tolist()).items():
            most = max(uses[position] for position in batch.tolist() if labels[position] == number)
            assert most == -(-places // sizes[number])


@given(cases(), st.integers(0, 3))
@pytest.mark.thorough
def test_repeats_count_the_earlier_places_of_a_sample(case: tuple[list[int], int], epoch: int) -> None:
    order, _ = balanced(*case)
    batches, seen, expected = order.batches(epoch), Counter[int](), []
    for position in batches.flatten().tolist():
        expected.append(seen[position])
        seen[position] += 1
    assert order.repeats(epoch).flatten().tolist() == expected
    assert order.repeats(epoch).shape == batches.shape


def test_samples_without_a_label_are_not_drawn() -> None:
    labels = torch.tensor([-1, 0, 0, 1, 1, -1, 1])
    order = build_order(torch.arange(7), labels, 2, 0, "balanced")
    assert order.batches_per_epoch == 2
    assert set(torch.cat([order.batches(epoch).flatten() for epoch in range(20)]).tolist()) == {1, 2, 3, 4, 6}


def test_what_cannot_be_balanced_or_fills_no_batch_is_refused() -> None:
    with pytest.raises(UsageError, match=r"source\.sampling balanced needs labels"):
        build_order(torch.arange(9), None, 3, 0, "balanced")
    with pytest.raises(UsageError, match="at most the number of training samples, 4, got 5"):
        build_order(torch.arange(9), torch.tensor([0, 1, 1, 0, -1, -1, -1, -1, -1]), 5, 0, "balanced")


# --- long tails

NAMES = tuple("abcdefghij")


def asked(**fields: Any) -> SourceSettings:
    return SourceSettings(**fields)


def shuffled_labels(sizes: list[int], unlabelled: int = 0) -> Tensor:
    labels = torch.cat([torch.full((size,), number) for number, size in enumerate([unlabelled, *sizes])]) - 1
    return labels[torch.randperm(len(labels), generator=torch.Generator().manual_seed(3))]


def cut(labels: Tensor, **fields: Any) -> Tensor:
    return thin(torch.arange(len(labels)), labels, asked(**fields), NAMES[: int(labels.max()) + 1])


# --- how many of a long tail


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


# --- which of them


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


# --- tails that cannot be


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
