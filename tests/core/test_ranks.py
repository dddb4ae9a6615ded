"""Ranks from the variables that torchrun sets, and the parts that ranks make."""

import pytest

from counterpoint.core.errors import UsageError
from counterpoint.core.ranks import Ranks, WorkPart, part_of_ranks, read_ranks
from refusals import refused

TORCHRUN = {
    "RANK": "5",
    "LOCAL_RANK": "1",
    "WORLD_SIZE": "8",
    "LOCAL_WORLD_SIZE": "4",
    "MASTER_ADDR": "10.0.0.7",
    "MASTER_PORT": "29400",
    "TORCHELASTIC_RESTART_COUNT": "2",
}
RANK = {"RANK": "1", "LOCAL_RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "a", "MASTER_PORT": "1"}


def test_torchrun() -> None:
    assert read_ranks(TORCHRUN) == Ranks(5, 1, 8, 4, "10.0.0.7", 29400, restarts=2)
    assert read_ranks({}) == read_ranks({"RANK": "1"}) == Ranks()


def test_a_restart_knows_its_own_launch() -> None:
    first, again = (read_ranks({**RANK, "TORCHELASTIC_RUN_ID": "a", "TORCHELASTIC_RESTART_COUNT": n}) for n in "01")
    assert first.launch == again.launch != ""
    assert first.launch != read_ranks({**RANK, "TORCHELASTIC_RUN_ID": "b"}).launch


@pytest.mark.parametrize(
    ("environment", "words"),
    [
        ({key: value for key, value in TORCHRUN.items() if key != "MASTER_PORT"}, ["MASTER_PORT", "torchrun"]),
        ({**TORCHRUN, "RANK": "8"}, ["RANK", "WORLD_SIZE (8)", "got 8"]),
        ({**TORCHRUN, "LOCAL_RANK": "4"}, ["LOCAL_RANK", "(4)", "got 4"]),
        ({**TORCHRUN, "RANK": "-1"}, ["RANK", "'-1'"]),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(environment: dict[str, str], words: list[str]) -> None:
    message = refused(UsageError, read_ranks, environment)
    assert all(word in message for word in words), message


def test_all_parts_of_all_ranks_are_different() -> None:
    found = [
        part_of_ranks(f"{number}/3", {**RANK, "RANK": str(rank), "LOCAL_RANK": str(rank)})
        for number in (1, 2, 3)
        for rank in (0, 1)
    ]
    assert found == [WorkPart(number, 6) for number in range(1, 7)]
    assert part_of_ranks(None, {}) == WorkPart(1, 1)


@pytest.mark.parametrize("wrong", ["0/3", "4/3", "x", "/", "-1/3"])
def test_a_part_that_there_is_not_is_refused(wrong: str) -> None:
    with pytest.raises(UsageError, match="part must be NUMBER/TOTAL"):
        part_of_ranks(wrong, {})


def test_parts_have_all_items_once() -> None:
    assert sorted(item for number in range(1, 4) for item in WorkPart(number, 3).of(8)) == list(range(8))
