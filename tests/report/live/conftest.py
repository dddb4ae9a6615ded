"""A run in progress, made up: its folder, and nobody who trains unless a test holds its lock."""

from collections.abc import Callable
from pathlib import Path

import pytest

from counterpoint.core.files import sealed_text, write_text
from counterpoint.core.run_contents import create_run
from counterpoint.core.rundir import RunFolder


@pytest.fixture
def begin(tmp_path: Path) -> Callable[..., RunFolder]:
    """Make a run that says "running" after so many epochs."""

    def make(name: str = "ncl", *, epochs: int = 3, planned: int = 10, seconds: float = 4.0) -> RunFolder:
        folder = create_run(tmp_path / name, overwrite=False)
        folder.update_status(status="running", method="ncl", data="digits", num_train=100)
        for epoch in range(1, epochs + 1):
            add_epoch(folder, epoch, seconds=seconds)
        write_text(folder.resolved, sealed_text(f"data: digits\nepochs: {planned}\n"))
        return folder

    return make


def add_epoch(folder: RunFolder, epoch: int, *, seconds: float = 4.0, **measured: float) -> None:
    """What training writes at the end of an epoch."""
    levels = {"chance": 6.0, "floor": 1.0, "learning_rate": 0.1}
    folder.append_metrics({"epoch": epoch, "step": 5 * epoch, "loss": 6.0 - 0.25 * epoch, **levels, **measured})
    folder.append_timings({"epoch": epoch, "step": 5 * epoch, "images_per_second": 100.0, "seconds": seconds})
