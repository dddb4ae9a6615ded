r"""When do the minority classes merge for certain? The sufficient conditions of imbalanced2026, section 6, evaluated.

One majority class of share :math:`\lambda_1` and C - 1 equal minorities; InfoNCE with the mean over k negatives (Eq.
23) at temperature tau. With :math:`\gamma = 2(C-1)/(C-2)` and :math:`E = e^{2/\tau}` (the paper has tau = 1),
:math:`\gamma \sqrt k \Delta_2 = \gamma / (2\tau)` and, for l negatives of other classes than the anchor's,

.. math:: \delta_l = \frac1\tau\, \frac{l}{2kE - (E - 1) l}, \qquad (18): \;
    \lambda_1 \ge \Big(1 + \frac{2\tau}{\gamma}\, \mathbb{E}[\delta_l \mid \mathcal{E}_1]\Big)^{-1}

The event E_1: the anchor is of the majority and a negative is not, or the other way about for all negatives.

.. math:: \Pr(\mathcal{E}_1) = \lambda_1 (1 - \lambda_1^k) + (1 - \lambda_1) \lambda_1^k, \qquad
    \Pr(\mathcal{E}_1)\, \mathbb{E}[\delta_l \mid \mathcal{E}_1] = \lambda_1\, \mathbb{E}[\delta_B] + (1 - \lambda_1)
    \lambda_1^k \delta_k, \quad B \sim \mathrm{Bin}(k, 1 - \lambda_1)

Differs from the paper: its Eq. 52 prints :math:`(1-\lambda_1)^k` for :math:`1 - \lambda_1^k`, and the proof of its
Corollary 6 bounds these quantities wrongly, so that (18) does not hold at the threshold it states. Both are given here.
"""

import math
from dataclasses import dataclass
from numbers import Real

import numpy as np
from numpy.typing import NDArray

from counterpoint.core.checks import check_positive
from counterpoint.core.errors import UsageError
from counterpoint.theory.collapse.risk_setting import checked_classes, root_between

MAX_NEGATIVES = 10**7  # one float64 number per negative
MIN_TEMPERATURE = 0.004  # e^(2 / tau) then has 217 digits; float64 ends at 308


@dataclass(frozen=True)
class CollapseBounds:
    """Shares of the majority above which the minorities merge, by the paper's sufficient conditions.

    None of them is necessary; ``collapse_threshold`` finds the share at which merging begins.

    Attributes:
        num_classes: C.
        num_negatives: k, or infinity.
        supervised: negatives are of other classes than the anchor.
        temperature: tau.
        stated: tau_C as printed: Corollary 6, or 7 where supervised; None at temperatures other than 1, of which they
            do not speak.
        exact: least share from which (18) holds up to 1, evaluated exactly, or (59) where supervised; None: it holds at
            no share below 1.
        worst_case: (19), which replaces the mean of delta by its least value, or (59) where supervised; 1 for infinite
            k, at which it says nothing.
    """

    num_classes: int
    num_negatives: float
    supervised: bool
    temperature: float
    stated: float | None
    exact: float | None
    worst_case: float

    @property
    def is_stated_proved(self) -> bool:
        """Whether the paper's condition really holds at the share that it states."""
        if self.stated is None or self.exact is None:
            return False
        return self.exact <= self.stated

    def __str__(self) -> str:
        """Say what each bound is worth."""
        condition = "(59)" if self.supervised else "(18)"
        where = "at no share" if self.exact is None else f"from a majority share of {share_text(self.exact)} on"
        holds = f"the sufficient condition {condition} holds {where}"
        if self.stated is None:
            return holds
        claim = f"Corollary {7 if self.supervised else 6} states {share_text(self.stated)}"
        proof = "which it proves" if self.is_stated_proved else "which its proof does not reach"
        return f"{claim}, {proof}: {holds}"


def collapse_bounds(
    num_classes: int, *, num_negatives: float = math.inf, supervised: bool = False, temperature: float = 1.0
) -> CollapseBounds:
    r"""The paper's sufficient conditions for minority collapse, as printed and as they evaluate.

    Source: imbalanced2026, Theorem 4 (18, 19), Corollary 6, Theorem 5 (59) and Corollary 7.

    Args:
        num_classes: C >= 3.
        num_negatives: k, whole, 1 to 10^7, or math.inf.
        supervised: negatives are of other classes than the anchor.
        temperature: tau > 0.

    Raises:
        UsageError: fewer than 3 classes, or k out of range.
        ValueError: temperature <= 0.

    >>> bounds = collapse_bounds(3, num_negatives=2)
    >>> round(bounds.stated, 4), round(bounds.exact, 4), bounds.is_stated_proved
    (0.9292, 0.9666, False)
    >>> print(collapse_bounds(3, supervised=True))
    Corollary 7 states 0.9438, which it proves: the sufficient condition (59) holds from a majority share of 0.9438 on
    """
    _check(num_classes, num_negatives, temperature)
    # A.17: Delta_2 = 1 / (2 tau sqrt(k)), so that 1 / (gamma sqrt(k) Delta_2) = 2 tau / gamma in all three bounds
    gamma = 2 * (num_classes - 1) / (num_classes - 2)  # Lemma 10
    contrast = math.exp(2 / temperature)  # e^2 in the paper
    is_paper = temperature == 1
    if supervised:
        # tau delta_k, all negatives being of other classes, is 1 / (1 + E) for every k
        share = 1 / (1 + 2 / (gamma * (1 + contrast)))  # Eq. 59
        return CollapseBounds(num_classes, num_negatives, True, temperature, share if is_paper else None, share, share)
    return CollapseBounds(
        num_classes,
        num_negatives,
        False,
        temperature,
        corollary_6(num_classes) if is_paper else None,
        _least_share(gamma, contrast, num_negatives),
        1 / (1 + 2 / (gamma * (2 * num_negatives * contrast - (contrast - 1)))),  # Eq. 19: delta is least for l = 1
    )


def corollary_6(num_classes: int, *, temperature: float = 1.0) -> float:
    r"""tau_C of Corollary 6, as its steps go; printed for temperature 1.

    .. math:: \tau_C = \frac{1 - \sqrt{1 - \beta^2}}{\beta} = 1 + s - \sqrt{s (2 + s)}, \qquad \beta = \frac{1}{1 + s},
        \quad s = \frac{1}{4 \gamma (1 + 3 e^{2/\tau})}

    At temperature 1 minorities do merge there, though the proof fails. At 0.5 the same steps give 0.9728 for 3 classes,
    and with infinitely many negatives they merge from 0.9863 on only: the steps lead to a false statement.

    Differs from appendix A.17, whose beta has :math:`2 / (4 \gamma \dots)`: the main text's is the one that gives
    0.9292.

    >>> round(corollary_6(3), 4), round(corollary_6(3, temperature=0.5), 4)
    (0.9292, 0.9728)
    """
    gamma = 2 * (num_classes - 1) / (num_classes - 2)
    s = 1 / (4 * gamma * (1 + 3 * math.exp(2 / temperature)))
    # the root without 1 - beta^2, which loses digits of a small s
    return 1 + s - math.sqrt(s * (2 + s))


def share_text(share: float) -> str:
    """A share in four digits, or its distance from 1 where they would all be nines.

    >>> share_text(0.92919), share_text(1 - 2e-9)
    ('0.9292', '1 - 2.0e-09')
    """
    return complement_text(1 - share)


def complement_text(rest: float) -> str:
    """``share_text`` of 1 - rest, which a float64 may not tell from 1.

    >>> complement_text(3e-20)
    '1 - 3.0e-20'
    """
    return f"{1 - rest:.4f}" if rest > 1e-4 or rest == 0 else f"1 - {rest:.1e}"


def _least_share(gamma: float, contrast: float, num_negatives: float) -> float | None:
    """Least share from which (18) holds; with infinitely many negatives 2 / gamma <= 2E leaves none."""
    if math.isinf(num_negatives):
        return None
    log_terms_K = _log_terms(int(num_negatives), contrast)

    def excess(log_odds: float) -> float:
        """Logarithm of lambda_1 (2 tau / gamma) E[delta | E_1] / (1 - lambda_1): (18) holds where it is >= 0."""
        return log_odds + math.log(2 / gamma * _mean_delta(log_odds, log_terms_K))

    # E[delta | E_1] <= delta_k = 1 / (1 + E), and >= delta_1
    # bracket: the log-odds at which either makes (18) an equality; for k = 1 they are one number, hence 1e-9 more
    nearest = math.log(gamma / 2 * (1 + contrast))
    farthest = math.log(gamma / 2 * (2 * num_negatives * contrast - contrast + 1))
    return 1 / (1 + math.exp(-root_between(excess, nearest - 1e-9, farthest + 1e-9, tolerance=1e-13)))


def _log_terms(num_negatives: int, contrast: float) -> NDArray[np.float64]:
    """Row 0: l = 1 ... k; row 1: log binomial coefficient; row 2: log of tau delta_l."""
    from scipy.special import (
        gammaln,  # deferred: SciPy's special functions take as long to load as the rest of the theory
    )

    l_K = np.arange(1.0, num_negatives + 1)
    # logarithms: binomial terms of many negatives leave float64
    log_choose_K = gammaln(num_negatives + 1) - gammaln(l_K + 1) - gammaln(num_negatives - l_K + 1)
    # g(l) of A.17, with E for its e^2
    log_delta_K = np.log(l_K) - np.log(2 * num_negatives * contrast - (contrast - 1) * l_K)
    return np.stack([l_K, log_choose_K, log_delta_K])


def _mean_delta(log_odds: float, log_terms: NDArray[np.float64]) -> float:
    """Temperature times E[delta | E_1], from the log-odds of the majority: shares next to 1 keep their digits."""
    l_K, log_choose_K, log_delta_K = log_terms
    # log lambda_1 and log(1 - lambda_1), neither as 1 less the other
    k, log_major, log_minor = l_K[-1], -math.log1p(math.exp(-log_odds)), -float(np.logaddexp(0.0, log_odds))
    log_binomial_K = log_choose_K + (k - l_K) * log_major + l_K * log_minor
    opposite = log_minor + k * log_major  # a minority anchor, all negatives of the majority
    # Eq. 52, with 1 - lambda_1^k as the sum over l >= 1
    weight = np.logaddexp(log_major + np.logaddexp.reduce(log_binomial_K), opposite)
    total = np.logaddexp(log_major + np.logaddexp.reduce(log_binomial_K + log_delta_K), opposite + log_delta_K[-1])
    return math.exp(total - weight)


def _check(num_classes: int, num_negatives: float, temperature: float) -> None:
    """Refuse what the theorems do not cover."""
    checked_classes(num_classes)
    is_number = isinstance(num_negatives, Real) and not isinstance(num_negatives, bool)
    is_whole = is_number and (num_negatives == math.inf or num_negatives % 1 == 0)
    if not is_whole or not (1 <= num_negatives <= MAX_NEGATIVES or num_negatives == math.inf):
        raise UsageError(f"num_negatives must be whole, 1 to {MAX_NEGATIVES}, or math.inf, got {num_negatives!r}")
    check_positive(temperature, "temperature", hint="common values are 0.1 to 0.5")
    if temperature < MIN_TEMPERATURE:
        raise UsageError(f"temperature must be >= {MIN_TEMPERATURE}, got {temperature}; common values are 0.1 to 0.5")
