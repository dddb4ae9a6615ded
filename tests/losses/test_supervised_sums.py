"""SupCon's gradient is as accurate as the peer's, and on one labelled set, in tiles and in parts the same."""

# N samples per view, D features

import pytest
import torch
from pytorch_metric_learning.losses import SupConLoss
from torch import Tensor

from counterpoint.kernels.cpu import tiles, upper_pairs
from counterpoint.losses.supervised import SupCon
from tolerances import LOW_PRECISION_RATIO, assert_close

LABELS = {
    "odd": [4, 9, 4, 9, 9, 9, 4],
    "singletons": [7, 7, -1, 7, 3, 0, 7],
    "pairs": [1, 2, 3, 1, 2, 3, 3],
    "pairs and singletons": [5, 1, 5, 2, 3, 4, 0],
}
each_labels = pytest.mark.parametrize("labels", LABELS.values(), ids=LABELS)
TEMPERATURE = 0.1


def one_set(num: int = 7, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(num, 3, generator=generator, dtype=torch.float64).requires_grad_()


def value_and_gradient(loss: Tensor, z: Tensor) -> Tensor:
    return torch.cat([loss.detach()[None], torch.autograd.grad(loss, z)[0].flatten()])


ROUTES = ["in few calls", "in tiles"]


@pytest.fixture(params=[f"{route}{scores}" for route in ROUTES for scores in ("", ", large scores")])
def route(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if "few calls" in request.param:
        monkeypatch.setattr(upper_pairs, "STRIP", 4)
    else:
        monkeypatch.setattr(upper_pairs, "LARGEST_KEPT", 0)
        monkeypatch.setattr(tiles, "TILE_ROWS", 3)
        monkeypatch.setattr(tiles, "TILE_COLUMNS", 3)
    if "large" in request.param:
        monkeypatch.setattr(tiles, "HIGHEST", {torch.float32: 5.0, torch.float64: 5.0})


@each_labels
@pytest.mark.usefixtures("route")
def test_one_labelled_set_is_that_of_pytorch_metric_learning(labels: list[int]) -> None:
    """Anchors without a positive count in neither."""
    z, y = one_set(), torch.tensor(labels)
    expected = value_and_gradient(SupConLoss(TEMPERATURE)(z, y), z)
    assert_close(value_and_gradient(SupCon(TEMPERATURE)(z, labels=y), z), expected)


@each_labels
@pytest.mark.usefixtures("route")
def test_two_views_are_one_set_of_both(labels: list[int]) -> None:
    z, y = one_set(14), torch.tensor(labels)
    loss = SupCon(TEMPERATURE)
    expected = value_and_gradient(SupConLoss(TEMPERATURE)(z, torch.cat([y, y])), z)
    assert_close(value_and_gradient(loss(*z.chunk(2), y), z), expected)
    assert_close(value_and_gradient(loss(z, labels=torch.cat([y, y])), z), expected)


@pytest.mark.usefixtures("route")
def test_an_only_positive_keeps_the_digits_of_a_small_gradient() -> None:
    """Two classes of two at opposite points: what is left of the weight is about e^(-2 / tau), 4e-18."""
    turned = torch.tensor([[1.0, 0.25], [1.0, -0.25], [-1.0, 0.25], [-1.0, -0.25]])
    exact, single = (turned.to(dtype).requires_grad_() for dtype in (torch.float64, torch.float32))
    y = torch.tensor([0, 0, 1, 1])
    assert_close(*(torch.autograd.grad(SupCon(0.05)(z, labels=y), z)[0] for z in (single, exact)), dtype=torch.float32)


@pytest.mark.usefixtures("route")
def test_hessian_vector_products_are_those_of_the_peer() -> None:
    z, y = one_set(), torch.tensor(LABELS["odd"])
    found = []
    for loss in (SupCon(TEMPERATURE)(z, labels=y), SupConLoss(TEMPERATURE)(z, y)):
        (slope,) = torch.autograd.grad(loss, z, create_graph=True)
        found.append(torch.autograd.grad(slope, z, torch.ones_like(z))[0])
    assert_close(*found)


def test_one_set_answers_importance() -> None:
    z = one_set(14).detach()
    y = torch.tensor([*LABELS["odd"], *LABELS["odd"]])
    loss, views = SupCon(0.3), z.chunk(2)
    assert_close(loss.importance(z, labels=y), loss.importance(views[0], views[1], y[:7]))


def test_one_set_needs_labels() -> None:
    with pytest.raises(ValueError, match="labels must be given with a single set of vectors"):
        SupCon()(one_set())


@pytest.mark.parametrize(
    ("num", "num_classes", "temperature", "spread"),
    [(64, 4, 0.1, 1.0), (256, 10, 0.1, 0.3), (256, 100, 0.1, 1.0), (256, 10, 0.015, 1.0), (600, 10, 0.1, 0.5)],
)
@pytest.mark.sampled(3)
def test_gradients_in_float32_err_no_more_than_the_peers(
    num: int, num_classes: int, temperature: float, spread: float
) -> None:
    """On classes that are partly learned: then the weights of positives nearly cancel. The peer in float64 is exact."""
    ours, theirs = [], []
    for seed in range(3):
        generator = torch.Generator().manual_seed(seed)
        y = torch.randint(num_classes, (num,), generator=generator)
        centre = torch.randn(num_classes, 64, generator=generator, dtype=torch.float64)
        exact = (centre[y] + spread * torch.randn(2, num, 64, generator=generator, dtype=torch.float64)).flatten(0, 1)
        exact, single = exact.requires_grad_(), exact.detach().float().requires_grad_()
        peer, both = SupConLoss(temperature), torch.cat([y, y])
        (truth,) = torch.autograd.grad(peer(exact, both), exact)
        ours.append(distance(torch.autograd.grad(SupCon(temperature)(*single.chunk(2), y), single)[0], truth))
        theirs.append(distance(torch.autograd.grad(peer(single, both), single)[0], truth))
    assert sum(ours) <= LOW_PRECISION_RATIO * sum(theirs)


def distance(actual: Tensor, truth: Tensor) -> float:
    """Length of the error over that of the truth."""
    return float((actual.double() - truth).norm() / truth.norm())
