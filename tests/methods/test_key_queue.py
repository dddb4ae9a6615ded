"""MoCo's queue and its loss: places, wrap-around, known values, derivatives, refusals."""

import pytest
import torch
import torch.nn.functional as F
from small_methods import numbers
from torch import Tensor

from counterpoint.kernels.select import use
from counterpoint.methods.target_branch import QueueContrast
from tolerances import assert_close

N, K, D = 4, 10, 3


def loss_of(epsilon: float = 1.0, num_keys: int = K) -> QueueContrast:
    return QueueContrast(num_keys, D, 0.3, epsilon).double()


def peer(query: Tensor, key: Tensor, queue: Tensor) -> Tensor:
    """Cross-entropy of the own key at place 0."""
    q, k = F.normalize(query, dim=1), F.normalize(key, dim=1)
    logits = torch.cat([(q * k).sum(1, keepdim=True), q @ queue.T], dim=1) / 0.3
    return F.cross_entropy(logits, torch.zeros(len(q), dtype=torch.int64))


@pytest.mark.parametrize("kernel", ["dense", "tiled"])
def test_it_is_the_cross_entropy_of_the_own_key_among_all(kernel: str) -> None:
    loss, query, key = loss_of(), numbers(1, N, D).requires_grad_(), numbers(2, N, D)
    with use(kernel):
        value = loss(query, key)
        (found,) = torch.autograd.grad(value, query)
    expected = peer(query, key, loss.queue_KD)
    assert_close(value, expected)
    assert_close(found, torch.autograd.grad(expected, query)[0])


def test_keys_get_no_gradient() -> None:
    query, key = numbers(1, N, D).requires_grad_(), numbers(2, N, D).requires_grad_()
    loss_of()(query, key).backward()
    assert query.grad is not None
    assert query.grad.any()
    assert key.grad is None or not key.grad.any()


def test_the_queue_may_move_on_before_the_backward_pass() -> None:
    loss, query, key = loss_of(), numbers(1, N, D).requires_grad_(), numbers(2, N, D)
    expected = torch.autograd.grad(peer(query, key, loss.queue_KD), query)[0]
    value = loss(query, key)
    loss.enqueue(key)
    assert_close(torch.autograd.grad(value, query)[0], expected)


@pytest.mark.parametrize("sizes", [[4, 4, 4], [7, 7], [10], [10, 3], [25], [3, 25, 4]])
def test_the_newest_keys_take_the_place_of_the_oldest(sizes: list[int]) -> None:
    loss = loss_of()
    expected, pointer = list(loss.queue_KD.clone()), 0
    for step, size in enumerate(sizes):
        keys = numbers(step, size, D)
        loss.enqueue(keys)
        for key in keys:  # one at a time, as a queue is used
            expected[pointer] = key / key.norm()
            pointer = (pointer + 1) % K
    assert int(loss.pointer) == pointer
    assert_close(loss.queue_KD, torch.stack(expected))


@pytest.mark.parametrize("epsilon", [0.0, 1.0])
def test_chance_and_floor(epsilon: float) -> None:
    loss = loss_of(epsilon)
    alike = torch.ones(N, D, dtype=torch.float64)
    loss.enqueue(alike[:1].repeat(K, 1))
    assert loss.num_negatives(N) == K
    assert_close(loss(alike, alike), torch.tensor(loss.chance(N), dtype=torch.float64))
    loss.enqueue(-alike[:1].repeat(K, 1))
    assert_close(loss(alike, alike), torch.tensor(loss.floor(N), dtype=torch.float64))
    across = torch.tensor([[1.0, -1.0, 0.0]], dtype=torch.float64)
    loss.enqueue(across.repeat(K, 1))
    assert_close(loss(alike, alike), torch.tensor(loss.floor(N, nonnegative=True), dtype=torch.float64))


def test_everything_is_in_the_state() -> None:
    loss, copy = loss_of(), loss_of()
    loss.enqueue(numbers(1, 7, D))
    copy.load_state_dict(loss.state_dict())
    assert torch.equal(copy.queue_KD, loss.queue_KD)
    assert int(copy.pointer) == 7
    assert list(loss.parameters()) == []
