"""Global and local views: what reaches the loss, that ranks are one process, and that a run resumes."""

import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from small_methods import NUM_FEATURES, backbone, head, numbers
from torch import Tensor, nn

import counterpoint as cp
from counterpoint.core import dist
from counterpoint.core.errors import InterruptedRunError, UsageError
from counterpoint.losses import RDMReg, SIGReg, VISReg
from counterpoint.losses.distribution import SlicedLoss
from counterpoint.methods.joint import JointEmbedding
from counterpoint.nn.synced_norm import with_synced_norm
from rank_processes import RankResult, Result, run_on_ranks
from tolerances import assert_close, relative_error

NUM_SAMPLES, NUM_LOCAL, STEP = 6, 3, 5
FIXED = nn.Sequential(nn.Flatten(), nn.Linear(432, 8))  # of one size of picture
LOSSES: dict[str, SlicedLoss] = {"sigreg": SIGReg(0.3), "visreg": VISReg(), "rdmreg": RDMReg()}


def views() -> tuple[Tensor, Tensor, Tensor]:
    size = (NUM_SAMPLES, NUM_FEATURES)
    return numbers(1, *size), numbers(2, *size), numbers(3, NUM_LOCAL, *size)


def method_of(loss: SlicedLoss, *, is_apart: bool = False) -> JointEmbedding:
    method = JointEmbedding(backbone(), head(), loss, is_apart=is_apart)
    method.backbone = nn.Sequential(method.backbone, nn.BatchNorm1d(5).double())
    return method


@pytest.mark.parametrize("is_apart", [False, True])
def test_the_loss_gets_every_view_each_size_normed_by_itself(is_apart: bool) -> None:
    view0, view1, local = views()
    method = method_of(SIGReg(0.3), is_apart=is_apart)

    def embed(samples: Tensor) -> Tensor:
        return method.projector(method.backbone(samples))

    if is_apart:
        z0, z1, *small = (embed(samples) for samples in (view0, view1, *local))
    else:
        (z0, z1), small = embed(torch.cat([view0, view1])).chunk(2), embed(local.flatten(0, 1)).chunk(NUM_LOCAL)
    expected = SIGReg(0.3)(z0, z1, step=STEP, local_LND=torch.stack([*small]))
    assert_close(method(view0, view1, None, STEP, local), expected)
    assert relative_error(method(view0, view1, None, STEP), expected) > 1e-3


def course(name: str, rows: slice) -> Tensor:
    """The loss and its gradient, averaged over ranks."""
    method = method_of(LOSSES[name])
    with_synced_norm(method)
    view0, view1, local = views()
    loss = method(view0[rows], view1[rows], None, STEP, local[:, rows])
    loss.backward()
    found = [loss.detach(), *(p.grad for p in method.parameters() if p.grad is not None)]
    # One vector: VISReg, which no shift changes, leaves nothing but rounding to the last bias.
    return dist.sum_over_ranks(torch.cat([each.flatten() for each in found])) / dist.world_size()


def on_a_rank() -> Result:
    rows = dist.own_rows(NUM_SAMPLES // dist.world_size())
    return {name: course(name, rows) for name in LOSSES}


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> list[RankResult]:
    return run_on_ranks(on_a_rank, 2, tmp_path_factory.mktemp("ranks"))


@pytest.mark.parametrize("name", LOSSES)
def test_two_ranks_are_one_process(name: str, ranks: list[RankResult]) -> None:
    expected = course(name, slice(None))
    for result in ranks:
        assert_close(result.tensors[name], expected)


@pytest.mark.thorough
def test_a_run_has_local_views_and_resumes(
    tmp_path: Path, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    images = rng.integers(0, 256, (16, 12, 12, 3), dtype=np.uint8)
    small: dict[str, Any] = {"method": "lejepa", "encoder": "convnet", "epochs": 3, "batch_size": 8, "quiet": True}
    crops: dict[str, Any] = {"views": {"local_crops": 2, "local_side": 0.7}}
    whole = cp.train(images, out=tmp_path / "whole", **small, **crops)
    plain = cp.train(images, out=tmp_path / "plain", **small)
    assert [record["loss"] for record in whole.metrics] != [record["loss"] for record in plain.metrics]
    assert "local_side: 0.7" in (tmp_path / "whole" / "resolved.yaml").read_text()
    assert "local_side" not in (tmp_path / "plain" / "resolved.yaml").read_text()
    with monkeypatch.context() as patch:
        original, calls = JointEmbedding.forward, []

        def forward(self: JointEmbedding, *given: Any) -> Tensor:
            calls.append(1)
            if len(calls) == 3:
                signal.raise_signal(signal.SIGINT)
            return original(self, *given)

        patch.setattr(JointEmbedding, "forward", forward)
        with pytest.raises(InterruptedRunError):
            cp.train(images, out=tmp_path / "stopped", **small, **crops)
    resumed = cp.resume(cp.Run(tmp_path / "stopped", data=images), quiet=True)
    assert resumed.folder.weights.read_bytes() == whole.folder.weights.read_bytes()
    with pytest.raises(UsageError, match="curvature is that of a loss of two views"):
        cp.hessian_spectrum(whole, quiet=True)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"method": "simclr"}, r"views\.local_crops has no effect with method simclr: loss infonce compares two views"),
        (
            {"encoder": FIXED},
            r"local views: the encoder cannot take samples of shape \(3, 6, 6\): .+ encoder that pools",
        ),
        ({"encoder": nn.Flatten()}, r"local views have 108 features, and whole ones 432"),
        ({"views.local_scale": (0.5, 0.1)}, r"views\.local_scale must be a pair"),
    ],
)
def test_what_has_no_local_views_refuses_them(
    settings: dict[str, Any], sentence: str, tmp_path: Path, rng: np.random.Generator
) -> None:
    images = rng.integers(0, 256, (16, 12, 12, 3), dtype=np.uint8)
    asked = {"method": "lejepa", "views.local_crops": 2, "epochs": 1, "batch_size": 8, "quiet": True, **settings}
    with pytest.raises(UsageError, match=sentence):
        cp.train(images, out=tmp_path / "run", **asked)
