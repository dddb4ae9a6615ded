"""The steepest curvature of a run's loss against its learning rate, from ``spectrum.json``. Loads without torch."""

from collections.abc import Sequence

from counterpoint.core.derived_files import read_derived
from counterpoint.core.rundir import RunFolder
from counterpoint.core.settings import TrainSettings
from counterpoint.diagnostics.evidence import Sharpness
from counterpoint.runs.curvature_record import LAST_UPDATE, HessianSpectrum

StepRate = tuple[int, float]  # updates done, and the learning rate of the last of them


def run_sharpness(folder: RunFolder, settings: TrainSettings) -> Sharpness | None:
    """The state of a run with the largest product of curvature and learning rate; None where that is not known.

    Args:
        folder: of the run; its ``spectrum.json`` may be missing.
        settings: of the run, with every ``auto`` filled in.

    Raises:
        RunError: a file is damaged.
    """
    rate = settings.optim.learning_rate
    if settings.optim.name != "sgd" or not isinstance(rate, float) or not folder.spectrum.exists():
        return None
    rates = [(record.get("step"), record.get("learning_rate")) for record in folder.read_metrics()]
    known = [(step, rate) for step, rate in rates if step is not None and rate is not None]
    spectrum = HessianSpectrum.from_dict(read_derived(folder, folder.spectrum), folder.spectrum.name)
    return sharpest(spectrum, known, momentum=settings.optim.momentum, peak=rate)


def sharpest(spectrum: HessianSpectrum, rates: Sequence[StepRate], *, momentum: float, peak: float) -> Sharpness | None:
    """The state at which the learning rate was closest to the stability limit of its curvature, or furthest beyond.

    Args:
        spectrum: at one state or several; one of averaged weights says nothing about the steps of others.
        rates: of each epoch.
        momentum: of SGD.
        peak: the largest learning rate of the run.
    """
    if not rates or spectrum.settings.get("weights") != LAST_UPDATE:
        return None
    found = []
    for state in spectrum.states:
        # Of the epoch in which, or at whose end, the state lies.
        rate = next((rate for step, rate in rates if step >= state.step), rates[-1][1])
        eigenvalue = state.found.largest[0].value - state.found.noise
        found.append(
            Sharpness(step=state.step, eigenvalue=eigenvalue, learning_rate=rate, momentum=momentum, peak=peak)
        )
    return max(found, key=lambda each: each.product)
