"""What the momentum copy of a module shares with it and what not; ``test_wiring_steps`` has how it follows."""

import pytest
import torch
from torch import nn

from counterpoint.methods.encoding import MomentumCopy


def net() -> nn.Sequential:
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 2)).double()


def moved(source: nn.Module, by: float) -> None:
    with torch.no_grad():
        for parameter in source.parameters():
            parameter.add_(by)


def test_the_source_is_neither_changed_nor_part_of_it() -> None:
    source = net()
    copy = MomentumCopy(source)
    before = [p.detach().clone() for p in source.parameters()]
    moved(copy, 1.0)
    copy.follow(source, 0.5)
    assert all(torch.equal(p, old) for p, old in zip(source.parameters(), before, strict=True))
    assert all(p.requires_grad for p in source.parameters())
    assert not any(p.requires_grad for p in copy.parameters())
    assert all(name.startswith("module.") for name in copy.state_dict())
    assert len(copy.state_dict()) == len(source.state_dict())


def test_in_training_mode_its_norm_has_the_statistics_of_the_batch() -> None:
    copy = MomentumCopy(net()).train()
    x = 5 + torch.randn(5, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    linear, norm, *_ = copy.module.children()
    hidden = norm(linear(x))
    assert hidden.mean(0).abs().max() < 1e-10


def test_buffers_are_taken_over() -> None:
    source = net()
    copy = MomentumCopy(source)
    source(torch.ones(4, 3, dtype=torch.float64))
    copy.follow(source, 0.9)
    for found, expected in zip(copy.buffers(), source.buffers(), strict=True):
        assert torch.equal(found, expected)
        assert found.data_ptr() != expected.data_ptr()
    assert int(copy.state_dict()["module.1.num_batches_tracked"]) == 1


@pytest.mark.parametrize("momentum", [-0.1, 1.1, float("nan")])
def test_momentum_out_of_range_is_refused(momentum: float) -> None:
    with pytest.raises(ValueError, match="momentum must be between 0 and 1, got"):
        MomentumCopy(net()).follow(net(), momentum)
