"""Rows worked on by several threads are those of one, and torch has as many threads afterwards as before."""

from collections.abc import Iterator

import pytest
import torch

from counterpoint.data.presets import PRESETS
from counterpoint.data.thread_parts import in_parts
from counterpoint.data.views import ViewDrawer


@pytest.fixture(autouse=True)
def own_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("num_rows", [0, 1, 31, 64, 65, 200])
@pytest.mark.parametrize("num_threads", [1, 2, 3])
def test_every_row_comes_once_and_in_order(num_rows: int, num_threads: int) -> None:
    torch.set_num_threads(num_threads)
    assert torch.equal(in_parts(lambda rows: torch.arange(num_rows)[rows], num_rows), torch.arange(num_rows))
    assert torch.get_num_threads() == num_threads


def test_an_error_in_a_part_comes_out() -> None:
    torch.set_num_threads(2)
    with pytest.raises(ZeroDivisionError):
        in_parts(lambda rows: torch.ones(1 // 0), 100)


def test_views_have_the_same_bits_for_any_number_of_threads() -> None:
    drawer = ViewDrawer(PRESETS["directclr"], torch.full((3,), 0.5), torch.full((3,), 0.25), 7)
    samples = torch.randint(0, 256, (130, 3, 16, 16), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    found = []
    for num_threads in (1, 2, 3):
        torch.set_num_threads(num_threads)
        found.append(torch.cat(drawer.two_views(samples, torch.arange(130), 4)))
    assert torch.equal(found[0], found[1])
    assert torch.equal(found[0], found[2])
