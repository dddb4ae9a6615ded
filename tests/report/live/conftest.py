"""A run in progress, made up: its folder, and nobody who trains unless a test holds its lock."""

from collections.abc import Callable
from pathlib import Path

import pytest
from epochs_written import add_epoch

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
