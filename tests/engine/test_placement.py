"""Where a run is computed, who this process is, and what one rank does for all: it succeeds or fails on each."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from counterpoint.core.dist import rank
from counterpoint.core.errors import DataError, RunError, UsageError
from counterpoint.core.ranks import Ranks
from counterpoint.engine.placement import on_all_ranks, on_first_rank, place
from rank_processes import Result, run_on_ranks

FOUR_HERE = {
    "RANK": "5",
    "LOCAL_RANK": "1",
    "WORLD_SIZE": "8",
    "LOCAL_WORLD_SIZE": "4",
    "MASTER_ADDR": "localhost",
    "MASTER_PORT": "29400",
}


def give_gpus(monkeypatch: pytest.MonkeyPatch, count: int, *, has_bf16: bool = True) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: count > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation=True: has_bf16)


@pytest.mark.parametrize(
    ("num_gpus", "has_bf16", "asked", "expected"),
    [
        (0, False, ("auto", "auto"), ("cpu", "fp32")),
        (0, False, ("cpu", "bf16"), ("cpu", "bf16")),
        (1, True, ("auto", "auto"), ("cuda", "bf16")),
        (1, False, ("auto", "auto"), ("cuda", "fp32")),
        (1, True, ("cpu", "auto"), ("cpu", "fp32")),
        (1, True, ("cuda", "fp16"), ("cuda", "fp16")),
    ],
)
def test_auto_says_what_it_chose_and_why(
    monkeypatch: pytest.MonkeyPatch, num_gpus: int, has_bf16: bool, asked: tuple[str, str], expected: tuple[str, str]
) -> None:
    give_gpus(monkeypatch, num_gpus, has_bf16=has_bf16)
    placement = place(*asked, environment={})
    assert (placement.device, placement.precision) == expected
    assert placement.ranks == Ranks()
    names = [name for name, value in zip(("engine.device", "engine.precision"), asked, strict=True) if value == "auto"]
    assert list(placement.reasons) == names


@pytest.mark.parametrize(
    ("num_gpus", "asked", "environment", "words"),
    [
        (0, ("cuda", "auto"), {}, ["engine.device", "no GPU"]),
        (2, ("cuda", "auto"), FOUR_HERE, ["4 ranks", "2 GPUs", "--engine.device cpu"]),
        (1, ("auto", "auto"), FOUR_HERE, ["4 ranks", "1 GPU;"]),
        (0, ("auto", "fp16"), {}, ["fp16 needs a GPU", "bf16"]),
        (1, ("cpu", "fp16"), {}, ["fp16 needs a GPU", "bf16"]),
    ],
)
def test_what_cannot_be_is_refused(
    monkeypatch: pytest.MonkeyPatch,
    num_gpus: int,
    asked: tuple[str, str],
    environment: dict[str, str],
    words: list[str],
) -> None:
    give_gpus(monkeypatch, num_gpus)
    with pytest.raises(UsageError) as refusal:
        place(*asked, environment=environment)
    assert all(word in str(refusal.value) for word in words), refusal.value


def test_ranks_and_their_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    give_gpus(monkeypatch, 4)
    placement = place("auto", "fp32", environment=FOUR_HERE)
    assert (placement.ranks.rank, placement.ranks.local_rank, placement.world_size) == (5, 1, 8)
    assert placement.torch_device == torch.device("cuda", 1)
    assert place("cpu", "fp32", environment=FOUR_HERE).torch_device == torch.device("cpu")


def test_ranks_come_from_the_environment_of_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in FOUR_HERE.items():
        monkeypatch.setenv(name, value)
    assert place("cpu", "fp32").world_size == 8


# --- what one rank does for all


def said_by(work: Callable[[], object]) -> str:
    try:
        work()
    except (RunError, DataError) as error:
        return f"{type(error).__name__}: {error}"
    return "nothing"


def both_outcomes() -> Result:
    done: list[int] = []
    on_first_rank(lambda: done.append(rank()))
    return {"done": str(done), "said": said_by(lambda: on_first_rank(refuse))}


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

    return {"said": said_by(lambda: on_all_ranks(body)), "value": str(on_all_ranks(lambda: 5 + rank()))}


@pytest.mark.thorough
def test_a_failure_on_any_rank_is_raised_on_all(tmp_path: Path) -> None:
    first, second = run_on_ranks(failing_on_the_second, 2, tmp_path)
    assert first.texts == {"said": "RunError: rank 1: cannot read part 7", "value": "5"}
    assert second.texts == {"said": "DataError: cannot read part 7", "value": "6"}
