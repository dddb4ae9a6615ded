"""The engine on one rank and several, with copies and with shards, against bare torch in one process."""

from pathlib import Path

import pytest
import torch
from engine_methods import N, SmallMethod, build_method, optimizer_of, placement, views
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.optim import Optimizer

from counterpoint.core.dist import world_size
from counterpoint.core.errors import TrainingError
from counterpoint.core.settings import OptimSettings
from counterpoint.engine.engine import CAN_SHARD, Engine, FullState
from counterpoint.engine.optimisers import build_optimizer
from counterpoint.nn.synced_norm import replace_norms, with_synced_norm
from rank_processes import RankResult, Result, run_on_ranks
from tolerances import assert_close

NUM_STEPS = 4
SHARDS = {"ddp": False, "fsdp": True}
RULES = ("adamw", "adam", "sgd", "lars")
needs_shards = pytest.mark.skipif(not CAN_SHARD, reason="this torch shards no weights on the CPU (2.7 does)")
NAMES = ["ddp", pytest.param("fsdp", marks=needs_shards)]
CLIP = 0.8  # some of the steps' gradients are longer, some shorter


def step_of(engine: Engine, method: SmallMethod, module: nn.Module, step: int) -> tuple[float, float]:
    """One step; the loss is over the rows of this rank."""
    part = slice(0, N // world_size())
    loss = module(*views(step, next(method.projector.parameters()).dtype, part))
    engine.backward(loss)
    update = engine.update(clip=CLIP)
    assert update.is_applied
    assert update.nonfinite is None
    method.after_step(step / NUM_STEPS)
    return float(loss.detach()), update.gradient_norm


def trained(name: str, *, norm: type[nn.Module] | None = None, rule: str | None = None) -> Result:
    """Weights, optimiser state, losses and lengths of gradients after some steps; in the middle another engine."""
    losses: list[float] = []
    norms: list[float] = []
    state: FullState | None = None
    for half in range(2):
        engine = Engine(placement(), shards=SHARDS[name])
        method = build_method(norm=norm)
        with_synced_norm(method)
        optimizer = optimizer_of(method) if rule is None else by_rule(method, rule, is_sharded=SHARDS[name])
        module = engine.setup(method, optimizer)
        if state is not None:
            engine.load_state(state)
        for step in range(half * NUM_STEPS // 2, (half + 1) * NUM_STEPS // 2):
            loss, length = step_of(engine, method, module, step)
            losses.append(loss)
            norms.append(length)
        state = engine.full_state()
    assert state is not None
    return {
        **as_tensors(state),
        "losses": torch.tensor(losses, dtype=torch.float64),
        "norms": torch.tensor(norms, dtype=torch.float64),
    }


def by_rule(method: nn.Module, rule: str, *, is_sharded: bool) -> Optimizer:
    """The optimiser of a run with these settings."""
    settings = OptimSettings(name=rule, learning_rate=0.05, weight_decay=0.1)  # pyright: ignore[reportArgumentType]
    return build_optimizer(method, settings, is_sharded=is_sharded)


def as_tensors(state: FullState) -> dict[str, Tensor]:
    entries = state.optimizer["state"].items()
    moments = {
        f"optimizer {number} {name}": torch.as_tensor(value) for number, kept in entries for name, value in kept.items()
    }
    return {f"model {name}": value for name, value in state.model.items()} | moments


def by_hand(num_ranks: int, norm: type[nn.Module] | None = None) -> dict[str, Tensor]:
    """The same steps in bare torch, where one process has the samples of all ranks."""
    method = build_method(norm=norm)
    optimizer = optimizer_of(method)
    norms: list[float] = []
    for step in range(NUM_STEPS):
        optimizer.zero_grad()
        method(*views(step)).backward()
        trainable = [p for p in method.parameters() if p.grad is not None]
        squares = sum((p.grad.square().sum() for p in trainable if p.grad is not None), torch.zeros(()))
        norms.append(float(squares.sqrt()))
        for p in trainable:
            assert p.grad is not None
            p.grad.mul_(min(1.0, CLIP / norms[-1]))
        optimizer.step()
        method.after_step(step / NUM_STEPS)
    return as_tensors(FullState(method.state_dict(), optimizer.state_dict(), {})) | {
        "norms": torch.tensor(norms, dtype=torch.float64)
    }


def everything() -> Result:
    found: dict[str, Tensor | str] = {}
    names = [name for name, shards in SHARDS.items() if CAN_SHARD or not shards]
    for name in names:
        found |= {f"{name}/{key}": value for key, value in trained(name).items()}
        found |= {f"{name}+bn/{key}": value for key, value in trained(name, norm=nn.BatchNorm2d).items()}
        found |= {f"{name}!{key}": value for key, value in poisoned(name).items()}
    return found | (shares() if CAN_SHARD else {}) | {f"unused {name}": unused(name) for name in names}


def shares() -> Result:
    """How much of the weights and of the optimiser's state a rank holds, and that parts can be called alone."""
    engine, method = Engine(placement(), shards=True), build_method()
    num_whole = sum(p.numel() for p in method.parameters())
    module = engine.setup(method, optimizer_of(method))
    step_of(engine, method, module, 0)
    held = sum(p.to_local().numel() if isinstance(p, DTensor) else p.numel() for p in method.parameters())
    with torch.no_grad():
        alone = method.backbone(views(0)[0])
    engine.backward(module(*views(1)))
    engine.update(clip=None)
    return {"share": torch.tensor(held / num_whole), "alone": alone}


def unused(name: str) -> str:
    """What an engine says of a parameter that has no part in the loss."""
    method = build_method()
    method.spare = nn.Linear(2, 2).double()
    engine = Engine(placement(), shards=SHARDS[name])
    module = engine.setup(method, optimizer_of(method))
    engine.backward(module(*views(0)))
    try:
        engine.update(clip=None)
    except TrainingError as error:
        return str(error)
    return "accepted"


def poisoned(name: str) -> Result:
    """Rank 1's loss is NaN: no rank takes the step, and all name the same parameter."""
    engine, method = Engine(placement(), shards=SHARDS[name]), build_method()
    module = engine.setup(method, optimizer_of(method))
    before = engine.full_state()
    method.poisoned_rank = world_size() - 1
    engine.backward(module(*views(0)))
    update = engine.update(clip=None)
    after = engine.full_state()
    same = all(torch.equal(after.model[key], value) for key, value in before.model.items() if key != "queue")
    cleared = all(p.grad is None for p in method.parameters())
    return {
        "culprit": str(update.nonfinite),
        "applied": str(update.is_applied),
        "untouched": str(same and cleared and not after.optimizer["state"]),
        "length": str(update.gradient_norm),
    }


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> list[RankResult]:
    return run_on_ranks(everything, 2, tmp_path_factory.mktemp("pair"))


def of(result: RankResult, name: str) -> dict[str, Tensor]:
    return {key.split("/", 1)[1]: value for key, value in result.tensors.items() if key.split("/", 1)[0] == name}


def assert_same(actual: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    """Over all names, with the largest entry of each kind of number as the scale."""
    for key, value in expected.items():
        assert_close(actual[key].double(), value.double(), dtype=torch.float64)


@pytest.mark.parametrize("norm", [None, nn.BatchNorm2d], ids=["no norm", "norm"])
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.sampled(4)
@pytest.mark.thorough
def test_two_ranks_are_one_process(pair: list[RankResult], name: str, norm: type[nn.Module] | None) -> None:
    expected = by_hand(2, norm)
    for result in pair:
        actual = of(result, f"{name}+bn" if norm else name)
        assert_same(actual, expected)
        assert actual.keys() == {*expected, "losses"}
    assert float(expected["norms"].min()) < CLIP < float(expected["norms"].max())


@pytest.mark.parametrize("name", NAMES)
def test_all_ranks_hold_the_same_bits(pair: list[RankResult], name: str) -> None:
    first, second = (of(result, name) for result in pair)
    assert not [key for key, value in first.items() if key != "losses" and not torch.equal(second[key], value)]


@pytest.mark.parametrize("name", NAMES)
def test_a_rank_with_nan_stops_all_before_the_update(pair: list[RankResult], name: str) -> None:
    found = [
        {key.split("!")[1]: text for key, text in result.texts.items() if key.startswith(f"{name}!")} for result in pair
    ]
    assert found[0] == found[1]
    assert found[0] == {"culprit": "heat", "applied": "False", "untouched": "True", "length": "nan"}


@pytest.mark.parametrize("name", NAMES)
def test_one_process_is_bare_torch(name: str) -> None:
    assert_same({key: torch.as_tensor(v) for key, v in trained(name).items()}, by_hand(1))  # pyright: ignore


@needs_shards
def test_a_rank_holds_its_share_of_the_weights(pair: list[RankResult]) -> None:
    for result in pair:
        assert 0.4 < float(result.tensors["share"]) < 0.6
        assert result.tensors["alone"].isfinite().all()


def test_copies_refuse_a_parameter_without_gradient(pair: list[RankResult]) -> None:
    for result in pair:
        said = result.texts["unused ddp"]
        assert said.startswith("parameter spare.weight and 1 more had no part in the loss")
        assert "2 ranks" in said


def four_ranks() -> Result:
    return trained("ddp") | {f"fsdp {key}": value for key, value in trained("fsdp").items()}


@needs_shards
@pytest.mark.thorough
def test_four_ranks_are_one_process(tmp_path: Path) -> None:
    expected = by_hand(4)
    for result in run_on_ranks(four_ranks, 4, tmp_path):
        assert_same(result.tensors, expected)
        assert_same({key.removeprefix("fsdp "): value for key, value in result.tensors.items()}, expected)


def every_rule() -> Result:
    return {f"{rule}/{key}": value for rule in RULES for key, value in trained("fsdp", rule=rule).items()}


@needs_shards
@pytest.mark.thorough
def test_every_rule_on_shards_is_that_of_one_process(tmp_path: Path) -> None:
    first, second = run_on_ranks(every_rule, 2, tmp_path)
    same = [torch.equal(second.tensors[key], value) for key, value in first.tensors.items() if "losses" not in key]
    assert all(same)
    for rule in RULES:
        expected = {key: torch.as_tensor(value) for key, value in trained("ddp", rule=rule).items()}  # pyright: ignore
        del expected["losses"]  # each rank has those of its samples
        assert_same(of(first, rule), expected)


# --- what setup does


def test_setup_lays_out_kernels_and_shares_everything() -> None:
    engine, method = Engine(placement()), build_method(torch.float32)
    parameters = list(method.parameters())
    module = engine.setup(method, optimizer_of(method))
    assert all(ours is theirs for ours, theirs in zip(method.parameters(), parameters, strict=True))
    assert {id(p) for p in module.parameters()} == {id(p) for p in parameters}
    kernels = [p for p in parameters if p.ndim == 4]
    assert kernels
    assert all(p.is_contiguous(memory_format=torch.channels_last) for p in kernels)
    assert engine.device == torch.device("cpu")


def test_full_state_is_a_copy() -> None:
    engine, method = Engine(placement()), build_method()
    module = engine.setup(method, optimizer_of(method))
    step_of(engine, method, module, 0)
    kept = as_tensors(engine.full_state())
    before = {key: value.clone() for key, value in kept.items()}
    step_of(engine, method, module, 1)
    assert all(torch.equal(value, kept[key]) for key, value in before.items())
    now = as_tensors(engine.full_state())
    assert not torch.equal(now["model projector.weight"], kept["model projector.weight"])


@pytest.mark.slow
def test_a_compiled_encoder_learns_the_same() -> None:
    engine, method = Engine(placement(), compiles=True), build_method(torch.float32, nn.BatchNorm2d)
    replace_norms(method)  # their collectives stay outside of the compiled graph
    module = engine.setup(method, optimizer_of(method, "sgd"))
    names = list(method.state_dict())
    engine.backward(module(*views(0, torch.float32)))
    engine.update(clip=None)
    plain = build_method(torch.float32, nn.BatchNorm2d)
    bare = optimizer_of(plain, "sgd")
    plain(*views(0, torch.float32)).backward()
    bare.step()
    assert names == list(plain.state_dict())
    for key, value in plain.state_dict().items():
        assert_close(method.state_dict()[key].double(), value.double(), dtype=torch.float32)
