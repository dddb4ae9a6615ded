"""The benchmark of geometries runs, names who is missing or too slow, and times nothing where risks differ."""

import math
import re
import subprocess
import sys
from pathlib import Path

import geometry
import geometry_peers
import numpy as np
import pytest
import torch
from geometry_peers import OURS, SOLVERS, Task

from oracles import cvx_geometry
from oracles.cvx_geometry import LogSum, Problem

pytestmark = pytest.mark.thorough

COMMAND = Path(geometry.__file__)


def rows_of(text: str) -> dict[str, list[str]]:
    lines = text[text.index(geometry.HEADER) :].split("\n\n", maxsplit=1)[0].splitlines()[2:]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return {row[0]: row[1:] for row in cells}


def test_the_command_prints_a_whole_table() -> None:
    pytest.importorskip("cvxpy", reason="cvxpy is not installed")
    flags = ["--sizes", "3", "--negatives", "inf", "--settings", "SCL", "--threads", "1"]
    finished = subprocess.run([sys.executable, str(COMMAND), *flags], capture_output=True, text=True, check=False)
    assert finished.returncode == 0, finished.stdout + finished.stderr
    assert re.search(r"^Measured 20\d\d-\d\d-\d\d .+ with `python benchmarks/geometry.py --sizes 3", finished.stdout)
    assert re.search(r"Peers: cvxpy [\d.]+, clarabel [\d.]+, scs [\d.]+", finished.stdout)
    assert "### SCL, k = infinity, C = 3" in finished.stdout
    rows = rows_of(finished.stdout)
    assert list(rows) == list(SOLVERS)
    for name, (seconds, ratio, risk, own, gap, _target, _remark) in rows.items():
        assert re.fullmatch(r"[\d.e+-]+ \[[\d.e+-]+, [\d.e+-]+\]", seconds), (name, seconds)
        assert (ratio == "-") == (name == OURS)
        assert float(risk) == pytest.approx(float(rows[OURS][2]), rel=1e-6)
        assert (own == "-") == name.startswith("scipy")
        assert -1e-12 <= float(gap) <= 1e-6


def test_where_risks_differ_nothing_is_timed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(geometry, "risks_at", lambda task, gram: {OURS: 1.0, "cvxpy": 1.0 + 1e-6})
    monkeypatch.setattr(geometry, "solve_apart", lambda *_: pytest.fail("timed"))
    monkeypatch.setattr(torch, "set_num_threads", lambda number: None)
    assert geometry.main(["--sizes", "3", "--threads", "1"]) == 1
    assert "risks differ by more than 1e-09: not timed" in capsys.readouterr().err


def test_a_late_solver_is_ended() -> None:
    """A limit that no solver holds: its process is gone and the row says so."""
    row = geometry.solve_apart(Task(60, 512), "scipy, L-BFGS", 0.001)
    assert row.remark == "ended after 0.001 s"
    assert row.seconds is None


@pytest.mark.parametrize("supervised", [False, True], ids=["UCL", "SCL"])
@pytest.mark.parametrize(("num_classes", "k"), [(3, 60), (4, 5), (2, 1), (5, math.inf)])
def test_the_quadrature_is_the_sum_over_draws(num_classes: int, k: float, supervised: bool) -> None:
    task = Task(num_classes, k, supervised)
    gram = geometry_peers.random_gram(task, 7)
    problem = Problem(tuple(task.proportions), LogSum(), k, supervised)
    value, slope = geometry_peers.risk_and_gradient(task, gram)
    assert value == pytest.approx(cvx_geometry.risk(problem, gram), rel=1e-10)
    assert np.abs((slope + slope.T) / 2 - cvx_geometry.gradient(problem, gram)).max() <= 1e-12
    assert geometry_peers.dual_bound(task, gram) == pytest.approx(cvx_geometry.dual_bound(problem, gram), rel=1e-9)
