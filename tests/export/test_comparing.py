"""The comparison refuses what differs, names the sample, and tries each size of a batch."""

import pytest
import torch
from torch import Tensor

from counterpoint.core.errors import RunError
from counterpoint.export.exporting import BATCHES, TOLERANCE, compare, row_differences
from untrained_encoders import make_encoder


def test_differences_are_relative_to_the_largest_value_of_each_row() -> None:
    expected = torch.tensor([[100.0, 1.0], [0.01, -0.001], [0.0, 0.0]])
    found = expected + torch.tensor([[0.0, 1.0], [0.001, 0.0], [0.5, 0.0]])
    assert row_differences(found, expected).tolist() == pytest.approx([0.01, 0.1, 0.5])


@pytest.mark.parametrize("count", [1, 3, 12])
def test_each_size_of_a_batch_is_tried_and_each_sample_seen(count: int) -> None:
    encoder, seen = make_encoder(), list[Tensor]()
    samples = torch.randint(0, 256, (count, 3, 8, 8), dtype=torch.uint8)

    def answer(part: Tensor) -> dict[str, Tensor]:
        seen.append(part)
        return {"representation": encoder.both(part)[0]}

    found = compare(answer, encoder, samples, list(map(str, range(count))), 0.0)
    assert found.difference == 0.0
    own = [part for part in seen if part.shape[2:] == (8, 8)]
    assert {len(part) for part in own} >= set(BATCHES)
    assert {tuple(image.flatten().tolist()) for part in own for image in part} == {
        tuple(image.flatten().tolist()) for image in samples
    }
    assert len(found.sizes) == 3
    assert found.num_rows == sum(map(len, seen))


@pytest.mark.parametrize("wrong", [2 * TOLERANCE, float("nan")])
def test_what_differs_is_refused_with_the_name_of_the_sample(wrong: float) -> None:
    encoder = make_encoder()
    samples = torch.randint(0, 256, (3, 3, 8, 8), dtype=torch.uint8)

    def answer(part: Tensor) -> dict[str, Tensor]:
        r = encoder.both(part)[0].clone()
        is_last = (part == samples[2]).flatten(1).all(dim=1) if part.shape[2:] == (8, 8) else torch.zeros(len(r)) > 0
        r[is_last, 0] += wrong * r[is_last].abs().amax(dim=1)
        return {"representation": r}

    with pytest.raises(RunError, match=r"representation of third differs .* nothing was kept"):
        compare(answer, encoder, samples, ["first", "second", "third"], TOLERANCE)


def test_another_shape_and_a_failing_runtime_are_refused() -> None:
    encoder, samples = make_encoder(), torch.zeros(2, 3, 8, 8, dtype=torch.uint8)
    with pytest.raises(RunError, match="it returns"):
        compare(lambda part: {"embedding": torch.zeros(1)}, encoder, samples, ["a", "b"], TOLERANCE)

    def broken(part: Tensor) -> dict[str, Tensor]:
        raise ValueError("no such size")

    with pytest.raises(RunError, match="fails on a batch of 1: no such size"):
        compare(broken, encoder, samples, ["a", "b"], TOLERANCE)
