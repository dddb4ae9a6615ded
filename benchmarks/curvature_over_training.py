"""MIO's Figs. 2 to 6 in small: directions that curve down, flat ones and the steepest, along training.

    python benchmarks/curvature_over_training.py --data PICTURES.npz            # some 25 minutes on one core

Trains the three losses of mio2021, InfoNCE (simclr) and Barlow Twins with the paper's SGD on the same pictures, and
takes the spectrum at kept checkpoints on the same batch, views and probe. The paper counts Ritz values of one probe;
these are printed beside intervals for the number of eigenvalues. Runs that are finished are not trained again.
Exit code: 0; 1 if an order that the paper reports is not found.
"""

import argparse
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import counterpoint as cp
from counterpoint.diagnostics.curvature.spectrum_records import Mass, OperatorSpectrum

FLAT = 1.0  # mio2021, section 2.4: eigenvalues below it are called flat
CASES: Mapping[str, Mapping[str, Any]] = {
    "mio-v3": {"method": "mio", "temperature": 0.2},
    "simclr": {"method": "simclr", "temperature": 0.1},
    "barlow-twins": {"method": "barlow-twins"},
    "mio-v1": {"method": "mio", "temperature": 0.2, "loss": {"name": "mio-v1"}},
    "mio-v2": {"method": "mio", "temperature": 0.2, "loss": {"name": "mio-v2"}},
}
LAST_ONLY = ("mio-v1", "mio-v2")  # compared at the end only, as in the paper's Fig. 3
HEAD = f"{'loss':<13}{'step':>5}{'value':>9}{'gradient':>9}{'Ritz <0':>9}{'0 to 1':>7}{'|.|<1':>6}"
HEAD += f"{'below -1':>17}{'within 1':>17}{'above 1':>17}{'least':>10}{'largest':>9}"


@dataclass(frozen=True)
class State:
    """A checkpoint, and its spectrum."""

    step: int
    found: OperatorSpectrum

    def ritz(self, low: float, high: float) -> int:
        """Number of Ritz values in [low, high), which mio2021 counts."""
        return sum(low <= value < high for value in self.found.ritz_values[0])

    @property
    def num_negative(self) -> int:
        """Number of Ritz values below zero, those by rounding included, which mio2021 counts."""
        return self.ritz(-float("inf"), 0.0)

    @property
    def num_flat(self) -> int:
        """Number of Ritz values from 0 to 1."""
        return self.ritz(0.0, FLAT)


States = Mapping[str, tuple[State, ...]]


@dataclass(frozen=True)
class Order:
    """An order that the paper reports, and a test of it."""

    words: str
    source: str
    holds: Callable[[States], bool]


def along(states: States) -> list[tuple[State, ...]]:
    """Losses that have several checkpoints, from the first after the start of training on."""
    return [tuple(state for state in run if state.step) for run in states.values() if len(run) > 1]


ORDERS = (
    Order(
        "every state has a direction that curves down",
        "sections 2.5, 3.4",
        lambda states: all(state.found.has_negative_curvature for run in states.values() for state in run),
    ),
    Order(
        "the largest eigenvalue grows along training",
        "Fig. 6",
        lambda states: all(run[-1].found.largest[0].value > run[0].found.largest[0].value for run in along(states)),
    ),
    Order(
        "fewer negative Ritz values at the end than at the first checkpoint",
        "Fig. 6, supplement 5",
        lambda states: all(run[-1].num_negative < run[0].num_negative for run in along(states)),
    ),
    Order(
        "flat Ritz values (0 to 1): fewer with v3 than v1, fewer with v1 than v2",
        "Fig. 2, 3: 10, 13, 15",
        lambda states: states["mio-v3"][-1].num_flat < states["mio-v1"][-1].num_flat < states["mio-v2"][-1].num_flat,
    ),
    Order(
        "the spectrum of v3 reaches further up than those of v1 and v2",
        "Fig. 3",
        lambda states: (
            states["mio-v3"][-1].found.largest[0].value
            > max(states[name][-1].found.largest[0].value for name in LAST_ONLY)
        ),
    ),
)


def states_of(name: str, flags: argparse.Namespace) -> tuple[State, ...]:
    """Train unless that is done, and take the spectra."""
    optim = {
        "name": "sgd",
        "learning_rate": 0.06,
        "weight_decay": 5e-4,
        "schedule": "epoch-cosine",
        # Differs from the paper, which has neither: without them the first steps, where curvature is 1e4, lose much.
        "warmup_epochs": 1.0,
        "clip": 1.0,
    }
    run = cp.train(
        str(flags.data),
        encoder="resnet9-narrow",
        epochs=flags.epochs,
        batch_size=flags.batch_size,
        optim=optim,
        engine={"keep": 99, "checkpoint_every": max(1, flags.epochs // 3)},
        out=str(flags.out / name),
        resume=True,
        quiet=True,
        **CASES[name],
    )
    spectra = cp.hessian_spectrum(
        run,
        checkpoint=None if name in LAST_ONLY else "all",
        steps=flags.steps,
        batch_size=flags.pairs,
        threshold=FLAT,
        precision="float32",
        quiet=True,
    )
    return tuple(State(state.step, state.found) for state in spectra.states)


def line(name: str, state: State) -> str:
    """A line of the table."""
    spectrum, masses = state.found, state.found.masses
    counts = "".join(f"{interval(mass):>17}" for mass in (masses.below, masses.within, masses.above))
    within = state.ritz(-FLAT, FLAT)
    paper = f"{state.num_negative:>9}{state.num_flat:>7}{within:>6}"
    ends = f"{spectrum.smallest[0].value:>10.3g}{spectrum.largest[0].value:>9.3g}"
    return f"{name:<13}{state.step:>5}{spectrum.value:>9.4g}{spectrum.gradient_norm:>9.2g}{paper}{counts}{ends}"


def interval(mass: Mass) -> str:
    """An interval of counts."""
    low, high = mass.count
    return f"{low:,}-{high:,}"


def main() -> int:
    """Print the table, then the orders."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, help="pictures that are trained on")
    parser.add_argument("--epochs", type=int, default=9)
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--pairs", type=int, default=128, help="on which the spectrum is taken")
    parser.add_argument("--steps", type=int, default=30, help="of Lanczos")
    parser.add_argument("--out", type=Path, default=Path("runs/curvature-over-training"))
    flags = parser.parse_args()
    print(HEAD, flush=True)
    states = {}
    for name in CASES:
        states[name] = states_of(name, flags)
        print("\n".join(line(name, state) for state in states[name]), flush=True)
    verdicts = [order.holds(states) for order in ORDERS]
    for order, holds in zip(ORDERS, verdicts, strict=True):
        print(f"{'found' if holds else 'NOT FOUND':<10} {order.words} ({order.source})")
    return 0 if all(verdicts) else 1


if __name__ == "__main__":
    sys.exit(main())
