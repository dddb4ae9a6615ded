"""`counterpoint spectrum`."""

import argparse
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

from counterpoint.cli.arguments import add_fields, fields_from
from counterpoint.cli.outputs import add_forms, print_found
from counterpoint.cli.parsers import Parser, add_run
from counterpoint.core.errors import UsageError
from counterpoint.core.rundir import RunFolder, open_run
from counterpoint.core.shown import shown_lines
from counterpoint.runs.curvature_settings import CurvatureSettings

if TYPE_CHECKING:
    from counterpoint.runs.curvature_record import HessianSpectrum

WIDTH = 100  # columns
PLACE, SUMMARY = 45, "curvature of a run's loss: eigenvalues of its Hessian"
TEACH = """Say how the loss of a run curves at its weights: how many eigenvalues of the Hessian lie below -tau, within
and above tau, with bounds; the largest and least ones, and the trace. Batch, views and probes are fixed, so that
checkpoints can be compared. The result is printed and written to RUN/spectrum.json.

The loss couples all samples of the batch, so that the spectrum belongs to its size. One product with the Hessian takes
about as long as two steps of training where the graph of the whole batch fits into memory, four where it is cut into
chunks, and the result is the same; --steps times --probes of them are made at each checkpoint.

examples:
  counterpoint spectrum runs/ncl
  counterpoint spectrum runs/ncl --steps 200 --threshold 0.1
  counterpoint spectrum runs/ncl --checkpoint all --csv
  counterpoint spectrum runs/ncl --checkpoint all --bounds
  counterpoint spectrum runs/ncl --top 10 --vectors true
  counterpoint spectrum runs/photos --precision float32 --chunk-size 32
  counterpoint spectrum runs/photos --batch-norm frozen --data moved/photos"""


def add_flags(parser: Parser) -> None:
    """Add the arguments."""
    add_run(parser)
    parser.add_argument("--data", help="the run's own samples, where they have moved or were an array")
    parser.add_argument("--labels", metavar="FILE", help="labels that go with them: .npy")
    add_fields(parser, CurvatureSettings)
    parser.add_argument("--bounds", action="store_true", help="add what mio2021's linear rate proves of this run")
    add_forms(parser)


def run(flags: argparse.Namespace) -> int:
    """Compute the spectrum and print it."""
    asked = fields_from(flags, CurvatureSettings)
    if flags.bounds and (flags.json or flags.csv):
        raise UsageError("--bounds are words, for text and --markdown; --json and --csv have the figures of each state")
    open_run(Path(flags.run))  # before torch is loaded
    from counterpoint.data.formats.npz_files import read_npy  # deferred: loads torch
    from counterpoint.runs.hessian_spectra import hessian_spectrum  # deferred: loads torch

    data = read_npy(Path(flags.data)) if flags.data is not None and Path(flags.data).suffix == ".npy" else flags.data
    labels = None if flags.labels is None else read_npy(Path(flags.labels))
    found = hessian_spectrum(flags.run, data=data, labels=labels, quiet=flags.quiet, **asked)
    print_found(found, flags, None)
    if flags.bounds:
        print("\n" + shown_lines(_bounds(found, Path(flags.run))))
    return 0


def _bounds(found: "HessianSpectrum", run: Path) -> str:
    """What the Polyak-Lojasiewicz inequality and its rate say of the states of a run."""
    from counterpoint.diagnostics.curvature.linear_rate import RateState, linear_rate  # deferred: loads torch
    from counterpoint.evaluation.trained_run import read_resolved  # deferred: loads torch

    states = [
        RateState(
            state.found.value,
            state.found.gradient_norm,
            max(state.found.largest[0].value, -state.found.smallest[0].value),
        )
        for state in found.states
    ]
    rate = read_resolved(RunFolder(run)).optim.learning_rate
    said = linear_rate(states, floor=found.floor, largest_step=rate if isinstance(rate, float) else None)
    lines = [textwrap.fill(f"- {each}", WIDTH, subsequent_indent="  ") for each in said.sentences()]
    return "\n".join(["Linear rates (mio2021, section 2.5), for plain descent on this batch:", *lines])
