"""When checkpoints are looked at: rarely while a run trains, at once when it does not."""

import math
import threading
from pathlib import Path
from typing import Any

import pytest

from counterpoint.report.live import live_sampling
from counterpoint.report.live.live_sampling import FIRST_SECONDS, SHARE, Sampler

OLD = 1e6  # seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Now; a test moves it."""
    now = [1000.0]
    monkeypatch.setattr(live_sampling.time, "monotonic", lambda: now[0])
    return now


@pytest.fixture
def sampler(monkeypatch: pytest.MonkeyPatch) -> Sampler:
    """One whose process answers at once, and has then spent two more seconds."""
    monkeypatch.setattr(threading.Thread, "start", lambda self: self.run())
    spent = [0.0]

    def answer(self: Sampler, path: Path) -> dict[str, Any]:
        spent[0] += 2.0
        return {"why": f"answer {spent[0] / 2:.0f}", "seconds": spent[0]}

    monkeypatch.setattr(Sampler, "_answer", answer)
    return Sampler()


def test_a_young_run_is_left_alone(sampler: Sampler, clock: list[float]) -> None:
    sampler.ask(Path("run"), "step-1", age=FIRST_SECONDS / SHARE - 1)
    assert sampler.why == {}
    sampler.ask(Path("run"), "step-1", age=FIRST_SECONDS / SHARE)
    assert sampler.why == {Path("run"): "answer 1"}


def test_while_it_trains_the_process_rests_in_proportion(sampler: Sampler, clock: list[float]) -> None:
    sampler.ask(Path("run"), "step-1", age=OLD)
    clock[0] += 2.0 / SHARE - 1
    sampler.ask(Path("run"), "step-2", age=OLD)
    assert sampler.why == {Path("run"): "answer 1"}
    clock[0] += 1
    sampler.ask(Path("run"), "step-2", age=OLD)
    assert sampler.why == {Path("run"): "answer 2"}


def test_a_run_that_has_ended_is_looked_at_once_and_at_once(sampler: Sampler, clock: list[float]) -> None:
    sampler.ask(Path("run"), "step-1", age=OLD)
    for _ in range(2):
        sampler.ask(Path("run"), "step-2", age=math.inf)
    assert sampler.why == {Path("run"): "answer 2"}
    sampler.ask(Path("other"), "", age=math.inf)  # without a checkpoint there is nothing to look at
    assert Path("other") not in sampler.why


def test_a_process_that_dies_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threading.Thread, "start", lambda self: self.run())
    monkeypatch.setattr(live_sampling, "MODULE", "counterpoint.no_such_module")
    sampler = Sampler()
    sampler.ask(Path("run"), "step-1")
    sampler.close()
    assert "has died" in sampler.why[Path("run")]
