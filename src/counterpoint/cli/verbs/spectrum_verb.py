"""Estimate the curvature of a run's loss: how many eigenvalues of the Hessian are below -tau, within and above
tau, with bounds; the largest and smallest ones, and the trace. Batch, views and probes are fixed, so that
checkpoints can be compared. The result is printed and written to RUN/spectrum.json.

examples:
  counterpoint spectrum runs/ncl
  counterpoint spectrum runs/ncl --steps 200 --threshold 0.1
  counterpoint spectrum runs/ncl --checkpoint all --json
  counterpoint spectrum runs/photos --batch-norm frozen --data moved/photos"""

import counterpoint as cp
from counterpoint.cli.arguments import RunFlags, array_or_name, chosen, option
from counterpoint.cli.outputs import print_found
from counterpoint.runs.curvature_record import CurvatureSettings

PLACE, SUMMARY = 45, "curvature of a run's loss: eigenvalues of its Hessian"


class SpectrumFlags(RunFlags, CurvatureSettings):
    """Settings of ``spectrum``: the run and the samples of its loss."""

    data: str | None = option("the run's own samples, if they have moved or were an array")
    labels: str | None = option("file with labels that go with them: .npy")


def run(flags: SpectrumFlags) -> None:
    """Compute the spectrum and print it."""
    samples = {"data": array_or_name(flags.data), "labels": array_or_name(flags.labels)}
    spectrum = cp.hessian_spectrum(flags.run, **samples, quiet=flags.quiet, **chosen(flags, CurvatureSettings))
    print_found(spectrum, as_json=flags.as_json)
