"""Build a loss of the catalogue from a name and settings."""

import inspect
from collections.abc import Mapping
from typing import Any

from counterpoint.core.errors import nearest, unknown_name
from counterpoint.losses import CATALOGUE
from counterpoint.losses.alpha_rules import RULES
from counterpoint.losses.loss import Loss

SHARED = frozenset({"temperature", "epsilon", "negatives"})  # settings that are not options
EXAMPLES = {"loss": "infonce"}  # values for arguments without a default, in examples


def parameters_of(name: str) -> Mapping[str, inspect.Parameter]:
    """Parameters that a loss of the catalogue can be given.

    Raises:
        UsageError: an unknown name.
    """
    if name not in CATALOGUE:
        raise unknown_name("loss", name, CATALOGUE)
    return inspect.signature(CATALOGUE[name]).parameters


def applies_relu(name: str, options: Mapping[str, Any]) -> bool:
    """Tell whether a loss puts a ReLU on its inputs, so that non-negative vectors are what is trained.

    Args:
        name: name of the loss in the catalogue; an unknown one is not refused here.
        options: settings of this loss.

    >>> applies_relu("cross-modal", {"nonnegative": True}), applies_relu("cross-modal", {})
    (True, False)
    """
    return name == "nonnegative-cross-entropy" or options.get("nonnegative") is True


def build_loss(name: str, common: Mapping[str, Any], options: Mapping[str, Any]) -> Loss:
    """Build a loss of the catalogue.

    Args:
        name: name of the loss in the catalogue.
        common: settings that many losses share (temperature, epsilon, negatives); those it does not take are left out.
        options: settings of this loss; ``rule`` of alpha-cl and ``loss`` of a wrapper go by name. Where a rule goes by
            name, its own settings are given beside it.

    Raises:
        UsageError: an unknown name.
        ValueError: an option the loss does not take, one that is missing, or a value out of range.
        TypeError: a value of the wrong kind.

    >>> build_loss("alpha-cl", {}, {"rule": "direct", "temperature": 0.1}).rule.temperature
    0.1
    >>> build_loss("triplet", {"temperature": 0.1}, {"margin": 0.5}).card.psi
    '[x + 0.5]_+'
    """
    allowed = parameters_of(name)
    # Options of the rule, by name, that the loss itself does not have.
    rule = RULES.get(str(options.get("rule"))) if "rule" in allowed else None
    rule_parameters = {} if rule is None else inspect.signature(rule).parameters
    rule_options = {key: value for key, value in options.items() if key in rule_parameters and key not in allowed}
    options = {key: value for key, value in options.items() if key not in rule_options}
    for option in options:
        if option not in allowed:
            raise ValueError(f"loss {name} takes no {option}{nearest(option, allowed)}; it takes {', '.join(allowed)}")
    values = {key: value for key, value in common.items() if key in allowed} | dict(options)
    missing = [key for key, parameter in allowed.items() if parameter.default is parameter.empty and key not in values]
    if missing:
        example = f", such as {{{missing[0]}: {EXAMPLES[missing[0]]}}}" if missing[0] in EXAMPLES else ""
        raise ValueError(
            f"loss {name} needs {missing[0]}; give it as an option{example} (loss.options of a run, --loss-options of "
            "`counterpoint geometry`)"
        )
    if isinstance(values.get("loss"), str):  # of a wrapper, which hands the common settings on
        values["loss"] = build_loss(values["loss"], common, {})
    if isinstance(values.get("rule"), str):
        rule = values["rule"]
        if rule not in RULES:
            raise unknown_name("alpha rule", rule, RULES)
        values["rule"] = RULES[rule](**rule_options)
    return CATALOGUE[name](**values)


def shared_settings(name: str, options: Mapping[str, Any]) -> frozenset[str]:
    """Names of the shared settings that a loss takes, itself or for the loss it wraps.

    Raises:
        UsageError: an unknown name.

    >>> sorted(shared_settings("hard-negatives", {"loss": "infonce"}))
    ['epsilon', 'negatives', 'temperature']
    """
    inner = options.get("loss")
    own = SHARED.intersection(parameters_of(name)) - options.keys()
    return own | shared_settings(inner, {}) if isinstance(inner, str) else own
