"""Losses, online kNN and findings in other people's trainers: what Lightning's gradients and logs are."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import counterpoint as cp
from counterpoint.core.dist import rank, world_size
from counterpoint.core.errors import DataError, UsageError
from counterpoint.losses.loss import Loss
from rank_processes import run_on_ranks

pl = pytest.importorskip("pytorch_lightning", reason="pytorch_lightning (extra `lightning`) is not installed")
from counterpoint.lightning import ContrastiveModule, HealthFindings, OnlineKNN  # noqa: E402 (see above)

pytestmark = pytest.mark.filterwarnings("ignore")  # Lightning's own, about loggers and workers
QUIET: dict[str, Any] = {
    "accelerator": "cpu",
    "devices": 1,
    "logger": False,
    "enable_checkpointing": False,
    "enable_progress_bar": False,
    "enable_model_summary": False,
}
PLAIN = {"name": "sgd", "learning_rate": 0.5, "weight_decay": 0.0, "momentum": 0.0, "schedule": "constant"}
PLAIN |= {"warmup_epochs": 0.0}


def encoder() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 7), nn.BatchNorm1d(7), nn.ReLU(), nn.Linear(7, 4))


def views(num_samples: int = 8) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(num_samples, 5, generator=generator), torch.randn(num_samples, 5, generator=generator)


def loader(view0: Tensor, view1: Tensor, size: int | None = None) -> DataLoader[Any]:
    return DataLoader(TensorDataset(view0, view1), batch_size=size or len(view0))


def fit(module: Any, batches: Any, **settings: Any) -> Any:
    trainer = pl.Trainer(**{**QUIET, "max_epochs": 1, **settings})
    trainer.fit(module, batches)
    return trainer


def blobs(num_samples: int = 60) -> tuple[Tensor, Tensor]:
    labels = torch.arange(num_samples) % 3
    centres = 4 * torch.eye(3, 5)
    return centres[labels] + 0.1 * torch.randn(num_samples, 5, generator=torch.Generator().manual_seed(2)), labels


# --- the module


@pytest.mark.parametrize("loss", [cp.losses.InfoNCE(0.2), cp.losses.VICReg()], ids=["pairs", "no pairs"])
def test_one_update_is_that_of_a_loop_in_torch(loss: Loss) -> None:
    view0, view1 = views()
    module = ContrastiveModule(encoder(), loss, optim=PLAIN)
    fit(module, loader(view0, view1))
    bare = encoder()
    # As in `cp.train`: both views pass the encoder together.
    z0, z1 = bare(torch.cat([view0, view1])).chunk(2)
    loss(z0, z1).backward()
    for name, parameter in bare.named_parameters():
        expected = parameter.detach() - 0.5 * parameter.grad  # pyright: ignore[reportOperatorIssue]
        torch.testing.assert_close(module.method.backbone.get_parameter(name).detach(), expected)


def ranks_fit() -> dict[str, Tensor | str]:
    """One update in a trainer on two ranks, each with half of the batch."""
    from lightning_fabric.plugins.environments.lightning import (
        LightningEnvironment,
    )  # deferred: of this function's processes
    from pytorch_lightning.strategies import DDPStrategy  # deferred: as above

    class Joined(LightningEnvironment):
        """The processes are there already, and so is their group."""

        creates_processes_externally = True  # pyright: ignore[reportAssignmentType, reportIncompatibleMethodOverride]

        def __init__(self) -> None:
            super().__init__()
            self._global_rank, self._world_size = rank(), world_size()

        def local_rank(self) -> int:
            return rank()

        def set_world_size(self, size: int) -> None:
            assert size == 2

        def teardown(self) -> None:
            """The group is that of whoever made the processes."""

    view0, view1 = views()
    own = slice(4 * rank(), 4 * rank() + 4)
    module = ContrastiveModule(encoder(), cp.losses.InfoNCE(0.2), optim=PLAIN)
    strategy = DDPStrategy(cluster_environment=Joined(), process_group_backend="gloo")
    settings = {"devices": 2, "strategy": strategy, "use_distributed_sampler": False}
    trainer = fit(module, loader(view0[own], view1[own]), **settings)
    return {**module.method.backbone.state_dict(), "loss": trainer.callback_metrics["loss"]}


@pytest.mark.thorough
def test_two_ranks_take_the_step_of_one_process_on_the_whole_batch(tmp_path: Path) -> None:
    view0, view1 = views()
    alone = ContrastiveModule(encoder(), cp.losses.InfoNCE(0.2), optim=PLAIN)
    trainer = fit(alone, loader(view0, view1))
    for result in run_on_ranks(ranks_fit, 2, tmp_path):
        torch.testing.assert_close(result.tensors["loss"], trainer.callback_metrics["loss"], rtol=1e-5, atol=1e-6)
        for name, value in alone.method.backbone.state_dict().items():
            torch.testing.assert_close(result.tensors[name], value, rtol=1e-4, atol=1e-6)


def test_labels_reach_a_loss_that_learns_from_them() -> None:
    samples, labels = blobs(12)
    batch = ((samples, samples + 0.1), labels)
    module = ContrastiveModule(encoder(), cp.losses.SupCon(0.2), optim=PLAIN)
    trainer = fit(module, DataLoader([batch], batch_size=None))  # pyright: ignore[reportArgumentType]
    z0, z1 = encoder()(torch.cat(batch[0])).chunk(2)
    expected = cp.losses.SupCon(0.2)(z0, z1, labels)
    torch.testing.assert_close(trainer.callback_metrics["loss"], expected.detach())


def test_the_rate_falls_along_a_cosine_after_its_warm_up() -> None:
    rates: list[float] = []

    class Watcher(pl.Callback):
        def on_train_batch_start(self, trainer: Any, *_: Any) -> None:
            rates.append(trainer.optimizers[0].param_groups[0]["lr"])

    optim = {"name": "sgd", "learning_rate": 1.0, "warmup_epochs": 1.0}
    module = ContrastiveModule(encoder(), cp.losses.InfoNCE(), optim=optim)
    fit(module, loader(*views(), size=4), max_epochs=3, callbacks=[Watcher()])
    # Two updates up to the peak, then (1 + cos(pi t / 4)) / 2 of it.
    assert rates == pytest.approx([0.5, 1.0, 1.0, 0.853553, 0.5, 0.146447], abs=1e-5)


@pytest.mark.parametrize(
    "batch",
    [torch.zeros(4, 5), (torch.zeros(4, 5), torch.zeros(4)), (torch.zeros(4, 5),) * 3],
    ids=["one view", "labels", "three"],
)
def test_a_batch_without_two_views_is_named(batch: Any) -> None:
    with pytest.raises(DataError, match=r"a batch must be \(view0, view1\)"):
        fit(ContrastiveModule(encoder(), cp.losses.InfoNCE(), optim=PLAIN), DataLoader([batch], batch_size=None))  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    ("optim", "words"),
    [
        ({"name": "sgd"}, "learning_rate must be given"),
        ({"clip": 1.0}, "gradient_clip_val"),
        ({"learning_rat": 1.0}, "learning_rate"),
    ],
)
def test_settings_that_cannot_be_used_are_refused(optim: Any, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        ContrastiveModule(encoder(), cp.losses.InfoNCE(), optim=optim)
    with pytest.raises(UsageError, match="MSELoss"):
        ContrastiveModule(encoder(), nn.MSELoss())  # pyright: ignore[reportArgumentType]


# --- callbacks, also in a module that is not ours


class Foreign(pl.LightningModule):
    """Somebody's own module, which learns nothing and draws in its forward pass."""

    def __init__(self, width: int = 5) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Dropout(0.5), nn.Linear(5, width))
        with torch.no_grad():
            self.net[1].weight.copy_(torch.eye(width, 5))  # pyright: ignore[reportArgumentType, reportCallIssue]
            self.net[1].bias.zero_()  # pyright: ignore[reportCallIssue]

    def forward(self, samples: Tensor) -> Tensor:
        return self.net(samples)

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        return 0.0 * self.net(batch[0]).sum()

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), lr=0.0)


def test_online_knn_counts_queries_by_hand_and_leaves_the_module_as_it_was() -> None:
    samples, labels = blobs()
    wrong = labels[:20].clone()
    wrong[:5] = (wrong[:5] + 1) % 3  # 5 of 20 queries bear a class that is not theirs
    module = Foreign()
    module.train()
    modes: list[bool] = []

    class Watcher(pl.Callback):
        def on_train_end(self, trainer: Any, pl_module: Any) -> None:
            modes.append(pl_module.training and pl_module.net[0].training)

    batches = DataLoader(TensorDataset(samples, labels), batch_size=20)
    callbacks = [OnlineKNN(batches, (samples[:20], wrong)), Watcher()]
    trainer = fit(module, loader(*views()), callbacks=callbacks)
    assert float(trainer.callback_metrics["knn20"]) == pytest.approx(15 / 20)
    assert modes == [True]


def test_online_knn_keeps_its_interval_and_measures_the_last_epoch() -> None:
    samples, labels = blobs()
    seen: list[int] = []

    def represent(module: Any, part: Tensor) -> Tensor:
        seen.append(module.current_epoch)
        return module(part)

    callback = OnlineKNN((samples, labels), (samples, labels), every=2, represent=represent)
    fit(Foreign(), loader(*views()), callbacks=[callback], max_epochs=3)
    assert sorted(set(seen)) == [1, 2]  # epochs 2 and 3, counted from 1


@pytest.mark.parametrize("memory", [blobs()[0], (blobs()[0][:5], blobs()[1][:5])], ids=["no labels", "too few"])
def test_online_knn_refuses_what_it_cannot_vote_with(memory: Any) -> None:
    with pytest.raises(DataError, match="memory must be at least 20 samples with labels"):
        OnlineKNN(memory, blobs())
    with pytest.raises(UsageError, match="every must be a whole number >= 1"):
        OnlineKNN(blobs(), blobs(), every=0)


def constant(module: Any, samples: Tensor) -> Tensor:
    """Features of a collapsed encoder."""
    return torch.ones(len(samples), 8) + 1e-7 * samples[:, :1]


def test_a_collapsed_encoder_is_found_and_stopped() -> None:
    samples, labels = blobs(200)
    callback = HealthFindings((samples, labels), stop_after=2, represent=constant)
    trainer = fit(Foreign(), loader(*views()), callbacks=[callback], max_epochs=6)
    assert list(callback.findings) == [1, 2]  # stopped after two severe diagnoses
    assert all(found.level == "severe" for found in callback.findings.values())
    assert float(trainer.callback_metrics["health/level"]) == 3.0


def test_a_healthy_encoder_goes_on_and_its_rank_is_logged() -> None:
    samples = torch.randn(400, 5, generator=torch.Generator().manual_seed(3))
    callback = HealthFindings(samples, stop_after=1)
    trainer = fit(Foreign(), loader(*views()), callbacks=[callback], max_epochs=2)
    assert list(callback.findings) == [1, 2]
    # Isotropic in 5 dimensions.
    assert 4.5 < float(trainer.callback_metrics["health/effective_rank"]) <= 5.0


@pytest.mark.thorough
def test_a_missing_extra_is_one_line() -> None:
    hide = "import sys; sys.modules['lightning'] = sys.modules['pytorch_lightning'] = None"
    program = f"{hide}; import counterpoint.lightning"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    last = done.stderr.strip().splitlines()[-1]
    assert last == "ImportError: counterpoint.lightning needs PyTorch Lightning; pip install pytorch-lightning"
