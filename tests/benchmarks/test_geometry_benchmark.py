"""The benchmark of geometries names who is too slow, and times nothing where risks differ."""

import math

import geometry
import geometry_peers
import numpy as np
import pytest
import torch
from geometry_peers import OURS, Task

from oracles import cvx_geometry
from oracles.cvx_geometry import LogSum, Problem

pytestmark = pytest.mark.thorough


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
