"""Trained probes against plain torch doing the same; the last epoch counts, the best one only stands beside it."""

# N labelled samples, Q queries, D features, C classes

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from counterpoint.data.order import random_order
from counterpoint.evaluation.metric_types import Labelled, Proportion
from reproductions import probe_recipes as recipes
from reproductions.probe_recipes import ProbeRecipe, train_probe

ALL = [
    recipes.ADAM,
    recipes.SGD_COSINE,
    recipes.SGD_CONSTANT,
    recipes.LARS_COSINE,
]

METRICS = {metric.name: metric for metric in recipes.METRICS}


def overlapping(n: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Three classes in five features, which no classifier tells apart without error."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(n) % 3
    return torch.eye(5)[labels] + torch.randn(n, 5, generator=generator), labels


def by_autograd(bank: Tensor, labels: Tensor, queries: Tensor, recipe: ProbeRecipe, seed: int) -> Tensor:
    """Logits after the last epoch of a linear layer that torch differentiates and optimises."""
    layer = nn.Linear(bank.shape[1], 3)
    weight, bias = recipe.first_weights(3, bank.shape[1], seed)
    layer.load_state_dict({"weight": weight, "bias": bias})
    kind = torch.optim.Adam if recipe.optimizer == "adam" else torch.optim.SGD
    more: dict[str, Any] = {} if recipe.optimizer == "adam" else {"momentum": 0.9}
    optimiser = kind(layer.parameters(), lr=recipe.learning_rate, weight_decay=recipe.weight_decay, **more)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, recipe.epochs)
    for epoch in range(recipe.epochs):
        for batch in random_order(seed, epoch, len(bank)).split(recipe.batch_size):
            optimiser.zero_grad()
            nn.functional.cross_entropy(layer(bank[batch]), labels[batch]).backward()
            optimiser.step()
        if recipe.schedule == "epoch-cosine":
            schedule.step()
    return layer(queries).detach()


@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
@pytest.mark.parametrize("schedule", ["constant", "epoch-cosine"])
def test_a_probe_is_trained_as_torch_trains_a_linear_layer(optimizer: Any, schedule: Any) -> None:
    (bank, labels), (queries, _) = overlapping(50), overlapping(200, seed=1)
    recipe = ProbeRecipe(optimizer, 0.05, 1e-3, batch_size=16, epochs=4, schedule=schedule)
    logits = by_autograd(bank, labels, queries, recipe, seed=3)
    top = logits.topk(2, dim=1).values
    is_clear = top[:, 0] - top[:, 1] > 1e-4  # nearer than that rounding decides
    assert is_clear.sum() > 190
    predicted = train_probe(bank, labels, queries, recipe, seed=3)[-1]
    assert torch.equal(predicted[is_clear], logits.argmax(dim=1)[is_clear])


@pytest.mark.parametrize("recipe", ALL, ids=lambda recipe: f"{recipe.optimizer} {recipe.schedule}")
def test_every_recipe_learns_what_is_separable_and_guesses_what_is_not(recipe: ProbeRecipe) -> None:
    """Batches of 8, since a recipe with thousands of steps on real data would have a hundred here."""
    labels = torch.arange(96) % 3
    perfect, recipe = torch.eye(3)[labels], replace(recipe, batch_size=8, epochs=12, warmup_epochs=0)
    learned = train_probe(perfect, labels, perfect, replace(recipe, learning_rate=max(0.05, recipe.learning_rate)))
    assert torch.equal(learned[-1], labels)
    constant = train_probe(torch.ones(96, 3), labels, torch.ones(96, 3), recipe)
    assert len(constant[-1].unique()) == 1


def test_seeds_decide_the_weights_and_the_orders_and_nothing_else_does() -> None:
    (bank, labels), (queries, _) = overlapping(50), overlapping(200, seed=1)
    recipe = ProbeRecipe("sgd", 0.5, 0.0, batch_size=4, epochs=2)
    first = train_probe(bank, labels, queries, recipe, seed=1)
    torch.manual_seed(99)
    state, usual = torch.get_rng_state(), torch.get_num_threads()
    try:
        torch.set_num_threads(3)
        assert torch.equal(train_probe(bank, labels, queries, recipe, seed=1), first)
    finally:
        torch.set_num_threads(usual)
    assert torch.equal(torch.get_rng_state(), state)
    assert not torch.equal(train_probe(bank, labels, queries, recipe, seed=2), first)


def test_the_first_weights_are_torchs_or_normal() -> None:
    uniform, intercept = recipes.ADAM.first_weights(200, 400, 0)
    assert float(uniform.abs().max()) <= 0.05
    assert float(uniform.abs().max()) > 0.0499
    assert 0.02 < float(intercept.std()) < 0.04
    normal, zero = recipes.SGD_COSINE.first_weights(200, 400, 0)
    assert 0.0098 < float(normal.std()) < 0.0102
    assert not zero.any()


def test_warm_up_and_cosine_are_those_of_the_recipe() -> None:
    rates = recipes.LARS_COSINE.rates(4)
    assert [rates(step) for step in (0, 39)] == pytest.approx([0.01, 0.4])
    assert rates(120) == pytest.approx(0.2)
    steady = recipes.SGD_CONSTANT.rates(4)
    assert {steady(step) for step in range(200)} == {1.0}
    stepped = recipes.SGD_COSINE.rates(4)
    assert [stepped(step) for step in (0, 3)] == [0.1, 0.1]
    assert stepped(200) == pytest.approx(0.05)


def test_the_figure_is_of_the_last_epoch_and_the_best_one_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    labels = torch.tensor([0, 1, 0, 1])
    epochs = torch.tensor([[0, 0, 0, 0], [0, 1, 0, 1], [0, 1, 0, 1], [0, 1, 1, 1]])
    monkeypatch.setattr(recipes, "train_probe", lambda *_, **__: epochs)
    score = METRICS["adam probe"].measure(Labelled(torch.eye(4), labels, torch.eye(4), labels, k=1, temperature=0.1))
    assert isinstance(score.outcome, Proportion)
    assert (score.outcome.correct, score.outcome.total) == (3, 4)
    assert score.settings["best epoch, chosen on the queries"] == "100.0% after epoch 2"
    assert score.settings["seed"] == 0
