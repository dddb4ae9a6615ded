"""What was found of the curvature of a run's loss, in words, as tables, and as plain values."""

import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from pydantic import TypeAdapter, ValidationError

from counterpoint.core.errors import RunError
from counterpoint.core.written_tables import aligned, csv_table, in_markdown, markdown_table
from counterpoint.diagnostics.curvature.spectrum_records import LEVEL, Estimate, Mass, OperatorSpectrum, ProductRoute

WIDTH = 100  # columns
LAST_UPDATE = "weights of the last update"
HEAD = ("step", "loss", "gradient", "below -tau", "within", "above tau", "least", "largest", "trace")


@dataclass(frozen=True)
class StepSpectrum:
    """The spectrum at one state of a run.

    Attributes:
        step: updates done.
        found: what Lanczos found.
    """

    step: int
    found: OperatorSpectrum


@dataclass(frozen=True)
class HessianSpectrum:
    """The spectrum of the Hessian of a run's loss, at one state or along its checkpoints.

    Attributes:
        name: of the run.
        num_parameters: trained weights, of which the Hessian is a square matrix.
        loss: what the loss is called.
        floor: a value that it cannot go below; None where that is not known.
        settings: steps, probes, batch size, threshold, BatchNorm, precision, seed, weights.
        route: how the products were computed.
        remarks: what is not as in training.
        states: by step, on the same batch, views and probes.
    """

    name: str
    num_parameters: int
    loss: str
    floor: float | None
    settings: Mapping[str, Any]
    route: ProductRoute
    remarks: tuple[str, ...]
    states: tuple[StepSpectrum, ...]

    @property
    def last(self) -> OperatorSpectrum:
        """What was found at the last state."""
        return self.states[-1].found

    def to_dict(self) -> dict[str, Any]:
        """Plain values, as in ``spectrum.json``."""
        return {
            "name": self.name,
            "num_parameters": self.num_parameters,
            "loss": self.loss,
            "floor": self.floor,
            "settings": dict(self.settings),
            "route": vars(self.route),
            "remarks": list(self.remarks),
            "states": [{"step": state.step, **asdict(state.found)} for state in self.states],
        }

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any], name: str) -> "HessianSpectrum":
        """Read what ``to_dict`` wrote.

        Args:
            plain: as read from JSON.
            name: of the file, for the error.

        Raises:
            RunError: something is missing or of another type.
        """
        states = [{"step": each.get("step"), "found": each} for each in plain.get("states", ())]
        try:
            return _ADAPTER.validate_python({**plain, "states": states})
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(map(str, first["loc"]))
            raise RunError(f"{name}: {place}: {first['msg']}; `counterpoint spectrum` writes it anew") from None

    def to_csv(self) -> str:
        """A line for each Ritz value: its step, its probe, the value and its weight."""
        rows = (
            [state.step, probe, value, weight]
            for state in self.states
            for probe, (values, weights) in enumerate(
                zip(state.found.ritz_values, state.found.ritz_weights, strict=True), start=1
            )
            for value, weight in zip(values, weights, strict=True)
        )
        return csv_table(["step", "probe", "ritz_value", "weight"], rows)

    def to_markdown(self) -> str:
        """The words, and the table of states."""
        table = markdown_table(HEAD, self._cells(), "r" * len(HEAD))
        words = "\n".join(f"- {in_markdown(line)}" for line in self._sentences())
        return f"## Curvature of {in_markdown(self.name)}\n\n{table}\n\n{words}\n"

    def __str__(self) -> str:
        lines = [f"Curvature of {self.name}: {self.claim()}"]
        wrapped = [textwrap.fill(line, WIDTH, subsequent_indent="  ") for line in lines]
        table = aligned([HEAD, *self._cells()], "r" * len(HEAD))
        sentences = [textwrap.fill(f"- {each}", WIDTH, subsequent_indent="  ") for each in self._sentences()]
        return "\n".join([*wrapped, "", *table, "", *sentences])

    def claim(self) -> str:
        """What the last state says of descent and of saddles, in words."""
        found = self.last
        if not found.has_negative_curvature:
            return (
                "no direction was found along which the loss curves down; that is no proof that there is none. The "
                f"gradient has length {found.gradient_norm:.2g}."
            )
        down = found.signs.below
        words = (
            f"the loss curves down along {_at_least(down)} of {self.num_parameters:,} directions (eigenvalues down to "
            f"{found.smallest[0].value:.3g} or less), so these weights are no local minimum of it. A strict saddle has "
            f"such a direction and a gradient of zero: the gradient has length {found.gradient_norm:.2g}"
        )
        # From below: the largest eigenvalue is no smaller than the Ritz value.
        steepest = max(found.largest[0].value, -found.smallest[0].value)
        gain = found.gradient_norm**2 / (2 * steepest)
        return (
            f"{words}, by which one step of 1 / {steepest:.3g} could lower the loss of {found.value:.4g} by {gain:.1g}."
        )

    def _cells(self) -> list[tuple[str, ...]]:
        """The table of states."""
        return [
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

    def _sentences(self) -> Iterator[str]:
        """How the figures are to be read."""
        asked, found = self.settings, self.last
        tau, steps = asked["threshold"], len(found.ritz_values[0])
        below, above = found.masses.below.at_least, found.masses.above.at_least
        seen = "one random probe" if asked["probes"] == 1 else f"{asked['probes']} random probes"
        yield (
            f"Counts are of the {self.num_parameters:,} eigenvalues, tau = {tau:g}: {LEVEL:.0%} intervals, from bounds "
            f"on what {seen} saw in {steps} steps. For certain at least {below:,} lie below -tau and {above:,} above "
            "tau: as many Ritz values do."
        )
        largest, least = (", ".join(map(_with_error, ends)) for ends in (found.largest, found.smallest))
        yield f"Largest eigenvalues: {largest}. Least: {least}. Within each error lies an eigenvalue."
        low, high = found.trace.interval.low, found.trace.interval.high
        yield (
            f"Trace {found.trace.value:.4g}, {LEVEL:.0%} interval {low:.4g} to {high:.4g}: settled eigenvalues summed, "
            "the rest by Hutchinson's estimate (deflated)."
        )
        checks = [
            f"{check.name} {'does not apply' if check.defect is None else f'{check.defect:.1e}'}"
            f"{'' if check.holds else ' (FAILED)'}"
            for check in found.certificates
        ]
        yield (
            f"Certificates: {', '.join(checks)}; orthogonality {found.orthogonality:.1e}; eigenvalues known to "
            f"{found.noise:.1e}."
        )
        norm = {"batch": "of the batch", "frozen": "frozen", "none": "none"}[asked["batch_norm"]]
        yield (
            f"{self.loss} of {asked['batch_size']:,} pairs, on which it depends; BatchNorm statistics: {norm}; "
            f"{asked['precision']}; {asked['weights']}; products by the {self.route.name} route: {self.route.reason}."
        )
        yield from self.remarks


_ADAPTER = TypeAdapter(HessianSpectrum)


def _count(mass: Mass) -> str:
    """An interval of counts."""
    low, high = mass.count
    return f"{low:,}" if low == high else f"{low:,}-{high:,}"


def _at_least(mass: Mass) -> str:
    """A certain lower bound beside an interval of counts."""
    return f"at least {mass.at_least:,} ({LEVEL:.0%}: {_count(mass)})"


def _with_error(one: Estimate) -> str:
    """An eigenvalue with its error."""
    return f"{one.value:.4g} +- {one.error:.1g}"
