"""The two commands about audit and recommendation run on small data and print what they say."""

import re
import subprocess
import sys
from pathlib import Path

import audit_checks
import numpy as np
import pytest
import recommendation
from audit_checks import encoded

from audit.planted_faults import save_clean, scene


@pytest.mark.thorough
def test_promised_and_taken_times_are_printed(tmp_path: Path, rng: np.random.Generator) -> None:
    save_clean(tmp_path / "photos", rng, 10)
    command = [sys.executable, str(recommendation.__file__), str(tmp_path / "photos"), "--minutes", "0.5"]
    finished = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert finished.returncode == 0, finished.stderr
    assert re.search(
        r"\| .+/photos \| \S+ \| \d+ \| (\d+ s \[\d+, \d+\]|not timed) \| \d+ s \| \S+ \|", finished.stdout
    )


@pytest.mark.thorough
def test_planted_damage_is_counted(tmp_path: Path, rng: np.random.Generator) -> None:
    files = [encoded(scene(rng, 64)) for _ in range(80)]
    offsets = np.cumsum([0, *map(len, files)])
    pack = {"jpeg": np.frombuffer(b"".join(files), np.uint8), "offsets": offsets, "labels": np.arange(80) % 2}
    np.savez(tmp_path / "pack.npz", class_names=["a", "b"], **pack)
    command = [sys.executable, str(audit_checks.__file__), "pack.npz", "--pictures", "80", "--each", "1"]
    finished = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert finished.returncode == 0, finished.stderr
    assert "| copy: mirrored | `near-copies` | 1 of 1" in finished.stdout
    assert "0 of them differ in their pixels" in finished.stdout
