"""The benchmark of curvature times nothing where products differ."""

import curvature
import torch


def test_a_way_that_differs_is_named() -> None:
    coupled, module = curvature.problem("mlp", 6)
    v_P = torch.ones(coupled.num_parameters)
    ways = curvature.products(coupled, module)
    assert curvature.differences(ways, v_P) == []
    ways["wrong"] = lambda v: 1.1 * ways[curvature.KEPT](v)
    assert curvature.differences(ways, v_P)[0].startswith("wrong is off by 1.0e-01")
