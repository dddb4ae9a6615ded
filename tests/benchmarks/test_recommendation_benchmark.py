"""The two commands about audit and recommendation run on small data and print what they say."""

import re
import subprocess
import sys
from pathlib import Path

import audit_checks
import numpy as np
import pytest
import recommendation

from audit.planted_faults import save_clean


@pytest.mark.thorough
def test_promised_and_taken_times_are_printed(tmp_path: Path, rng: np.random.Generator) -> None:
    save_clean(tmp_path / "photos", rng, 10)
    command = [sys.executable, str(recommendation.__file__), str(tmp_path / "photos"), "--minutes", "0.001"]
    finished = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert finished.returncode == 0, finished.stderr
    assert re.search(r"\| .+/photos \| \S+ \| \d+ \| \d+ s \[\d+, \d+\] \| \d+ s \| (yes|no) \|", finished.stdout)


@pytest.mark.thorough
def test_planted_copies_are_counted(tmp_path: Path, rng: np.random.Generator) -> None:
    for name in ("photos", "others"):
        save_clean(tmp_path / name, rng, 8)
    command = [sys.executable, str(audit_checks.__file__), str(tmp_path / "photos"), "--pictures", "12", "--others"]
    finished = subprocess.run(
        [*command, str(tmp_path / "others")], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert finished.returncode == 0, finished.stderr
    assert "| JPEG, quality 70 | 100.0%" in finished.stdout
    assert "0 of 12" in finished.stdout
