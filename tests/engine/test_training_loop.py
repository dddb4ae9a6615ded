"""The training loop on a toy: every step at its rate, every epoch in the log, and stopping whenever asked."""

import signal
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from counterpoint.core.errors import InterruptedRunError, NonFiniteError, RunError, TrainingError
from counterpoint.core.rundir import RunFolder, append_line
from counterpoint.core.settings import TrainSettings, ViewSettings
from counterpoint.core.validation import build, merge
from counterpoint.data.loader import BatchLoader
from counterpoint.data.order import Order
from counterpoint.data.stores import MemoryStore
from counterpoint.data.views.drawer import ViewDrawer
from counterpoint.data.views.presets import plan_views
from counterpoint.engine.checkpoint import list_checkpoints, load_checkpoint
from counterpoint.engine.engine import Engine
from counterpoint.engine.job import TrainingJob
from counterpoint.engine.loop import replay_step, run_training
from counterpoint.engine.optimisers import Schedule
from counterpoint.engine.placement import place
from counterpoint.engine.progress import Reporter
from counterpoint.engine.replay import read_step
from counterpoint.losses import GeneralizedContrastive, SparsityPenalty, imbalanced
from counterpoint.losses.imbalanced import draw_negatives
from counterpoint.losses.loss import Loss
from counterpoint.methods.encoding import Head
from counterpoint.methods.joint import JointEmbedding
from counterpoint.nn.heads import OutputMap
from counterpoint.nn.method import Method
from counterpoint.runs.run_files import create_run

NUM_SAMPLES, BATCH, EPOCHS = 13, 4, 5
BATCHES = NUM_SAMPLES // BATCH
STEPS = BATCHES * EPOCHS
SCHEDULE = Schedule(0.01, STEPS, 2)
SETTINGS = {"epochs": EPOCHS, "engine": {"checkpoint_every": 2, "keep": 9}}


class Toy(Method):
    """A loss with dropout, so that torch's own random numbers matter; calls ``watch`` at every step."""

    def __init__(self, watch: Callable[["Toy", int], Tensor | None] | None = None) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 2)
        self.backbone, self.projector, self.loss = self.layer, nn.Identity(), nn.Identity()
        self.dropout = nn.Dropout(0.3)
        self.watch = watch
        self.num_calls = 0

    def forward(self, view0: Tensor, view1: Tensor, labels: Tensor | None = None, step: int = 0) -> Tensor:
        loss = (self.dropout(self.layer(view0)) - self.layer(view1) - 1).square().mean()
        self.num_calls += 1
        replaced = self.watch(self, self.num_calls) if self.watch else None
        return loss if replaced is None else replaced

    def after_step(self, progress: float) -> None:
        self.progress = progress


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return create_run(tmp_path / "run", overwrite=False)


def job_for(
    folder: RunFolder, watch: Any = None, *, seed: int = 0, method: Method | None = None, **engine: Any
) -> TrainingJob:
    torch.manual_seed(0)
    toy = Toy(watch) if method is None else method
    samples = torch.randn(NUM_SAMPLES, 3, generator=torch.Generator().manual_seed(1))
    parts: dict[str, Any] = {
        "method": toy,
        "optimizer": torch.optim.AdamW(toy.parameters(), lr=9.0),
        "schedule": SCHEDULE,
        "loader": BatchLoader(MemoryStore(samples), Order(torch.arange(NUM_SAMPLES), BATCH, 0)),
        "views": ViewDrawer(plan_views(ViewSettings(preset="none", noise=0.1)), torch.zeros(3), torch.ones(3), 0),
        "engine": Engine(place("cpu", "fp32")),
        "folder": folder,
        "settings": build(TrainSettings, merge(SETTINGS, {"seed": seed, "engine": engine}), "test"),
        "chance": 1.5,
        "floor": 0.5,
        "measure": None,
        "loggers": (),
        "facts": {},
    }
    return TrainingJob(**parts)


def train(job: TrainingJob, *, resume: bool = False) -> dict[str, Tensor]:
    run_training(job, Reporter(quiet=True), resume=resume)
    return {name: value.clone() for name, value in job.method.state_dict().items()}


def losses(folder: RunFolder) -> list[float]:
    return [record["loss"] for record in folder.read_metrics()]


def assert_same(actual: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    assert all(torch.equal(actual[name], expected[name]) for name in expected)


def stop_at(call: int, number: int = signal.SIGINT) -> Callable[[Toy, int], None]:
    def watch(toy: Toy, num_calls: int) -> None:
        if num_calls == call:
            signal.raise_signal(number)

    return watch


# --- an undisturbed run


def test_every_step_has_the_rate_of_the_schedule(folder: RunFolder) -> None:
    rates: list[float] = []
    job = job_for(folder, lambda toy, call: rates.append(job.optimizer.param_groups[0]["lr"]))
    train(job)
    assert rates == [SCHEDULE(step) for step in range(STEPS)]


def test_what_was_evaluated_before_is_trained_with_its_dropout(folder: RunFolder) -> None:
    was_training: list[bool] = []
    job = job_for(folder, lambda toy, _: was_training.append(toy.dropout.training))
    job.method.eval()
    train(job)
    assert was_training == [True] * STEPS


def test_each_epoch_logs_its_mean_loss_and_how_it_was_reached(folder: RunFolder) -> None:
    seen: list[Tensor] = []

    def watch(toy: Toy, call: int) -> Tensor:
        seen.append(torch.tensor(float(call)))
        return toy.layer.weight.sum() * 0 + seen[-1]

    train(job_for(folder, watch))
    records = folder.read_metrics()
    assert [record["epoch"] for record in records] == [1, 2, 3, 4, 5]
    assert [record["step"] for record in records] == [BATCHES * (epoch + 1) for epoch in range(EPOCHS)]
    assert losses(folder) == [2.0, 5.0, 8.0, 11.0, 14.0]  # the means of (1, 2, 3), (4, 5, 6), ...
    last = SCHEDULE(STEPS - 1)
    assert records[-1]["learning_rate"] == last
    assert (records[0]["chance"], records[0]["floor"]) == (1.5, 0.5)
    assert all(record["images_per_second"] > 0 and record["seconds"] > 0 for record in records)


@pytest.mark.parametrize(
    ("engine", "saved"),
    [
        ({}, [0, 2 * BATCHES, 4 * BATCHES, 5 * BATCHES]),
        ({"checkpoint_steps": 2, "checkpoint_every": 5}, [0, 2, 4, 6, 8, 10, 12, 14, 15]),
        ({"checkpoint_steps": 6, "checkpoint_every": 5}, [0, 6, 12, 15]),
        ({"checkpoint_steps": 9, "checkpoint_every": 5}, [0, 9, 15]),
    ],
    ids=str,
)
def test_checkpoints_come_at_the_start_every_few_epochs_or_steps_and_at_the_end(
    folder: RunFolder, engine: dict[str, Any], saved: list[int]
) -> None:
    train(job_for(folder, **engine))
    steps = [int(path.name.removeprefix("step-")) for path in list_checkpoints(folder.checkpoints)]
    assert steps == saved[::-1]


def test_the_same_seed_gives_the_same_bits_and_another_gives_others(tmp_path: Path) -> None:
    runs = [create_run(tmp_path / name, overwrite=False) for name in "abc"]
    first, second, other = (train(job_for(run, seed=seed)) for run, seed in zip(runs, (0, 0, 1), strict=True))
    assert_same(second, first)
    assert losses(runs[0]) == losses(runs[1])
    assert not torch.equal(first["layer.weight"], other["layer.weight"])  # dropout follows the seed


def test_the_callers_random_numbers_are_left_alone(folder: RunFolder) -> None:
    job = job_for(folder)
    before = torch.get_rng_state()
    train(job)
    assert torch.equal(torch.get_rng_state(), before)


# --- stopping and going on


@pytest.mark.parametrize("call", range(1, STEPS))
@pytest.mark.sampled(24)
def test_stopping_at_any_step_and_resuming_changes_no_bit(tmp_path: Path, call: int) -> None:
    whole, halved = (create_run(tmp_path / name, overwrite=False) for name in ("whole", "halved"))
    expected = train(job_for(whole))
    with pytest.raises(InterruptedRunError) as caught:
        train(job_for(halved, stop_at(call)))
    assert caught.value.exit_code == 130
    assert f"step {call} of {STEPS}" in str(caught.value)
    assert f"counterpoint resume {halved.path}" in str(caught.value)
    assert list_checkpoints(halved.checkpoints)[0].name == f"step-{call:08d}"
    resumed = job_for(halved)
    assert_same(train(resumed, resume=True), expected)
    assert isinstance(resumed.method, Toy)
    assert resumed.method.num_calls == STEPS - call  # no step is taken twice
    assert losses(halved) == losses(whole)
    assert [record["step"] for record in halved.read_metrics()] == [record["step"] for record in whole.read_metrics()]


def test_a_crash_goes_on_from_the_last_checkpoint(tmp_path: Path) -> None:
    whole, crashed = (create_run(tmp_path / name, overwrite=False) for name in ("whole", "crashed"))
    expected = train(job_for(whole))

    def crash(toy: Toy, call: int) -> None:
        if call == STEPS - 1:
            raise MemoryError

    with pytest.raises(MemoryError):
        train(job_for(crashed, crash))
    assert len(losses(crashed)) == 4
    append_line(crashed.metrics, {"step": 10**6, "loss": 0.0})  # after the checkpoint
    assert_same(train(job_for(crashed), resume=True), expected)
    assert losses(crashed) == losses(whole)


def test_resuming_passes_over_a_damaged_checkpoint_and_says_so(
    folder: RunFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    expected = train(job_for(folder))
    newest = list_checkpoints(folder.checkpoints)[0]
    (newest / "model.safetensors").write_bytes(b"")
    job = job_for(folder)
    run_training(job, Reporter(), resume=True)
    assert_same(dict(job.method.state_dict()), expected)
    said = capsys.readouterr().err
    assert f"{newest.name}: model.safetensors" in said
    assert "resuming from step-00000012 (epoch 5, step 12 of 15)" in said


def test_a_signal_in_the_very_last_step_does_not_undo_the_run(folder: RunFolder) -> None:
    train(job_for(folder, stop_at(STEPS)))
    assert len(losses(folder)) == EPOCHS


def test_a_second_ctrl_c_stops_at_once(folder: RunFolder) -> None:
    def watch(toy: Toy, call: int) -> None:
        if call == 5:
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        train(job_for(folder, watch))
    assert list_checkpoints(folder.checkpoints)[0].name == "step-00000000"


# --- losses that draw at random


class Draws:
    """Stands in for ``draw_negatives`` and keeps what is drawn; a signal may come with one of the draws."""

    def __init__(self, stop_at: int | None = None) -> None:
        self.drawn: list[Tensor] = []
        self.stop_at = stop_at

    def __call__(self, *batch: Any, **named: Any) -> Tensor:
        self.drawn.append(draw_negatives(*batch, **named))
        if len(self.drawn) == self.stop_at:
            signal.raise_signal(signal.SIGINT)
        return self.drawn[-1]


def drawing(loss: Loss | None = None) -> JointEmbedding:
    torch.manual_seed(0)
    loss = GeneralizedContrastive(num_negatives=7) if loss is None else loss
    return JointEmbedding(nn.Linear(3, 4), Head(nn.Linear(4, 2), OutputMap(normalize=False)), loss)


@pytest.mark.parametrize("is_wrapped", [False, True])
def test_every_step_draws_negatives_of_its_own(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch, is_wrapped: bool
) -> None:
    draws, loss = Draws(), GeneralizedContrastive(num_negatives=7)
    monkeypatch.setattr(imbalanced, "draw_negatives", draws)
    train(job_for(folder, method=drawing(SparsityPenalty(loss) if is_wrapped else loss)))
    assert len(draws.drawn) == len({tuple(index.flatten().tolist()) for index in draws.drawn}) == STEPS


@pytest.mark.thorough
def test_a_resumed_run_draws_what_the_uninterrupted_one_draws(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole, halved = (create_run(tmp_path / name, overwrite=False) for name in ("whole", "halved"))
    draws, halves = Draws(), Draws(stop_at=7)
    monkeypatch.setattr(imbalanced, "draw_negatives", draws)
    expected = train(job_for(whole, method=drawing()))
    monkeypatch.setattr(imbalanced, "draw_negatives", halves)
    with pytest.raises(InterruptedRunError):
        train(job_for(halved, method=drawing()))
    assert_same(train(job_for(halved, method=drawing()), resume=True), expected)
    assert all(torch.equal(one, other) for one, other in zip(halves.drawn, draws.drawn, strict=True))
    kept = read_step(halved.checkpoints, 7)
    assert kept is not None
    snapshot = load_checkpoint(halved.checkpoints / "step-00000007")
    assert replay_step(job_for(halved, method=drawing()), snapshot) == kept.record


# --- what goes wrong


@pytest.mark.parametrize("value", [float("nan"), float("inf"), "refused"])
def test_a_loss_that_is_not_finite_stops_with_step_and_samples(folder: RunFolder, value: float | str) -> None:
    def watch(toy: Toy, call: int) -> Tensor | None:
        if call < 8:
            return None
        if value == "refused":
            raise NonFiniteError("row 0")  # as losses do
        return toy.layer.weight.sum() * float(value)

    job = job_for(folder, watch)
    with pytest.raises(TrainingError) as caught:
        train(job)
    ids = job.loader.order.batches(2)[1].tolist()
    message = str(caught.value)
    assert "step 7 (epoch 3" in message
    assert str(ids[:5])[1:-1] in message
    assert "--optim.learning-rate" in message
    assert len(losses(folder)) == 2
    assert list_checkpoints(folder.checkpoints)[0].name == "step-00000006"


class AwayLogger:
    """A logger whose server is away."""

    def __call__(self, record: Any) -> None:
        raise ConnectionError("no route to host")

    def close(self) -> None:
        raise ConnectionError("still none")


def test_a_logger_that_fails_is_told_and_ends_no_run(folder: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    run_training(replace(job_for(folder), loggers=(AwayLogger(),)), Reporter())
    assert len(losses(folder)) == EPOCHS
    said = capsys.readouterr().err
    assert "AwayLogger: no route to host; metrics.jsonl has the figures" in said
    assert "AwayLogger: still none" in said


def test_metrics_that_cannot_be_written_stop_the_run(folder: RunFolder) -> None:
    folder.metrics.mkdir()
    with pytest.raises(RunError, match=r"metrics\.jsonl cannot be read"):
        train(job_for(folder))


@pytest.fixture(autouse=True)
def default_handlers() -> Iterator[None]:
    """Every test begins and ends with pytest's own signal handlers."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)
