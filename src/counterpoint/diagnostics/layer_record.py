"""What was found of the layers of an encoder, in words, as a table, and as plain values. Loads without torch."""

import textwrap
from collections.abc import Iterator
from typing import Annotated

from counterpoint.core.run_records import Figure, Listed, Record, Text
from counterpoint.core.written_tables import aligned

WIDTH = 100  # columns
LONGEST = 27  # characters of a layer in the table
HEAD = ("layer", "dims", "resolved", "vanished", "eff. rank", "largest", "median", "least", "floor")
SMALL = 0.02  # of the directions that may be alive: fewer than these, or one, are the scatter of the count


def called(name: str) -> str:
    """The name of a layer in a sentence: modules of a sequence have mere numbers.

    >>> called("3"), called("projector.0")
    ('layer 3', 'projector.0')
    """
    return f"layer {name}" if name[:1].isdigit() else name


class LayerFigures(Record):
    """The spectrum of one layer, of its outputs as they are (not scaled to unit length).

    Attributes:
        name: as ``embed --layer`` takes it.
        kind: class of its module.
        num_dims: of its vectors.
        is_pooled: maps or tokens were averaged over their positions.
        resolved: directions that this number of samples resolves.
        vanished: of these, how many carry nothing, against isotropic features of the same shape.
        effective_rank: exponential of the entropy of the singular values.
        null_rank: that of isotropic features of the same shape.
        largest: eigenvalue of the covariance.
        median: of the resolved eigenvalues.
        least: of the directions that are alive.
        floor: below which eigenvalues are rounding.
    """

    name: str = ""
    kind: str = ""
    num_dims: int = 0
    is_pooled: bool = False
    resolved: int = 0
    vanished: int = 0
    effective_rank: Figure = None
    null_rank: Figure = None
    largest: Figure = None
    median: Figure = None
    least: Figure = None
    floor: Figure = None

    @property
    def alive(self) -> int:
        """Resolved directions that have not vanished."""
        return self.resolved - self.vanished

    @property
    def words(self) -> str:
        """Its name, with the kind of its module."""
        return f"{called(self.name)} ({self.kind})" if self.kind else called(self.name)


class LostDirections(Record):
    """Directions that a layer loses.

    Attributes:
        layer: words for it.
        arriving: directions alive before it, as far as it could keep them.
        alive: directions alive behind it.
    """

    layer: str
    arriving: int
    alive: int

    @property
    def count(self) -> int:
        """How many are lost."""
        return self.arriving - self.alive


class LayersRecord(Record):
    """All layers of an encoder from one pass over the same samples.

    Attributes:
        num_samples: how many.
        layers: at the state that is diagnosed, in the order in which samples pass them.
        remarks: what was left out or done otherwise.
    """

    num_samples: int = 0
    layers: Annotated[tuple[LayerFigures, ...], Listed] = ()
    remarks: Annotated[tuple[Text, ...], Listed] = ()

    @property
    def losses(self) -> tuple[LostDirections, ...]:
        """Layers behind which clearly fewer directions are alive than reach them, in order."""
        found = []
        for before, layer in zip(self.layers, self.layers[1:], strict=False):
            loss = LostDirections(layer=layer.words, arriving=min(before.alive, layer.resolved), alive=layer.alive)
            if loss.count > max(1.0, SMALL * loss.arriving):
                found.append(loss)
        return tuple(found)

    @property
    def words(self) -> str:
        """Where directions are lost first, where most are, and how many are left."""
        if not self.layers:
            return "No layer could be measured."
        last, losses = self.layers[-1], self.losses
        if not losses:
            opening = "No layer loses directions that reach it."
        else:
            most = max(losses, key=lambda loss: loss.count)
            also = "" if most is losses[0] else f" Most are lost in {most.layer}: {most.count} of {most.arriving}."
            opening = (
                f"Directions are first lost in {losses[0].layer}: of {losses[0].arriving} that reach it "
                f"{losses[0].alive} are alive after it.{also}"
            )
        return f"{opening} At the end, in {last.name}, {last.alive} of {last.resolved} are alive."

    def __str__(self) -> str:
        rows = [HEAD, *(_cells(layer) for layer in self.layers)]
        opening = textwrap.fill(f"Layers ({self.num_samples:,} samples): {self.words}", WIDTH)
        sentences = [textwrap.fill(f"- {each}", WIDTH, subsequent_indent="  ") for each in self._sentences()]
        return "\n".join([opening, "", *aligned(rows, "l" + "r" * (len(HEAD) - 1)), "", *sentences])

    def _sentences(self) -> Iterator[str]:
        """How the table is to be read, and what else was found."""
        yield (
            "largest, median and least (of those alive): eigenvalues of the covariance, and below floor they are "
            "rounding. vanished: against isotropic features of the same shape, whose effective rank is behind the "
            "slash."
        )
        if any(layer.is_pooled for layer in self.layers):
            yield (
                "Maps and tokens are averaged over their positions: near the pixels the averages of few colours are "
                "left, so a convolution there starts with few directions."
            )
        yield from self.remarks


def _cells(layer: LayerFigures) -> tuple[str, ...]:
    """One line of the table."""
    name = layer.words
    eigenvalues = (layer.largest, layer.median, layer.least, layer.floor)
    return (
        name if len(name) <= LONGEST else f"…{name[1 - LONGEST :]}",
        f"{layer.num_dims}",
        f"{layer.resolved}",
        f"{layer.vanished}",
        f"{layer.effective_rank or 0:.4g}/{layer.null_rank or 0:.4g}",
        *("-" if value is None else f"{value:.1e}" for value in eigenvalues),
    )
