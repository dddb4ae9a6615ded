"""Which share of some work a process does: by a flag, a SLURM array, or its rank."""

import pytest

from counterpoint.core.errors import UsageError
from counterpoint.core.work_parts import Part, alone, part_of, part_of_ranks

ARRAY = {"SLURM_ARRAY_TASK_ID": "12", "SLURM_ARRAY_TASK_COUNT": "3", "SLURM_ARRAY_TASK_MIN": "10"}
RANK = {"RANK": "1", "LOCAL_RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "a", "MASTER_PORT": "1"}


def test_a_part_is_that_of_the_flag_of_a_slurm_array_or_of_a_rank() -> None:
    assert part_of(None, {}) == Part(1, 1)
    assert part_of(None, {"RANK": "2", "WORLD_SIZE": "4"}) == Part(3, 4)
    for wrong in ("3", "0/2", "3/2", "a/b"):
        with pytest.raises(UsageError, match="part"):
            part_of(wrong, {})


def test_a_rank_trains_alone_on_its_own_gpu() -> None:
    environment = {"RANK": "1", "LOCAL_RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "a", "CUDA_VISIBLE_DEVICES": "4,7"}
    alone(environment)
    assert environment == {"CUDA_VISIBLE_DEVICES": "7"}
    alone(environment)
    assert environment == {"CUDA_VISIBLE_DEVICES": "7"}


def test_ranks_share_the_part_that_was_asked_for() -> None:
    assert part_of_ranks(None, {}) == Part(1, 1)
    assert part_of_ranks(None, RANK) == Part(2, 2)
    assert part_of_ranks("slurm", ARRAY) == Part(3, 3)
    assert part_of_ranks("slurm", {**ARRAY, **RANK}) == Part(6, 6)
    # An array of other jobs does not cut a table unasked.
    assert part_of_ranks(None, ARRAY) == Part(1, 1)


def test_all_parts_of_all_ranks_are_different() -> None:
    found = [
        part_of_ranks(f"{number}/3", {**RANK, "RANK": str(rank), "LOCAL_RANK": str(rank)})
        for number in (1, 2, 3)
        for rank in (0, 1)
    ]
    assert found == [Part(number, 6) for number in range(1, 7)]


@pytest.mark.parametrize("wrong", ["0/3", "4/3", "x", "3", "/", "-1/3", "1/0"])
def test_a_part_that_there_is_not_is_refused(wrong: str) -> None:
    with pytest.raises(UsageError, match="part must be NUMBER/TOTAL"):
        part_of_ranks(wrong, {})


def test_the_index_of_an_array_needs_an_array() -> None:
    with pytest.raises(UsageError, match="part slurm needs a SLURM array"):
        part_of_ranks("slurm", {"SLURM_JOB_ID": "7"})
