"""Counterpoint in PyTorch Lightning: a module for any loss, and callbacks for anyone's module. Extra ``lightning``.

The one module that imports Lightning: ``lightning.pytorch`` where that is installed, else ``pytorch_lightning``.
"""

# N samples of this rank, D features

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import LambdaLR

from counterpoint.core.errors import DataError, UsageError
from counterpoint.core.settings import OptimSettings
from counterpoint.core.validation import build
from counterpoint.diagnostics.finding import LEVELS
from counterpoint.diagnostics.findings import Findings
from counterpoint.engine.optimisers import Schedule, build_optimizer, build_schedule
from counterpoint.evaluation.online_knn import FIGURE, MIN_QUERIES, NEIGHBOURS, unchanged, vote_accuracy
from counterpoint.losses.loss import Loss
from counterpoint.methods.joint import Head, JointEmbedding
from counterpoint.nn.heads import OutputMap
from counterpoint.nn.synced_norm import with_synced_norm
from counterpoint.runs.inspection import diagnose
from counterpoint.runs.resolve import LEARNING_RATE, WARMUP_SHARE, WEIGHT_DECAY

if TYPE_CHECKING:
    import pytorch_lightning as pl
else:
    try:
        pl = import_module("lightning.pytorch")
    except ImportError:
        try:
            pl = import_module("pytorch_lightning")
        except ImportError:
            raise ImportError("counterpoint.lightning needs PyTorch Lightning; pip install pytorch-lightning") from None

say = import_module(f"{pl.__name__}.utilities").rank_zero_info
CHUNK = 512  # samples per pass
RATE_BY_BATCH = ("sgd", "lars")  # whose usual rate goes by the batch, which a module does not know
MEASURED = ("effective_rank", "rank_ceiling", "dead_dims", "uniformity")  # of the features, in the log

Represent = Callable[[Any, Tensor], Tensor]


class ContrastiveModule(pl.LightningModule):
    """An encoder that learns by a loss of ``counterpoint.losses``, in a Lightning trainer.

    A batch is ``(view0, view1)``, or ``((view0, view1), labels)`` for losses that learn from labels. On several ranks
    the loss is that of all ranks' samples, and BatchNorm has the statistics of all of them, as in ``cp.train``: the
    gradient is that of one process on the whole batch. Ranks must have equally many samples (``drop_last=True``).

    Calling the module gives representations; ``embed`` gives what the loss compares.

    Args:
        encoder: maps samples to representations (n, width).
        loss: loss of ``counterpoint.losses``, such as ``cp.losses.InfoNCE(0.2)``.
        projector: maps representations to what the output map takes; None for none.
        output: sub-vector and non-negative map (``counterpoint.nn.heads.OutputMap``); None for none. Losses scale to
            unit length themselves.
        optim: settings of ``optim`` as ``cp.train`` takes them, such as ``{"name": "adamw", "learning_rate": 1e-3}``.
            The rate of adamw and adam is 2e-3 if it is not given. Lightning clips (``gradient_clip_val``).

    Attributes:
        method: encoder, projector, output map and loss; its weights are ``method.*`` in Lightning's checkpoints.

    Raises:
        UsageError: settings that cannot be used.
    """

    method: JointEmbedding

    def __init__(
        self,
        encoder: nn.Module,
        loss: Loss,
        *,
        projector: nn.Module | None = None,
        output: OutputMap | None = None,
        optim: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__()
        if not isinstance(loss, Loss):
            raise UsageError(
                f"loss must be one of counterpoint.losses, such as InfoNCE(0.2), got {type(loss).__name__}"
            )
        self._optim = _optim_settings(optim or {})
        output = OutputMap(normalize=False) if output is None else output
        self.method = JointEmbedding(encoder, Head(nn.Identity() if projector is None else projector, output), loss)

    def forward(self, samples: Tensor) -> Tensor:
        """Representations (n, width), before the projector."""
        return self.method.backbone(samples)

    def embed(self, samples: Tensor) -> Tensor:
        """Return what the loss compares, (n, d)."""
        return self.method.output_map(self.method.projector(self.method.backbone(samples)))

    def setup(self, stage: str) -> None:
        """Give BatchNorm the statistics of all ranks, before Lightning makes copies of the module."""
        if self.trainer.world_size > 1:
            with_synced_norm(self.method)

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        """The loss of this rank's samples; its mean over ranks is that of the whole batch."""
        view0, view1, labels = _parts(batch)
        # Numbers the draws of losses that draw: the same on all ranks, and after a restart.
        step = self.trainer.fit_loop.epoch_loop.total_batch_idx
        value = self.method(view0, view1, labels, step)
        self.log("loss", value, prog_bar=True, on_step=False, on_epoch=True, sync_dist=True, batch_size=len(view0))
        return value

    def on_train_batch_end(self, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Bring learned scales back into their range."""
        self.method.after_step()

    def configure_optimizers(self) -> Any:
        """The optimiser, and its schedule by update."""
        optimizer = build_optimizer(self.method, self._optim)
        settings, num_steps, num_epochs = self._optim, self.trainer.estimated_stepping_batches, self.trainer.max_epochs
        num_epochs = num_epochs if num_epochs is not None and num_epochs > 0 else 1
        if settings.warmup_epochs == "auto":
            settings = settings.model_copy(update={"warmup_epochs": round(WARMUP_SHARE * num_epochs, 2)})
        if math.isfinite(num_steps):
            num_batches = math.ceil(num_steps / num_epochs)
            schedule = build_schedule(settings, num_epochs=num_epochs, batches_per_epoch=num_batches)
        else:
            schedule = Schedule(float(settings.learning_rate), num_steps=2**62, num_warmup=0, final_share=1.0)
        for group in optimizer.param_groups:
            group["lr"] = schedule.peak
        scheduler = LambdaLR(optimizer, lambda step: schedule(min(step, schedule.num_steps)) / schedule.peak)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}


@dataclass(frozen=True)
class _Labelled:
    samples: Tensor
    labels: Tensor | None


class OnlineKNN(pl.Callback):
    """Logs ``knn20``: share of the queries whose class the weighted vote of their 20 nearest neighbours gives.

    The same protocol as ``engine.knn_every`` of ``cp.train``. The module is left as it was: modes, weights, random
    numbers. Every rank measures on its own copy of the weights, so that none waits.

    Args:
        memory: the samples that vote, at least 20, as ``(samples, labels)`` or a loader of such batches; as the encoder
            takes them.
        queries: at least 10 samples that training never sees.
        every: epochs between measurements, >= 1; the last epoch is always measured.
        represent: function that gives features of samples, as ``represent(module, samples)``; None calls the module.

    Raises:
        UsageError: ``every`` is not a whole number >= 1.
        DataError: too few samples, or none with labels.
    """

    def __init__(self, memory: Any, queries: Any, *, every: int = 1, represent: Represent | None = None) -> None:
        self._every, self._represent = _positive(every, "every"), represent or pl.LightningModule.__call__
        self._memory, self._queries = _read(memory, "memory"), _read(queries, "queries")
        for part, name, fewest in ((self._memory, "memory", NEIGHBOURS), (self._queries, "queries", MIN_QUERIES)):
            if part.labels is None or len(part.samples) < fewest:
                raise DataError(
                    f"{name} must be at least {fewest} samples with labels, as (samples, labels) or a loader of such "
                    f"batches, got {len(part.samples)} {'without' if part.labels is None else 'with'} labels"
                )

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Measure and log."""
        if not _is_due(trainer, self._every):
            return
        with unchanged(pl_module):
            pl_module.eval()
            bank, queries = (
                (_features(pl_module, part.samples, self._represent), part.labels)
                for part in (self._memory, self._queries)
            )
        pl_module.log(FIGURE, vote_accuracy(bank, queries), prog_bar=True)  # pyright: ignore[reportArgumentType]


class HealthFindings(pl.Callback):
    """Diagnoses the module's features while it trains: logs figures, says what is wrong, and can stop the training.

    Logged are ``health/level`` (0 good, 1 note, 2 warning, 3 severe) and ``health/effective_rank``,
    ``health/dead_dims``, ... of the features. Each new worst finding is printed in one line.

    Args:
        data: samples, ``(samples, labels)``, or a loader of either; 500 to 5,000 are enough.
        every: epochs between diagnoses, >= 1; the last epoch is always diagnosed.
        stop_after: stop the training once this many diagnoses in a row are severe; None never stops it.
        represent: function that gives features of samples, as ``represent(module, samples)``; None calls the module.

    Attributes:
        findings: findings of each diagnosis, by epoch, counted from 1.

    Raises:
        UsageError: ``every`` or ``stop_after`` is not a whole number >= 1.
    """

    def __init__(
        self, data: Any, *, every: int = 1, stop_after: int | None = None, represent: Represent | None = None
    ) -> None:
        self._every, self._represent = _positive(every, "every"), represent or pl.LightningModule.__call__
        self._stop_after = None if stop_after is None else _positive(stop_after, "stop_after")
        self._data = _read(data, "data")
        self._num_severe, self._last_title = 0, ""
        self.findings: dict[int, Findings] = {}

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Diagnose, log, and ask the trainer to stop if it is time."""
        if not _is_due(trainer, self._every):
            return
        with unchanged(pl_module):
            pl_module.eval()
            features = _features(pl_module, self._data.samples, self._represent)
            diagnosis = diagnose(features, labels=self._data.labels, quiet=True)
        epoch = trainer.current_epoch + 1
        self.findings[epoch] = diagnosis
        figures = next(iter(diagnosis.places.values())).figures if diagnosis.places else {}
        metrics = {f"health/{name}": float(figures[name]) for name in MEASURED if figures.get(name) is not None}  # pyright: ignore[reportArgumentType]
        pl_module.log_dict({"health/level": float(LEVELS.index(diagnosis.level)), **metrics})
        if diagnosis.level in ("warning", "severe") and diagnosis.findings[0].title != self._last_title:
            self._last_title = diagnosis.findings[0].title
            say(f"epoch {epoch}: {diagnosis.level}: {self._last_title}; try: {diagnosis.findings[0].remedy}")
        self._num_severe = self._num_severe + 1 if diagnosis.level == "severe" else 0
        wants_stop = self._stop_after is not None and self._num_severe >= self._stop_after
        # All ranks stop together, or one would wait for the others for ever.
        if trainer.strategy.reduce_boolean_decision(wants_stop, all=False):
            trainer.should_stop = True
            say(f"epoch {epoch}: stopped, {self._num_severe} severe diagnoses in a row")


def _optim_settings(values: Mapping[str, Any]) -> OptimSettings:
    """Build settings with every ``auto`` filled in."""
    settings = build(OptimSettings, dict(values), "optim")
    if settings.clip != "none":
        raise UsageError("optim.clip is Lightning's own here: Trainer(gradient_clip_val=...)")
    filled: dict[str, Any] = {}
    if settings.learning_rate == "auto":
        if settings.name in RATE_BY_BATCH:
            raise UsageError(
                f"optim.learning_rate must be given for {settings.name}, whose usual rate goes by the batch"
            )
        filled["learning_rate"] = LEARNING_RATE[settings.name]
    if settings.weight_decay == "auto":
        filled["weight_decay"] = WEIGHT_DECAY[settings.name]
    return settings.model_copy(update=filled)


def _parts(batch: Any) -> tuple[Tensor, Tensor, Tensor | None]:
    """Both views, and the labels if there are some."""
    if isinstance(batch, list | tuple) and len(batch) == 2:
        first, second = batch
        if isinstance(first, Tensor) and isinstance(second, Tensor) and first.shape == second.shape:
            return first, second, None
        is_pair = isinstance(first, list | tuple) and len(first) == 2 and all(isinstance(z, Tensor) for z in first)
        if is_pair and isinstance(second, Tensor):
            return first[0], first[1], second
    raise DataError(
        f"a batch must be (view0, view1) or ((view0, view1), labels), got {_described(batch)}; draw both views in the "
        "data set, or in on_after_batch_transfer"
    )


def _described(batch: Any) -> str:
    if isinstance(batch, Tensor):
        return f"a tensor {tuple(batch.shape)}"
    if isinstance(batch, list | tuple):
        return f"({', '.join(map(_described, batch[:4]))})"
    return type(batch).__name__


def _read(data: Any, name: str) -> _Labelled:
    """Samples and labels in memory, from tensors or from the batches of a loader."""
    if isinstance(data, Tensor):
        return _Labelled(data, None)
    if isinstance(data, tuple) and len(data) == 2 and all(isinstance(part, Tensor) for part in data):
        samples, labels = data
        if labels.ndim != 1 or len(labels) != len(samples):
            raise DataError(f"{name} needs one label per sample, got {tuple(labels.shape)} for {len(samples)} samples")
        return _Labelled(samples, labels.cpu())
    if not isinstance(data, Iterable) or isinstance(data, str):
        raise DataError(f"{name} must be samples, (samples, labels) or a loader of either, got {type(data).__name__}")
    batches = [_read(tuple(batch) if isinstance(batch, list) else batch, name) for batch in data]
    if not batches:
        raise DataError(f"{name} is a loader without a batch")
    labels = [batch.labels for batch in batches if batch.labels is not None]
    if labels and len(labels) < len(batches):
        raise DataError(f"{name}: {len(labels)} of {len(batches)} batches have labels; give them to all or to none")
    return _Labelled(torch.cat([batch.samples for batch in batches]), torch.cat(labels) if labels else None)


@torch.no_grad()
def _features(module: pl.LightningModule, samples: Tensor, represent: Represent) -> Tensor:
    chunks = (represent(module, part.to(module.device)) for part in samples.split(CHUNK))
    return torch.cat([chunk.flatten(1).float().cpu() for chunk in chunks])


def _is_due(trainer: pl.Trainer, every: int) -> bool:
    epoch = trainer.current_epoch + 1
    return epoch % every == 0 or epoch == trainer.max_epochs


def _positive(value: Any, name: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise UsageError(f"{name} must be a whole number >= 1, got {value!r}")
    return value
