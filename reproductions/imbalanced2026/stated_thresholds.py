r"""The majority shares from which imbalanced2026 states that minorities merge: Corollaries 6 and 7, as their steps go.

One majority class and C - 1 equal minorities, InfoNCE with the mean over its negatives at temperature tau, for which
:math:`\gamma = 2(C-1)/(C-2)` and :math:`E = e^{2/\tau}` (the paper has tau = 1). Both are sufficient conditions;
``theory.collapse_threshold`` finds the share at which merging begins.
"""

import math


def corollary_6(num_classes: int, *, temperature: float = 1.0) -> float:
    r"""tau_C of Corollary 6, for negatives of any class; printed for temperature 1.

    .. math:: \tau_C = \frac{1 - \sqrt{1 - \beta^2}}{\beta} = 1 + s - \sqrt{s (2 + s)}, \qquad \beta = \frac{1}{1 + s},
        \quad s = \frac{1}{4 \gamma (1 + 3 E)}

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


def corollary_7(num_classes: int, *, temperature: float = 1.0) -> float:
    """The share from which condition (59) holds, for negatives of other classes and any number of them.

    >>> round(corollary_7(3), 4)
    0.9438
    """
    gamma = 2 * (num_classes - 1) / (num_classes - 2)
    return 1 / (1 + 2 / (gamma * (1 + math.exp(2 / temperature))))
