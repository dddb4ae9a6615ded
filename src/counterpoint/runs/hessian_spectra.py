"""The spectrum of the Hessian of a run's loss: at its last state, at a checkpoint, or along all that are kept."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from counterpoint.core.derived_files import write_derived
from counterpoint.core.errors import RunError, UsageError
from counterpoint.core.operating_system import available_memory
from counterpoint.core.run import Run, as_run
from counterpoint.core.rundir import RunFolder
from counterpoint.core.torch_state import only_training, usual_modes
from counterpoint.core.user_files import as_path, exists
from counterpoint.core.validation import build
from counterpoint.data.sources import ARRAY, CATALOGUE
from counterpoint.diagnostics.curvature.hessian_products import CoupledLoss, graph_bytes, hessian_operator
from counterpoint.diagnostics.curvature.operator_spectrum import operator_spectrum
from counterpoint.engine.checkpoint import checkpoints_by_step, load_checkpoint, restore_checkpoint
from counterpoint.engine.checkpoint_format import step_of
from counterpoint.engine.progress import Reporter
from counterpoint.evaluation.trained_run import read_resolved, steps_asked
from counterpoint.runs.curvature_record import LAST_UPDATE, CurvatureSettings, HessianSpectrum, StepSpectrum
from counterpoint.runs.fixed_loss import exact_products, run_loss
from counterpoint.runs.one_run import open_job

BASES = 3  # vectors of the size of all weights that a product needs beside the basis, at most


@usual_modes()
@only_training()
def hessian_spectrum(
    run: Run | str | Path, *, data: Any = None, labels: Any = None, quiet: bool = False, **settings: Any
) -> HessianSpectrum:
    r"""Bound the eigenvalues of the Hessian of a run's loss on one batch.

    .. math:: H = \nabla^2_\theta L(\theta; x_1, \dots, x_N)

    for all trained weights :math:`\theta` (encoder, projector, and what the loss learns), with one batch and its views
    fixed. Eigenvalues are counted below -tau, from -tau to tau, and above tau, each with bounds.

    Source: mio2021, section 3.4 (counts of eigenvalues along training). Differs from it in what is counted: there
        Ritz values of one probe, here eigenvalues, with bounds; the number of Ritz values is a lower bound.

    Args:
        run: a run or its folder; ``Run(path, data=array, encoder=module)`` if it was trained on an array or with your
            own module.
        data: the run's own samples, if they have moved or were an array.
        labels: labels of these samples.
        quiet: show no progress.
        settings: any field of ``CurvatureSettings``: ``steps`` (100), ``probes`` (1), ``batch_size`` (256),
            ``checkpoint`` (a step, or ``all``: the same batch, views and probes at each), ``threshold`` (tau, 1),
            ``top`` (5 eigenvalues at each end), ``batch_norm`` (``batch`` or ``frozen``), ``precision`` (``float64`` or
            ``float32``) and ``seed``.

    Returns:
        The spectrum, which is also written to ``spectrum.json`` in the run's folder.

    Raises:
        UsageError: a setting is wrong, no such checkpoint is kept, the data have moved, or the loss has no Hessian.
        DataError: the data cannot be read.
        RunError: not a run, its data changed, or no checkpoint verifies.
    """
    curvature = build(CurvatureSettings, settings, "spectrum")
    reporter, trained = Reporter(quiet=quiet), as_run(run)
    if data is not None:
        trained = replace(trained, data=data, labels=labels)
    paths = _checkpoint_paths(trained.folder, curvature.checkpoint)
    place = str(read_resolved(trained.folder).data)
    if trained.data is None and place not in (ARRAY, *CATALOGUE) and not exists(as_path(place)):
        raise UsageError(f"the samples of {trained.path} are no longer at {place}; point to them with --data (data=)")
    fixed = run_loss(open_job(trained, reporter), curvature)
    plan = {"steps": curvature.steps, "threshold": curvature.threshold, "top": curvature.top}
    states, kind = [], ""
    with exact_products(), reporter.bar("Lanczos", len(paths) * curvature.probes * curvature.steps) as advance:
        for snapshot in map(load_checkpoint, paths):  # one is in memory
            kind = "moving average of the weights" if snapshot.average else LAST_UPDATE
            loss = fixed.at({**snapshot.state.model, **snapshot.average})  # the weights that users get
            if not states:
                _check_memory(loss, curvature)
            operator = hessian_operator(loss)
            starts = [
                # The same on every device and at every checkpoint.
                torch.randn(loss.num_parameters, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
                for seed in range(curvature.seed, curvature.seed + curvature.probes)
            ]
            spectrum = operator_spectrum(operator, starts, **plan, advance=advance)
            states.append(StepSpectrum(step=snapshot.position.step, found=spectrum))
    resolved = {"batch_size": len(fixed.inputs[0]), "batch_norm": fixed.batch_norm, "weights": kind}
    result = HessianSpectrum(
        name=trained.folder.path.resolve().name,
        num_parameters=fixed.num_parameters,
        loss=fixed.loss_name,
        floor=fixed.floor,
        settings=curvature.model_dump() | resolved,
        remarks=fixed.remarks,
        states=tuple(states),
    )
    write_derived(trained.folder, trained.folder.spectrum, result.to_dict())
    return result


def _checkpoint_paths(folder: RunFolder, checkpoint: str | None) -> list[Path]:
    """Return the chosen checkpoints, oldest first; by default the newest, which must not be damaged."""
    if checkpoint is not None:
        paths = checkpoints_by_step(folder.checkpoints)
        return [paths[step] for step in steps_asked(folder, checkpoint)]
    restored = restore_checkpoint(folder.checkpoints)
    if restored.damaged:
        raise RunError(
            f"the newest checkpoint of {folder.path} is damaged ({restored.damaged[0]}); --checkpoint "
            f"{step_of(restored.path)} measures the newest one that is not"
        )
    return [restored.path]


def _check_memory(loss: CoupledLoss, settings: CurvatureSettings) -> None:
    steps = min(settings.steps, loss.num_parameters)
    vectors = steps + BASES + settings.probes
    needed = vectors * loss.num_parameters * loss.inputs[0].element_size()
    device = loss.inputs[0].device
    free = float(torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else available_memory())
    if needed > free:
        raise UsageError(
            f"steps {steps} of {loss.num_parameters:,} weights need {needed / 1e9:,.1f} GB for the vectors of "
            f"Lanczos, and {free / 1e9:,.1f} GB are free; lower --steps, or use --precision float32"
        )
    if (graph := graph_bytes(loss)) > free - needed:
        raise UsageError(
            f"the graph of {len(loss.inputs[0]):,} pairs needs about {graph / 1e9:,.1f} GB, and "
            f"{(free - needed) / 1e9:,.1f} GB are free; lower --batch-size, or use --precision float32"
        )
