"""From a name and settings to a loss."""

import inspect
from collections.abc import Mapping
from typing import Any

from counterpoint.core.errors import nearest, unknown_name
from counterpoint.losses import CATALOGUE
from counterpoint.losses.alpha_rules import CATALOGUE as RULES
from counterpoint.losses.loss import Loss


def parameters_of(name: str) -> Mapping[str, inspect.Parameter]:
    """What a loss of the catalogue can be given.

    Raises:
        UsageError: an unknown name.
    """
    if name not in CATALOGUE:
        raise unknown_name("loss", name, CATALOGUE)
    return inspect.signature(CATALOGUE[name]).parameters


def applies_relu(name: str, options: Mapping[str, Any]) -> bool:
    """Whether a loss puts a ReLU on its inputs, so that non-negative vectors are what is trained.

    Args:
        name: as in the catalogue; of an unknown one nothing is said here.
        options: settings of this loss.

    >>> applies_relu("cross-modal", {"nonnegative": True}), applies_relu("cross-modal", {})
    (True, False)
    """
    return name == "nonnegative-cross-entropy" or options.get("nonnegative") is True


def build_loss(name: str, common: Mapping[str, Any], options: Mapping[str, Any]) -> Loss:
    """Build a loss of the catalogue.

    Args:
        name: as in the catalogue.
        common: settings that many losses share (temperature, epsilon, negatives); those it does not take are left out.
        options: settings of this loss; ``rule`` of alpha-cl and ``loss`` of a wrapper go by name.

    Raises:
        UsageError: an unknown name.
        ValueError: an option the loss does not take, one that is missing, or a value out of range.
        TypeError: a value of the wrong kind.

    >>> build_loss("triplet", {"temperature": 0.1}, {"margin": 0.5}).card.psi
    '[x + 0.5]_+'
    """
    known = parameters_of(name)
    for option in options:
        if option not in known:
            raise ValueError(f"loss {name} takes no {option}{nearest(option, known)}; it takes {', '.join(known)}")
    given = {key: value for key, value in common.items() if key in known} | dict(options)
    missing = [key for key, each in known.items() if each.default is each.empty and key not in given]
    if missing:
        raise ValueError(f"loss {name} needs {missing[0]}; give it as an option")
    if isinstance(given.get("loss"), str):  # of a wrapper, which hands the common settings on
        given["loss"] = build_loss(given["loss"], common, {})
    if isinstance(given.get("rule"), str):
        rule = given["rule"]
        if rule not in RULES:
            raise unknown_name("alpha rule", rule, RULES)
        given["rule"] = RULES[rule]()
    return CATALOGUE[name](**given)
