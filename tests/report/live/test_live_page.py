"""What the live page shows, and when it is made anew."""

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from epochs_written import add_epoch

from counterpoint.core.run_contents import create_seeds
from counterpoint.core.run_lock import lock_run
from counterpoint.core.run_records import SeedsRecord
from counterpoint.core.rundir import RunFolder
from counterpoint.diagnostics.findings import Findings
from counterpoint.report.live import live_page
from counterpoint.report.live.live_page import Watched
from counterpoint.report.live.live_sampling import LiveSample, Sampler
from counterpoint.report.run_record import arrays_of

Begin = Callable[..., RunFolder]


@pytest.fixture
def running(begin: Begin) -> RunFolder:
    """After three epochs."""
    return begin()


def sample(knn: dict[int, float]) -> LiveSample:
    arrays = arrays_of({"spectrum/representation": np.array([1.0, 0.5]), "spectrum/embedding": np.array([1.0, 0.1])})
    return LiveSample(step=15, epoch=3, num_samples=900, findings=Findings(), arrays=arrays, knn=knn)


def test_curves_are_there_from_the_first_epoch_on(running: RunFolder) -> None:
    page = Watched(running.path, None).page().decode()
    assert "Loss by epoch" in page
    assert "Was killed after epoch 3" in page
    assert "Singular values" not in page
    assert "and write the report again" not in page  # what lacks is not asked for while it is on its way


def test_a_page_is_made_once_for_each_epoch(running: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_page, "SHARE", math.inf)
    watched = Watched(running.path, None)
    with lock_run(running.path):
        first = watched.page()
        assert watched.page() is first
        version = watched.state()["version"]
        add_epoch(running, 4)
        assert watched.state()["version"] != version
        assert watched.page() is not first
    assert b"After 4 epochs" in watched.page()


def test_a_page_rests_while_a_run_trains_and_its_words_go_on(
    running: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_page, "SHARE", 1e-9)
    watched = Watched(running.path, None)
    with lock_run(running.path):
        first, state = watched.page(), watched.state()
        add_epoch(running, 4)
        assert watched.page() is first
        later = watched.state()
        assert later["version"] == state["version"]
        assert later["lines"] != state["lines"]
    assert b"Was killed after epoch 4" in watched.page()


def test_what_the_script_polls_is_small_and_names_the_version_of_the_page(running: RunFolder) -> None:
    watched = Watched(running.path, None)
    state = watched.state()
    assert set(state) == {"version", "lines", "state", "note"}
    assert f'data-version="{state["version"]}"' in watched.page().decode()


def test_knn_comes_from_the_log_where_training_measured_it(running: RunFolder) -> None:
    add_epoch(running, 4, knn20=0.5)
    add_epoch(running, 5, knn20=0.75)
    page = Watched(running.path, None).page().decode()
    assert "As training measured it." in page
    assert "kNN: 75.0" in page


def test_a_sample_brings_spectra_findings_and_knn(running: RunFolder) -> None:
    sampler = Sampler(found={running.path: sample({1: 0.25, 3: 0.5})})
    page = Watched(running.path, sampler).page().decode()
    assert "Singular values" in page
    assert "Of the small sample of each checkpoint that was looked at." in page
    assert "900 samples by the checkpoint after epoch 3" in page
    assert page.index("Loss by epoch") < page.index("kNN accuracy by epoch") < page.index("Singular values")


def test_why_there_is_no_sample_stands_on_the_page(running: RunFolder) -> None:
    sampler = Sampler(why={running.path: "it is trained on an array in memory"})
    assert "No spectra yet: it is trained on an array in memory." in Watched(running.path, sampler).page().decode()


def test_names_are_text(begin: Begin) -> None:
    folder = begin("<script>alert(1)<")
    page = Watched(folder.path, None).page().decode()
    assert "<script>alert" not in page
    assert "&lt;script&gt;alert(1)&lt;" in page


def test_damage_is_told_on_the_page(running: RunFolder) -> None:
    lines = running.metrics.read_text(encoding="utf-8").splitlines(keepends=True)
    running.metrics.write_text("".join(lines[1:]), encoding="utf-8")
    assert "metrics.jsonl is damaged" in Watched(running.path, None).page().decode()


def test_a_run_that_has_not_begun_has_a_page(tmp_path: Path) -> None:
    page = Watched(tmp_path / "later", None).page().decode()
    assert "Waits for later to begin" in page


def test_runs_of_several_seeds_stand_side_by_side(tmp_path: Path, begin: Begin) -> None:
    record = SeedsRecord(seeds=(0, 1, 2), settings={}, data_fingerprint="x")
    (tmp_path / "seeds").mkdir()
    folder = create_seeds(tmp_path / "seeds", record, overwrite=False)
    watched = Watched(folder.path, None)
    assert watched.state()["lines"] == ["Waits for the first seed to begin"]
    for seed in (0, 1):
        begin(f"seeds/seed-{seed}")
    assert [line[:6] for line in watched.state()["lines"]] == ["seed-0", "seed-1"]
    page = watched.page().decode()
    assert "Loss of seed-0 by epoch" in page
    assert "Loss of seed-1 by epoch" in page
