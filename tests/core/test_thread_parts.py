"""What several threads work on is what one gives, and torch has as many threads afterwards as before."""

from collections.abc import Iterator

import pytest
import torch
from threadpoolctl import threadpool_info

from counterpoint.core import thread_parts
from counterpoint.core.settings import ViewSettings
from counterpoint.core.thread_parts import blocks, each_block, one_thread, ordered_map, ordered_writes, side_by_side
from counterpoint.data.views.drawer import ViewDrawer
from counterpoint.data.views.presets import plan_views


@pytest.fixture(autouse=True)
def own_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def test_views_have_the_same_bits_for_any_number_of_threads() -> None:
    drawer = ViewDrawer(plan_views(ViewSettings(preset="directclr")), torch.full((3,), 0.5), torch.full((3,), 0.25), 7)
    samples = torch.randint(0, 256, (130, 3, 16, 16), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    found = []
    for num_threads in (1, 2, 3):
        torch.set_num_threads(num_threads)
        found.append(torch.cat(drawer.two_views(samples, torch.arange(130), 4)))
    assert torch.equal(found[0], found[1])
    assert torch.equal(found[0], found[2])


@pytest.mark.parametrize("num_threads", [1, 2, 3])
def test_what_tasks_share_they_write_in_their_order(num_threads: int) -> None:
    """Each task appends to two of five lists; every list is that of one thread."""
    torch.set_num_threads(num_threads)
    tasks = [(number % 5, (3 * number + 1) % 5) for number in range(60)]
    lists: list[list[int]] = [[] for _ in range(5)]

    def work(number: int) -> None:
        for place in set(tasks[number]):
            torch.ones(200, 200).sum()  # the other threads get a turn
            lists[place].append(number)

    ordered_writes(range(60), lambda: work, lambda number: tasks[number])
    assert lists == [[number for number in range(60) if place in tasks[number]] for place in range(5)]
    assert torch.get_num_threads() == num_threads


@pytest.mark.parametrize("num_threads", [1, 2])
def test_an_error_in_a_task_comes_out_and_ends_the_others(num_threads: int) -> None:
    torch.set_num_threads(num_threads)
    done = []

    def work(number: int) -> None:
        if number == 3:
            raise ZeroDivisionError
        done.append(number)

    with pytest.raises(ZeroDivisionError):
        ordered_writes(range(1000), lambda: work, lambda number: [0])
    assert done == [0, 1, 2]


@pytest.mark.parametrize("num_threads", [1, 2])
def test_subnormal_numbers_count_as_zero_in_tasks_only(num_threads: int) -> None:
    torch.set_num_threads(num_threads)
    small = torch.full((), 1e-40)
    found = []
    ordered_writes([0], lambda: lambda _: found.append(float(small * 1.0)), lambda _: [])
    assert found == [0.0]
    assert float(small * 1.0) > 0


def test_tasks_are_not_differentiated() -> None:
    torch.set_num_threads(2)
    x = torch.ones((), requires_grad=True)
    found = []
    ordered_writes([0, 1], lambda: lambda _: found.append((2 * x).requires_grad), lambda _: [])
    assert found == [False, False]


@pytest.mark.parametrize("is_parallel", [True, False])
@pytest.mark.parametrize("num_threads", [1, 2, 3])
def test_results_are_handed_on_in_the_order_of_the_items(num_threads: int, is_parallel: bool) -> None:
    """Even where the first items take longest."""
    torch.set_num_threads(num_threads)
    waiting, most_waiting, found = set[int](), [], []

    def compute(item: int) -> int:
        waiting.add(item)
        most_waiting.append(len(waiting))
        for _ in range(20 - item):
            torch.ones(100, 100).mm(torch.ones(100, 100))
        return item**2

    def add(item: int, square: int) -> None:
        waiting.remove(item)
        found.append(square)

    ordered_map(range(20), compute, add, is_parallel=is_parallel)
    assert found == [item**2 for item in range(20)]
    assert max(most_waiting) <= num_threads + 1


@pytest.mark.parametrize("for_a_thread", [1, 2**40], ids=["by several threads", "by the caller"])
@pytest.mark.parametrize("num_threads", [1, 2, 3])
def test_each_block_is_done_once_by_operations_of_one_thread(
    num_threads: int, for_a_thread: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(thread_parts, "FOR_A_THREAD", for_a_thread)
    torch.set_num_threads(num_threads)
    counts, seen = torch.zeros(1000), []

    def work(rows: slice) -> None:
        counts[rows] += 1
        seen.append(torch.get_num_threads())

    each_block(blocks(1000), work, 1000)
    assert counts.eq(1).all()
    assert set(seen) == {1}
    assert torch.get_num_threads() == num_threads


# --- one thread, and pieces side by side


def blas_threads() -> list[int]:
    return [pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"]


def test_one_thread_and_afterwards_as_many_as_before() -> None:
    torch.set_num_threads(2)
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
