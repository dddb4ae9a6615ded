"""Settings of a spectrum of the Hessian, and its record in words and plain values.

Loads without torch.
"""

import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Annotated, Any, ClassVar, Literal

from pydantic import ConfigDict, Field, model_serializer, model_validator

from counterpoint.core.schemas import Figure, Listed, Record
from counterpoint.core.settings import Auto, Count, Settings, option
from counterpoint.core.terminal_text import WIDTH, Printed, TextTable
from counterpoint.diagnostics.curvature.spectrum_records import LEVEL, Mass, OperatorSpectrum

LAST_UPDATE = "weights of the last update"
HEAD = ("step", "loss", "gradient", "below -tau", "within", "above tau", "least", "largest", "trace")


class CurvatureSettings(Settings):
    """The operator, and how much of its spectrum is computed."""

    steps: Count = option("Lanczos steps, each one Hessian-vector product", 100)
    probes: Count = option("random vectors that Lanczos starts from", 1)
    batch_size: Annotated[int, Field(ge=2)] | Auto = option(
        "pairs of views in the batch, on which the loss depends; auto is 256, or all", "auto"
    )
    checkpoint: str | None = option("step of a saved checkpoint, or all (default: the last state)")
    threshold: Annotated[float, Field(ge=0)] = option(
        "tau: eigenvalues are counted below -tau, from -tau to tau, and above tau", 1.0
    )
    top: Count = option("eigenvalues at each end that are named with their errors", 5)
    batch_norm: Literal["batch", "frozen"] = option(
        "BatchNorm with the statistics of the batch, as in training, or with its running ones", "batch"
    )
    precision: Literal["float64", "float32"] = option("of the products", "float64")
    seed: Annotated[int, Field(ge=0)] = option("of the probes", 0)


class StepSpectrum(Record):
    """The spectrum at one state of a run, whose figures stand beside the step in a file.

    Attributes:
        step: number of updates done.
        found: the spectrum by Lanczos.
    """

    model_config = ConfigDict(strict=False)  # a file has mappings and lists where the spectrum has records and tuples

    step: int
    found: OperatorSpectrum

    @model_validator(mode="before")
    @classmethod
    def _found_beside_step(cls, plain: Any) -> Any:
        return {"found": plain, **plain} if isinstance(plain, Mapping) else plain

    @model_serializer
    def _with_step_first(self) -> dict[str, Any]:
        return {"step": self.step, **asdict(self.found)}


class HessianSpectrum(Record, Printed):
    """The spectrum of the Hessian of a run's loss, at one state or along its checkpoints.

    Attributes:
        name: name of the run.
        num_parameters: number of trained weights, which is the number of rows and columns of the Hessian.
        loss: name of the loss.
        floor: value that the loss cannot go below; None if it is not known.
        settings: steps, probes, batch size, threshold, BatchNorm, precision, seed, weights.
        remarks: sentences on what differs from training.
        states: spectrum at each step, in order, on the same batch, views and probes.
    """

    verb: ClassVar[str] = "spectrum"

    name: str
    num_parameters: int
    loss: str
    floor: Figure
    settings: Mapping[str, Any]
    remarks: Annotated[tuple[str, ...], Listed]
    states: Annotated[tuple[StepSpectrum, ...], Listed]

    @property
    def last(self) -> OperatorSpectrum:
        """The spectrum at the last state."""
        return self.states[-1].found

    @property
    def table(self) -> TextTable:
        """The figures of each state."""
        cells = [
            (
                f"{state.step:,}",
                f"{state.found.value:.4g}",
                f"{state.found.gradient_norm:.2g}",
                _count(state.found.masses.below),
                _count(state.found.masses.within),
                _count(state.found.masses.above),
                f"{state.found.smallest[0].value:.3g}",
                f"{state.found.largest[0].value:.3g}",
                f"{state.found.trace.value:.3g}",
            )
            for state in self.states
        ]
        return TextTable(HEAD, cells, "r" * len(HEAD))

    def __str__(self) -> str:
        first = textwrap.fill(f"Curvature of {self.name}: {self.claim()}", WIDTH, subsequent_indent="  ")
        sentences = [textwrap.fill(f"- {sentence}", WIDTH, subsequent_indent="  ") for sentence in self._sentences()]
        return "\n".join([first, "", *self.table.lines, "", *sentences])

    def claim(self) -> str:
        """State in words whether the loss curves down at the last state, as it does at a strict saddle."""
        last = self.last
        if not last.has_negative_curvature:
            return (
                "no direction was found along which the loss curves down; that is not proof that there is none. The "
                f"gradient has length {last.gradient_norm:.2g}."
            )
        down = last.signs.below
        words = (
            f"the loss curves down along at least {down.at_least:,} ({LEVEL:.0%}: {_count(down)}) of "
            f"{self.num_parameters:,} directions (eigenvalues down to {last.smallest[0].value:.3g} or less), so these "
            "weights are not a local minimum. A strict saddle has such a direction and a gradient of zero: the "
            f"gradient has length {last.gradient_norm:.2g}"
        )
        # From below: the largest eigenvalue is no smaller than the Ritz value.
        steepest = max(last.largest[0].value, -last.smallest[0].value)
        gain = last.gradient_norm**2 / (2 * steepest)
        return (
            f"{words}, by which one step of 1 / {steepest:.3g} could lower the loss of {last.value:.4g} by {gain:.1g}."
        )

    def _sentences(self) -> Iterator[str]:
        settings, last = self.settings, self.last
        tau, steps = settings["threshold"], len(last.ritz_values[0])
        below, above = last.masses.below.at_least, last.masses.above.at_least
        seen = "one random probe" if settings["probes"] == 1 else f"{settings['probes']} random probes"
        yield (
            f"Counts are of the {self.num_parameters:,} eigenvalues, tau = {tau:g}: {LEVEL:.0%} intervals, from bounds "
            f"on what {seen} saw in {steps} steps. For certain at least {below:,} lie below -tau and {above:,} above "
            "tau: as many Ritz values do."
        )
        ends = (last.largest, last.smallest)
        largest, least = (", ".join(f"{pair.value:.4g} +- {pair.error:.1g}" for pair in end) for end in ends)
        yield f"Largest eigenvalues: {largest}. Least: {least}. Within each error lies an eigenvalue."
        low, high = last.trace.interval.low, last.trace.interval.high
        yield (
            f"Trace {last.trace.value:.4g}, {LEVEL:.0%} interval {low:.4g} to {high:.4g}: settled eigenvalues summed, "
            "the rest by Hutchinson's estimate (deflated)."
        )
        checks = [
            f"{check.name} {'does not apply' if check.defect is None else f'{check.defect:.1e}'}"
            f"{'' if check.holds else ' (FAILED)'}"
            for check in last.certificates
        ]
        yield (
            f"Certificates: {', '.join(checks)}; orthogonality {last.orthogonality:.1e}; eigenvalues known to "
            f"{last.noise:.1e}."
        )
        norm = {"batch": "of the batch", "frozen": "frozen", "none": "none"}[settings["batch_norm"]]
        yield (
            f"{self.loss} of {settings['batch_size']:,} pairs, on which it depends; BatchNorm statistics: {norm}; "
            f"{settings['precision']}; {settings['weights']}."
        )
        yield from self.remarks


def _count(mass: Mass) -> str:
    low, high = mass.count
    return f"{low:,}" if low == high else f"{low:,}-{high:,}"
