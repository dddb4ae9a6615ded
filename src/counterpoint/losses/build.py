"""From what the user names or gives to a loss: a member of the catalogue with its settings, or the user's own."""

import hashlib
import inspect
import math
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

from torch import Tensor, nn

from counterpoint.core.errors import UsageError, first_line, nearest, unknown_name
from counterpoint.losses import CATALOGUE
from counterpoint.losses.alpha_rules import CATALOGUE as RULES
from counterpoint.losses.inputs import check_views
from counterpoint.losses.loss import Loss, LossCard, Part

SHARED = frozenset({"temperature", "epsilon", "negatives"})  # settings that are no options
EXAMPLES = {"loss": "infonce"}  # of arguments without a default that a name can stand for


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
        options: settings of this loss; ``rule`` of alpha-cl and ``loss`` of a wrapper go by name. Where a rule goes by
            name, its own settings stand beside it.

    Raises:
        UsageError: an unknown name.
        ValueError: an option the loss does not take, one that is missing, or a value out of range.
        TypeError: a value of the wrong kind.

    >>> build_loss("alpha-cl", {}, {"rule": "direct", "temperature": 0.1}).rule.temperature
    0.1
    >>> build_loss("triplet", {"temperature": 0.1}, {"margin": 0.5}).card.psi
    '[x + 0.5]_+'
    """
    known = parameters_of(name)
    own_rule = _rule_options(options, known)
    options = {key: value for key, value in options.items() if key not in own_rule}
    for option in options:
        if option not in known:
            raise ValueError(f"loss {name} takes no {option}{nearest(option, known)}; it takes {', '.join(known)}")
    given = {key: value for key, value in common.items() if key in known} | dict(options)
    missing = [key for key, each in known.items() if each.default is each.empty and key not in given]
    if missing:
        example = f", such as {{{missing[0]}: {EXAMPLES[missing[0]]}}}" if missing[0] in EXAMPLES else ""
        raise ValueError(
            f"loss {name} needs {missing[0]}; give it as an option{example} (loss.options of a run, --loss-options of "
            "`counterpoint geometry`)"
        )
    if isinstance(given.get("loss"), str):  # of a wrapper, which hands the common settings on
        given["loss"] = build_loss(given["loss"], common, {})
    if isinstance(given.get("rule"), str):
        rule = given["rule"]
        if rule not in RULES:
            raise unknown_name("alpha rule", rule, RULES)
        given["rule"] = RULES[rule](**own_rule)
    return CATALOGUE[name](**given)


def shared_settings(name: str, options: Mapping[str, Any]) -> frozenset[str]:
    """Those of the settings that many losses share that a loss takes, itself or for the loss it wraps.

    Raises:
        UsageError: an unknown name.

    >>> sorted(shared_settings("hard-negatives", {"loss": "infonce"}))
    ['epsilon', 'negatives', 'temperature']
    """
    inner = options.get("loss")
    own = SHARED.intersection(parameters_of(name)) - options.keys()
    return own | shared_settings(inner, {}) if isinstance(inner, str) else own


def _rule_options(options: Mapping[str, Any], known: Mapping[str, Any]) -> dict[str, Any]:
    """Of the options, those that the rule takes which stands among them by name, and the loss does not."""
    rule = RULES.get(str(options.get("rule")))
    taken = {} if rule is None or "rule" not in known else inspect.signature(rule).parameters
    return {key: value for key, value in options.items() if key in taken and key not in known}


CUSTOM = "custom"  # name of such a loss in settings; a run folder never says where its code lies
TAKEN = (
    "a loss of counterpoint.losses (PairLoss(phi, psi), AlphaCL(OwnRule(f)), a subclass of Loss), or any torch module "
    "called as loss(z0, z1)"
)


class OwnLoss(Loss):
    """Any module that is called as ``loss(z0, z1)`` and gives a scalar.

    With several ranks each computes the whole batch. It has no chance level, no floor and no importance.

    Args:
        module: takes two views (n, d).

    >>> import torch
    >>> mse = OwnLoss(nn.MSELoss())
    >>> mse(torch.ones(2, 3), torch.zeros(2, 3))
    tensor(1.)
    """

    why_no_class_level = "it is not a loss of the catalogue"

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module
        name = type(module).__name__
        unknown = "as the module has it"
        self.card = LossCard(name, "-", "-", "-", unknown, unknown, "your own module", "autograd", "no pairs")

    def forward(self, z0: Tensor, z1: Tensor, labels: Tensor | None = None, *, part: Part | None = None) -> Tensor:
        """What the module gives; see ``Loss.forward``. Labels are only checked, ``part`` is ignored.

        Raises:
            TypeError: it gives no scalar tensor.
        """
        check_views(z0, z1, labels)
        value = self.module(z0, z1)
        if not isinstance(value, Tensor) or value.numel() != 1:
            given = f"shape {tuple(value.shape)}" if isinstance(value, Tensor) else type(value).__name__
            raise TypeError(f"{self.card.name} must give a scalar tensor, got {given}")
        return value.reshape(())

    def chance(self, n: int) -> float:
        """Not known."""
        return math.nan

    def floor(self, n: int, *, nonnegative: bool = False) -> float:
        """Not known."""
        return -math.inf


@dataclass(frozen=True)
class LoadedLoss:
    """A loss from a function that the user named.

    Attributes:
        loss: what the function made.
        origin: ``package.module:name``.
        sha256: of the file that holds the function; empty where there is none.
    """

    loss: Loss
    origin: str
    sha256: str


def as_loss(value: Any) -> Loss:
    """A loss as training takes it.

    Raises:
        UsageError: it is none.
    """
    if isinstance(value, Loss):
        return value
    if isinstance(value, nn.Module):
        return OwnLoss(value)
    raise UsageError(f"loss must be {TAKEN}, got {type(value).__name__}")


def load_loss(origin: str, options: Mapping[str, Any]) -> LoadedLoss:
    """Import what the user named on this command line, call it, and take what it returns for the loss.

    Args:
        origin: ``package.module:name`` of a class or function; modules of the current folder are found, too.
        options: its keyword arguments.

    Raises:
        UsageError: there is no such thing, it cannot be called with these options, or it gives no loss.
    """
    sys.path.insert(0, str(Path.cwd()))
    try:
        make: Callable[..., Any] = resolve_name(origin)
    except (ImportError, AttributeError, ValueError) as error:
        raise UsageError(f"loss.name {origin}: {first_line(error)}; give it as package.module:name") from None
    finally:
        sys.path.pop(0)
    try:
        loss = as_loss(make(**options))
    except (TypeError, ValueError) as error:
        raise UsageError(f"loss.name {origin}: {first_line(error)}") from None
    file = inspect.getsourcefile(make) if inspect.isroutine(make) or inspect.isclass(make) else None
    return LoadedLoss(loss, origin, hashlib.sha256(Path(file).read_bytes()).hexdigest() if file else "")
