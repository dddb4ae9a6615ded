"""Collectives between W processes and their derivatives against the same sums written out in one process."""

# W ranks, N samples of all ranks, M columns, D features

import pytest
import torch
from torch import Tensor

from counterpoint.core.dist import (
    check_equal_batches,
    gather_rows,
    logsumexp_over_ranks,
    merge_columns,
    own_rows,
    rank,
    sum_over_ranks,
    world_size,
)
from rank_processes import RankResult, Result, run_on_ranks
from tolerances import relative_error

pytestmark = pytest.mark.thorough

N, M, D = 6, 4, 3
LIMIT = 1e-12
LOWEST = float("-inf")
BEYOND_EXP = 800.0  # exp overflows float64 above 709


def numbers(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


SAMPLES_ND, DIRECTION_ND, KEYS_DM = numbers(1, N, D), numbers(2, N, D), BEYOND_EXP * numbers(3, D, M)


def weights(number: int) -> tuple[Tensor, Tensor, Tensor]:
    """What rank ``number`` makes of the gathered rows, the merged columns and the summed features."""
    return numbers(10 + number, N, D), numbers(20 + number, M), numbers(30 + number, D)


def value_of(rows_ND: Tensor, columns_M: Tensor, sums_D: Tensor, number: int) -> Tensor:
    for_rows_ND, for_columns_M, for_sums_D = weights(number)
    total = (for_rows_ND * rows_ND.tanh()).sum() + (for_columns_M * columns_M.sin()).sum()
    return total + (for_sums_D * sums_D.square()).sum()


def value_here(own_ND: Tensor) -> Tensor:
    """One rank's value, which depends on the samples of all ranks in three ways."""
    columns_M = merge_columns(torch.logsumexp(own_ND @ KEYS_DM, dim=0), True)
    return value_of(gather_rows(own_ND), columns_M, merge_columns(own_ND.sin().sum(0), False), rank())


def sum_of_values(all_ND: Tensor, num_ranks: int) -> Tensor:
    columns_M, sums_D = torch.logsumexp(all_ND @ KEYS_DM, dim=0), all_ND.sin().sum(0)
    return sum((value_of(all_ND, columns_M, sums_D, number) for number in range(num_ranks)), torch.zeros(()))


def refusal_of(x_ND: Tensor, labels_N: Tensor | None = None) -> str:
    try:
        check_equal_batches(x_ND, labels_N)
    except ValueError as error:
        return str(error)
    return "accepted"


def on_a_rank() -> Result:
    own = own_rows(N // world_size())
    x_ND, direction_ND = SAMPLES_ND[own].clone().requires_grad_(), DIRECTION_ND[own]
    value = value_here(x_ND)
    (gradient_ND,) = torch.autograd.grad(value, x_ND, create_graph=True)
    (curvature_ND,) = torch.autograd.grad((gradient_ND * direction_ND).sum(), x_ND)
    forward_ND = torch.func.jvp(torch.func.grad(value_here), (SAMPLES_ND[own],), (direction_ND,))[1]
    slope = torch.func.jvp(value_here, (SAMPLES_ND[own],), (direction_ND,))[1]
    # Column 0 has no pair anywhere, column 1 none on rank 0.
    x_M = torch.full((3,), 2.0, dtype=torch.float64)
    x_M[0], x_M[1] = LOWEST, (LOWEST if rank() == 0 else 1.0)
    merged_M = logsumexp_over_ranks(x_M.requires_grad_())
    half_D = torch.ones(1, 1, dtype=torch.bfloat16, requires_grad=True)
    (gather_rows(half_D) * (256.0 if rank() == 0 else 1.0)).sum().backward()
    no_labels = torch.zeros(2, dtype=torch.int64) if rank() == 0 else None
    return {
        "rank": torch.tensor([rank(), world_size()]),
        "value": value,
        "gradient": gradient_ND,
        "curvature": curvature_ND,
        "forward": forward_ND,
        "slope": slope,
        "gathered": gather_rows(SAMPLES_ND[own]),
        "labels": gather_rows(torch.arange(N)[own]),
        "merged": merged_M,
        "merged gradient": torch.autograd.grad(merged_M[1:].sum(), x_M)[0],
        "half total": sum_over_ranks(torch.full((1,), 256.0 if rank() == 0 else 1.0, dtype=torch.bfloat16)),
        "half gradient": half_D.grad if half_D.grad is not None else torch.zeros(1, 1),
        "even": refusal_of(torch.zeros(2, 5), torch.zeros(2, dtype=torch.int64)),
        "uneven": refusal_of(torch.zeros(3 if rank() == 1 else 4, 5)),
        "widths": refusal_of(torch.zeros(4, 5 + rank())),
        "labels on one": refusal_of(torch.zeros(2, 5), no_labels),
    }


@pytest.fixture(scope="module", params=[1, 2, 3])
def ranks(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[RankResult]:
    return run_on_ranks(on_a_rank, request.param, tmp_path_factory.mktemp("ranks"))


def joined(ranks: list[RankResult], name: str) -> Tensor:
    return torch.cat([result.tensors[name] for result in ranks])


def added(ranks: list[RankResult], name: str) -> Tensor:
    return torch.stack([result.tensors[name] for result in ranks]).sum(0)


def test_every_rank_gets_all_rows_in_the_order_of_ranks(ranks: list[RankResult]) -> None:
    for result in ranks:
        assert torch.equal(result.tensors["gathered"], SAMPLES_ND)
        assert torch.equal(result.tensors["labels"], torch.arange(N))


def test_the_sum_of_values_and_its_gradient_are_those_of_one_process(ranks: list[RankResult]) -> None:
    x_ND = SAMPLES_ND.clone().requires_grad_()
    total = sum_of_values(x_ND, len(ranks))
    assert relative_error(added(ranks, "value"), total) <= LIMIT
    assert relative_error(joined(ranks, "gradient"), torch.autograd.grad(total, x_ND)[0]) <= LIMIT


def test_second_derivatives_are_those_of_one_process(ranks: list[RankResult]) -> None:
    gradient = torch.func.grad(lambda x_ND: sum_of_values(x_ND, len(ranks)))
    expected_ND = torch.func.jvp(gradient, (SAMPLES_ND,), (DIRECTION_ND,))[1]
    assert relative_error(joined(ranks, "curvature"), expected_ND) <= LIMIT
    assert relative_error(joined(ranks, "forward"), expected_ND) <= LIMIT


def test_the_derivative_along_a_direction_is_that_of_one_process(ranks: list[RankResult]) -> None:
    expected = torch.func.jvp(lambda x_ND: sum_of_values(x_ND, len(ranks)), (SAMPLES_ND,), (DIRECTION_ND,))[1]
    assert relative_error(added(ranks, "slope"), expected) <= LIMIT


def test_columns_without_a_pair_stay_empty_and_pass_no_gradient(ranks: list[RankResult]) -> None:
    num = len(ranks)
    one_M = torch.tensor([LOWEST if number == 0 else 1.0 for number in range(num)], dtype=torch.float64)
    for number, result in enumerate(ranks):
        empty, some, full = result.tensors["merged"].tolist()
        assert empty == LOWEST
        assert some == pytest.approx(float(torch.logsumexp(one_M, 0)), rel=LIMIT)
        assert full == pytest.approx(2.0 + float(torch.tensor(float(num), dtype=torch.float64).log()), rel=LIMIT)
        if num > 1:  # in one process nothing is merged and the gradient is one
            share = [0.0, 0.0 if number == 0 else num / (num - 1), 1.0]
            assert result.tensors["merged gradient"].tolist() == pytest.approx(share, rel=LIMIT)


def test_half_precision_is_added_up_in_float32(ranks: list[RankResult]) -> None:
    exact = torch.tensor([256.0 + len(ranks) - 1]).bfloat16().float()  # in bfloat16, 256 + 1 + 1 is 256
    for result in ranks:
        for name in ("half total", "half gradient"):
            assert result.tensors[name].dtype == torch.bfloat16
            assert torch.equal(result.tensors[name].flatten().float(), exact), name


def test_unequal_batches_are_refused_on_every_rank(ranks: list[RankResult]) -> None:
    num = len(ranks)
    refused = {name: {result.texts[name] for result in ranks} for name in ("even", "uneven", "widths", "labels on one")}
    assert refused["even"] == {"accepted"}
    if num == 1:
        assert set().union(*refused.values()) == {"accepted"}
        return
    sizes, widths = ["4, 3", "4, 3, 4"][num - 2], ["5, 6", "5, 6, 7"][num - 2]
    for name, told in (("uneven", f"got {sizes} samples"), ("widths", f"got {widths} features")):
        (message,) = refused[name]
        assert message.startswith("batches must be equally large on all ranks, ")
        assert told in message
    assert "pass labels on all ranks or on none" in refused["labels on one"].pop()


def test_without_a_process_group_nothing_is_done() -> None:
    x_ND = SAMPLES_ND.clone().requires_grad_()
    assert (rank(), world_size(), own_rows(5)) == (0, 1, slice(0, 5))
    for untouched in (gather_rows(x_ND), sum_over_ranks(x_ND), logsumexp_over_ranks(x_ND), merge_columns(x_ND, True)):
        assert untouched is x_ND
    assert refusal_of(x_ND) == "accepted"
