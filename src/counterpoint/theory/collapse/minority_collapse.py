r"""From which share of the majority on do the minority classes merge into one vector?

Along a path of class proportions, the geometry with merged minorities is optimal while the risk does not fall where two
of them part, :math:`y_m - G_{mm'} \ge 0` (``merged_minorities``), and the threshold is the root of that margin. With
one majority class and a loss that grows with each cosine, the merged classes sit opposite the majority and the
condition is

.. math:: G_{1m} \ge (C - 1)\, G_{mm'}, \qquad G = \nabla S(A), \quad a_{1m} = -1, \; a_{mm'} = 1

Without supervision two classes of one vector are one class to the loss: the threshold then depends neither on the
number of minority classes nor on how they divide their share. Where negatives are of other classes, it does.
"""

# C classes

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from torch import Tensor

from counterpoint.core.errors import UsageError
from counterpoint.core.thread_parts import one_thread
from counterpoint.losses.class_level import LogOfSum
from counterpoint.losses.loss import Loss
from counterpoint.theory.collapse.collapse_bounds import (
    MIN_TEMPERATURE,
    CollapseBounds,
    collapse_bounds,
    complement_text,
    share_text,
)
from counterpoint.theory.collapse.merged_minorities import (
    dual_matrix,
    least_eigenvalue,
    membership,
    merged_minorities,
    merged_optimum,
    one_majority,
    share_log_odds,
    splitting_margin,
)
from counterpoint.theory.collapse.risk_setting import RiskSetting, risk_setting, root_between, whole_number
from counterpoint.theory.geometry.class_risk import PAPER, check_proportions

Path = Callable[[float], Tensor | Sequence[float]]

MAX_LOG_ODDS = 300.0  # the minorities then share 5e-131
ROOT_TOLERANCE = 1e-13
PATH_BRACKET = (1e-6, 1 - 1e-6)
SUM_TOLERANCE = 1e-9
EQUAL_TOLERANCE = 1e-9  # relative, between the shares of classes that merge


@dataclass(frozen=True)
class CollapseThreshold:
    """The point of a path of proportions where the minority classes begin to merge.

    Attributes:
        share: t at the threshold; with one majority class, its share.
        minority_share: what the minority classes have together there, to full precision also where share is next to 1.
        proportions_C: of all classes at the threshold.
        minority: places of the classes that merge.
        gram_CC: optimal Gram matrix at the threshold.
        collapses_above: merged for larger t; else for smaller t.
        num_negatives: k, or infinity.
        supervised: negatives are of other classes than the anchor.
        least_eigenvalue: of the dual matrix over its largest, at the threshold; 0 up to rounding certifies ``gram_CC``.
        bounds: the paper's sufficient conditions, where they apply: one majority class and InfoNCE with the mean over
            its negatives.
    """

    share: float
    minority_share: float
    proportions_C: Tensor
    minority: tuple[int, ...]
    gram_CC: Tensor
    collapses_above: bool
    num_negatives: float
    supervised: bool
    least_eigenvalue: float
    bounds: CollapseBounds | None

    def __str__(self) -> str:
        """Say where merging begins."""
        is_majority = abs(self.share + self.minority_share - 1) < SUM_TOLERANCE
        share = complement_text(self.minority_share) if is_majority else f"{self.share:.6g}"
        side = ">=" if self.collapses_above else "<="
        name = "the majority's share" if is_majority else "t"
        kind = "negatives of other classes" if self.supervised else "negatives of any class"
        number = "infinitely many" if math.isinf(self.num_negatives) else f"{self.num_negatives:.0f}"
        text = f"the {len(self.minority)} minority classes merge where {name} is {side} {share} ({number} {kind})"
        return text if self.bounds is None else f"{text}; {self.bounds}"


@one_thread()
def collapse_threshold(
    classes: int | Path,
    *,
    loss: Loss | None = None,
    num_negatives: float | None = None,
    supervised: bool = False,
    minority: Sequence[int] | None = None,
    bracket: tuple[float, float] | None = None,
) -> CollapseThreshold:
    r"""The share of the majority from which the minority classes have one common vector, exactly.

    Root, by Brent's method, of the smallest eigenvalue of the optimality condition that belongs to parting minorities,
    :math:`y_m - G_{mm'}` at the best geometry in which they are merged. This is the true threshold, where the paper has
    sufficient conditions; those are in ``bounds``.

    Source: imbalanced2026, section 6, for the setting and the bounds; several majority classes are its open problem c.

    Args:
        classes: C >= 3, for one majority class of share t and C - 1 equal minorities; or a path, a function from t to
            the proportions of all classes, with as many majority classes as it likes.
        loss: one of ``counterpoint.losses``, taken as it trains; None is the paper's InfoNCE.
        num_negatives: k >= 1, or math.inf; None is the loss's own number, or infinity.
        supervised: negatives are of other classes than the anchor.
        minority: places of the classes that merge; None takes all that are smallest at the path's upper end. With
            negatives of any class they may divide their share as they like; with negatives of other classes they must
            be equal in proportion all along the path.
        bracket: t between which to look, 0 < low < high < 1; None is (1/C, 1) for C classes and (1e-6, 1 - 1e-6) for a
            path.

    Raises:
        UsageError: fewer than 3 classes, no crossing within the bracket (says which side holds), a path whose values
            are no proportions, a minority of one class, or with ``supervised`` of unequal ones, a loss without convex
            class-level risk.

    >>> threshold = collapse_threshold(3)
    >>> round(threshold.share, 4), threshold.bounds.exact is None
    (0.9002, True)
    >>> round(collapse_threshold(lambda t: [t / 2, t / 2, (1 - t) / 2, (1 - t) / 2]).share, 4)
    0.9992
    """
    setting = risk_setting(loss, num_negatives, supervised)
    num_classes = whole_number(classes)
    if num_classes is not None:
        return _one_majority(num_classes, setting, minority, bracket)
    if not callable(classes):
        raise UsageError(f"classes must be a whole number >= 3 or a path, a function of t, got {classes!r}")
    low, high = _checked_bracket(PATH_BRACKET if bracket is None else bracket)
    group = _smallest(_proportions_at(classes, high)) if minority is None else tuple(minority)

    def margin(t: float) -> float:
        return splitting_margin(_merged(setting, _proportions_at(classes, t), group)[1], group)  # from -1 to 1

    share = _crossing(margin, low, high, lambda t: f"t = {t:g}")
    proportions_C = _proportions_at(classes, share)
    gram_CC, dual_CC = _merged(setting, proportions_C, group)
    return CollapseThreshold(
        share=share,
        minority_share=float(proportions_C[list(group)].sum()),
        proportions_C=proportions_C,
        minority=group,
        gram_CC=gram_CC,
        collapses_above=margin(high) >= 0,
        num_negatives=setting.num_negatives,
        supervised=setting.supervised,
        least_eigenvalue=least_eigenvalue(dual_CC),
        bounds=None,
    )


def _one_majority(
    num_classes: int, setting: RiskSetting, minority: Sequence[int] | None, bracket: tuple[float, float] | None
) -> CollapseThreshold:
    """The threshold of one majority class, sought in log-odds: at low temperatures it is next to 1."""
    if num_classes < 3:
        raise UsageError(f"classes must be >= 3 or a path of proportions, got {num_classes}; two classes must merge")
    if minority is not None:
        raise UsageError("minority must be None with a number of classes: all but the first are equal; pass a path")
    # log-odds of 1/C: all classes are equal
    low, high = (-math.log(num_classes - 1), MAX_LOG_ODDS)
    if bracket is not None:
        low, high = map(share_log_odds, _checked_bracket(bracket))

    def margin(log_odds: float) -> float:
        return merged_minorities(log_odds, num_classes, setting).margin

    log_odds = _crossing(margin, low, high, lambda x: f"a share of {share_text(1 / (1 + math.exp(-x)))}")
    merged = merged_minorities(log_odds, num_classes, setting)
    return CollapseThreshold(
        share=1 / (1 + math.exp(-log_odds)),
        minority_share=1 / (1 + math.exp(log_odds)),
        proportions_C=one_majority(log_odds, num_classes),
        minority=tuple(range(1, num_classes)),
        gram_CC=merged.gram,
        collapses_above=margin(high) >= 0,
        num_negatives=setting.num_negatives,
        supervised=setting.supervised,
        least_eigenvalue=merged.least_eigenvalue,
        bounds=_bounds(setting, num_classes),
    )


def _crossing(margin: Callable[[float], float], low: float, high: float, place: Callable[[float], str]) -> float:
    """Root of the margin; without one, say which side holds."""
    at_low, at_high = margin(low), margin(high)
    if math.isnan(at_low) or math.isnan(at_high):
        raise UsageError("the loss is indifferent to the minority classes here: neither merged nor apart is better")
    if (at_low >= 0) == (at_high >= 0):
        side = "merged" if at_low >= 0 else "apart"
        raise UsageError(
            f"no crossing between {place(low)} and {place(high)}: the minority classes are {side} at both ends; "
            "widen the bracket, or take another path"
        )
    # one root is taken: the signs at the ends say that there is one, not that there is no other
    return root_between(margin, low, high, tolerance=ROOT_TOLERANCE)


def _merged(setting: RiskSetting, proportions_C: Tensor, group: Sequence[int]) -> tuple[Tensor, Tensor]:
    """Best Gram matrix with merged minorities, and its dual matrix for equal ones of the same sum."""
    membership(len(proportions_C), group)  # names a group that is none
    members = list(group)
    shares = proportions_C[members]
    if float(shares.max() - shares.min()) > EQUAL_TOLERANCE * float(shares.max()):
        if setting.supervised:
            raise UsageError(
                f"minority classes must be equal in proportion with negatives of other classes, got {shares.tolist()}; "
                "with negatives of any class (supervised=False) only their sum matters"
            )
        # Negatives of any class: merged classes are one class to the loss, so that equal shares of the same sum have
        # the same threshold; only for equal classes is the margin an eigenvalue of Z.
        proportions_C = proportions_C.clone()
        proportions_C[members] = shares.mean()
    risk = setting.risk(proportions_C)
    gram_CC = merged_optimum(risk, group)
    return gram_CC, dual_matrix(risk.at(gram_CC).gradient_CC, gram_CC)


def _bounds(setting: RiskSetting, num_classes: int) -> CollapseBounds | None:
    """The paper's conditions, for the losses that they are about."""
    record = PAPER if setting.loss is None else setting.loss.class_level()
    # Eq. 23: log(1 + mean over k), gaps without margin; scale is 1 / tau
    is_mean = isinstance(record, LogOfSum) and record.is_mean and record.epsilon == 1 and not record.margin
    if not is_mean or 1 / record.scale < MIN_TEMPERATURE:
        return None
    return collapse_bounds(
        num_classes,
        num_negatives=setting.num_negatives,
        supervised=setting.supervised,
        temperature=1 / record.scale,
    )


def _proportions_at(path: Path, t: float) -> Tensor:
    """Proportions at a point of a path; what is wrong with them names the point."""
    try:
        return check_proportions(path(t))
    except UsageError as error:
        raise UsageError(f"the path at t = {t:g}: {error}") from error


def _smallest(proportions_C: Tensor) -> tuple[int, ...]:
    """Places of the smallest classes."""
    least = float(proportions_C.min())
    group = (proportions_C <= least * (1 + EQUAL_TOLERANCE)).nonzero().flatten().tolist()
    if len(group) < 2:
        raise UsageError(
            f"the path ends with one smallest class, {group[0]}, got {proportions_C.tolist()}; name 2 or more "
            "classes as minority"
        )
    return tuple(group)


def _checked_bracket(bracket: tuple[float, float]) -> tuple[float, float]:
    """Two shares in order."""
    try:
        low, high = map(float, bracket)
    except (TypeError, ValueError):
        raise UsageError(f"bracket must be two shares, low and high, got {bracket!r}; (0.5, 0.999) is common") from None
    if not 0 < low < high < 1:
        raise UsageError(f"bracket must be 0 < low < high < 1, got {bracket}; (0.5, 0.999) is common")
    return low, high
