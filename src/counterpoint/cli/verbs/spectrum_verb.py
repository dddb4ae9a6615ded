"""`counterpoint spectrum`."""

import argparse
from pathlib import Path

from counterpoint.cli.arguments import add_fields, fields_from
from counterpoint.cli.outputs import add_forms, print_found
from counterpoint.cli.parsers import Parser, add_run
from counterpoint.core.rundir import open_run
from counterpoint.runs.curvature_settings import CurvatureSettings

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
  counterpoint spectrum runs/ncl --top 10
  counterpoint spectrum runs/photos --precision float32 --chunk-size 32
  counterpoint spectrum runs/photos --batch-norm frozen --data moved/photos"""


def add_flags(parser: Parser) -> None:
    """Add the arguments."""
    add_run(parser)
    parser.add_argument("--data", help="the run's own samples, where they have moved or were an array")
    parser.add_argument("--labels", metavar="FILE", help="labels that go with them: .npy")
    add_fields(parser, CurvatureSettings)
    add_forms(parser)


def run(flags: argparse.Namespace) -> int:
    """Compute the spectrum and print it."""
    asked = fields_from(flags, CurvatureSettings)
    open_run(Path(flags.run))  # before torch is loaded
    from counterpoint.data.formats.npz_files import read_npy  # deferred: loads torch
    from counterpoint.runs.hessian_spectra import hessian_spectrum  # deferred: loads torch

    data = read_npy(Path(flags.data)) if flags.data is not None and Path(flags.data).suffix == ".npy" else flags.data
    labels = None if flags.labels is None else read_npy(Path(flags.labels))
    found = hessian_spectrum(flags.run, data=data, labels=labels, quiet=flags.quiet, **asked)
    print_found(found, flags, None)
    return 0
