r"""The Polyak-Lojasiewicz inequality and its linear rate, evaluated on states of a run, with what they prove.

.. math:: \tfrac12 \|\nabla f(w)\|^2 \ge \mu\,(f(w) - f^*), \qquad
    f(w_k) - f^* \le \Big(1 - \frac{\mu}{L}\Big)^k (f(w_0) - f^*)

The second follows for descent with steps of 1/L where the first holds at every w. A run shows a few of them: it can
refute a mu, and say at which mu the inequality holds where it was looked at, but prove neither mu nor L.
"""

import math
import sys
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from counterpoint.core.checks import check_positive
from counterpoint.core.derived_files import read_derived
from counterpoint.core.errors import CounterpointError, UsageError
from counterpoint.core.rundir import RunFolder
from counterpoint.core.schemas import read_record
from counterpoint.core.terminal_text import shown_lines
from counterpoint.evaluation.trained_run import read_resolved
from counterpoint.runs.curvature_record import HessianSpectrum

WIDTH = 100  # columns


@dataclass(frozen=True)
class RateState:
    """The loss at one state of a run, on one batch.

    Attributes:
        value: f.
        gradient_norm: of f, >= 0.
        curvature: the largest size of an eigenvalue of the Hessian that was found, > 0; the true one is no smaller.
    """

    value: float
    gradient_norm: float
    curvature: float

    def ratio(self, least: float) -> float:
        """Half the squared gradient over f - least; infinite if f is no larger than ``least``."""
        above = self.value - least
        return self.gradient_norm**2 / (2 * above) if above > 0 else math.inf


@dataclass(frozen=True)
class LinearRate:
    """Bounds on the constants of the inequality and of its rate that a run shows.

    Attributes:
        smoothness: L is no smaller.
        seen: at every state the inequality holds with this mu, whatever f*, as f* is no lower than the loss's floor;
            None if the loss has no floor.
        refuted: for no larger mu does it hold at every state, as f* is no higher than the lowest loss seen; None if
            only one loss was seen.
        largest_step: the run's largest learning rate; None if it is not known.
    """

    smoothness: float
    seen: float | None
    refuted: float | None
    largest_step: float | None

    @property
    def best_contraction(self) -> float | None:
        """No guarantee of this kind shrinks f - f* by less than this factor a step: 1 - refuted / L."""
        return None if self.refuted is None else max(0.0, 1 - self.refuted / self.smoothness)

    def sentences(self) -> Iterator[str]:
        """Yield a sentence for each figure that tells what it proves and what it does not."""
        yield f"L is at least {self.smoothness:.3g}: so large an eigenvalue was found. How large it is, is unknown."
        if self.seen is not None:
            yield (
                f"PL: at the states looked at, the inequality holds with mu = {self.seen:.2g}. This proves nothing of "
                "other weights: mu would have to hold at all of them, and holds at none that is a saddle."
            )
        best = self.best_contraction
        if self.refuted is None or best is None:
            yield "PL: of one state no mu can be refuted; --checkpoint all looks at several."
        elif best == 0:
            yield "PL: these states refute no rate: as far as they show, mu may be as large as L."
        else:
            steps = self.smoothness / self.refuted if self.refuted else math.inf
            yield (
                f"PL: it fails for every mu above {self.refuted:.2g}. So the linear rate of Eq. 20 promises at best a "
                f"factor of {best:.6g} a step of plain descent, {steps:,.0f} steps for a factor of e: this is proven. "
                "That the run converges at such a rate is not."
            )
        yield (
            "Rates by direction (Eq. 21, 24) are no bounds: where an eigenvalue is negative, 1 - mu / lambda exceeds 1."
        )
        yield from self._step_sentences()

    def _step_sentences(self) -> Iterator[str]:
        """Yield what the bound for cosine steps says at the run's learning rate; nothing if the rate is unknown."""
        if self.largest_step is None:
            return
        product = self.largest_step * self.smoothness
        if product >= 2:
            yield (
                f"Eq. 25 says nothing of this run: its learning rate of {self.largest_step:.2g} times L is "
                f"{product:.2g} or more, and must be below 2."
            )
            return
        # For T -> infinity cosine steps sum to eta T / 2 and their squares to 3 eta^2 T / 8.
        share = 3 * product / (8 - 3 * product)
        yield (
            f"Eq. 25 with cosine steps from {self.largest_step:.2g} bounds the squared gradient by no less than "
            f"{share:.2g} times the variance of its noise, however long the run (Eq. 26 is false: the squares of the "
            "steps have no finite sum). Plain SGD only."
        )


def linear_rate(
    states: Sequence[RateState], *, floor: float | None = None, largest_step: float | None = None
) -> LinearRate:
    r"""Evaluate the inequality at the states of a run.

    .. math:: \mu_{seen} = \min_t \frac{\|\nabla f(w_t)\|^2}{2 (f(w_t) - floor)} \;\le\;
        \min_t \frac{\|\nabla f(w_t)\|^2}{2 (f(w_t) - f^*)} \;\le\;
        \mu_{refuted} = \min_t \frac{\|\nabla f(w_t)\|^2}{2 (f(w_t) - \min_s f(w_s))}

    Source: mio2021, Eq. 20 and 22, and Eq. 37 to 41 of its supplement. Differs from the paper, which takes mu and f* as
        given, speaks of a rate in expectation over directions (Eq. 24), and concludes that longer training converges.

    Args:
        states: at least one, of the same batch.
        floor: a value that the loss cannot go below.
        largest_step: the largest learning rate of the run.

    Raises:
        UsageError: no state.
        ValueError: a curvature or a learning rate <= 0.

    >>> rate = linear_rate([RateState(2.0, 2.0, 1.0), RateState(0.5, 1.0, 1.0)], floor=0.0)  # f = x^2 / 2
    >>> rate.seen, rate.refuted, rate.smoothness
    (1.0, 1.3333333333333333, 1.0)
    """
    if not states:
        raise UsageError("states must hold at least one state")
    for state in states:
        check_positive(state.curvature, "curvature", hint="it is the largest size of an eigenvalue")
    if largest_step is not None:
        check_positive(largest_step, "largest_step", hint="it is the largest learning rate")
    lowest = min(state.value for state in states)
    refuted = min(state.ratio(lowest) for state in states)
    seen = None if floor is None else min(state.ratio(floor) for state in states)
    return LinearRate(
        smoothness=max(state.curvature for state in states),
        seen=seen if seen is not None and math.isfinite(seen) else None,
        refuted=refuted if math.isfinite(refuted) else None,
        largest_step=largest_step,
    )


def rate_of_run(folder: RunFolder) -> LinearRate:
    """Evaluate the inequality at the states in a run's ``spectrum.json``.

    Raises:
        UsageError: ``counterpoint spectrum`` has not written the file.
        RunError: the file is damaged.
    """
    if not folder.spectrum.exists():
        raise UsageError(f"{folder.path} has no {folder.spectrum.name}; `counterpoint spectrum` writes it")
    spectrum = read_record(HessianSpectrum, read_derived(folder, folder.spectrum), folder.spectrum.name)
    states = [
        RateState(
            state.found.value,
            state.found.gradient_norm,
            max(state.found.largest[0].value, -state.found.smallest[0].value),
        )
        for state in spectrum.states
    ]
    rate = read_resolved(folder).optim.learning_rate
    return linear_rate(states, floor=spectrum.floor, largest_step=rate if isinstance(rate, float) else None)


def main(words: Sequence[str]) -> int:
    """Print the sentences for one run folder."""
    if len(words) != 1:
        print("usage: python -m reproductions.mio2021.linear_rate RUN", file=sys.stderr)
        return 2
    try:
        rate = rate_of_run(RunFolder(Path(words[0])))
    except CounterpointError as error:
        print(error, file=sys.stderr)
        return 2
    lines = [textwrap.fill(f"- {sentence}", WIDTH, subsequent_indent="  ") for sentence in rate.sentences()]
    head = "Linear rates (mio2021, section 2.5), for plain descent on the batch of the spectrum:"
    print(shown_lines("\n".join([head, *lines])))
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
