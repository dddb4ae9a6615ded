"""How a run stands: each state from the files and the lock that make it."""

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from counterpoint.core.run_lock import lock_run
from counterpoint.core.rundir import RunFolder
from counterpoint.report.live.life_signs import LifeSigns, life_signs, worst_first

Begin = Callable[..., RunFolder]


def test_a_run_that_does_not_exist_is_waited_for(tmp_path: Path) -> None:
    found = life_signs(tmp_path / "later", "later")
    assert (found.state, found.words) == ("waiting", "waits for later to begin")


def test_a_run_that_trains_says_what_it_waits_for(begin: Begin) -> None:
    folder = begin(epochs=3, planned=10, seconds=40.0)
    with lock_run(folder.path):
        found = life_signs(folder.path, "ncl", now=os.stat(folder.metrics).st_mtime + 10.0)
    assert (found.state, found.epoch) == ("running", 3)
    assert found.words.replace("\u202f", " ") == (
        "running: epoch 3 of 10 done; loss 5.25; an epoch takes 40 s, the next is expected in about 30 s"
    )


def test_before_the_first_epoch_and_after_the_last_one(begin: Begin) -> None:
    first, last = begin("a", epochs=0), begin("b", epochs=2, planned=2)
    with lock_run(first.path), lock_run(last.path):
        assert life_signs(first.path, "a").words.endswith("in its first epoch")
        assert life_signs(last.path, "b").words.endswith("saving what it learned")


@pytest.mark.parametrize(("seconds", "silence", "state"), [(4.0, 100, "running"), (4.0, 130, "silent")])
def test_silence_is_told_after_two_minutes(begin: Begin, seconds: float, silence: int, state: str) -> None:
    folder = begin(seconds=seconds)
    with lock_run(folder.path):
        found = life_signs(folder.path, "ncl", now=time.time() + silence)
    assert found.state == state
    assert ("no sign of life for 2 min" in found.words.replace("\u202f", " ")) == (state == "silent")
    assert (f"process {os.getpid()} on " in found.words) == (state == "silent")


def test_long_epochs_may_be_silent_for_five_of_them(begin: Begin) -> None:
    folder = begin(seconds=600.0)
    with lock_run(folder.path):
        assert life_signs(folder.path, "ncl", now=time.time() + 2900).state == "running"
        assert life_signs(folder.path, "ncl", now=time.time() + 3100).state == "silent"


def test_nobody_trains_a_run_that_says_so(begin: Begin) -> None:
    found = life_signs(begin().path, "ncl")
    assert (found.state, found.is_over) == ("killed", True)
    assert found.words == "was killed after epoch 3; go on with: counterpoint resume ncl"


@pytest.mark.parametrize(
    ("status", "state", "words"),
    [
        ("finished", "finished", "finished after epoch 3"),
        ("interrupted", "interrupted", "was stopped after epoch 3"),
        ("failed", "failed", "failed after epoch 3"),
        ("created", "waiting", "waits for a process to train it"),
    ],
)
def test_a_run_that_rests_says_why(begin: Begin, status: str, state: str, words: str) -> None:
    folder = begin()
    folder.update_status(status=status)
    found = life_signs(folder.path, "ncl")
    assert found.state == state
    assert found.words.startswith(words)


def test_a_damaged_run_is_no_crash(begin: Begin) -> None:
    folder = begin()
    folder.status.write_text("{}", encoding="utf-8")
    found = life_signs(folder.path, "ncl")
    assert found.state == "damaged"
    assert str(folder.path.parent) not in found.words  # the page shows no folder of the machine


def test_the_mark_changes_with_an_epoch_and_not_with_the_clock(begin: Begin) -> None:
    folder = begin()
    with lock_run(folder.path):
        before, later = life_signs(folder.path, "ncl"), life_signs(folder.path, "ncl", now=time.time() + 60)
        assert before.mark == later.mark
        folder.append_metrics({"epoch": 4, "step": 20, "loss": 4.0})
        assert life_signs(folder.path, "ncl").mark != before.mark


def test_of_several_runs_the_one_that_needs_somebody_counts() -> None:
    signs = [LifeSigns(state, state, "") for state in ("finished", "killed", "running")]
    assert worst_first(signs).state == "running"
    assert worst_first(signs[:2]).state == "killed"
