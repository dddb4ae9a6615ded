"""The benchmark of curvature runs whole, and times nothing where products differ."""

import subprocess
import sys
from pathlib import Path

import curvature
import pytest
import torch

COMMAND = Path(curvature.__file__)


@pytest.mark.thorough
def test_the_quick_run_prints_its_tables() -> None:
    finished = subprocess.run([sys.executable, str(COMMAND), "--quick"], capture_output=True, text=True, check=False)
    assert finished.returncode == 0, finished.stdout + finished.stderr
    titles = [line for line in finished.stdout.splitlines() if line.startswith("### ")]
    assert [title.split(":")[0].split(",")[0] for title in titles] == [
        "### mlp",
        "### convnet",
        "### a known spectrum of 80 eigenvalues",
        "### convnet",
        "### 4 Lanczos steps",
    ]
    rows = [line.strip("| ").split(" | ") for line in finished.stdout.splitlines() if line.startswith("| product")]
    assert {row[0] for row in rows} >= {curvature.SCRATCH, curvature.KEPT, "product, chunks of 4"}
    assert all(float(row[1].split()[0]) > 0 for row in rows)


def test_a_way_that_differs_is_named() -> None:
    coupled, module = curvature.problem("mlp", 6)
    v_P = torch.ones(coupled.num_parameters)
    ways = curvature.products(coupled, module, (2,))
    assert curvature.differences(ways, v_P) == []
    ways["wrong"] = lambda v: 1.1 * ways[curvature.KEPT](v)
    assert curvature.differences(ways, v_P)[0].startswith("wrong is off by 1.0e-01")
