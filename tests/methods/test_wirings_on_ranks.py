"""20 steps of every wiring on two ranks, each with half of the batch, are those of one process with all of it."""

import pytest
import torch
from small_methods import NUM_SAMPLES, WIRINGS, batches_of, normed, train
from torch import Tensor

from counterpoint.core import dist
from rank_processes import RankResult, Result, run_on_ranks
from tolerances import assert_close

pytestmark = pytest.mark.thorough

NUM_RANKS, NUM_STEPS = 2, 20
WITH_NORM = {"norm": lambda _: normed(is_apart=False), "norm, apart": lambda _: normed(is_apart=True)}
ALL = WIRINGS | WITH_NORM


def mean_over_ranks(gradient: Tensor) -> Tensor:
    return dist.sum_over_ranks(gradient) / dist.world_size()


def progress(step: int) -> float:
    return step / NUM_STEPS


def course(name: str, rows: slice) -> dict[str, Tensor]:
    """Losses of all steps, averaged over ranks, and everything at their end."""
    method = ALL[name](None)
    losses = train(method, batches_of(name, NUM_STEPS), rows=rows, share_gradient=mean_over_ranks, progress=progress)
    return {"losses": mean_over_ranks(torch.stack(losses)), **method.state_dict()}


def on_a_rank() -> Result:
    result: Result = {}
    rows = dist.own_rows(NUM_SAMPLES // dist.world_size())
    for name in ALL:
        result |= {f"{name}|{what}": value for what, value in course(name, rows).items()}
    return result


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> list[RankResult]:
    return run_on_ranks(on_a_rank, NUM_RANKS, tmp_path_factory.mktemp("ranks"))


@pytest.mark.parametrize("name", ALL)
def test_two_ranks_are_one_process(name: str, ranks: list[RankResult]) -> None:
    expected = course(name, slice(None))
    assert len(expected) > 4
    for result in ranks:
        assert {key for key in result.tensors if key.startswith(f"{name}|")} == {f"{name}|{what}" for what in expected}
        for what, value in expected.items():
            found = result.tensors[f"{name}|{what}"]
            assert found.dtype == value.dtype
            assert_close(found.double(), value.double())
