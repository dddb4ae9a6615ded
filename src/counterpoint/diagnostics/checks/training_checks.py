"""Has the training done anything, and does its learning rate suit it?"""

import math

from counterpoint.diagnostics import remedies
from counterpoint.diagnostics.checks.collapse_checks import is_full_collapse
from counterpoint.diagnostics.evidence import EMBEDDING, Evidence
from counterpoint.diagnostics.finding import Finding

CHANCE_SHARE = 0.05
THROWN = 10.0  # the same, of a training that has thrown away what its weights were
FAR_ABOVE = 10.0  # times a rate that is very high already
HARDLY_MOVED = 1e-3  # length of the change of the weights, over their length


def check_moved(evidence: Evidence) -> Finding | None:
    """Has training changed the encoder?"""
    moved = evidence.weight_change
    if moved is None or moved > HARDLY_MOVED:
        return None
    return Finding(
        level="severe" if evidence.levers else "warning",  # the training of a foreign encoder is not our subject
        title=f"Training has hardly changed the encoder: its weights changed by {moved:.1g} of their norm"
        if moved
        else "The encoder is untrained: its weights are random",
        measured=moved,
        better="higher",
        reference=HARDLY_MOVED,
        reference_name="a thousandth of their norm",
        text="All other findings describe the encoder that training started from. Usual trainings change weights by a "
        "hundredth of their norm and more.",
        confirm="see how far the loss fell: counterpoint report RUN, section Training",
        cannot_tell="whether a longer training at this rate would learn",
    )


def check_thrown(evidence: Evidence) -> Finding | None:
    """Is the learning rate too high, or did the weights grow far beyond their start?"""
    moved, rate = evidence.weight_change, evidence.values.get("optim.learning_rate")
    most = FAR_ABOVE * remedies.VERY_HIGH_RATE.get(evidence.values.get("optim.name", ""), math.inf)
    is_thrown, is_beyond = moved is not None and moved >= THROWN, isinstance(rate, float) and rate >= most
    if not is_thrown and not is_beyond:
        return None
    loss = check_loss(evidence)
    has_failed = is_full_collapse(evidence.places[EMBEDDING]) or (loss is not None and loss.level == "severe")
    return Finding(
        level="severe" if is_thrown or has_failed else "warning",
        title=f"The weights grew far beyond their start: they changed by {moved:.3g} times their norm"
        if is_thrown
        else f"The learning rate {rate:g} is far above the usual ones of {evidence.values['optim.name']}",
        measured=moved if is_thrown else rate,
        reference=THROWN if is_thrown else most,
        reference_name="ten times their norm" if is_thrown else "ten times a very high rate",
        text="Usual trainings end within a few times the initial norm of the weights. Steps that are too large "
        "increase the norm further, and later steps are then too small in comparison to learn anything.",
        confirm="look at the loss of the first epochs: counterpoint report RUN, section Training",
        cannot_tell="whether a lower rate is enough, or a warm-up is needed as well",
    )


def check_loss(evidence: Evidence) -> Finding | None:
    """Has the loss left its chance level?"""
    if evidence.loss is None or evidence.chance is None or evidence.floor is None:
        return None
    if evidence.chance <= evidence.floor:  # full collapse is the lowest loss: BYOL, SimSiam
        return None
    share = (evidence.chance - evidence.loss) / (evidence.chance - evidence.floor)  # 0 at chance, 1 at the floor
    is_at_chance = share < CHANCE_SHARE
    is_untrained = check_moved(evidence) is not None
    return Finding(
        level="severe" if is_at_chance else "good",
        title=f"The loss fell {share:.0%} of the way from chance ({evidence.chance:.2f}) to its floor "
        f"({evidence.floor:.2f})"
        if not is_at_chance
        else f"The loss, {evidence.loss:.2f}, is at chance ({evidence.chance:.2f})",
        measured=evidence.loss,
        reference=evidence.chance,
        reference_name="chance",
        text="At chance the encoder cannot tell the other view of a sample from other samples. The floor is "
        "the lowest loss of any embedding of a batch; views that hide much make it unreachable, so part of the way is "
        "normal.",
        confirm="train for a few epochs on views that hide nothing; the loss must fall: counterpoint train --config "
        "config.yaml --views.preset none --epochs 5",
        **remedies.advice(
            evidence,
            remedies.HIGHER_RATE if is_untrained else remedies.OTHER_RATE,
            remedies.WEAKER_VIEWS,
            remedies.MORE_EPOCHS,
        ),
        cannot_tell="whether the features are useful: a falling loss says nothing about accuracy",
    )
