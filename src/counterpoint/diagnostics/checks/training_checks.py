"""Has the training done anything?"""

import math
from collections.abc import Mapping

from counterpoint.diagnostics.checks.collapse_checks import is_full_collapse
from counterpoint.diagnostics.evidence import EMBEDDING, Evidence
from counterpoint.diagnostics.finding import Check, Finding
from counterpoint.diagnostics.remedies import (
    HIGHER_RATE,
    LOWER_RATE,
    MORE_EPOCHS,
    OTHER_RATE,
    VERY_HIGH_RATE,
    WEAKER_VIEWS,
    advice,
)

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
        name="untrained",
        level="severe" if evidence.levers else "warning",  # nobody has tried to train an encoder from elsewhere
        title=f"Training has hardly changed the encoder: its weights moved by {moved:.1g} of their length"
        if moved
        else "The encoder is untrained: its weights are random",
        measured=moved,
        better="higher",
        reference=HARDLY_MOVED,
        reference_name="a thousandth of their length",
        text="Whatever else was found is about the encoder that training began with. Usual trainings move weights "
        "by a hundredth of their length and more.",
        confirm="read how far the loss fell: counterpoint report RUN, section Training",
        **advice(evidence, HIGHER_RATE, MORE_EPOCHS, otherwise="give its weights, or train it"),
        expect="the weights move by a hundredth of their length and more",
        cannot_tell="whether a longer training at this rate would learn",
    )


def check_thrown(evidence: Evidence) -> Finding | None:
    """Were the weights thrown far away, or is the rate beyond what they can follow?"""
    moved, rate = evidence.weight_change, evidence.values.get("optim.learning_rate")
    most = FAR_ABOVE * VERY_HIGH_RATE.get(evidence.values.get("optim.name", ""), math.inf)
    is_thrown, is_beyond = moved is not None and moved >= THROWN, isinstance(rate, float) and rate > most
    if not is_thrown and not is_beyond:
        return None
    loss = check_loss(evidence)
    has_failed = is_full_collapse(evidence.places[EMBEDDING]) or (loss is not None and loss.level == "severe")
    return Finding(
        name="rate-too-high",
        level="severe" if is_thrown or has_failed else "warning",
        title=f"Training has thrown the weights away: they moved by {moved:.3g} times their length"
        if is_thrown
        else f"The learning rate {rate:g} is far above what {evidence.values['optim.name']} is used with",
        measured=moved if is_thrown else rate,
        better="lower",
        reference=THROWN if is_thrown else most,
        reference_name="ten times their length" if is_thrown else "ten times a very high rate",
        text="Usual trainings end within a few times the length that the weights began with. Weights that are far "
        "longer come of steps that were too large; later steps are then too small beside them to learn anything.",
        confirm="read how the loss went in the first epochs: counterpoint report RUN, section Training",
        **advice(evidence, LOWER_RATE, otherwise="train with a lower learning rate"),
        expect="the weights stay within ten times their length",
        cannot_tell="whether a lower rate alone is enough, or a warm-up is needed, too",
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
        name="loss-at-chance",
        level="severe" if is_at_chance else "good",
        title=f"The loss fell {share:.0%} of the way from chance ({evidence.chance:.2f}) to its floor "
        f"({evidence.floor:.2f})"
        if not is_at_chance
        else f"The loss, {evidence.loss:.2f}, is at chance ({evidence.chance:.2f})",
        measured=evidence.loss,
        better="lower",
        reference=evidence.chance,
        reference_name="chance",
        text="At chance the encoder cannot tell the other view of a sample from other samples. The floor is what "
        "no embedding of a batch can go below; "
        "views that hide much make it unreachable, so part of the way is normal.",
        confirm="train for a few epochs on views that hide nothing; the loss must fall: counterpoint train --config "
        "config.yaml --views.preset none --epochs 5",
        **advice(evidence, HIGHER_RATE if is_untrained else OTHER_RATE, WEAKER_VIEWS, MORE_EPOCHS),
        expect="the loss falls below chance",
        cannot_tell="whether what is learned is of use: a loss that falls says nothing about accuracy",
    )


CATALOGUE: Mapping[str, Check] = {"untrained": check_moved, "rate-too-high": check_thrown, "loss-at-chance": check_loss}
