"""20 steps of every wiring on two ranks, each with half of the batch, are those of one process with all of it."""

import pytest
import torch
from small_methods import NUM_SAMPLES, WIRINGS, batches_of, normed, train
from torch import Tensor

from counterpoint.core import dist
from counterpoint.methods import joint, target_branch
from rank_processes import RankResult, Result, run_on_ranks
from tolerances import assert_close

pytestmark = pytest.mark.thorough

NUM_RANKS, NUM_STEPS = 2, 20
WITH_NORM = {"norm": lambda _: normed(is_apart=False), "norm, apart": lambda _: normed(is_apart=True)}
ALL = WIRINGS | WITH_NORM


def own_keys_only(key_ND: Tensor) -> Tensor:
    """A queue of the own keys only, twice."""
    return torch.cat([key_ND, key_ND])


def own_count_only(count: Tensor) -> Tensor:
    """As if all ranks had as many labels."""
    return dist.world_size() * count


# Faults that must show in the wiring of that name: module, attribute, what stands there instead.
FAULTS = {
    "moco": (target_branch, "gather_rows", own_keys_only),
    "supervised": (joint, "sum_over_ranks", own_count_only),
    "simclr": (joint, "world_size", lambda: 1),
    "barlow-twins": (joint, "world_size", lambda: 1),
    "cross-modal": (joint, "world_size", lambda: 1),
}


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
    for name, (module, attribute, fault) in FAULTS.items():
        right = getattr(module, attribute)
        setattr(module, attribute, fault)
        result |= {f"faulty {name}|{what}": value for what, value in course(name, rows).items()}
        setattr(module, attribute, right)
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
