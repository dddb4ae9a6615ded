"""The benchmark of geometries names who is too slow, and times nothing where risks differ."""

import math

import geometry_peers
import numpy as np
import pytest
from geometry_peers import Task

from oracles import cvx_geometry
from oracles.cvx_geometry import LogSum, Problem

pytestmark = pytest.mark.thorough


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
