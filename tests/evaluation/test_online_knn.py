"""kNN while training goes on: the figure of the full protocol, when it is due, and no trace of the measurement."""

import random
import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import counterpoint as cp
from counterpoint.core.errors import UsageError
from counterpoint.data.order import Split
from counterpoint.data.source import Source
from counterpoint.engine.progress import Reporter
from counterpoint.evaluation import online_knn
from counterpoint.evaluation.online_knn import EpochKNN
from counterpoint.evaluation.subject import Subject
from counterpoint.evaluation.trained_run import open_trained
from oracles import class_votes


class Normed(nn.Module):
    """An encoder that would leave traces: BatchNorm, dropout that draws even in eval mode, a part kept in eval mode."""

    def __init__(self, num_features: int) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(num_features)
        self.kept = nn.BatchNorm1d(num_features)
        self.linear = nn.Linear(num_features, 8)

    def forward(self, x: Tensor) -> Tensor:
        noise = 0.0 * torch.rand(len(x), 1)
        return self.linear(self.kept(self.norm(x))) + noise


class Wiring(nn.Module):
    """What the loop calls a method."""

    def __init__(self, backbone: nn.Module) -> None:
        super().__init__()
        self.backbone = backbone
        self.projector = nn.Sequential(nn.Linear(8, 4), nn.BatchNorm1d(4))


@pytest.fixture
def trained(run: cp.Run) -> Subject:
    return open_trained(run, reporter=Reporter(quiet=True))


def moment(backbone: nn.Module, epoch: int = 1, *, is_last: bool = True) -> tuple[int, bool, nn.Module]:
    return epoch, is_last, Wiring(backbone)


def measure(trained: Subject, **changes: Any) -> EpochKNN:
    return EpochKNN(
        **{"source": trained.source, "split": trained.split, "encoder": trained.encoder, "every": 1} | changes
    )


def accuracy_by_loops(trained: Subject, features: Tensor) -> float:
    labels, train, held_out = trained.source.labels, trained.split.train, trained.split.held_out
    assert labels is not None
    bank, bank_labels = features[train].tolist(), labels[train].tolist()
    predicted = [class_votes.knn_class(bank, bank_labels, query, 20, 0.1) for query in features[held_out].tolist()]
    return float(np.mean([p == t for p, t in zip(predicted, labels[held_out].tolist(), strict=True)]))


def test_it_is_the_figure_of_the_evaluation(run: cp.Run, clusters: Any, trained: Subject) -> None:
    (figure,) = measure(trained)(*moment(trained.encoder.backbone)).items()
    expected = cp.evaluate(run, data=clusters.data, labels=clusters.labels, quiet=True).accuracy("representation")
    assert figure == ("knn20", expected)
    assert 0.4 < expected < 1.0  # neither chance nor certainty: the comparison says something


def test_it_measures_the_weights_of_the_moment(trained: Subject) -> None:
    width = trained.source.shape[0]
    first_only = nn.Linear(width, 2, bias=False)
    with torch.no_grad():
        first_only.weight.copy_(torch.eye(width)[:2])
    prepared = trained.encoder.prepare(trained.source.store.fetch(range(len(trained.source))))
    figure = measure(trained)(*moment(first_only))["knn20"]
    assert figure == accuracy_by_loops(trained, prepared[:, :2])
    assert figure != measure(trained)(*moment(trained.encoder.backbone))["knn20"]


def test_it_leaves_no_trace(trained: Subject) -> None:
    at = moment(Normed(trained.source.shape[0]))
    method = at[2]
    assert isinstance(method, Wiring)
    method.train()
    method.backbone.kept.eval()  # pyright: ignore[reportAttributeAccessIssue, reportCallIssue]
    state = {name: value.clone() for name, value in method.state_dict().items()}
    modes = [part.training for part in method.modules()]
    assert True in modes
    assert False in modes
    with torch.random.fork_rng():
        torch.manual_seed(5)
        before = torch.get_rng_state(), np.random.get_state(legacy=False)["state"]["key"].tolist(), random.getstate()
        figures = measure(trained)(*at)
        after = torch.get_rng_state(), np.random.get_state(legacy=False)["state"]["key"].tolist(), random.getstate()
    assert torch.equal(before[0], after[0])
    assert before[1:] == after[1:]
    assert [part.training for part in method.modules()] == modes
    assert all(torch.equal(value, state[name]) for name, value in method.state_dict().items())
    assert all(parameter.grad is None for parameter in method.parameters())
    assert figures == measure(trained)(*at)


def test_of_many_samples_a_fixed_choice_is_taken(trained: Subject, monkeypatch: pytest.MonkeyPatch) -> None:
    everything = measure(trained)
    assert torch.equal(everything.bank, trained.split.train)
    assert torch.equal(everything.queries, trained.split.held_out)
    monkeypatch.setattr(online_knn, "MAX_SAMPLES", 21)
    chosen = measure(trained)
    assert len(chosen.bank) == len(chosen.queries) == 21
    assert torch.equal(chosen.bank, chosen.bank.unique())  # ascending, none twice
    assert set(chosen.bank.tolist()) < set(trained.split.train.tolist())
    assert set(chosen.queries.tolist()) < set(trained.split.held_out.tolist())
    assert torch.equal(chosen.bank, measure(trained).bank)
    assert not torch.equal(chosen.bank, trained.split.train[:21])


def test_samples_without_a_label_neither_vote_nor_count(trained: Subject) -> None:
    assert trained.source.labels is not None
    labels = trained.source.labels.clone()
    unknown = torch.cat([trained.split.train[:7], trained.split.held_out[:5]])
    labels[unknown] = -1
    knn = measure(trained, source=replace(trained.source, labels=labels))
    assert torch.equal(knn.bank, trained.split.train[7:])
    assert torch.equal(knn.queries, trained.split.held_out[5:])
    assert 0 <= knn(*moment(trained.encoder.backbone))["knn20"] <= 1


def relabelled(source: Source, labels: Tensor | None) -> dict[str, Any]:
    return {"source": replace(source, labels=labels)}


@pytest.mark.parametrize("case", ["no labels", "one class", "small bank", "nothing held out"])
def test_too_little_to_measure_is_refused_at_once(trained: Subject, case: str) -> None:
    split = trained.split
    changes: dict[str, dict[str, Any]] = {
        "no labels": relabelled(trained.source, None),
        "one class": relabelled(trained.source, torch.zeros(len(trained.source), dtype=torch.int64)),
        "small bank": {"split": Split(split.train[:19], split.held_out)},
        "nothing held out": {"split": Split(split.train, split.held_out[:0])},
    }
    with pytest.raises(UsageError, match=re.escape("engine.knn_every needs at least 20 labelled training")) as caught:
        measure(trained, **changes[case])
    assert "\n" not in str(caught.value)
