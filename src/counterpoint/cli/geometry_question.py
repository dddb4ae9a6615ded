"""What `counterpoint geometry` was asked: its flags read, and put into words again for whoever reads the answer."""

import argparse
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import torch
from torch import Tensor

from counterpoint.core.errors import UsageError
from counterpoint.core.validation import parse_yaml
from counterpoint.losses.build import build_loss, parameters_of
from counterpoint.losses.class_level import ClassLevel, LogOfSum
from counterpoint.losses.loss import Loss
from counterpoint.theory.geometry.class_risk import PAPER

# C classes

PAPER_LOSS = "generalized-contrastive"  # the paper's InfoNCE, at any temperature
PAPER_NAME = "InfoNCE (imbalanced2026, Eq. 23)"
SUM_TOLERANCE = 1e-6
MOST_NEGATIVES = 10**12  # the integral over the negatives is exact up to here, and the limit no longer differs
# Arguments without effect on the risk of a class, or told by the line on negatives; shown where they were given.
QUIET = {"negatives", "normalize", "anchors", "reduction", "seed", "learnable", "learnable_temperature", "max_scale"}
QUIET |= {"num_negatives", "supervised"}
RENAMED = {"negatives": "pairing", "loss": "inner loss", "num_negatives": "own negatives", "supervised": "supervised"}


@dataclass(frozen=True)
class Question:
    """The question of the command line, read.

    Attributes:
        shares_C: proportions of the classes.
        loss: as it trains; None is the paper's.
        name: of the loss.
        arguments: of the loss that matter here, defaults among them.
        num_negatives: as given; None is the loss's own number.
        supervised: as given.
        limits: what else was asked of the embedding, in words.
    """

    shares_C: Tensor
    loss: Loss | None
    name: str
    arguments: Mapping[str, Any]
    num_negatives: float | None
    supervised: bool
    limits: Mapping[str, str]

    @property
    def record(self) -> ClassLevel:
        """What the loss does to classes."""
        return PAPER if self.loss is None else self.loss.class_level()

    @property
    def effective_negatives(self) -> float:
        """As given, else the loss's own number, else infinity."""
        known = (self.num_negatives, self.record.num_negatives, math.inf)
        return next(number for number in known if number is not None)

    @property
    def is_of_other_classes(self) -> bool:
        """Negatives are of other classes than the anchor."""
        return self.supervised or self.record.supervised

    @property
    def temperature(self) -> float | None:
        """Of the loss; None where it has none."""
        if "temperature" in self.arguments:
            return float(self.arguments["temperature"])
        return 1 / self.record.scale if isinstance(self.record, LogOfSum) else None

    @property
    def words(self) -> Mapping[str, str]:
        """The question in words."""
        number = self.effective_negatives
        how_many = "infinitely many" if math.isinf(number) else f"{number:.0f}"
        whose = "other classes" if self.is_of_other_classes else "any class"
        words = {"loss": self.name, "negatives": f"{how_many}, of {whose}"}
        if self.temperature is not None:
            words["temperature"] = f"{self.temperature:g}"
        told = {RENAMED.get(name, name): _written(value) for name, value in self.arguments.items()}
        return words | {name: text for name, text in told.items() if name not in words} | dict(self.limits)

    @property
    def risk_label(self) -> str:
        """What the number called risk is: itself, or what is left of it in the limit of infinitely many negatives."""
        if not self._grows:
            return "risk"
        if not isinstance(self.record, LogOfSum):
            return "risk, divided by the number k of negatives"
        factor = self.record.factor
        return f"risk, less its growth with {'' if factor == 1 else f'{factor:g} '}log k"

    @property
    def notes(self) -> Sequence[str]:
        """What a reader must know to use the answer."""
        notes = []
        if not self.is_of_other_classes:
            notes.append(
                "Holds for positives drawn from the anchor's class; where a sample's only positive is its own second "
                "view, spread-out classes may do better (docs/theory.md)."
            )
        if self._grows:
            notes.append(
                "A sum over infinitely many negatives has no finite risk: the one shown is "
                f"a limit ({self.risk_label.removeprefix('risk, ')}), and only differences of it mean something."
            )
        if self._is_two_view and math.isfinite(self.effective_negatives):
            twice = "margin log 2" if isinstance(self.record, LogOfSum) else "every term twice"
            notes.append(
                "k independent negatives; a two-view batch of n samples draws n - 1 pairs of one class each: "
                f"k = n - 1 with {twice} (docs/theory.md, Two views)."
            )
        return notes

    @property
    def _grows(self) -> bool:
        """A sum over infinitely many negatives."""
        return math.isinf(self.effective_negatives) and not self.record.is_mean

    @property
    def _is_two_view(self) -> bool:
        """The loss takes both views of other samples as negatives."""
        pairing = getattr(self.loss, "pairing", None)
        return pairing is not None and pairing.negatives == "two-view"


def read_question(flags: argparse.Namespace) -> Question:
    """Read the flags.

    Raises:
        UsageError: shares that are no proportions, an unknown loss, an option it does not take, a value out of range.
    """
    options = loss_options(flags)
    shares_C = torch.tensor(_shares(flags), dtype=torch.float64)
    loss = None if flags.loss is None and not options else built_loss(flags, options)
    if flags.loss is None or loss is None:
        name, arguments = PAPER_NAME, {"temperature": 1.0, **options}
    else:
        name, arguments = loss.class_level().name, _effective(flags.loss, options)
    limits = {}
    if flags.dimension is not None:
        limits["dimension"] = str(flags.dimension)
    if flags.nonnegative:
        limits["features"] = "non-negative"
    return Question(shares_C, loss, name, arguments, _negatives(flags.negatives), flags.supervised, limits)


def loss_options(flags: argparse.Namespace) -> dict[str, Any]:
    """Arguments of the loss; --temperature is one of them.

    Raises:
        UsageError: no mapping of names to values, or two temperatures.
    """
    options = {} if flags.loss_options is None else parse_yaml(flags.loss_options, "command line: --loss-options")
    if not isinstance(options, dict) or not all(isinstance(name, str) for name in options):
        raise UsageError(f'--loss-options must be like "{{margin: 0.5}}", got {flags.loss_options!r}')
    if flags.temperature is None:
        return options
    if "temperature" in options:
        raise UsageError(
            f"temperature is given twice, {flags.temperature:g} by --temperature and {options['temperature']} in "
            "--loss-options; leave out one"
        )
    return {**options, "temperature": flags.temperature}


def built_loss(flags: argparse.Namespace, options: Mapping[str, Any]) -> Loss:
    """Build the loss with these arguments."""
    try:
        return build_loss(flags.loss or PAPER_LOSS, {}, options)
    except (TypeError, ValueError, ArithmeticError) as error:
        raise UsageError(str(error)) from error


def _effective(name: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments that make the risk what it is: those given, and defaults that matter."""
    defaults = {key: each.default for key, each in parameters_of(name).items() if key not in QUIET}
    return {key: value for key, value in (defaults | dict(options)).items() if value is not None}


def _written(value: object) -> str:
    """A value of an argument."""
    return f"{value:g}" if isinstance(value, int | float) and not isinstance(value, bool) else str(value)


def _shares(flags: argparse.Namespace) -> list[float]:
    """Read the shares, and divide them by their sum where that is asked for.

    Raises:
        UsageError: not a number, or a sum that is not 1.
    """
    shares = [_share(text) for text in flags.proportions]
    try:
        # fsum: a thousand shares of 0.001 sum to 1 exactly, whatever their order.
        total = math.fsum(shares)
    except OverflowError:
        raise UsageError("proportions must have a finite sum; give counts or smaller numbers") from None
    if not flags.normalize:
        if all(share > 0 for share in shares) and abs(total - 1) > SUM_TOLERANCE:
            raise UsageError(f"proportions must sum to 1, got {total:.10g}; --normalize divides them by their sum")
        return shares
    if not 0 < total < math.inf:
        raise UsageError(f"proportions must be > 0 and finite, got a sum of {total:g}")
    return [share / total for share in shares]


def _share(text: str) -> float:
    """Read ``0.25``, ``1/4`` or ``250``."""
    try:
        return float(Fraction(text)) if "/" in text else float(text)
    except (ValueError, ArithmeticError):
        raise UsageError(f"proportions must be numbers such as 0.25 or 1/4, got {text!r}") from None


def _negatives(text: str | None) -> float | None:
    """Read a whole number or ``inf``."""
    if text is None:
        return None
    try:
        number = math.inf if text.lower() in ("inf", "infinity") else int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise UsageError(f"--negatives must be a whole number >= 1 or inf, got {text!r}; 512 is common")
    if MOST_NEGATIVES < number < math.inf:
        raise UsageError(f"--negatives must be at most {MOST_NEGATIVES:.0e}, got {text!r}; give inf for the limit")
    return number
