"""Classes whose vectors nearly coincide at the end of a descent are merged, and the smaller problem solved exactly."""

# C classes, M distinct vectors

from dataclasses import replace

import torch
from torch import Tensor

from counterpoint.theory.geometry.class_risk import ClassRisk
from counterpoint.theory.geometry.correlation_dual import certify
from counterpoint.theory.geometry.correlation_solver import Solution, minimise_over_correlations
from counterpoint.theory.geometry.merged_classes import MergedRisk

NEARLY_ONE = 1 - 1e-3  # cosine of classes that are tried as one
STRETCH = 1e-9  # of the certificate, up to which they are one


def merge_what_coincides(risk: ClassRisk, solution: Solution, tolerance: float) -> Solution:
    """The exact solution in which nearly equal class means are equal, if the certificate prefers it."""
    groups_C = coinciding(solution.gram_CC, NEARLY_ONE)
    num_groups = int(groups_C.max()) + 1
    if num_groups in (1, risk.num_classes):
        return solution
    members_CM = torch.nn.functional.one_hot(groups_C, num_groups).double()
    merged = MergedRisk(risk, members_CM)
    small = minimise_over_correlations(merged, tolerance=min(tolerance, 1e-12))
    gram_CC = merged.expand(small.gram_CC)
    at = risk.at(gram_CC)
    certificate = certify(at, gram_CC)
    bound = max(certificate.lower_bound, solution.lower_bound)
    if certificate.stretch > STRETCH:
        return solution  # they are near, and yet apart
    return replace(
        solution,
        gram_CC=gram_CC,
        factor_CR=members_CM @ small.factor_CR,
        value=at.value,
        lower_bound=min(bound, at.value),
        scale=certificate.scale,
        iterations=solution.iterations + small.iterations,
        is_certified=True,
    )


def coinciding(gram_CC: Tensor, cosine: float) -> Tensor:
    """Number of each class's group, (C,), where classes of at least this cosine are of one group.

    >>> coinciding(torch.tensor([[1.0, -1.0, -1.0], [-1.0, 1.0, 1.0], [-1.0, 1.0, 1.0]]), 0.999)
    tensor([0, 1, 1])
    """
    first_C = (gram_CC >= cosine).to(torch.int8).argmax(dim=1)  # the first class that is near
    for _ in range(len(first_C)):
        further_C = first_C[first_C]
        if torch.equal(further_C, first_C):
            break
        first_C = further_C
    return torch.unique(first_C, return_inverse=True)[1]
