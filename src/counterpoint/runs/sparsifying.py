"""Sparsify: put a sparse code on the features of a trained encoder, or of a table, and measure how good it is."""

# N samples, D features, H units

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from scipy.sparse import csr_matrix
from torch import Tensor, nn

from counterpoint.core.errors import DataError, UsageError
from counterpoint.core.run import Run
from counterpoint.core.rundir import append_line, log_hash
from counterpoint.core.settings import TrainSettings
from counterpoint.core.terminal_text import Printed, TextTable
from counterpoint.core.torch_state import only_training, usual_modes
from counterpoint.core.validation import build, merge, nest
from counterpoint.engine.placement import place
from counterpoint.engine.progress import Reporter
from counterpoint.nn.heads import SparseCode
from counterpoint.nn.trained import save_encoder
from counterpoint.runs.assembly import Assembled
from counterpoint.runs.code_figures import (
    SILENT_LIMIT,
    CodeFigures,
    check_codes_file,
    code_figures,
    sparse_rows,
    write_codes,
)
from counterpoint.runs.execution import Hold
from counterpoint.runs.one_run import Start, new_run_id, try_assembly
from counterpoint.runs.resolve import usual_batch
from counterpoint.runs.run_description import describe, first_status
from counterpoint.runs.sparse_training import features_of, train_code, views_of
from counterpoint.runs.user_inputs import code_subject, out_folder

DIMS, TEMPERATURE = 4096, 0.2
NUM_STEPS = 300  # 800 fit noise: at k = 2 the code of supervised features loses three points of kNN
EPOCH_RANGE, LARGEST_BATCH = (1, 40), 512
FEWEST = 20  # training samples
RATE = 1e-3


@dataclass(frozen=True)
class Sparsified(Printed):
    """A sparse code of features, with the figures that measure how good it is.

    Attributes:
        run: run of the code, which ``load``, ``embed``, ``evaluate``, ``diagnose``, ``search`` and ``export`` take; the
            code is its embedding, the features are its representation.
        codes: codes of all samples in their order, a SciPy matrix (n, dims) of sparse rows.
        figures: figures of the code at each k, beside codes of equal bytes.
        paired: kind of the pairs of the contrast: views of pictures, noise on features, or classes.
        num_distinct: number of samples whose features differ.
    """

    run: Run
    codes: csr_matrix
    figures: tuple[CodeFigures, ...]
    paired: str
    num_distinct: int

    @property
    def verdict(self) -> str:
        """One sentence on silent units at the smallest k, or what cannot be known."""
        own = [each for each in self.figures if each.silent is not None and each.code != "k-means"]
        num_units = self.codes.get_shape()[1]
        least = own[0]
        assert least.silent is not None
        assert least.k is not None
        if self.num_distinct * least.k < num_units:
            return (
                f"{self.num_distinct:,} different samples with {least.k} active units each cannot use all of "
                f"{num_units:,} units: how many a larger collection would leave silent is not known; take fewer --dims"
            )
        if least.silent > SILENT_LIMIT:
            return (
                f"{least.silent:.0%} of the units are silent at k = {least.k}: try fewer --dims or more --epochs, or "
                "look for outliers (counterpoint diagnose)"
            )
        return f"{least.silent:.1%} of {num_units:,} units are silent at k = {least.k}"

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        figures = [asdict(each) for each in self.figures]
        return {"run": str(self.run.path), "paired": self.paired, "verdict": self.verdict, "figures": figures}

    @property
    def table(self) -> TextTable:
        """The figures of each code."""
        head = ["code", "k", "bytes", "R^2", "silent", "kNN", "minus sparse code"]
        rows = [
            [
                each.code,
                "" if each.k is None else str(each.k),
                str(each.num_bytes),
                "" if each.explained is None else f"{each.explained:.2f}",
                "" if each.silent is None else f"{each.silent:.1%}",
                "" if each.accuracy is None else f"{each.accuracy:.1%}",
                ""
                if each.behind is None
                else f"{100 * each.behind.value:+.1f} ({100 * each.behind.low:+.1f} to {100 * each.behind.high:+.1f})",
            ]
            for each in self.figures
        ]
        return TextTable(head, rows, "lrrrrrr")

    def __str__(self) -> str:
        return f"{self.table}\n\npairs: {self.paired}\n{self.verdict}"


@usual_modes()
@only_training()
def sparsify(
    subject: Run | str | Path | nn.Module | Any,
    *,
    k: int | Sequence[int] = 8,
    dims: int = DIMS,
    data: Any = None,
    labels: Any = None,
    quiet: bool = False,
    **settings: Any,
) -> Sparsified:
    """Train a top-k non-negative code on frozen features, in minutes on a CPU.

    The contrast pulls the codes of two views of a sample together: augmented pictures, each encoded twice
    before training, or noise and dropout on features where there are no pictures.

    Args:
        subject: a run or its folder; a name of ``encoder`` of ``train``, or a module, with ``data``; or features (n, d)
            as an array, a table, or a file (.npy, .parquet, or what ``embed`` wrote).
        k: active units of a sample; several are trained at once, and a code at a smaller k is that of its largest
            values.
        dims: number of units.
        data: samples for the encoder; None takes the run's own.
        labels: class labels, one per sample; used for accuracies, and to train only where ``supervised`` is set.
        quiet: show no progress.
        settings: any field of ``TrainSettings``, such as ``out``, ``epochs``, ``seed``, ``temperature``, ``init`` (the
            weights of a named encoder) and ``views``. ``supervised=True`` pairs samples of one class, and a sample
            without a label with its own view; ``codes`` is a file for the codes of all samples, a SciPy matrix in
            ``.npz`` or lists of indices and values in ``.parquet``; ``overwrite=True`` replaces a run, and ``codes``,
            that are there.

    Raises:
        UsageError: k is above ``dims``, ``dims`` below the width of the features, or another setting is wrong.
        DataError: too few samples, features that are constant or not finite, or labels that are missing.
        RunError: not a trained run, or the new folder cannot be written.
    """
    sizes = _sizes(k, dims)
    codes, overwrite = settings.pop("codes", None), settings.pop("overwrite", False)
    supervised = settings.pop("supervised", False)
    settings = {name: str(value) if isinstance(value, Path) else value for name, value in settings.items()}
    if codes is not None:
        codes = Path(codes)
        check_codes_file(codes, overwrite=overwrite)
    reporter = Reporter(quiet=quiet)
    subject_settings, objects = code_subject(subject, data, labels, settings)
    own = {"projector.kind": "sparse", "projector.features": dims, "projector.active": sizes[-1]}
    settings = {name: value for name, value in settings.items() if name not in ("encoder", "views")}
    values = merge({"method": "ncl", "temperature": TEMPERATURE, **subject_settings}, nest({**own, **settings}))
    checked = build(TrainSettings, values, "settings")
    placement = place(checked.engine.device, checked.engine.precision)
    start = Start(objects, placement, reporter, overwrite=overwrite)
    # Assembled first without a length, which depends on the number of samples.
    folder = out_folder(checked)
    assembled, _ = try_assembly(folder, checked, start)
    checked = _with_length(checked, assembled)
    assembled, _ = try_assembly(folder, checked, replace(start, inputs=replace(objects, source=assembled.source)))
    x_ND = features_of(assembled, dims, reporter)
    labels_N = _training_labels(assembled, supervised)
    with Hold(folder, reporter) as hold:
        hold.create(overwrite=overwrite)
        status = first_status(assembled).model_copy(update={"run_id": new_run_id(assembled)})
        describe(folder, checked, assembled.resolution, status)
        _train_and_save(assembled, x_ND, sizes, labels_N, reporter)
    code = assembled.encoder.projector
    assert isinstance(code, SparseCode)
    rows = sparse_rows(code, x_ND)
    seed = assembled.settings.seed
    figures = code_figures(code, x_ND, assembled.part.split, assembled.source.labels, sizes=sizes, seed=seed)
    if codes is not None:
        write_codes(codes, assembled.source.sample_names, rows)
    num_distinct = len({row.tobytes() for row in x_ND.numpy()})
    pairs = {"images": "two views of a picture", "vectors": "two draws of noise and dropout on features"}
    paired = "samples of one class" if supervised else pairs[assembled.source.kind]
    return Sparsified(objects.run_at(folder.path), rows, figures, paired, num_distinct)


def _sizes(k: int | Sequence[int], dims: int) -> tuple[int, ...]:
    sizes = [*k] if isinstance(k, Sequence | set) else [k]
    if not sizes or any(isinstance(each, bool) or not isinstance(each, int) or each < 1 for each in sizes):
        raise UsageError(f"k must be one or several whole numbers >= 1, got {k!r}; 2 to 64 are usual")
    if not isinstance(dims, int) or max(sizes) > dims:
        raise UsageError(f"k must be at most dims, a whole number, {dims!r}, got {max(sizes)}; 2 to 64 are usual")
    return tuple(sorted({*sizes}))


def _with_length(settings: TrainSettings, assembled: Assembled) -> TrainSettings:
    num = assembled.num_train
    if num < FEWEST:
        raise DataError(f"{assembled.source.name} has {num} training samples; a sparse code needs at least {FEWEST}")
    batch = settings.batch_size
    if batch == "auto":
        batch, _ = usual_batch(num, LARGEST_BATCH)
    low, high = EPOCH_RANGE
    epochs = settings.epochs
    if epochs == "auto":
        epochs = min(high, max(low, math.ceil(NUM_STEPS / max(1, num // batch))))
    optim = {"name": "adam", "learning_rate": RATE, **settings.optim.model_dump(exclude_unset=True)}
    values = merge(settings.model_dump(exclude_unset=True), {"batch_size": batch, "epochs": epochs, "optim": optim})
    return build(TrainSettings, values, "settings")


def _training_labels(assembled: Assembled, supervised: bool) -> Tensor | None:
    if not supervised:
        return None
    labels = assembled.source.labels
    if labels is None or not bool((labels[assembled.part.positions] >= 0).any()):
        raise DataError(f"{assembled.source.name} has no labels; give --labels FILE, or leave --supervised out")
    return labels[assembled.part.positions]


def _train_and_save(
    assembled: Assembled, x_ND: Tensor, sizes: tuple[int, ...], labels_N: Tensor | None, reporter: Reporter
) -> None:
    settings, code, folder = assembled.settings, assembled.encoder.projector, out_folder(assembled.settings)
    assert isinstance(code, SparseCode)
    positions = assembled.part.positions
    epochs, num_batches = int(settings.epochs), len(positions) // int(settings.batch_size)
    views = views_of(assembled, x_ND.shape[1], reporter)
    with reporter.bar(f"training a code of {len(code.shift_H):,} units", epochs) as advance:
        losses = train_code(code, x_ND[positions], labels_N, views, settings, sizes)
        for epoch, loss in enumerate(losses, start=1):
            append_line(folder.metrics, {"epoch": epoch, "step": epoch * num_batches, "loss": loss})
            advance()
    save_encoder(folder, assembled.encoder)
    figures = {path.name: log_hash(path) for path in (folder.metrics, folder.timings)}
    folder.update_status(status="finished", num_epochs=epochs, figures=figures)
