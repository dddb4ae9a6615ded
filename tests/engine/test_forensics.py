"""A step that cannot be taken names tensor, layer and samples; running out of memory says what to change."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from counterpoint.engine.forensics import describe_loss, describe_memory, named_ids
from counterpoint.nn.method import Method

IDS = torch.tensor([11, 22, 33])


class Overflowing(nn.Module):
    """Infinite for samples whose first entry is above 10."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.where(x[:, :1] > 10, torch.inf, x)


class TwoLayers(Method):
    """A linear layer, then one that may overflow, then a BatchNorm."""

    def __init__(self) -> None:
        super().__init__()
        self.backbone = nn.Sequential(nn.Identity(), Overflowing(), nn.BatchNorm1d(2))
        self.projector = nn.Linear(2, 2)
        self.loss = nn.Identity()

    def forward(self, view0: Tensor, view1: Tensor, labels: Tensor | None = None, step: int = 0) -> Tensor:
        return self.projector(self.backbone(view0)).mean()

    def after_step(self, progress: float) -> None:
        return


def views(*rows: tuple[float, float]) -> tuple[Tensor, Tensor]:
    return torch.tensor(rows), torch.zeros(len(rows), 2)


def test_a_weight_that_has_gone_bad_is_named_before_layers() -> None:
    method = TwoLayers()
    with torch.no_grad():
        next(method.projector.parameters())[0, 0] = torch.nan
    said = describe_loss(method, views((1, 0), (0, 0), (0, 0)), IDS).text
    assert "the weight projector.weight" in said


@pytest.mark.parametrize("number", [0, 1])
def test_a_bad_view_is_named_with_its_samples(number: int) -> None:
    pair = [torch.zeros(3, 2), torch.zeros(3, 2)]
    pair[number][1, 0] = torch.nan
    said = describe_loss(TwoLayers(), (pair[0], pair[1]), IDS).text
    assert f"view {number} of the data" in said
    assert "samples [22]" in said


def test_the_first_layer_that_overflows_is_named_with_its_samples() -> None:
    method = TwoLayers()
    before = {name: value.clone() for name, value in method.state_dict().items()}
    said = describe_loss(method, views((1, 2), (3, 4), (11, 0)), IDS).text
    assert "the output of backbone.1" in said
    assert "samples [33]" in said
    assert method.training
    assert all(torch.equal(value, before[name]) for name, value in method.state_dict().items())  # no statistics moved
    assert not any(module._forward_hooks for module in method.modules())


def test_finite_representations_point_at_the_loss() -> None:
    said = describe_loss(TwoLayers(), views((1, 2), (3, 4), (5, 6)), IDS).text
    assert said == "representations are finite, the loss is not; samples [11, 22, 33]"


def test_many_samples_are_shortened() -> None:
    assert named_ids(torch.arange(8)) == "[0, 1, 2, 3, 4] and 3 more"


@pytest.mark.parametrize(("chunk_size", "advised"), [("none", 128), (64, 16), (2, 1)])
def test_out_of_memory_advises_a_quarter_of_what_was_tried(chunk_size: Any, advised: int) -> None:
    said = describe_memory(torch.OutOfMemoryError("CUDA out of memory.\nMore"), 256, chunk_size)
    assert f"--engine.chunk-size {advised} " in said
    assert "--engine.precision bf16" in said
    assert "\n" not in said


def test_statistics_that_the_failed_pass_has_spoilt_are_not_to_blame() -> None:
    method = TwoLayers()
    spoilt, pair = torch.full((2,), torch.nan), views((torch.nan, 0), (0, 0), (0, 0))
    method.backbone[2].running_mean = spoilt  # pyright: ignore[reportIndexIssue]
    assert "view 0 of the data" in describe_loss(method, pair, IDS).text
    assert "weight" not in describe_loss(method, views((1, 2), (3, 4), (5, 6)), IDS).text


def test_what_is_closer_to_the_data_counts_on_several_ranks() -> None:
    method = TwoLayers()
    layer = describe_loss(method, views((11, 0), (0, 0), (0, 0)), IDS)
    view = describe_loss(method, views((torch.nan, 0), (0, 0), (0, 0)), IDS)
    loss = describe_loss(method, views((1, 0), (0, 0), (0, 0)), IDS)
    assert view.depth < layer.depth < loss.depth < 10**6
