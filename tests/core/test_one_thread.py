"""One thread where it is asked for, and pieces side by side that give what they give one after another."""

from collections.abc import Iterator

import pytest
import torch
from threadpoolctl import threadpool_info

from counterpoint.core.thread_parts import one_thread, side_by_side


@pytest.fixture(autouse=True)
def two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def blas_threads() -> list[int]:
    return [pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"]


def test_one_thread_and_afterwards_as_many_as_before() -> None:
    before = blas_threads()
    with one_thread():
        assert torch.get_num_threads() == 1
        assert set(blas_threads()) == {1}
    assert (torch.get_num_threads(), blas_threads()) == (2, before)
    with one_thread(is_wanted=False):
        assert (torch.get_num_threads(), blas_threads()) == (2, before)
    with pytest.raises(ZeroDivisionError), one_thread():
        _ = 1 / 0
    assert (torch.get_num_threads(), blas_threads()) == (2, before)


@pytest.mark.parametrize("num_threads", [1, 2, 3])
def test_pieces_come_in_order_each_by_one_thread(num_threads: int) -> None:
    torch.set_num_threads(num_threads)
    found = side_by_side(lambda n: (n, torch.get_num_threads(), set(blas_threads())), range(7))
    assert found == [(n, 1, {1}) for n in range(7)]
    assert torch.get_num_threads() == num_threads


def test_pieces_give_the_same_bits_for_any_number_of_threads() -> None:
    generator = torch.Generator().manual_seed(0)
    pieces = torch.randn(5, 40, 3000, generator=generator).unbind()
    found = []
    for num_threads in (1, 2, 3):
        torch.set_num_threads(num_threads)
        found.append(torch.stack(side_by_side(lambda z: (z @ z.T).softmax(1).sum(1), pieces)))
    assert torch.equal(found[0], found[1])
    assert torch.equal(found[0], found[2])


def test_a_piece_within_a_piece_and_an_error_in_one() -> None:
    assert side_by_side(lambda n: side_by_side(lambda m: n * m, range(3)), range(3)) == [
        [0, 0, 0],
        [0, 1, 2],
        [0, 2, 4],
    ]
    with pytest.raises(ZeroDivisionError):
        side_by_side(lambda n: 1 / n, [1, 0])
