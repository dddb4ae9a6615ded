"""Something done by the first rank alone succeeds or fails on all of them."""

from pathlib import Path

import pytest

from counterpoint.core.dist import rank
from counterpoint.core.errors import DataError, RunError
from counterpoint.engine.placement import on_all_ranks, on_first_rank
from rank_processes import Result, run_on_ranks


def both_outcomes() -> Result:
    done: list[int] = []
    on_first_rank(lambda: done.append(rank()))
    said = "nothing"
    try:
        on_first_rank(refuse)
    except (RunError, DataError) as error:
        said = f"{type(error).__name__}: {error}"
    return {"done": str(done), "said": said}


def refuse() -> None:
    raise DataError("no room on rank 0")


def test_one_process_does_it_and_raises_its_own_error() -> None:
    done: list[int] = []
    on_first_rank(lambda: done.append(1))
    assert done == [1]
    with pytest.raises(DataError, match="no room"):
        on_first_rank(refuse)


@pytest.mark.thorough
def test_others_wait_and_hear_of_the_failure(tmp_path: Path) -> None:
    first, second = run_on_ranks(both_outcomes, 2, tmp_path)
    assert (first.texts["done"], second.texts["done"]) == ("[0]", "[]")
    assert first.texts["said"] == "DataError: no room on rank 0"
    assert second.texts["said"] == "RunError: no room on rank 0"


def failing_on_the_second() -> Result:
    def body() -> int:
        if rank() == 1:
            raise DataError("cannot read part 7")
        return 5

    said = "nothing"
    try:
        on_all_ranks(body)
    except (RunError, DataError) as error:
        said = f"{type(error).__name__}: {error}"
    return {"said": said, "value": str(on_all_ranks(lambda: 5 + rank()))}


@pytest.mark.thorough
def test_a_failure_on_any_rank_is_raised_on_all(tmp_path: Path) -> None:
    first, second = run_on_ranks(failing_on_the_second, 2, tmp_path)
    assert first.texts == {"said": "RunError: rank 1: cannot read part 7", "value": "5"}
    assert second.texts == {"said": "DataError: cannot read part 7", "value": "6"}
