"""Drawn negatives: a pure function of seed, step and place; uniform; and inner products with all derivatives."""

# N samples per view, A anchors, M vectors, K draws, D features

import math

import pytest
import torch
from labelled_checks import LABELS
from loss_checks import draw_views, gradients
from torch import Tensor

from counterpoint.kernels.cpu import tiles
from counterpoint.kernels.select import use
from counterpoint.losses import imbalanced
from counterpoint.losses.imbalanced import GeneralizedContrastive, draw_negatives, drawn_products
from counterpoint.losses.labelled import LabelledVectors, label_vectors
from counterpoint.losses.loss import Part
from memory_watch import LargestResult
from oracles import labelled_losses as oracle
from oracles.number_checks import assert_numbers
from tolerances import STANDARD_ERRORS, assert_close, assert_estimate, relative_error

each_pool = pytest.mark.parametrize("supervised", [False, True], ids=["UCL", "SCL"])


def batch(labels: list[int], part: Part | None = None) -> LabelledVectors:
    z = torch.zeros(len(labels), 2)
    return label_vectors(z, z, torch.tensor(labels), part)


def test_draws_are_a_function_of_seed_and_step() -> None:
    z0, z1 = draw_views()
    torch.manual_seed(1)
    state = torch.get_rng_state()
    loss = GeneralizedContrastive(2, seed=4)
    first = loss(z0, z1)
    assert torch.equal(loss(z0, z1), first)
    assert torch.equal(loss(z0, z1, step=0), first)
    assert torch.equal(GeneralizedContrastive(2, seed=4)(z0, z1), first)
    assert float(loss(z0, z1, step=1).detach()) != float(first.detach())
    assert float(GeneralizedContrastive(2, seed=5)(z0, z1).detach()) != float(first.detach())
    assert torch.equal(torch.get_rng_state(), state)


@each_pool
def test_a_part_of_the_batch_draws_what_the_whole_draws_for_it(supervised: bool) -> None:
    labels = [7, 1, 7, 7, -3, 1]
    whole = draw_negatives(batch(labels), 9, seed=0, step=3, other_labels_only=supervised)
    part = Part(2, 4, lambda partial, is_log: partial)
    own = draw_negatives(batch(labels, part), 9, seed=0, step=3, other_labels_only=supervised)
    assert torch.equal(own, whole[[2, 3, 8, 9]])


def test_supervised_draws_are_of_other_labels() -> None:
    vectors = batch([7, 1, 7, 7, -3])
    labels = torch.tensor([7, 1, 7, 7, -3] * 2)
    index = draw_negatives(vectors, 500, seed=0, step=0, other_labels_only=True)
    assert index.shape == (10, 500)
    assert bool((labels[index] != labels[:, None]).all())
    for i in range(10):
        assert set(index[i].tolist()) == {j for j in range(10) if labels[j] != labels[i]}


@each_pool
def test_draws_are_uniform_and_independent_from_step_to_step(supervised: bool) -> None:
    labels = [0, 1, 0, 0]
    pools = oracle.all_negatives(labels, supervised)
    index = draw_negatives(batch(labels), 4000, seed=0, step=0, other_labels_only=supervised)
    later = draw_negatives(batch(labels), 4000, seed=0, step=1, other_labels_only=supervised)
    for i, pool in enumerate(pools):
        p = 1 / len(pool)
        error = math.sqrt(p * (1 - p) / 4000)
        for j in range(8):
            share = float((index[i] == j).double().mean())
            assert_estimate(share, p, error) if j in pool else assert_numbers(share, 0.0)
        assert_estimate(float((index[i] == later[i]).double().mean()), p, error)
        assert_estimate(float((index[i, 1:] == index[i, :-1]).double().mean()), p, error)


def test_many_draws_approach_all_negatives() -> None:
    """The mean of exp over k draws is an unbiased estimate of that over all, with the sample's own standard error."""
    z0, z1 = (z.detach() for z in draw_views())
    unit = torch.nn.functional.normalize(torch.cat([z0, z1]), dim=1)
    exp = (unit @ unit.T).exp()
    labels = torch.tensor(LABELS["uneven"])
    index = draw_negatives(label_vectors(z0, z1, labels), 2000, seed=1, step=0, other_labels_only=False)
    drawn = exp.gather(1, index)
    deviations = (drawn.mean(1) - exp.mean(1)).abs() / (exp.std(1, correction=0) / math.sqrt(2000))
    assert float(deviations.max()) < STANDARD_ERRORS
    sampled, exact = GeneralizedContrastive(20000)(z0, z1, labels), GeneralizedContrastive()(z0, z1, labels)
    assert 1e-7 < relative_error(sampled, exact) < 1e-2


@pytest.mark.parametrize("strip", [1, 20, 1 << 20])
@pytest.mark.thorough
def test_products_with_drawn_keys_have_true_derivatives(strip: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(imbalanced, "STRIP_NUMBERS", strip)
    generator = torch.Generator().manual_seed(0)
    a, k = (torch.randn(m, 3, generator=generator, dtype=torch.float64).requires_grad_() for m in (4, 6))
    index = torch.tensor([[0, 0, 5], [2, 1, 0], [3, 3, 3], [5, 4, 2]])
    expected = (a[:, None, :] * k[index]).sum(2)
    assert_close(drawn_products(a, k, index), expected)

    def of(a: Tensor, k: Tensor) -> Tensor:
        return drawn_products(a, k, index)

    weight = torch.randn(4, 3, generator=generator, dtype=torch.float64)
    for ours, theirs in zip(
        torch.autograd.grad((weight * of(a, k)).sum(), (a, k)),
        torch.autograd.grad((weight * expected).sum(), (a, k)),
        strict=True,
    ):
        assert_close(ours, theirs)
    assert torch.autograd.gradcheck(of, (a, k), check_forward_ad=True)
    assert torch.autograd.gradgradcheck(of, (a, k), check_fwd_over_rev=True)


def test_products_with_drawn_keys_under_transforms() -> None:
    """A third derivative, forward over reverse over reverse, and a batch of inputs."""
    index = torch.tensor([[0, 0, 3], [2, 1, 0], [3, 3, 3], [1, 3, 2]])
    a = torch.randn(4, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)

    def ours(a: Tensor) -> Tensor:
        return drawn_products(a, a.sin(), index).square().sum()

    def plain(a: Tensor) -> Tensor:
        return (a[:, None, :] * a.sin()[index]).sum(2).square().sum()

    third, expected = (torch.func.jacfwd(torch.func.jacrev(torch.func.jacrev(f)))(a) for f in (ours, plain))
    assert_close(third, expected)
    batch_of_a = torch.stack([a, 2 * a, -a])
    one_by_one = torch.stack([torch.func.grad(plain)(x) for x in batch_of_a])
    assert_close(torch.func.vmap(torch.func.grad(ours))(batch_of_a), one_by_one)


def test_no_matrix_of_all_pairs_is_held(monkeypatch: pytest.MonkeyPatch) -> None:
    """300 samples, 4 draws: value and gradient stay below a strip and n x k, far from n x n."""
    monkeypatch.setattr(imbalanced, "STRIP_NUMBERS", 6000)
    z0, z1 = draw_views(300, 8)
    labels = torch.arange(300) % 3
    monkeypatch.setattr(tiles, "TILE_ROWS", 64)
    monkeypatch.setattr(tiles, "TILE_COLUMNS", 64)
    with use("tiled"), LargestResult() as largest:
        value = GeneralizedContrastive(4, True)(z0, z1, labels)
        gradients(value, z0, z1)
    assert largest.num_elements <= 600 * 4 * 4
