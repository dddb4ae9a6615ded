"""Blocks cover all rows once, respect halves, are small; work on them is done alone, with any number of threads."""

from collections.abc import Iterator

import pytest
import torch

from counterpoint.kernels.cpu import row_blocks
from counterpoint.kernels.cpu.row_blocks import BLOCK, blocks, each_block


@pytest.fixture(autouse=True)
def threads_as_before() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("num_rows", [2, BLOCK, BLOCK + 2, 2 * BLOCK, 2 * BLOCK + 2, 1024])
@pytest.mark.parametrize("num_parts", [1, 2])
def test_blocks_cover_all_rows_once(num_rows: int, num_parts: int) -> None:
    found = blocks(num_rows, num_parts)
    assert [row for own in found for row in range(own.start, own.stop)] == list(range(num_rows))
    assert all(own.stop - own.start <= BLOCK for own in found)
    assert len(found) == 1 or any(own.start == num_rows * (num_parts - 1) // num_parts for own in found)


@pytest.mark.parametrize("for_a_thread", [1, 2**40], ids=["by several threads", "by the caller"])
@pytest.mark.parametrize("num_threads", [1, 2, 3])
def test_each_block_is_done_once_by_operations_of_one_thread(
    num_threads: int, for_a_thread: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_blocks, "FOR_A_THREAD", for_a_thread)
    torch.set_num_threads(num_threads)
    counts, seen = torch.zeros(1000), []

    def work(rows: slice) -> None:
        counts[rows] += 1
        seen.append(torch.get_num_threads())

    each_block(blocks(1000), work, 1000)
    assert counts.eq(1).all()
    assert set(seen) == {1}
    assert torch.get_num_threads() == num_threads


def test_the_number_of_threads_comes_back_after_an_error() -> None:
    torch.set_num_threads(2)

    def work(rows: slice) -> None:
        raise ArithmeticError

    with pytest.raises(ArithmeticError):
        each_block(blocks(4), work, 1)
    assert torch.get_num_threads() == 2
