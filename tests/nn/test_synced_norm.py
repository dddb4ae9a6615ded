"""Batch normalisation over ranks against torch's own on the whole batch in one process."""

# N samples of all ranks, C channels

import copy

import pytest
import torch
from torch import Tensor, nn

from counterpoint.core.dist import own_rows, world_size
from counterpoint.core.errors import UsageError
from counterpoint.nn.synced_norm import SyncedBatchNorm, batch_norm_layers, replace_norms, with_synced_norm
from rank_processes import RankResult, Result, run_on_ranks
from tolerances import assert_close

pytestmark = pytest.mark.thorough

N, C, SIDE = 8, 5, 3
FAR = 50.0  # mean over deviation: subtracting squares would lose digits here
STEPS = 3

CASES = {
    "maps": (nn.BatchNorm2d, (N, C, SIDE, SIDE), {}),
    "vectors": (nn.BatchNorm1d, (N, C), {}),
    "sequences": (nn.BatchNorm1d, (N, C, SIDE), {"eps": 1e-3}),
    "volumes": (nn.BatchNorm3d, (N, C, 2, 2, 2), {"momentum": 0.3}),
    "cumulative": (nn.BatchNorm2d, (N, C, SIDE, SIDE), {"momentum": None}),
    "no affine": (nn.BatchNorm2d, (N, C, SIDE, SIDE), {"affine": False}),
    "no statistics": (nn.BatchNorm1d, (N, C), {"track_running_stats": False}),
}


def numbers(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def layer_of(name: str, dtype: torch.dtype) -> nn.Module:
    kind, _, options = CASES[name]
    layer = kind(C, **options).to(dtype)
    if layer.affine:
        layer.weight.data = numbers(1, C).to(dtype)
        layer.bias.data = numbers(2, C).to(dtype)
    return layer


def batch_of(name: str, step: int, dtype: torch.dtype, far: float) -> Tensor:
    """Channels with means and deviations of their own, and ranks whose halves differ."""
    shape = CASES[name][1]
    x = numbers(10 + step, *shape) * numbers(3, C).view(1, C, *[1] * (len(shape) - 2)).exp() + far
    return (x + torch.linspace(0, 1, N, dtype=torch.float64).view(-1, *[1] * (len(shape) - 1))).to(dtype)


def trained(layer: nn.Module, name: str, dtype: torch.dtype, far: float) -> Result:
    """Outputs, gradients and statistics over some steps on this rank's rows, then an evaluation."""
    rows = own_rows(N // world_size())
    result: dict[str, Tensor | str] = {}
    for step in range(STEPS):
        x = batch_of(name, step, dtype, far)[rows].requires_grad_()
        layer.zero_grad()
        y = layer(x)
        towards = numbers(20 + step, *CASES[name][1]).to(dtype)[rows]
        (y * towards + y.pow(3)).sum().backward()
        result |= {f"y{step}": y.detach(), f"dx{step}": x.grad if x.grad is not None else x}
        result |= {f"d{key}{step}": p.grad.clone() for key, p in layer.named_parameters() if p.grad is not None}
    result |= {f"state {key}": value.clone() for key, value in layer.state_dict().items()}
    with torch.no_grad():
        result["target"] = layer(batch_of(name, STEPS, dtype, far)[rows])
        layer.eval()
        result["evaluated"] = layer(batch_of(name, STEPS, dtype, far)[rows])
    return result


def every_case() -> Result:
    found: dict[str, Tensor | str] = {}
    for name in CASES:
        for dtype, far in ((torch.float64, 0.0), (torch.float64, FAR), (torch.float32, 0.0)):
            layer = with_synced_norm(layer_of(name, dtype))
            found |= {f"{name} {dtype} {far} {key}": v for key, v in trained(layer, name, dtype, far).items()}
    return found | low_precision() | in_a_network()


def low_precision() -> Result:
    """Inputs in bfloat16, parameters in float32, as under autocast."""
    layer = with_synced_norm(layer_of("maps", torch.float32))
    rows = own_rows(N // world_size())
    x = batch_of("maps", 0, torch.bfloat16, 0.0)[rows].requires_grad_()
    y = layer(x)
    (y * numbers(20, *CASES["maps"][1]).to(torch.bfloat16)[rows]).sum().backward()
    assert x.grad is not None
    return {"half y": y.detach(), "half dx": x.grad, "half mean": dict(layer.named_buffers())["running_mean"]}


def network() -> nn.Module:
    torch.manual_seed(0)
    shared = nn.BatchNorm1d(C)
    body = [nn.Linear(C, C, bias=False), shared, nn.ReLU(), nn.Linear(C, C, bias=False), shared]
    return nn.Sequential(*body, nn.Sequential(nn.ReLU(), nn.BatchNorm1d(C))).double()


def in_a_network() -> Result:
    synced = with_synced_norm(network())
    synced(numbers(5, N, C)[own_rows(N // world_size())]).pow(3).sum().backward()
    gradients = {f"net {name}": p.grad for name, p in synced.named_parameters() if p.grad is not None}
    return gradients | {
        f"net {name}": value.clone() for name, value in synced.state_dict().items() if "running" in name
    }


@pytest.fixture(scope="module", params=[2])
def ranks(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[RankResult]:
    return run_on_ranks(every_case, request.param, tmp_path_factory.mktemp("ranks"))


def gathered(ranks: list[RankResult], key: str) -> Tensor:
    """Rows of all ranks, sums over ranks of parameters' gradients, or what every rank holds alike."""
    parts = [one.tensors[key] for one in ranks]
    last = key.rsplit(" ", maxsplit=1)[-1]
    if last.startswith(("dweight", "dbias")):
        return torch.stack(parts).sum(0)
    if last.startswith(("y", "dx", "target", "evaluated")):
        return torch.cat(parts)
    assert all(torch.equal(part, parts[0]) for part in parts), f"{key} differs between ranks"
    return parts[0]


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize(("dtype", "far"), [(torch.float64, 0.0), (torch.float64, FAR), (torch.float32, 0.0)])
@pytest.mark.sampled(15)
def test_it_is_one_process_on_the_whole_batch(
    ranks: list[RankResult], name: str, dtype: torch.dtype, far: float
) -> None:
    expected = trained(layer_of(name, dtype), name, dtype, far)
    assert len(expected) >= 2 * STEPS + 2
    for key, value in expected.items():
        assert isinstance(value, Tensor)
        actual = gathered(ranks, f"{name} {dtype} {far} {key}")
        if value.dtype == torch.int64:
            assert torch.equal(actual, value), key
        else:
            assert_close(actual, value, dtype=dtype)


def test_a_network_keeps_its_names_and_shared_layers(ranks: list[RankResult]) -> None:
    whole = network()
    whole(numbers(5, N, C)).pow(3).sum().backward()
    for name, parameter in whole.named_parameters():
        assert parameter.grad is not None
        assert_close(sum((one.tensors[f"net {name}"] for one in ranks), torch.zeros(())), parameter.grad)
    for name, value in whole.state_dict().items():
        if "running" in name:
            assert_close(ranks[0].tensors[f"net {name}"], value)


@pytest.mark.parametrize("name", CASES)
def test_replacing_shares_every_tensor(name: str) -> None:
    network = nn.Sequential(layer_of(name, torch.float32))
    before = {key: value.data_ptr() for key, value in network.state_dict(keep_vars=True).items()}
    parameters = list(network.parameters())
    assert replace_norms(network) is network
    after = network.state_dict(keep_vars=True)
    assert {key: value.data_ptr() for key, value in after.items()} == before
    assert all(ours is theirs for ours, theirs in zip(network.parameters(), parameters, strict=True))
    assert isinstance(network[0], SyncedBatchNorm)
    assert not list(batch_norm_layers(network))
    assert list(batch_norm_layers(nn.Sequential(layer_of(name, torch.float32))))


@pytest.mark.parametrize("name", CASES)
def test_in_one_process_it_is_torchs_layer(name: str) -> None:
    layer = layer_of(name, torch.float64)
    expected = trained(copy.deepcopy(layer), name, torch.float64, FAR)
    actual = trained(replace_norms(layer), name, torch.float64, FAR)
    for key, value in expected.items():
        assert isinstance(value, Tensor)
        assert_close(torch.as_tensor(actual[key]), value, dtype=torch.float64)


def test_a_layer_with_ways_of_its_own_is_refused_by_name() -> None:
    class Odd(nn.BatchNorm1d):
        """Somebody's own normalisation."""

    with pytest.raises(UsageError, match=r"layer 1\.0 \(Odd\)"):
        replace_norms(nn.Sequential(nn.Linear(2, 2), nn.Sequential(Odd(2))))


def test_timms_layer_keeps_its_activation() -> None:
    timm = pytest.importorskip("timm.layers", reason="timm is not installed (extra `vision`)")
    layer = timm.BatchNormAct2d(C).double()
    x = batch_of("maps", 0, torch.float64, 0.0) - 1
    expected = copy.deepcopy(layer)(x)
    actual = replace_norms(layer)(x)
    assert float(actual.min()) == 0.0
    assert_close(actual, expected)


def test_there_is_no_silent_second_derivative() -> None:
    x = numbers(1, N, C).requires_grad_()
    layer = replace_norms(nn.BatchNorm1d(C).double())
    (gradient,) = torch.autograd.grad(layer(x).pow(3).sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        gradient.sum().backward()
