"""Does the learning rate suit the curvature of the loss?"""

from collections.abc import Mapping
from typing import Any

from counterpoint.diagnostics.evidence import Evidence, Sharpness
from counterpoint.diagnostics.finding import Check, Finding
from counterpoint.diagnostics.remedies import Step, Values, advice

EDGE = 1.5  # times the limit: trainings settle at the limit and somewhat above it (cohen2021, section 3)
BELOW = 0.9  # of the limit, for a remedy


def check_sharpness(evidence: Evidence) -> Finding | None:
    r"""Is the largest curvature times the learning rate below the stability limit?

    .. math:: \lambda_{max}\,\eta \le 2 (1 + \beta)

    for (full-batch) gradient descent with momentum beta: along a direction of more curvature the steps of a quadratic
    grow. For SGD only: Adam, AdamW and LARS scale each weight or layer, and the Hessian alone does not say their limit.

    Source: cohen2021, sections 2 and 3, and appendix B (momentum).
    """
    sharp = evidence.sharpness
    if sharp is None:
        return None
    product, limit = sharp.product, sharp.limit
    level = "good" if product <= limit else "note" if product <= EDGE * limit else "warning"
    side = {"good": "within", "note": "at", "warning": "beyond"}[level]
    lower = Step("learning rate", "a lower learning rate (--optim.learning-rate)", lambda values: _lower(sharp, values))
    return Finding(
        name="sharpness",
        level=level,
        title=f"The learning rate is {side} what the curvature allows: largest eigenvalue times learning rate "
        f"{product:.2g}, limit {limit:.2g} (step {sharp.step:,})",
        measured=product,
        low=product,  # a Ritz value bounds the eigenvalue from below; nothing here bounds it from above
        reference=limit,
        reference_name="2 (1 + momentum)",
        text="Along the direction of largest curvature a step overshoots, and beyond the limit each one lands further "
        "away than the one before. Trainings at a constant rate settle at the limit by themselves, so that a product "
        "near it is usual, and one far beyond means steps that undo each other.",
        confirm="follow it along training, on the same batch: counterpoint spectrum RUN --checkpoint all",
        **advice(evidence, lower, otherwise="a lower learning rate"),
        expect=f"the product falls below {limit:.2g}, and the loss falls with fewer jumps",
        cannot_tell="whether accuracy gains: the limit is that of full batches and a quadratic, the eigenvalue that of "
        "one batch with its views, and clipping or a warm-up can hold a run beyond it",
    )


def _lower(sharp: Sharpness, values: Values) -> Mapping[str, Any]:
    """The peak rate at which this state would have been below the limit."""
    if values.get("optim.name") != "sgd":
        return {}
    return {"optim.learning_rate": float(f"{BELOW * sharp.peak * sharp.limit / sharp.product:.2g}")}


CATALOGUE: Mapping[str, Check] = {"sharpness": check_sharpness}
