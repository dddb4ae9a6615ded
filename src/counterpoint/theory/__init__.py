"""Answers that a practitioner asks of theory: the optimal geometry, and thresholds.

Parts that only one paper needs are in ``reproductions``; here are::

    geometry   what a loss asks of classes, the best class means, and the certificate
    collapse   when minority classes merge, and what brings them apart
"""

from counterpoint.theory.collapse.minority_collapse import CollapseThreshold, collapse_threshold
from counterpoint.theory.collapse.phase import PhaseDiagram, phase_diagram
from counterpoint.theory.collapse.rebalancing import RebalancingPlan, rebalance
from counterpoint.theory.geometry.class_risk import ClassRisk, class_risk
from counterpoint.theory.geometry.correlation_solver import minimise_over_correlations
from counterpoint.theory.geometry.optimal_geometry import Geometry, optimal_geometry

__all__ = [
    "ClassRisk",
    "CollapseThreshold",
    "Geometry",
    "PhaseDiagram",
    "RebalancingPlan",
    "class_risk",
    "collapse_threshold",
    "minimise_over_correlations",
    "optimal_geometry",
    "phase_diagram",
    "rebalance",
]
